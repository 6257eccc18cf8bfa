//! The engine: all metadata, and how readers and the sequencer access it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::client::Clients;
use super::core::{Core, Mounted};
use super::divergence::OutOfOrder;
use super::faults::Fault;
use super::format::Format;
use super::locked_shards::{LockedShards, Look};
use super::published::Published;
use super::record::Record;
use super::segment::Segment;
use super::settings::EngineSettings;
use super::shard::Shard;
use super::snapshot::Plan;
use super::term_state::TermState;
use super::types::{LogTime, SegmentNumber, SequenceId};
use crate::engine::key::SHARDS;
use crate::engine::types::Digest;

/// The state machine. Readers share it; changes pass through [`Engine::sequencer`].
#[derive(Debug)]
pub struct Engine {
    pub(super) shards: Box<[Shard]>,
    pub(super) clients: RwLock<Clients>,
    pub(super) segments: RwLock<BTreeMap<SegmentNumber, Arc<Segment>>>,
    pub(super) metadata: RwLock<HashMap<Box<[u8]>, Entry>>,
    core: Mutex<Core>,
    /// Id of the record that is being applied, or was applied last.
    pub(super) begun: AtomicU64,
    pub(super) applied: AtomicU64,
    /// Written under the sequencer only; see [`Engine::seal`].
    sealed: AtomicBool,
    /// Log time before which no bytes are given to a writer. Not state: a primary sets it when its term begins.
    starts_held_until: AtomicU64,
    log: Option<Box<dyn Log>>,
    /// Whether a snapshot is being taken.
    pub(super) capturing: AtomicBool,
    /// A capture that is to begin at a later record. Locked after the sequencer.
    pub(super) plan: Mutex<Plan>,
    pub(super) published: Mutex<Published>,
    pub(super) recent_faults: Mutex<Vec<Fault>>,
    /// Settings; they never enter `apply`.
    pub settings: EngineSettings,
    pub counts: Counts,
}

/// The value of an entry of the metadata server, and the record that stored it.
type Entry = (Arc<[u8]>, SequenceId);

/// Receiver of the records of a primary, in order. It is called while the sequencer is held, so it must not block.
pub trait Log: Send + Sync + std::fmt::Debug {
    /// Appends the next record, which is applied already, in this format.
    fn append(&self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>);
}

/// Source of the time of an operation: a fixed time, or a clock to read.
pub trait Now {
    /// Returns the time of the operation.
    fn now(self) -> LogTime;
}

impl Now for LogTime {
    fn now(self) -> LogTime {
        self
    }
}

impl<C: FnOnce() -> LogTime> Now for C {
    fn now(self) -> LogTime {
        self()
    }
}

/// Counters for metrics. They follow the state but are not part of it. Only `apply` counts, so there is one writer at a
/// time and no atomic addition is needed.
#[derive(Debug, Default)]
pub struct Counts {
    pub objects: AtomicU64,
    /// Objects with a soft pin.
    pub soft_pinned: AtomicU64,
    /// Allocated bytes of all mounted segments.
    pub allocated: AtomicU64,
    /// Bytes of all mounted segments.
    pub capacity: AtomicU64,
    pub evicted_bytes: AtomicU64,
    /// Times that bytes were taken from an object but stayed reserved.
    pub discarded: AtomicU64,
    /// Whether a write found no memory since the last eviction.
    pub starved: AtomicBool,
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

/// The exclusive right to change the state, released when dropped.
pub struct Sequencer<'e> {
    pub(super) engine: &'e Engine,
    pub(super) core: MutexGuard<'e, Core>,
    /// Shards that an operation keeps locked.
    pub(super) locked: LockedShards<'e>,
    /// Log time of the current operation.
    pub now: LogTime,
    /// The last record made since the sequencer was taken; zero if none was.
    pub(super) made: SequenceId,
    /// Unmounted segments. Dropping their free ranges may take milliseconds; fields are dropped in order, so the
    /// sequencer is released by then.
    pub(super) buried: Vec<Mounted>,
}

impl Engine {
    /// Creates an empty state without a log.
    #[must_use]
    pub fn new(settings: EngineSettings) -> Self {
        let kept_tasks = u32::try_from(settings.max_finished_tasks).unwrap_or(u32::MAX);
        // A log begins with a NewTerm that sets this; a master without a log never has one.
        let core = Core { term_state: TermState { kept_tasks, ..TermState::default() }, ..Core::default() };
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            clients: RwLock::default(),
            segments: RwLock::default(),
            metadata: RwLock::default(),
            core: Mutex::new(core),
            begun: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            starts_held_until: AtomicU64::new(0),
            log: None,
            capturing: AtomicBool::new(false),
            plan: Mutex::default(),
            published: Mutex::default(),
            recent_faults: Mutex::default(),
            settings,
            counts: Counts::default(),
        }
    }

    /// Creates an empty state whose records go to a log.
    #[must_use]
    pub fn with_log(settings: EngineSettings, log: Box<dyn Log>) -> Self {
        Self { log: Some(log), ..Self::new(settings) }
    }

    /// Returns whether records go to a log, where each has to fit into a batch.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Waits for the right to change the state. Log time never goes back, whatever the clock says. A clock is read
    /// after the wait, so that the timeouts of a reservation do not start before its client can know of it (R4).
    pub fn sequencer(&self, now: impl Now) -> Sequencer<'_> {
        let core = self.core.lock();
        let now = now.now().max(core.log_time);
        let (locked, made) = (LockedShards::default(), SequenceId(0));
        Sequencer { engine: self, core, locked, now, made, buried: Vec::new() }
    }

    /// Refuses commits and live leases from here on: the term in which this engine took them is over, and a late call
    /// of that term must not change a state that now follows the log of another primary. Waits for the sequencer, so no
    /// commit is under way when it returns. Records of the log are still applied.
    pub fn seal(&self) {
        let _sequencer = self.core.lock();
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// Accepts commits and live leases again: a term of this master begins.
    pub fn unseal(&self) {
        let _sequencer = self.core.lock();
        self.sealed.store(false, Ordering::Relaxed);
    }

    /// Sets the format of the records that this engine makes from here on. That of a log is in its format key.
    pub fn set_format(&self, format: Format) {
        self.core.lock().format = format;
    }

    /// Refuses every start of a write, copy or move before this log time: after a recovery, clients may still be writing
    /// to any bytes that no kept object has, and no record says which (R4).
    pub fn hold_starts_until(&self, until: LogTime) {
        self.starts_held_until.store(until.0, Ordering::Relaxed);
    }

    /// Returns the log time before which every start of a write, copy or move is refused; zero for none.
    #[must_use]
    pub fn starts_held_until(&self) -> LogTime {
        LogTime(self.starts_held_until.load(Ordering::Relaxed))
    }

    /// Returns whether commits and live leases are refused. While the caller holds the sequencer, this does not change.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Returns the last record applied.
    #[must_use]
    pub fn applied(&self) -> SequenceId {
        SequenceId(self.applied.load(Ordering::Acquire))
    }

    /// Returns how many objects there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.objects.load(Ordering::Relaxed)
    }

    /// Returns whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the allocated share of all memory.
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
    /// Returns read access to the objects of a shard.
    pub(super) fn objects(&self, shard: usize) -> Look<'_> {
        self.locked.look(&self.engine.shards, shard)
    }

    /// Gives a record its sequence id, applies it and appends it to the log: the one way in which a primary changes
    /// state. A sealed engine does nothing and returns [`SequenceId::NEVER`].
    pub fn commit(&mut self, record: &Record<'_>) -> SequenceId {
        if self.engine.is_sealed() {
            return SequenceId::NEVER;
        }
        let (id, format) = (self.next_id(), self.core.format);
        self.apply(format, id, self.now, record);
        if let Some(log) = &self.engine.log {
            log.append(format, id, self.now, record);
        }
        self.made = id;
        id
    }

    /// Lets the caller that has waited longest for the sequencer go first, if any waits. This operation has to be done
    /// with the state by then.
    pub(super) fn let_waiting_caller_go_first(&mut self) {
        self.locked.unlock_all();
        MutexGuard::bump(&mut self.core);
    }

    /// Returns whether no bytes may be given to a writer, because of a recovery.
    pub(super) fn holds_starts(&self) -> bool {
        let held = self.now < self.engine.starts_held_until();
        held && !planted!(StartAfterRecovery)
    }

    /// Returns the id that the next record will have.
    #[must_use]
    pub fn next_id(&self) -> SequenceId {
        SequenceId(self.core.last.0 + 1)
    }

    /// Applies one record: the one way in which state changes, on every replica. One that is not the next is not
    /// applied, and this state is doubted (INV-1). What a record does depends on the format that it was written in, not
    /// on the version of this binary (INV-8).
    pub fn apply(&mut self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        let expected = self.next_id();
        if id != expected {
            self.core.divergence.order(OutOfOrder { expected, found: id });
            return;
        }
        self.core.last = id;
        self.core.log_time = at;
        if !matches!(record, Record::Digest { .. }) {
            self.core.last_change = id;
        }
        self.change(format, id, at, record);
        self.engine.applied.store(id.0, Ordering::Release);
    }

    /// Applies a record once more: a bug on purpose.
    #[cfg(feature = "planted")]
    pub(crate) fn apply_again(&mut self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        self.change(format, id, at, record);
    }

    /// Returns the digest of all replicated items.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.core.digest()
    }
}
