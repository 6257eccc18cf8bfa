//! Restores a state from bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::SnapshotError;
use super::decode::{Decoder, Item};
use crate::engine::core::{Core, Mounted};
use crate::engine::digest;
use crate::engine::extents::Extents;
use crate::engine::faults::Faults;
use crate::engine::key::KeyHash;
use crate::engine::object::{Object, Replica};
use crate::engine::settings::EngineSettings;
use crate::engine::state::{Counts, Engine, Log, Sequencer};
use crate::engine::task::{Task, TaskStatus};
use crate::engine::types::{Digest, LogTime, SegmentNumber, Uuid};
use crate::engine::varint::Reader;

/// A state that is being restored, from chunks in the order in which they were written.
#[derive(Debug)]
pub struct Restore {
    engine: Engine,
    decoder: Decoder,
    so_far: SoFar,
}

/// What was read and is checked at the end.
#[derive(Debug, Default)]
struct SoFar {
    /// Digest that the result is checked against, once the first item was read.
    said: Option<Digest>,
    /// Taken ranges of each mounted segment: offset and length.
    taken: HashMap<SegmentNumber, Vec<(u64, u64)>>,
    /// How many shards were read.
    shards: usize,
    objects: u64,
    /// How many objects there should be, once the last item was read.
    end: Option<u64>,
}

impl Restore {
    /// Starts with an empty state. Records that it commits later go to `log`.
    #[must_use]
    pub fn new(settings: EngineSettings, log: Option<Box<dyn Log>>) -> Self {
        let engine = match log {
            Some(log) => Engine::with_log(settings, log),
            None => Engine::new(settings),
        };
        Self { engine, decoder: Decoder::default(), so_far: SoFar::default() }
    }

    /// Reads the next chunk, which consists of whole items.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        let Self { engine, decoder, so_far } = self;
        let mut sequencer = engine.sequencer(LogTime(0));
        let mut from = Reader::new(chunk);
        loop {
            let item = decoder.next(&mut from, &mut |name| sequencer.core.group(name))?;
            let Some(item) = item else { return Ok(()) };
            so_far.add(&mut sequencer, item)?;
        }
    }

    /// Returns the state if it is complete: every object was read, no two share bytes (INV-5), and the digest is the
    /// one that was written.
    pub fn finish(mut self) -> Result<Engine, SnapshotError> {
        let (Some(said), Some(objects)) = (self.so_far.said, self.so_far.end) else {
            return Err(SnapshotError::Incomplete { found: self.so_far.objects, said: 0 });
        };
        if self.so_far.objects != objects {
            return Err(SnapshotError::Incomplete { found: self.so_far.objects, said: objects });
        }
        let engine = &self.engine;
        let mut sequencer = engine.sequencer(LogTime(0));
        sequencer.find_strays();
        let core = &mut *sequencer.core;
        for (number, mounted) in &mut core.segments {
            let mut taken = self.so_far.taken.remove(number).unwrap_or_default();
            let left_out = core.unmounted_writes.left_out(&mounted.segment);
            taken.extend(left_out.iter().map(|range| (range.start, range.end - range.start)));
            let size = mounted.segment.size;
            mounted.extents = Extents::rebuild(size, taken.into_iter())
                .map_err(|why| SnapshotError::Overlap { segment: *number, why })?;
            mounted.segment.set_used(mounted.extents.used_bytes());
            Counts::add(&engine.counts.allocated, mounted.extents.used_bytes());
            Counts::add(&engine.counts.capacity, size);
        }
        if core.digest() != said {
            return Err(SnapshotError::Digest { found: core.digest(), said });
        }
        for number in sequencer.open_segments() {
            sequencer.core.open_to_new(number);
        }
        // Replicas in unmounted segments wait for a sweep.
        Counts::add(&engine.counts.unmounts, self.decoder.unmounted() as u64);
        engine.begun.store(sequencer.core.last.0, Ordering::Release);
        engine.applied.store(sequencer.core.last.0, Ordering::Release);
        drop(sequencer);
        Ok(self.engine)
    }
}

impl SoFar {
    /// Adds an item to the state.
    fn add(&mut self, sequencer: &mut Sequencer<'_>, item: Item<'_>) -> Result<(), SnapshotError> {
        let engine = sequencer.engine;
        let core: &mut Core = &mut sequencer.core;
        match item {
            Item::Whole(whole) => {
                core.last = whole.last;
                core.log_time = whole.log_time;
                core.term_state = whole.term_state;
                core.next_segment = whole.next_segment;
                core.faults = Faults::counted(whole.faults);
                core.report = whole.report;
                core.digest.add(digest::term_state(&core.term_state));
                self.said = Some(whole.digest);
            }
            Item::Mounted(segment, drain_until) => {
                let number = segment.number;
                core.digest.add(digest::segment(&segment, drain_until));
                core.segment_ids.insert(segment.id, number);
                core.segment_ranges.insert(&segment);
                let mounted = Mounted::new(Arc::clone(&segment), Extents::new(0), drain_until);
                core.segments.insert(number, mounted);
                drain_until.into_iter().for_each(|until| _ = core.drains.insert((until, number)));
                engine.clients.write().entry(segment.client).or_default().segments.insert(number);
                engine.segments.write().insert(number, segment);
            }
            Item::Client(id, mut client) => {
                core.digest.add(digest::client(id, &client));
                let mut clients = engine.clients.write();
                client.segments = clients.remove(&id).unwrap_or_default().segments;
                clients.insert(id, client);
            }
            Item::Shard(last_removal) => {
                let shard = engine.shards.get(self.shards).ok_or(SnapshotError::Order)?;
                shard.write().last_removal = last_removal;
                self.shards += 1;
            }
            Item::Object(object, writer) => self.object(sequencer, object, writer),
            Item::Processing(id, write) => {
                core.digest.add(digest::processing(id, &write));
                core.processing.insert(id, write);
            }
            Item::Discarded(record, bytes) => {
                self.take(bytes.replicas.iter(), bytes.size);
                core.keep_discarded(record, bytes);
            }
            Item::Task(task) => put_task(core, task),
            Item::Metadata { key, value, record } => {
                core.digest.add(digest::metadata(key, value));
                core.metadata_bytes += key.len() + value.len();
                engine.metadata.write().insert(key.into(), (value.into(), record));
            }
            Item::End(objects) => self.end = Some(objects),
        }
        Ok(())
    }

    fn object(&mut self, sequencer: &mut Sequencer<'_>, mut object: Object, writer: Uuid) {
        self.take(object.replicas(), object.size);
        object.client = sequencer.core.writers.take(writer);
        if let Some(copy) = object.copy_move() {
            sequencer.core.copy_moves.insert((copy.started, object.id));
        }
        let hash = KeyHash::of(&object.key);
        sequencer.insert_object(object, hash);
        self.objects += 1;
    }

    /// Notes the bytes of replicas in mounted memory.
    fn take<'r>(&mut self, replicas: impl Iterator<Item = &'r Replica>, size: u64) {
        for replica in replicas.filter(|replica| replica.segment.is_alive()) {
            self.taken.entry(replica.segment.number).or_default().push((replica.offset, size));
        }
    }
}

fn put_task(core: &mut Core, mut task: Task) {
    let (id, updated, record) = (task.id, task.updated, task.last_record);
    core.digest.add(digest::task(&task));
    let (status, message) = (task.status, std::mem::take(&mut task.message));
    task.status = TaskStatus::Pending;
    core.tasks.insert(task);
    match status {
        TaskStatus::Pending => {}
        TaskStatus::Processing => core.tasks.assign(id, updated, record),
        TaskStatus::Failed => core.tasks.finish(id, false, &message, updated, record),
        TaskStatus::Success => core.tasks.finish(id, true, &message, updated, record),
    }
}
