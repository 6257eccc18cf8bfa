//! An object: a key, and the replicas that hold its bytes.
//!
//! A store holds millions of these, so fields that most objects need are packed and the rest is boxed in `extra`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use smallvec::SmallVec;

use super::group::Group;
use super::promises::List;
use super::segment::Segment;
use super::task::CopyMove;
use super::types::{ClientNumber, LogTime, ObjectId, ReplicaId, SequenceId};

/// Whether a replica's bytes are written. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplicaStatus {
    /// Reserved: a client may be writing to it.
    Processing = 2,
    /// Its writer has reported that all bytes are written.
    Complete = 3,
}

/// One copy of an object's bytes.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The segment that it lies in.
    pub segment: Arc<Segment>,
    /// Relative to the segment's base.
    pub offset: u64,
    id: [u8; 7],
    pub status: ReplicaStatus,
}

impl Replica {
    /// Creates a replica in status `Processing`, for bytes that a record has just reserved.
    #[must_use]
    pub fn reserved(segment: Arc<Segment>, offset: u64, id: ReplicaId) -> Self {
        let [id @ .., _] = id.0.to_le_bytes();
        Self { segment, offset, id, status: ReplicaStatus::Processing }
    }

    /// Returns the id, which is stored in 7 bytes to keep `Object` small.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(&self.id);
        ReplicaId(u64::from_le_bytes(bytes))
    }

    /// Takes the replica apart. A new field does not compile until its author has decided whether records say it.
    pub(super) fn fields(&self) -> ReplicaFields<'_> {
        let Self { segment, offset, id: _, status } = self;
        ReplicaFields { segment, offset: *offset, id: self.id(), status: *status }
    }

    /// Returns whether a reader may use it: its bytes are written and its segment is mounted.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.status == ReplicaStatus::Complete && self.segment.is_alive()
    }

    /// Returns whether a sweep may drop it: it is written, and its segment is unmounted, so no reader can use it. A
    /// replica that is not written yet stays reserved, mounted or not, because its writer may still be transferring
    /// bytes (R4).
    #[must_use]
    pub fn can_be_swept(&self) -> bool {
        self.status == ReplicaStatus::Complete && !self.segment.is_alive()
    }

    /// Returns the address in the owner's memory.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.segment.base.wrapping_add(self.offset)
    }
}

/// The fields of a [`Replica`].
pub(super) struct ReplicaFields<'r> {
    pub segment: &'r Segment,
    pub offset: u64,
    pub id: ReplicaId,
    pub status: ReplicaStatus,
}

/// Value of `live_lease` that marks an object as about to be removed.
const DOOMED: u64 = u64::MAX;

/// The replicas of one object; nearly always one.
pub type Replicas = SmallVec<[Replica; 1]>;

/// An object: its key, its replicas, and what records say about it.
#[derive(Debug)]
pub struct Object {
    pub key: Box<[u8]>,
    pub id: ObjectId,
    /// The last record about it.
    pub last_record: SequenceId,
    /// Size of each replica, in bytes.
    pub size: u64,
    /// Live lease: until when this master has promised it to readers, or [`DOOMED`]. Not part of the replicated state.
    live_lease: AtomicU64,
    /// Replicated lease: the end of the promise to readers as records have it; zero if no record has set it.
    pub replicated_lease: LogTime,
    first: Replica,
    pub client: ClientNumber,
    /// Kind of data, as the writer named it.
    pub data_type: u8,
    /// Whether it is never evicted.
    pub hard_pinned: bool,
    /// Bit set of the [`List`]s of unreplicated leases that its slot is on.
    listed: AtomicU8,
    /// Rarely used fields, boxed to keep `Object` at 96 bytes.
    pub extra: Option<Box<Extra>>,
}

/// Rarely used fields of an [`Object`].
#[derive(Debug, Default)]
pub struct Extra {
    /// All replicas but the first.
    pub more: Vec<Replica>,
    /// The checksum that the writer named.
    pub checksum: Option<u64>,
    /// Until when eviction spares it if it can; zero for no soft pin.
    pub soft_pin_until: LogTime,
    /// The group whose members are evicted together.
    pub group: Option<Arc<Group>>,
    /// The copy or move under way.
    pub copy_move: Option<CopyMove>,
}

/// What records say of an [`Object`]: all of its fields but those that belong to this master alone.
pub(super) struct Replicated<'o> {
    pub key: &'o [u8],
    pub id: ObjectId,
    pub last_record: SequenceId,
    pub size: u64,
    pub replicated_lease: LogTime,
    pub first: &'o Replica,
    pub client: ClientNumber,
    pub data_type: u8,
    pub hard_pinned: bool,
    pub extra: Option<&'o Extra>,
}

impl Object {
    /// Takes the object apart. A new field does not compile until its author has decided whether records say it.
    pub(super) fn replicated(&self) -> Replicated<'_> {
        let Self {
            key,
            id,
            last_record,
            size,
            live_lease: _,
            replicated_lease,
            first,
            client,
            data_type,
            hard_pinned,
            listed: _,
            extra,
        } = self;
        Replicated {
            key,
            id: *id,
            last_record: *last_record,
            size: *size,
            replicated_lease: *replicated_lease,
            first,
            client: *client,
            data_type: *data_type,
            hard_pinned: *hard_pinned,
            extra: extra.as_deref(),
        }
    }

    /// Creates an object without a lease.
    #[must_use]
    pub fn new(key: &[u8], id: ObjectId, size: u64, client: ClientNumber, first: Replica) -> Self {
        Self {
            key: key.into(),
            id,
            last_record: SequenceId(id.0),
            size,
            live_lease: AtomicU64::new(0),
            replicated_lease: LogTime(0),
            first,
            client,
            data_type: 0,
            hard_pinned: false,
            listed: AtomicU8::new(0),
            extra: None,
        }
    }

    /// Returns all replicas, at least one.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        std::iter::once(&self.first).chain(self.extra.iter().flat_map(|extra| extra.more.iter()))
    }

    /// Returns all replicas for modification.
    pub fn replicas_mut(&mut self) -> impl Iterator<Item = &mut Replica> {
        std::iter::once(&mut self.first).chain(self.extra.iter_mut().flat_map(|extra| extra.more.iter_mut()))
    }

    /// Adds a replica after the existing ones.
    pub fn push_replica(&mut self, replica: Replica) {
        self.extra_mut().more.push(replica);
    }

    /// Removes and returns the replicas for which `gone` is true. If that is all of them, leaves the object unchanged
    /// and returns `None`: the caller has to remove the object itself.
    pub fn take_replicas(&mut self, mut gone: impl FnMut(&Replica) -> bool) -> Option<Replicas> {
        let (out, mut kept): (Replicas, Vec<Replica>) = {
            let mut out = Replicas::new();
            let mut kept = Vec::new();
            for replica in self.replicas() {
                if gone(replica) { out.push(replica.clone()) } else { kept.push(replica.clone()) }
            }
            (out, kept)
        };
        if kept.is_empty() {
            return None;
        }
        if !out.is_empty() {
            self.first = kept.remove(0);
            if !kept.is_empty() || self.extra.is_some() {
                self.extra_mut().more = kept;
            }
            self.trim();
        }
        Some(out)
    }

    /// Returns whether any replica lies in a mounted segment. An object without one counts as absent.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.replicas().any(|replica| replica.segment.is_alive())
    }

    /// Returns whether a reader could use any replica.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.replicas().any(Replica::is_readable)
    }

    /// Returns whether every replica is written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.replicas().all(|replica| replica.status == ReplicaStatus::Complete)
    }

    /// Returns whether every replica in a mounted segment is written; those in unmounted segments do not count.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.replicas()
            .filter(|replica| replica.segment.is_alive())
            .all(|replica| replica.status == ReplicaStatus::Complete)
    }

    /// Returns the rarely used fields, created empty if there are none.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(Box::default)
    }

    /// Drops `extra` if nothing is left in it.
    pub fn trim(&mut self) {
        let bare = self.extra.as_ref().is_some_and(|extra| {
            extra.more.is_empty()
                && extra.checksum.is_none()
                && extra.soft_pin_until == LogTime(0)
                && extra.group.is_none()
                && extra.copy_move.is_none()
        });
        if bare {
            self.extra = None;
        }
    }

    /// Returns the group that it belongs to.
    #[must_use]
    pub fn group(&self) -> Option<&Arc<Group>> {
        self.extra.as_ref()?.group.as_ref()
    }

    /// Returns the copy or move under way.
    #[must_use]
    pub fn copy_move(&self) -> Option<&CopyMove> {
        self.extra.as_ref()?.copy_move.as_ref()
    }

    /// Returns the checksum that the writer named.
    #[must_use]
    pub fn checksum(&self) -> Option<u64> {
        self.extra.as_ref()?.checksum
    }

    /// Returns until when eviction spares it if possible; zero if it has no soft pin.
    #[must_use]
    pub fn soft_pin_until(&self) -> LogTime {
        self.extra.as_ref().map_or(LogTime(0), |extra| extra.soft_pin_until)
    }

    /// Returns until when readers were promised it: the latest of its live lease, its replicated lease and the lease of
    /// its group.
    #[must_use]
    pub fn lease(&self) -> LogTime {
        let own = self.live_lease().max(self.replicated_lease);
        self.group().map_or(own, |group| own.max(group.lease(self.id)))
    }

    /// Extends the live lease to `ttl_ms` from now and returns the list that its slot has to be added to, if any. A
    /// lease is worth a record only when half its time has passed since the last one that was replicated
    /// ([`List::Due`]); until then the object waits on [`List::Early`], which only a hand-over writes to the log.
    ///
    /// The lease is raised before the bits are read, and [`Object::unlist`] clears a bit before the lease is read, all
    /// sequentially consistent. So a thread that takes the object off a list either sees the raised lease, or this call
    /// adds the object again.
    pub fn promise(&self, now: LogTime, ttl_ms: u64) -> Option<List> {
        let until = now.plus(ttl_ms);
        self.live_lease.fetch_max(until.0, Ordering::SeqCst);
        if until <= self.replicated_lease {
            return None;
        }
        let due = until.0 >= self.replicated_lease.0.saturating_add(ttl_ms / 2);
        let list = if due { List::Due } else { List::Early };
        let listed = self.listed.load(Ordering::SeqCst);
        let waits = listed & list.bit() != 0 || listed & List::Due.bit() != 0;
        (!waits && self.list(list)).then_some(list)
    }

    /// Marks the object as being on a list. Returns false if it was marked already and must not be added again.
    pub fn list(&self, list: List) -> bool {
        self.listed.fetch_or(list.bit(), Ordering::SeqCst) & list.bit() == 0
    }

    /// Marks the object as taken off a list. Returns false if it was not on it: the entry on the list is of an earlier
    /// object in the same slot.
    pub fn unlist(&self, list: List) -> bool {
        self.listed.fetch_and(!list.bit(), Ordering::SeqCst) & list.bit() != 0
    }

    /// Returns whether it is about to be removed. A reader that sees this must look the key up again after the removal.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        self.live_lease.load(Ordering::Acquire) == DOOMED
    }

    /// Marks it as about to be removed and returns its previous live lease. Returns `None` and changes nothing if it is
    /// leased beyond `now` and `force` is false. Needs the shard's write lock: without it a reader could be granted a
    /// lease between the check and the mark.
    pub fn doom(&mut self, now: LogTime, force: bool) -> Option<u64> {
        if self.lease() > now && !force {
            None
        } else {
            Some(std::mem::replace(self.live_lease.get_mut(), DOOMED))
        }
    }

    /// Copies the lease of its group into its own live lease, before it gets a new id that the group's lease does not
    /// cover.
    pub fn keep_promises(&mut self) {
        *self.live_lease.get_mut() = self.live_lease().max(self.lease()).0;
    }

    /// Returns whether readers were promised it for longer than records say.
    #[must_use]
    pub fn owes_renewal(&self) -> bool {
        self.lease() > self.replicated_lease
    }

    /// Removes the mark of [`Object::doom`] and restores the live lease that it returned.
    pub fn spare(&mut self, live_lease: u64) {
        *self.live_lease.get_mut() = live_lease;
    }

    /// Returns the live lease alone, without the group's and the replicated one.
    #[must_use]
    pub fn live_lease(&self) -> LogTime {
        LogTime(self.live_lease.load(Ordering::SeqCst))
    }

    /// Returns the last record that an answer about this object depends on: the last one about the object, or a later
    /// one that unmounted a segment of its replicas.
    #[must_use]
    pub fn rests_on(&self) -> SequenceId {
        let gone = self.replicas().filter(|replica| !replica.segment.is_alive());
        gone.map(|replica| replica.segment.last_record()).fold(self.last_record, SequenceId::max)
    }
}

#[cfg(test)]
mod tests {
    use super::Object;

    #[test]
    fn an_object_stays_small() {
        // Resident bytes per object are a goal of the project, and every byte here is multiplied by millions of
        // objects.
        assert!(std::mem::size_of::<Object>() <= 96, "{}", std::mem::size_of::<Object>());
        assert_eq!(std::mem::size_of::<Option<Object>>(), std::mem::size_of::<Object>());
    }
}
