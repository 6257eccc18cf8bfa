//! Bytes that are reserved and belong to no readable object: those that a client writes, and discarded ones.

use smallvec::SmallVec;

use super::object::{Replica, ReplicaStatus, Replicas};
use super::record::SoftPin;
use super::types::{LogTime, SegmentNumber};

/// A write whose Start has been applied and that has not ended yet.
#[derive(Clone, Copy, Debug)]
pub struct Processing {
    pub started: LogTime,
    /// What to do with the soft pin when the write ends.
    pub soft_pin: SoftPin,
}

/// Bytes that belong to no object but may still be in use.
#[derive(Debug)]
pub struct Discarded {
    /// Log time from which on they can be allocated again.
    pub release_at: LogTime,
    /// Size of each replica, in bytes.
    pub size: u64,
    pub replicas: Replicas,
}

impl Discarded {
    /// Returns the bytes of all replicas together. A `u128`, because clients choose the sizes and two of them can
    /// exceed a `u64`.
    #[must_use]
    pub fn bytes(&self) -> u128 {
        u128::from(self.size) * self.replicas.len() as u128
    }

    /// Returns the segments in which a client may still be writing to these bytes.
    pub(super) fn written_in(&self) -> SmallVec<[SegmentNumber; 2]> {
        let written = |replica: &&Replica| replica.status == ReplicaStatus::Processing;
        self.replicas.iter().filter(written).map(|replica| replica.segment.number).collect()
    }
}
