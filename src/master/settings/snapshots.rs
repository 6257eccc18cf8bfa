//! Settings of the snapshots that a standby takes of its state.

use std::time::Duration;

/// When snapshots are taken, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Time between two snapshots; `None` takes none.
    pub interval: Option<Duration>,
    /// How many are kept; at least one.
    pub kept: usize,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(600)), kept: 2 }
    }
}
