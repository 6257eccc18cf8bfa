//! The whole of the metadata, and how readers and the sequencer get at it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::client::Clients;
use super::core::{Core, Mounted};
use super::digest::Digest;
use super::doubts::OutOfOrder;
use super::faults::Fault;
use super::format::Format;
use super::held::Held;
use super::published::Published;
use super::record::Record;
use super::reign::Reign;
use super::rules::Rules;
use super::segment::Segment;
use super::shard::{SHARDS, Shard};
use super::types::{LogTime, SegmentNumber, SequenceId};

/// The state machine. Readers share it; changes pass through [`Engine::sequencer`].
#[derive(Debug)]
pub struct Engine {
    pub(super) shards: Box<[Shard]>,
    pub(super) clients: RwLock<Clients>,
    pub(super) segments: RwLock<BTreeMap<SegmentNumber, Arc<Segment>>>,
    pub(super) metadata: RwLock<HashMap<Box<[u8]>, Entry>>,
    core: Mutex<Core>,
    /// The record that is being applied, or was last.
    pub(super) begun: AtomicU64,
    pub(super) applied: AtomicU64,
    /// Written under the sequencer only; see [`Engine::seal`].
    sealed: AtomicBool,
    log: Option<Box<dyn Log>>,
    pub(super) published: Mutex<Published>,
    pub(super) recent_faults: Mutex<Vec<Fault>>,
    /// What the operator set.
    pub rules: Rules,
    /// Counts for metrics.
    pub counts: Counts,
}

/// The value of an entry of the metadata server, and the record that made it.
type Entry = (Arc<[u8]>, SequenceId);

/// Where the records of a primary go, in order, while the sequencer is held: it must not wait.
pub trait Log: Send + Sync + std::fmt::Debug {
    /// The next record, which is applied already and has to be written in this format.
    fn append(&self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>);
}

/// When something is done: a moment, or a clock to read.
pub trait Now {
    /// The moment.
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

/// The right to change the state: whoever holds it is alone.
pub struct Sequencer<'e> {
    pub(super) engine: &'e Engine,
    pub(super) core: MutexGuard<'e, Core>,
    /// Shards that an operation keeps locked.
    pub(super) held: Held<'e>,
    /// Log time of what is done now.
    pub now: LogTime,
    /// Segments that went. What was free of them may take milliseconds to drop, and fields are dropped in order: by then
    /// the sequencer is released.
    pub(super) buried: Vec<Mounted>,
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
            begun: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            log: None,
            published: Mutex::default(),
            recent_faults: Mutex::default(),
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

    /// Waits for the right to change the state. Log time never goes back, whatever the clock says. A clock is read after
    /// the wait: what a client is told from then on counts from then on (R4).
    pub fn sequencer(&self, now: impl Now) -> Sequencer<'_> {
        let core = self.core.lock();
        let now = now.now().max(core.log_time);
        Sequencer { engine: self, core, held: Held::default(), now, buried: Vec::new() }
    }

    /// Refuses commits and live leases from here on: the term in which this engine took them is over, and a straggler
    /// of that term must not change a state that now follows the log of another primary. Waits for the sequencer, so no
    /// commit is under way when it returns. Records of the log are still applied.
    pub fn seal(&self) {
        let _sequencer = self.core.lock();
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// Takes commits and live leases again: a term of this engine begins.
    pub fn unseal(&self) {
        let _sequencer = self.core.lock();
        self.sealed.store(false, Ordering::Relaxed);
    }

    /// Makes records in this format from here on. A log has it from its format key.
    pub fn set_format(&self, format: Format) {
        self.core.lock().format = format;
    }

    /// Whether commits and live leases are refused. Under the sequencer the answer stays true until it is let go of.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Relaxed)
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
    /// Gives a record its sequence id and applies it: the one way in which a primary changes state. A sealed engine
    /// does nothing and returns [`SequenceId::NEVER`].
    pub fn commit(&mut self, record: &Record<'_>) -> SequenceId {
        if self.engine.is_sealed() {
            return SequenceId::NEVER;
        }
        let (id, format) = (self.next_id(), self.core.format);
        self.apply(format, id, self.now, record);
        if let Some(log) = &self.engine.log {
            log.append(format, id, self.now, record);
        }
        id
    }

    /// The id that the next record will have.
    #[must_use]
    pub fn next_id(&self) -> SequenceId {
        SequenceId(self.core.last.0 + 1)
    }

    /// Applies one record: the one way in which state changes, on every replica. One that is not the next is not
    /// applied and puts this state in doubt (INV-1). What a record does depends on the format that it was written in, not
    /// on the version of this binary (INV-8).
    pub fn apply(&mut self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        let expected = self.next_id();
        if id != expected {
            self.core.doubts.order(OutOfOrder { expected, found: id });
            return;
        }
        self.core.last = id;
        self.core.log_time = at;
        self.change(format, id, at, record);
        self.engine.applied.store(id.0, Ordering::Release);
    }

    /// A bug on purpose: applies a record once more.
    #[cfg(feature = "planted")]
    pub(crate) fn apply_again(&mut self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        self.change(format, id, at, record);
    }

    /// The sum over all replicated items.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.core.digest()
    }
}
