//! A mounted segment: a range of a client's memory that objects are placed in.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::types::{SegmentNumber, SequenceId, Uuid};

/// Life-cycle state of a segment. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentStatus {
    /// Objects are placed in it.
    Ok = 1,
    /// It takes no new objects and will be unmounted when its grace period ends.
    GracefullyUnmounting = 4,
}

/// One mount of a segment. Shared with every replica that lies in it, so that a reader needs no look-up.
#[derive(Debug)]
pub struct Segment {
    /// The number of this mount.
    pub number: SegmentNumber,
    /// The client's name for the segment.
    pub id: Uuid,
    /// The client that owns the memory.
    pub client: Uuid,
    /// The name that users know it by; several segments may share one.
    pub name: Box<[u8]>,
    pub base: u64,
    /// Length of the memory, in bytes.
    pub size: u64,
    /// Transfer Engine endpoint that clients read from and write to.
    pub te_endpoint: Box<[u8]>,
    /// The transport that the client named.
    pub protocol: Box<[u8]>,
    /// The host that the memory is on.
    pub host_id: Box<[u8]>,
    alive: AtomicBool,
    status: AtomicU8,
    used: AtomicU64,
    last_record: AtomicU64,
}

/// Description of a segment as its client gives it when mounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpec<'a> {
    /// The client's name for the segment.
    pub id: Uuid,
    /// The name that users know it by.
    pub name: &'a [u8],
    pub base: u64,
    /// Length of the memory, in bytes.
    pub size: u64,
    /// Transfer Engine endpoint that clients read from and write to.
    pub te_endpoint: &'a [u8],
    /// The transport that the client named.
    pub protocol: &'a [u8],
    /// The host that the memory is on.
    pub host_id: &'a [u8],
}

/// What records say of a [`Segment`] in each of its states; `last_record` is the last one that changed it.
pub(super) struct SegmentFields<'s> {
    pub spec: SegmentSpec<'s>,
    pub number: SegmentNumber,
    pub client: Uuid,
    pub last_record: SequenceId,
}

impl Segment {
    /// Takes the segment apart. A new field does not compile until its author has decided whether records say it.
    /// Whether it is mounted, and whether it is drained, is in the table of mounted segments too.
    pub(super) fn fields(&self) -> SegmentFields<'_> {
        let Self {
            number,
            id,
            client,
            name,
            base,
            size,
            te_endpoint,
            protocol,
            host_id,
            alive: _,
            status: _,
            used: _,
            last_record: _,
        } = self;
        let spec = SegmentSpec { id: *id, name, base: *base, size: *size, te_endpoint, protocol, host_id };
        SegmentFields { spec, number: *number, client: *client, last_record: self.last_record() }
    }

    pub(super) fn new(
        spec: &SegmentSpec<'_>,
        number: SegmentNumber,
        client: Uuid,
        record: SequenceId,
    ) -> Self {
        Self {
            number,
            id: spec.id,
            client,
            name: spec.name.into(),
            base: spec.base,
            size: spec.size,
            te_endpoint: spec.te_endpoint.into(),
            protocol: spec.protocol.into(),
            host_id: spec.host_id.into(),
            alive: AtomicBool::new(true),
            status: AtomicU8::new(SegmentStatus::Ok as u8),
            used: AtomicU64::new(0),
            last_record: AtomicU64::new(record.0),
        }
    }

    /// Returns the address after the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }

    /// Returns whether it is mounted. Replicas in an unmounted segment cannot be read.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Returns its life-cycle state: in use, or draining.
    #[must_use]
    pub fn status(&self) -> SegmentStatus {
        if self.status.load(Ordering::Acquire) == SegmentStatus::Ok as u8 {
            SegmentStatus::Ok
        } else {
            SegmentStatus::GracefullyUnmounting
        }
    }

    /// Returns the allocated bytes, reserved ones included.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the last record that changed the segment itself.
    #[must_use]
    pub fn last_record(&self) -> SequenceId {
        SequenceId(self.last_record.load(Ordering::Acquire))
    }

    pub(super) fn set_used(&self, bytes: u64) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn set_status(&self, status: SegmentStatus, record: SequenceId) {
        self.status.store(status as u8, Ordering::Release);
        self.last_record.store(record.0, Ordering::Release);
    }

    pub(super) fn bury(&self, record: SequenceId) {
        // In this order: a reader that sees the segment unmounted must also see the record that its answer depends on.
        self.last_record.store(record.0, Ordering::Release);
        self.alive.store(false, Ordering::Release);
    }

    /// Returns whether `spec` describes this very segment.
    #[must_use]
    pub fn matches(&self, spec: &SegmentSpec<'_>) -> bool {
        self.id == spec.id
            && *self.name == *spec.name
            && self.base == spec.base
            && self.size == spec.size
            && *self.te_endpoint == *spec.te_endpoint
            && *self.protocol == *spec.protocol
            && *self.host_id == *spec.host_id
    }
}
