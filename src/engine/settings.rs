//! Settings of a store: timeouts, limits and preferences. They shape the records that a primary makes and never enter
//! `apply`.

/// How segments are chosen for a new object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Any with enough free memory.
    #[default]
    Random,
    /// Of a few taken at random, those with the largest free share.
    FreeRatioFirst,
    /// Those of the writer's own host, then of the other hosts in order of their id; if a few hundred of these have no
    /// space, any with enough free memory.
    LocalFirst,
}

/// What becomes of the objects of earlier terms whose lease has ended when a new primary may evict again (R6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expired {
    /// They stay until memory is short.
    #[default]
    Keep,
    /// They are evicted, which is most of a cache.
    Evict,
}

/// Settings of a store: how objects and tasks are treated.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// How long a read protects an object, in milliseconds.
    pub lease_ttl_ms: u64,
    /// How long a soft pin lasts if the writer names no time, in milliseconds.
    pub soft_pin_ttl_ms: u64,
    /// The longest soft pin that a writer may ask for, in milliseconds.
    pub max_soft_pin_ttl_ms: u64,
    /// Whether soft-pinned objects may be evicted when nothing else is left.
    pub evict_soft_pinned: bool,
    /// The share of memory above which objects are evicted.
    pub high_watermark: f64,
    /// The share of objects that one eviction removes.
    pub eviction_ratio: f64,
    /// After so many milliseconds another writer may take over a key whose write is stuck.
    pub discard_timeout_ms: u64,
    /// After so many milliseconds the writer of reserved bytes counts as stopped, and they are released.
    pub release_timeout_ms: u64,
    pub strategy: Strategy,
    /// Most tasks that may wait to be fetched.
    pub max_pending_tasks: usize,
    /// Most tasks that clients may work on at the same time.
    pub max_processing_tasks: usize,
    /// Most ended tasks that are remembered.
    pub max_finished_tasks: usize,
    /// How long a task may wait, in milliseconds; zero for ever.
    pub pending_task_timeout_ms: u64,
    /// How long a task may be worked on, in milliseconds; zero for ever.
    pub processing_task_timeout_ms: u64,
    /// What becomes of lease-expired objects after a change of primary.
    pub expired: Expired,
}

impl EngineSettings {
    /// Returns how long bytes that left an object stay reserved, in milliseconds: until neither a writer nor a reader
    /// with a lease can still be using them (INV-7).
    #[must_use]
    pub fn discarded_ms(&self) -> u64 {
        self.release_timeout_ms.max(self.lease_ttl_ms)
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            lease_ttl_ms: 10_000,
            soft_pin_ttl_ms: 1_800_000,
            max_soft_pin_ttl_ms: 86_400_000,
            evict_soft_pinned: true,
            high_watermark: 0.9,
            eviction_ratio: 0.05,
            discard_timeout_ms: 30_000,
            release_timeout_ms: 600_000,
            strategy: Strategy::Random,
            max_pending_tasks: 10_000,
            max_processing_tasks: 10_000,
            max_finished_tasks: 10_000,
            pending_task_timeout_ms: 300_000,
            processing_task_timeout_ms: 300_000,
            expired: Expired::Keep,
        }
    }
}
