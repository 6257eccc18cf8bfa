//! The whole of the metadata, and how readers and the sequencer get at it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::client::Clients;
use super::core::Core;
use super::digest::Digest;
use super::held::Held;
use super::record::Record;
use super::reign::Reign;
use super::rules::Rules;
use super::segment::Segment;
use super::shard::{Handle, SHARDS, Shard};
use super::types::{LogTime, ObjectId, SegmentNumber, SequenceId};

/// The state machine. Readers share it; changes pass through [`Engine::sequencer`].
#[derive(Debug)]
pub struct Engine {
    pub(super) shards: Box<[Shard]>,
    pub(super) clients: RwLock<Clients>,
    pub(super) segments: RwLock<HashMap<SegmentNumber, Arc<Segment>>>,
    pub(super) metadata: RwLock<HashMap<Box<[u8]>, Entry>>,
    core: Mutex<Core>,
    pub(super) applied: AtomicU64,
    log: Option<Box<dyn Log>>,
    /// What the operator set.
    pub rules: Rules,
    /// Counts for metrics.
    pub counts: Counts,
}

/// The value of an entry of the metadata server, and the record that made it.
type Entry = (Arc<[u8]>, SequenceId);

/// Where the records of a primary go, in order, while the sequencer is held: it must not wait.
pub trait Log: Send + Sync + std::fmt::Debug {
    /// The next record, which is applied already.
    fn append(&self, id: SequenceId, at: LogTime, record: &Record<'_>);
}

/// Counts for metrics. They follow the state but are not part of it. Only `apply` counts, so nobody counts at the same
/// time.
#[derive(Debug, Default)]
pub struct Counts {
    /// Objects.
    pub objects: AtomicU64,
    /// Objects with a soft pin.
    pub soft_pinned: AtomicU64,
    /// Bytes given out.
    pub allocated: AtomicU64,
    /// Bytes of all mounted segments.
    pub capacity: AtomicU64,
    /// Bytes evicted.
    pub evicted_bytes: AtomicU64,
    /// Times that bytes were taken from an object but stayed reserved.
    pub discarded: AtomicU64,
    /// Whether a write found no memory since the last eviction.
    pub starved: std::sync::atomic::AtomicBool,
    /// Segments unmounted, so that a sweep knows of new work.
    pub unmounts: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    pub(super) fn subtract(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_sub(by), Ordering::Relaxed);
    }
}

/// Numbers for metrics, all of the same moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The last record applied.
    pub sequence_id: SequenceId,
    /// The digest at that record.
    pub digest: Digest,
    /// Bytes that belong to no object but may still be in use.
    pub discarded_bytes: u64,
    /// Objects that are being written.
    pub writing: usize,
    /// Those of them that went with their segments and are kept only because somebody may still be writing (R4).
    pub lost_writes: usize,
    /// Written objects that went with their segments and are kept only because somebody may still be writing a copy.
    pub lost_copies: usize,
    /// Tasks that wait.
    pub tasks_pending: usize,
    /// Tasks that clients work on.
    pub tasks_processing: usize,
}

/// The right to change the state: whoever holds it is alone.
pub struct Sequencer<'e> {
    pub(super) engine: &'e Engine,
    pub(super) core: MutexGuard<'e, Core>,
    /// Shards that an operation keeps locked.
    pub(super) held: Held<'e>,
    /// Log time of what is done now.
    pub now: LogTime,
}

impl Engine {
    /// An empty state.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let kept_tasks = u32::try_from(rules.max_finished_tasks).unwrap_or(u32::MAX);
        // A log begins with a NewTerm that says how many; a master without a log never has one.
        let core = Core { reign: Reign { kept_tasks, ..Reign::default() }, ..Core::default() };
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            clients: RwLock::default(),
            segments: RwLock::default(),
            metadata: RwLock::default(),
            core: Mutex::new(core),
            applied: AtomicU64::new(0),
            log: None,
            rules,
            counts: Counts::default(),
        }
    }

    /// An empty state whose records go to a log.
    #[must_use]
    pub fn with_log(rules: Rules, log: Box<dyn Log>) -> Self {
        Self { log: Some(log), ..Self::new(rules) }
    }

    /// Whether records go to a log, where each has to fit into a batch.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Waits for the right to change the state. Log time never goes back, whatever the clock says.
    pub fn sequencer(&self, now: LogTime) -> Sequencer<'_> {
        let core = self.core.lock();
        let now = now.max(core.log_time);
        Sequencer { engine: self, core, held: Held::default(), now }
    }

    /// The last record applied.
    #[must_use]
    pub fn applied(&self) -> SequenceId {
        SequenceId(self.applied.load(Ordering::Acquire))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.objects.load(Ordering::Relaxed)
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The share of all memory that is given out.
    #[must_use]
    pub fn used_ratio(&self) -> f64 {
        let capacity = self.counts.capacity.load(Ordering::Relaxed);
        if capacity == 0 {
            0.0
        } else {
            self.counts.allocated.load(Ordering::Relaxed) as f64 / capacity as f64
        }
    }
}

impl Sequencer<'_> {
    /// Gives a record its sequence id and applies it: the one way in which a primary changes state.
    pub fn commit(&mut self, record: &Record<'_>) -> SequenceId {
        let id = self.next_id();
        self.apply(id, self.now, record);
        if let Some(log) = &self.engine.log {
            log.append(id, self.now, record);
        }
        id
    }

    /// The id that the next record will have.
    #[must_use]
    pub fn next_id(&self) -> SequenceId {
        SequenceId(self.core.last.0 + 1)
    }

    /// Applies one record: the one way in which state changes, on every replica.
    pub fn apply(&mut self, id: SequenceId, at: LogTime, record: &Record<'_>) {
        self.core.last = id;
        self.core.log_time = at;
        self.change(id, at, record);
        self.engine.applied.store(id.0, Ordering::Release);
    }

    /// The sum over all replicated items.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.core.digest()
    }

    /// Numbers for metrics, all of the same moment.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading {
            sequence_id: self.core.last,
            digest: self.core.digest(),
            discarded_bytes: u64::try_from(self.core.discarded_bytes).unwrap_or(u64::MAX),
            writing: self.core.processing.len(),
            lost_writes: self.lost(self.core.processing.keys()),
            lost_copies: self.lost(self.core.replications.iter().map(|(_, id)| id)),
            tasks_pending: self.core.tasks.pending_len(),
            tasks_processing: self.core.tasks.processing_len(),
        }
    }

    /// How many of these objects are kept only for their writers. There are hardly ever any, and then it costs nothing to
    /// ask.
    fn lost<'i>(&self, open: impl Iterator<Item = &'i ObjectId>) -> usize {
        if self.core.strays.is_empty() {
            return 0;
        }
        let is_lost = |handle: &Handle| {
            self.objects(handle.shard()).at(handle.slot()).is_some_and(|object| !object.is_valid())
        };
        open.filter_map(|id| self.core.ids.find(*id)).filter(is_lost).count()
    }

    /// Records that could not be applied to an object.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.core.faults
    }
}
