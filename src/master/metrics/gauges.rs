//! Gauges: values that the state itself has. They are read for each scrape and stored nowhere else.

use std::time::Duration;

use crate::cluster::etcd_health::EtcdHealth;
use crate::cluster::log_floor::FloorState;
use crate::replication::node::status::{Activity, SnapshotReport};

/// A reading of all gauges.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Gauges {
    /// Bytes of all live replicas and reservations.
    pub allocated_bytes: u64,
    /// Bytes of all mounted segments.
    pub capacity_bytes: u64,
    /// The same for each segment name; several segments of one name count together.
    pub segments: Vec<SegmentGauges>,
    /// Objects, unfinished ones included.
    pub keys: u64,
    /// Objects with a soft pin.
    pub soft_pinned_keys: u64,
    /// Objects that are not being written: all are in memory.
    pub memory_keys: u64,
    /// Clients that are alive.
    pub clients: u64,
    /// Bytes of unfinished puts that were dropped and are not released yet.
    pub discarded_bytes: u64,
    /// Open connections of Mooncake clients.
    pub connections: u64,
    /// The last applied sequence id.
    pub sequence_id: u64,
    /// The digest of the state at that id.
    pub digest: u64,
    /// Tasks that are pending, and tasks that clients work on.
    pub tasks: (u64, u64),
    /// Time since the process started.
    pub uptime: Duration,
    /// Gauges of a master that replicates.
    pub replication: Option<ReplicationGauges>,
}

/// Gauges of a master that replicates.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicationGauges {
    pub primary: bool,
    pub activity: Activity,
    /// Whether it serves, or could at once.
    pub ready: bool,
    pub term: u64,
    /// The durable prefix as far as this master knows it.
    pub durable: u64,
    /// Bytes of records that are not durable yet.
    pub queue_bytes: u64,
    /// Age of the batch that is being committed.
    pub commit: Duration,
    /// Time that it may still serve without an answer from etcd.
    pub lease_left: Duration,
    /// Remaining time of the hold (R6).
    pub hold_left: Duration,
    /// Duration of its last promotion.
    pub promotion: Option<Duration>,
    /// Digests that did not match.
    pub digest_mismatches: u64,
    /// How often the state was dropped and rebuilt from the log.
    pub rebuilds: u64,
    /// Size, quota and alarms of etcd.
    pub etcd: EtcdHealth,
    /// Its snapshots; `None` without a data directory.
    pub snapshots: Option<SnapshotReport>,
    /// The floor of the log; `None` of a standby.
    pub floor: Option<FloorState>,
    /// Batches that it has deleted in this term.
    pub batches_deleted: u64,
}

/// Gauges of one segment name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SegmentGauges {
    pub name: String,
    pub allocated_bytes: u64,
    /// Bytes of all mounted segments of this name.
    pub capacity_bytes: u64,
}

/// Returns the resident memory of this process, if the system reports it.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn resident_memory_is_plausible() {
        let bytes = super::resident_bytes().unwrap();
        assert!((1 << 20..1 << 40).contains(&bytes), "{bytes}");
    }
}
