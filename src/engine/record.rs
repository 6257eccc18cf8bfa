//! Records: the only way in which metadata changes.
//!
//! A record says what happened, never what to compute from local settings or clocks: deadlines and addresses are in it,
//! and "now" is its timestamp. Records borrow what they name, so that making one costs no copy.

use super::segment::SegmentSpec;
use super::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid};
use crate::engine::key::Key;
use crate::engine::types::Digest;
use crate::engine::types::ReplicaId;

/// Reference to an object in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    pub id: ObjectId,
    /// The previous record about it, so that a replica that applies this one can tell that none was lost in between.
    pub after: SequenceId,
}

/// Where a replica is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub segment: SegmentNumber,
    /// Relative to the segment's base.
    pub offset: u64,
}

/// What a writer asks for in regard to the soft pin, kept until the End.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SoftPin {
    /// Leave it as it is.
    #[default]
    Preserve,
    /// Pin for so many milliseconds from the End on.
    Enable(u64),
    /// Remove the pin.
    Disable,
}

/// The reservation of a new object's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub key: Key<'a>,
    pub client: Uuid,
    /// Size of each replica, in bytes.
    pub size: u64,
    /// A place for each replica.
    pub places: &'a [Place],
    /// Whether the object is never evicted.
    pub hard_pin: bool,
    /// What becomes of its soft pin at the End.
    pub soft_pin: SoftPin,
    /// The group that it belongs to.
    pub group: Option<&'a [u8]>,
    /// Kind of data, as the writer names it.
    pub data_type: u8,
}

/// Why objects are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveSource {
    /// By key.
    Explicit,
    Regex,
    /// By their owner, which clears their replicas.
    ReplicaClear,
    /// Because their segment was unmounted.
    Unmount,
}

/// Whether a replica is copied or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOrMove {
    /// The source stays.
    Copy,
    /// The source is dropped when the target is written.
    Move,
}

/// Lease of a dynamic copy: the call that ends it has to name the same id and epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DynamicLease {
    pub id: Uuid,
    /// The version that it was made for.
    pub epoch: u64,
}

/// Rule by which objects are evicted: everything between two positions in the order of eviction. After that, soft pins
/// whose time has passed are removed, a bounded number of them and the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictRule {
    /// First position that is evicted, in order of lease and id.
    pub from: (LeaseBucket, ObjectId),
    /// Last position that is evicted.
    pub up_to: (LeaseBucket, ObjectId),
    /// Whether the positions are in the order of soft-pinned objects or in that of the others.
    pub soft_pinned: bool,
    /// Restricts the rule to objects all of whose replicas were reserved by this record or a later one, and to groups
    /// all of whose members are such (R6); zero does not restrict it.
    pub reserved_since: SequenceId,
}

/// End of a lease, rounded up to the granularity of the order of eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseBucket(pub u64);

impl LeaseBucket {
    /// Fine enough for eviction, and coarse enough that at a thousand writes a second many objects share a bucket's
    /// cost.
    const GRAIN_MS: u64 = 64;

    /// Returns the bucket of a lease; never-leased objects come first.
    #[must_use]
    pub fn of(lease: LogTime) -> Self {
        Self(lease.0.div_ceil(Self::GRAIN_MS))
    }

    /// Returns the last bucket all of whose leases have ended by `now`.
    #[must_use]
    pub fn ended_by(now: LogTime) -> Self {
        Self(now.0 / Self::GRAIN_MS)
    }

    /// Returns the last moment that belongs to it.
    #[must_use]
    pub fn end(self) -> LogTime {
        LogTime(self.0.saturating_mul(Self::GRAIN_MS))
    }
}

/// One change of state, as the log carries it.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A new object's bytes are reserved.
    PutStart(Start<'a>),
    /// A key is about to be written again.
    UpsertStart {
        /// The new reservation. Without places, the old replicas are written in place.
        start: Start<'a>,
        /// The object that it replaces.
        replaces: Option<ObjectRef>,
        /// Until when the old replicas, if not reused, stay reserved, because clients may still be using them.
        release_at: LogTime,
    },
    /// The writer has written all bytes: the object becomes readable.
    End {
        object: ObjectRef,
        /// The checksum that the writer named.
        checksum: Option<u64>,
    },
    /// The writer cancelled: the object is removed and its bytes are free.
    Revoke {
        /// The object that was being written.
        object: ObjectRef,
    },
    /// An object loses its key, for example because its write is stuck; its bytes stay reserved.
    Discard {
        object: ObjectRef,
        /// Until when they stay reserved.
        release_at: LogTime,
    },
    /// A reservation's time has passed: discarded bytes, a stuck write, or a stuck copy or move.
    Release {
        /// The record that made it: the object's Start, or the one that discarded the bytes.
        reservation: SequenceId,
    },
    /// Objects are removed, each named by its id.
    Remove {
        objects: &'a [ObjectRef],
        /// For readers of the log; `apply` does not depend on it.
        source: RemoveSource,
    },
    /// The replicas of an object in segments of one name are removed.
    ClearReplicas {
        object: ObjectRef,
        /// Name of the segments; several may share it.
        segment_name: &'a [u8],
    },
    /// Replicas in segments that are no longer mounted are dropped, and objects with no other.
    Sweep {
        /// The objects to check.
        objects: &'a [ObjectId],
    },
    /// Every written object with an id in a range is removed, unless its lease has not ended and `force` is false.
    RemoveAll {
        from: ObjectId,
        /// The last id, inclusive.
        up_to: ObjectId,
        /// Whether leased objects are removed, too.
        force: bool,
        /// Restricts the rule to objects all of whose replicas were reserved by this record or a later one, and to
        /// groups all of whose members are such (R6); zero does not restrict it.
        reserved_since: SequenceId,
    },
    /// All objects between two positions in the order of eviction are evicted.
    Evict(EvictRule),
    /// A copy or move begins.
    ReplicationStart {
        object: ObjectRef,
        kind: CopyOrMove,
        client: Uuid,
        /// The replica that is read.
        source: ReplicaId,
        /// Where it is written to; none for a move to where a replica is already.
        places: &'a [Place],
        /// Lease that the client named for a dynamic copy; zero for a plain one.
        dynamic: DynamicLease,
    },
    /// A copy or move is done.
    ReplicationEnd {
        object: ObjectRef,
        /// Until when a moved replica's old bytes stay reserved, because clients may still be reading them.
        release_at: LogTime,
    },
    /// A copy or move is cancelled.
    ReplicationRevoke {
        /// The object whose copy or move is cancelled.
        object: ObjectRef,
    },
    /// A client offers memory.
    MountSegment {
        segment: SegmentSpec<'a>,
        /// The number of this mount.
        number: SegmentNumber,
        client: Uuid,
    },
    /// A client has reported all its segments and counts as alive.
    ClientJoined {
        /// The client that reported its segments.
        client: Uuid,
    },
    /// A segment is closed to new objects.
    DrainSegment {
        number: SegmentNumber,
        /// When it is to be unmounted.
        until: LogTime,
    },
    /// A segment is unmounted; the replicas in it are lost.
    UnmountSegment {
        /// Number of its mount.
        number: SegmentNumber,
    },
    /// A client has timed out; its segments are unmounted.
    ClientExpired {
        /// The client that was silent for too long.
        client: Uuid,
    },
    /// A client is asked for a copy or move.
    TaskCreated {
        id: Uuid,
        kind: CopyOrMove,
        key: &'a [u8],
        /// The tenant that was named.
        tenant: &'a [u8],
        /// The segment to read from.
        source: &'a [u8],
        /// The segments to write to.
        targets: &'a [&'a [u8]],
        /// The client that is to do it.
        client: Uuid,
    },
    /// Tasks were handed to their client.
    TaskAssigned {
        /// Tasks, all of the same client.
        ids: &'a [Uuid],
    },
    /// A task ended, with or without success.
    TaskDone {
        id: Uuid,
        success: bool,
        /// Message of its client, or of the timeout.
        message: &'a [u8],
    },
    /// An entry of the metadata server is stored.
    MetadataPut {
        key: &'a [u8],
        /// Replaces an older value.
        value: &'a [u8],
    },
    /// An entry of the metadata server is removed.
    MetadataDelete {
        /// Key of the entry that is removed.
        key: &'a [u8],
    },
    /// Read leases, as the primary granted them.
    RenewLeases {
        /// Objects, and the end of their lease.
        leases: &'a [(ObjectId, LogTime)],
    },
    /// A new primary begins: the first record of every term. Applying it cleans up after the old one.
    NewTerm {
        term: Term,
        /// The name of the primary.
        primary: &'a [u8],
        /// Identifies the run of its process: a witness that this process has ended shortens the hold (R6).
        boot_id: u64,
        /// Until then nothing is evicted, and nothing removed unless forced (R6). An earlier hold that is longer stays.
        hold_until: LogTime,
        /// Longest read lease that this primary grants, in milliseconds: the setting of the next primary may differ.
        lease_ttl: u64,
        /// TTL of its leader lease, in milliseconds: for so long it may answer reads after its election key is gone
        /// (R6), and the setting of a successor may differ.
        leader_ttl: u64,
        /// How many ended tasks are remembered from here on, on every replica.
        kept_tasks: u32,
    },
    /// A primary hands over: the last record of its term. All read leases are in the log, or end by `hold_until`.
    Resign {
        term: Term,
        /// Until then nothing is evicted, and nothing removed unless forced (R6); zero if all read leases are in the
        /// log.
        hold_until: LogTime,
    },
    /// A digest of the primary, with which standbys compare theirs.
    Digest {
        /// Digest of its state before this record.
        digest: Digest,
    },
}
