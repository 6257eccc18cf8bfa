//! Begins a capture: encodes what is small, and puts hooks where objects change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::capture::{Capture, MAX_WAITING};
use super::chunks::Chunks;
use super::encode::{self, Base, Mount};
use super::hook::{Changed, CoreHook, ShardHook};
use super::plan::{BeginError, Beginning, Entry, Part};
use super::whole::Whole;
use crate::engine::client::Writers;
use crate::engine::core::{Core, Mounted};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::task::{Task, TaskStatus, Tasks};
use crate::engine::types::{LogTime, ObjectId, SequenceId};

impl Capture {
    /// Begins a capture of the state after the record `at`, which has to be the last one. It takes milliseconds,
    /// however many objects there are.
    pub fn begin(engine: &Arc<Engine>, at: SequenceId) -> Result<Self, BeginError> {
        Self::bounded(engine, at, MAX_WAITING)
    }

    /// Begins a capture that is given up when more bytes than this wait of what has changed.
    pub fn bounded(engine: &Arc<Engine>, at: SequenceId, most_waiting: u64) -> Result<Self, BeginError> {
        begin(engine, most_waiting, |found| {
            if found == at { Ok(()) } else { Err(BeginError::Elsewhere { found, said: at }) }
        })
    }

    /// Begins a capture of the state as it is now. `cut` is called after its last record, while no other one can follow.
    pub fn begin_now(engine: &Arc<Engine>, cut: impl FnOnce()) -> Result<Self, BeginError> {
        begin(engine, MAX_WAITING, |_| {
            cut();
            Ok(())
        })
    }
}

/// Begins a capture of the whole state, unless `accept` refuses the last record.
fn begin(
    engine: &Arc<Engine>,
    most_waiting: u64,
    accept: impl FnOnce(SequenceId) -> Result<(), BeginError>,
) -> Result<Capture, BeginError> {
    let mut sequencer = engine.sequencer(LogTime(0));
    let beginning = sequencer.begin_capture(Part::Whole, most_waiting, accept)?;
    drop(sequencer);
    Ok(Capture::new(Arc::clone(engine), beginning))
}

impl Sequencer<'_> {
    /// Begins a capture of a part of the state, unless `accept` refuses the last record. The sequencer must keep no
    /// shard locked.
    pub(super) fn begin_capture(
        &mut self,
        part: Part,
        most_waiting: u64,
        accept: impl FnOnce(SequenceId) -> Result<(), BeginError>,
    ) -> Result<Beginning, BeginError> {
        let engine = self.engine;
        if engine.capturing.swap(true, Ordering::Relaxed) {
            return Err(BeginError::UnderWay);
        }
        let at = self.core.last;
        if let Err(refused) = accept(at) {
            engine.capturing.store(false, Ordering::Relaxed);
            return Err(refused);
        }
        let head = self.encode_head();
        let base = Arc::new(self.base());
        let changed = Arc::new(Changed::new(Arc::clone(&base), most_waiting));
        let (shards, mut objects) = (part.shards(), 0);
        for shard in &engine.shards[shards.clone()] {
            let mut guard = shard.write();
            let slots = guard.slab().end();
            objects += guard.slab().len() as u64;
            guard.hook = Some(Box::new(ShardHook::new(ObjectId(at.0), slots, Arc::clone(&changed))));
        }
        self.core.hook = Some(Box::new(CoreHook::new(at, Arc::clone(&changed))));
        let (digest, metadata) = (self.core.digest(), self.metadata());
        Ok(Beginning { at, digest, objects, shards, head, metadata, changed, base })
    }

    fn base(&self) -> Base {
        let core = &*self.core;
        Base {
            log_time: core.log_time,
            writers: positions(&core.writers),
            mounted: core.segments.keys().copied().collect(),
        }
    }

    /// Encodes what is small: everything but objects, reservations and metadata.
    fn encode_head(&self) -> Chunks {
        let Core {
            last,
            log_time,
            format: _,
            term_state,
            report,
            // Signs of a divergence from the log are this master's own.
            divergence: _,
            digest_matched: _,
            last_change: _,
            object_index: _,
            hint: _,
            writers,
            segments,
            segment_ids: _,
            segment_ranges: _,
            unmounted_writes: _,
            names: _,
            open: _,
            hosts: _,
            rng: _,
            next_segment,
            // Scanned, as the objects are.
            processing: _,
            discarded: _,
            discarded_bytes: _,
            releases: _,
            copy_moves: _,
            drains: _,
            lost_writes: _,
            lost_copies: _,
            groups: _,
            eviction: _,
            evictable: _,
            tasks,
            metadata_bytes: _,
            digest: _,
            faults,
            hook: _,
        } = &*self.core;
        let mut head = Chunks::default();
        let whole = Whole {
            last: *last,
            log_time: *log_time,
            term_state: *term_state,
            report: *report,
            next_segment: *next_segment,
            faults: faults.count,
            digest: self.core.digest(),
        };
        whole.encode(head.open());
        for mounted in segments.values() {
            let Mounted { segment, extents: _, drain_until, open: _, reserved: _ } = mounted;
            encode::segment(head.open(), segment, Mount::Mounted { drain_until: *drain_until });
            head.end_item();
        }
        for (id, client) in self.engine.clients.read().iter() {
            encode::client(head.open(), *id, client);
            head.end_item();
        }
        for (_, id) in writers.iter() {
            encode::writer(head.open(), id);
            head.end_item();
        }
        for shard in &self.engine.shards {
            encode::shard(head.open(), shard.read().last_removal);
        }
        for task in in_order(tasks) {
            encode::task(head.open(), task);
            head.end_item();
        }
        head
    }

    /// Returns the entries of the metadata server. Values are shared, not copied.
    fn metadata(&self) -> Vec<Entry> {
        let entries = self.engine.metadata.read();
        entries.iter().map(|(key, (value, record))| (key.clone(), Arc::clone(value), *record)).collect()
    }
}

/// Returns the position of each writer that has objects, by its number.
fn positions(writers: &Writers) -> Box<[u32]> {
    let mut all = Vec::new();
    for ((number, _), position) in writers.iter().zip(0..) {
        all.resize(number.0 as usize, u32::MAX);
        all.push(position);
    }
    all.into()
}

/// Returns the tasks in the order of their last record. Pending ones come last, because reading puts every task into the
/// pending queue first.
fn in_order(tasks: &Tasks) -> Vec<&Task> {
    let mut tasks: Vec<&Task> = tasks.iter().collect();
    tasks.sort_unstable_by_key(|task| (task.status == TaskStatus::Pending, task.last_record, task.id));
    tasks
}
