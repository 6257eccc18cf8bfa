//! Records: the only way in which metadata changes.
//!
//! A record says what happened, never what to compute from local settings or clocks: deadlines and addresses are in it,
//! and "now" is its timestamp. Records borrow what they name, so that making one costs no copy.

use super::digest::Digest;
use super::object::ReplicaId;
use super::segment::SegmentSpec;
use super::shard::Key;
use super::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid};

/// An object as a record names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// The object.
    pub id: ObjectId,
    /// The previous record about it: whoever applies this one can tell that none was lost in between.
    pub after: SequenceId,
}

/// Where a replica is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment.
    pub segment: SegmentNumber,
    /// The offset in it.
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
    /// Take the pin off.
    Disable,
}

/// The reservation of a new object's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The object's key.
    pub key: Key<'a>,
    /// Who writes it.
    pub client: Uuid,
    /// Bytes of one replica.
    pub size: u64,
    /// A place for each replica.
    pub places: &'a [Place],
    /// Never evict it.
    pub hard_pin: bool,
    /// What becomes of its soft pin at the End.
    pub soft_pin: SoftPin,
    /// The group that it belongs to.
    pub group: Option<&'a [u8]>,
    /// What the writer says it is.
    pub data_type: u8,
}

/// Why objects are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveSource {
    /// By key.
    Explicit,
    /// By a pattern.
    Regex,
    /// By their owner, replica by replica.
    ReplicaClear,
    /// Their segment went away.
    Unmount,
}

/// What kind of second copy is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationKind {
    /// The source stays.
    Copy,
    /// The source goes when the target is written.
    Move,
}

/// The lease of a dynamic copy: both words and the epoch have to be named again at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DynamicLease {
    /// The lease.
    pub id: Uuid,
    /// The version that it was made for.
    pub epoch: u64,
}

/// The rule by which objects are evicted: a position in the order of eviction, and everything up to it goes. After
/// that, soft pins whose time has passed are taken off, a bounded number of them and the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictRule {
    /// The first position that goes, in order of lease and id.
    pub from: (LeaseBucket, ObjectId),
    /// The last position that goes.
    pub up_to: (LeaseBucket, ObjectId),
    /// Whether the order of soft-pinned objects is meant, or that of the others.
    pub soft_pinned: bool,
    /// Only objects go all of whose replicas were reserved by this record or a later one, and of groups those all of
    /// whose members are such (R6); zero if all objects do.
    pub reserved_since: SequenceId,
}

/// A moment by which a lease has ended, rounded up to the grain of the order of eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseBucket(pub u64);

impl LeaseBucket {
    /// Finer than anybody cares for, coarse enough that at a thousand writes a second a bucket's cost is shared by
    /// many objects.
    const GRAIN_MS: u64 = 64;

    /// The bucket of a lease; never-leased objects come first.
    #[must_use]
    pub fn of(lease: LogTime) -> Self {
        Self(lease.0.div_ceil(Self::GRAIN_MS))
    }

    /// The last bucket all of whose leases have ended by `now`.
    #[must_use]
    pub fn ended_by(now: LogTime) -> Self {
        Self(now.0 / Self::GRAIN_MS)
    }

    /// The last moment that belongs to it.
    #[must_use]
    pub fn end(self) -> LogTime {
        LogTime(self.0.saturating_mul(Self::GRAIN_MS))
    }
}

/// One change of state.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A new object's bytes are reserved.
    PutStart(Start<'a>),
    /// A key is about to be written again.
    UpsertStart {
        /// The new reservation. Without places, the old replicas are written in place.
        start: Start<'a>,
        /// The object that it takes the place of.
        replaces: Option<ObjectRef>,
        /// Until when the old replicas, if not reused, stay reserved for those who may still use them.
        release_at: LogTime,
    },
    /// The writer is done.
    End {
        /// The object.
        object: ObjectRef,
        /// The checksum that the writer named.
        checksum: Option<u64>,
    },
    /// The writer gave up.
    Revoke {
        /// The object.
        object: ObjectRef,
    },
    /// A stuck write gives its key free; its bytes stay reserved.
    Discard {
        /// The object.
        object: ObjectRef,
        /// Until when.
        release_at: LogTime,
    },
    /// A reservation's time has passed: discarded bytes, a stuck write, or a stuck copy or move.
    Release {
        /// The record that made it: the object's Start, or what discarded the bytes.
        reservation: SequenceId,
    },
    /// Objects are removed.
    Remove {
        /// The objects.
        objects: &'a [ObjectRef],
        /// Why.
        source: RemoveSource,
    },
    /// The replicas of an object in one segment are removed.
    ClearReplicas {
        /// The object.
        object: ObjectRef,
        /// Replicas in segments of this name go.
        segment_name: &'a [u8],
    },
    /// Replicas in segments that are no longer mounted are dropped, and objects with no other.
    Sweep {
        /// The objects to look at.
        objects: &'a [ObjectId],
    },
    /// Every written object with an id in a range, of those whose lease has ended unless forced, is removed.
    RemoveAll {
        /// The first id.
        from: ObjectId,
        /// The last id.
        up_to: ObjectId,
        /// Leases do not count.
        force: bool,
        /// Only objects go all of whose replicas were reserved by this record or a later one, and of groups those all of
        /// whose members are such (R6); zero if all objects do.
        reserved_since: SequenceId,
    },
    /// Objects are evicted.
    Evict(EvictRule),
    /// A copy or move begins.
    ReplicationStart {
        /// The object.
        object: ObjectRef,
        /// Copy or move.
        kind: ReplicationKind,
        /// Who makes it.
        client: Uuid,
        /// The replica that is read.
        source: ReplicaId,
        /// Where it is written to; none for a move to where a replica is already.
        places: &'a [Place],
        /// Named by whoever began it, zero for a plain one.
        dynamic: DynamicLease,
    },
    /// A copy or move is done.
    ReplicationEnd {
        /// The object.
        object: ObjectRef,
        /// Until when a moved replica's old bytes stay reserved for those who may still read them.
        release_at: LogTime,
    },
    /// A copy or move was given up.
    ReplicationRevoke {
        /// The object.
        object: ObjectRef,
    },
    /// A client offers memory.
    MountSegment {
        /// What it offers.
        segment: SegmentSpec<'a>,
        /// The number of this mount.
        number: SegmentNumber,
        /// The client.
        client: Uuid,
    },
    /// A client is known and alive.
    ClientJoined {
        /// The client.
        client: Uuid,
    },
    /// A segment takes nothing new.
    DrainSegment {
        /// The segment.
        number: SegmentNumber,
        /// When it is to be unmounted.
        until: LogTime,
    },
    /// A segment is gone.
    UnmountSegment {
        /// The segment.
        number: SegmentNumber,
    },
    /// A client was not heard from in time; its segments are gone.
    ClientExpired {
        /// The client.
        client: Uuid,
    },
    /// Work for a client.
    TaskCreated {
        /// The task.
        id: Uuid,
        /// Copy or move.
        kind: ReplicationKind,
        /// The object's key.
        key: &'a [u8],
        /// The tenant that was named.
        tenant: &'a [u8],
        /// The segment to read from.
        source: &'a [u8],
        /// The segments to write to.
        targets: &'a [&'a [u8]],
        /// Who is to do it.
        client: Uuid,
    },
    /// Tasks were handed to their client.
    TaskAssigned {
        /// The tasks.
        ids: &'a [Uuid],
    },
    /// A task ended.
    TaskDone {
        /// The task.
        id: Uuid,
        /// Whether it succeeded.
        success: bool,
        /// What its client, or the time-out, said.
        message: &'a [u8],
    },
    /// An entry of the metadata server.
    MetadataPut {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// An entry of the metadata server is gone.
    MetadataDelete {
        /// Its key.
        key: &'a [u8],
    },
    /// Promises to readers, as the primary gave them.
    RenewLeases {
        /// Objects, and until when they are promised.
        leases: &'a [(ObjectId, LogTime)],
    },
    /// A new primary begins: the first record of every term. Clean-up after the old one is its `apply`.
    NewTerm {
        /// The term.
        term: Term,
        /// The name of the primary.
        primary: &'a [u8],
        /// The run of its process: a witness that this process has ended shortens the wait for its reads (R6).
        boot_id: u64,
        /// Until then nothing is evicted, and nothing removed unless forced (R6). An earlier hold that is longer stays.
        hold_until: LogTime,
        /// The longest promise that this primary gives a reader, in milliseconds: the next one may be set up otherwise.
        lease_ttl: u64,
        /// The time to live of the lease that it leads with, in milliseconds: for so long it may answer reads after its
        /// election key is gone (R6), and a successor may be set up otherwise.
        leader_ttl: u64,
        /// How many ended tasks are remembered from here on, on every replica.
        kept_tasks: u32,
    },
    /// A primary hands over: the last record of its term. All promises to readers are in the log, or end by `hold_until`.
    Resign {
        /// The term.
        term: Term,
        /// Until then nothing is evicted, and nothing removed unless forced (R6); zero if all promises are in the log.
        hold_until: LogTime,
    },
    /// The primary's digest before this record, for others to compare theirs with.
    Digest {
        /// The digest.
        digest: Digest,
    },
}
