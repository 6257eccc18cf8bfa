//! Gauges: values that the state itself knows. They are read when somebody asks and kept nowhere else.

use std::time::Duration;

use crate::replication::node::status::Activity;

/// A reading of the state.
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
    /// Bytes that unfinished puts left behind and that are not given out again yet.
    pub discarded_bytes: u64,
    /// Open connections of Mooncake clients.
    pub connections: u64,
    /// The last applied sequence id.
    pub sequence_id: u64,
    /// The digest of the state at that id.
    pub digest: u64,
    /// Tasks that wait, and tasks that clients work on.
    pub tasks: (u64, u64),
    /// Time since the process started.
    pub uptime: Duration,
    /// What a master that replicates knows besides.
    pub replication: Option<ReplicationGauges>,
}

/// A reading of a master that replicates.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicationGauges {
    /// Whether it leads.
    pub primary: bool,
    /// What it is at.
    pub activity: Activity,
    /// Whether it serves, or could at once.
    pub ready: bool,
    /// The term.
    pub term: u64,
    /// The durable prefix as far as it knows.
    pub durable: u64,
    /// Bytes of records that wait to be durable.
    pub queue_bytes: u64,
    /// How long the batch on its way has been.
    pub commit: Duration,
    /// How long it may serve without hearing from etcd.
    pub lease_left: Duration,
    /// How long nothing is evicted or removed (R6).
    pub hold_left: Duration,
    /// How long its last promotion took.
    pub promotion: Option<Duration>,
    /// Digests that did not match.
    pub digest_mismatches: u64,
    /// How often the state was thrown away and built anew.
    pub rebuilds: u64,
}

/// One segment name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SegmentGauges {
    /// The name.
    pub name: String,
    /// Bytes given out.
    pub allocated_bytes: u64,
    /// Bytes mounted.
    pub capacity_bytes: u64,
}

/// The resident memory of this process, where the system tells.
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
