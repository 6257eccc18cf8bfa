//! An object: a key, and the replicas that hold its bytes.
//!
//! A store holds millions of these, so what most objects have is packed and the rest lies behind `extra`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use smallvec::SmallVec;

use super::group::Group;
use super::promises::List;
use super::segment::Segment;
use super::task::Replication;
use super::types::{LogTime, ObjectId, SequenceId};

/// Whether a replica's bytes are written. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplicaStatus {
    /// Somebody may be writing to it.
    Processing = 2,
    /// Its bytes are there.
    Complete = 3,
}

/// One copy of an object's bytes.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The segment that it lies in.
    pub segment: Arc<Segment>,
    /// Where in the segment.
    pub offset: u64,
    id: [u8; 7],
    /// Whether it is written.
    pub status: ReplicaStatus,
}

/// The number by which clients, copies and moves tell replicas apart: made of the record that reserved the replica and
/// its place there, so that it is never used again. It has 56 bits, which leaves 48 for the record: enough for eight
/// years of a million records a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub u64);

impl ReplicaId {
    /// The `nth` replica that this record reserved.
    #[must_use]
    pub fn new(record: SequenceId, nth: usize) -> Self {
        Self((record.0 << 8 | nth as u64 & 0xff) & 0x00ff_ffff_ffff_ffff)
    }
}

impl Replica {
    /// A place that nobody has written to yet.
    #[must_use]
    pub fn reserved(segment: Arc<Segment>, offset: u64, id: ReplicaId) -> Self {
        let [id @ .., _] = id.0.to_le_bytes();
        Self { segment, offset, id, status: ReplicaStatus::Processing }
    }

    /// What tells it from every other replica.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(&self.id);
        ReplicaId(u64::from_le_bytes(bytes))
    }

    /// Whether a reader may use it.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.status == ReplicaStatus::Complete && self.segment.is_alive()
    }

    /// Whether nobody can use it any more: it is written, and its segment is gone. What is not written yet is kept for
    /// whoever may be writing to it, mounted or not (R4).
    #[must_use]
    pub fn can_be_swept(&self) -> bool {
        self.status == ReplicaStatus::Complete && !self.segment.is_alive()
    }

    /// The address in the owner's memory.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.segment.base.wrapping_add(self.offset)
    }
}

/// The live lease of an object that is about to be removed.
const DOOMED: u64 = u64::MAX;

/// The replicas of one object; nearly always one.
pub type Replicas = SmallVec<[Replica; 1]>;

/// A client by its place in the table of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientNumber(pub u32);

/// An object and all that is known of it.
#[derive(Debug)]
pub struct Object {
    /// Its name among users.
    pub key: Box<[u8]>,
    /// Its name among records.
    pub id: ObjectId,
    /// The last record about it.
    pub last_record: SequenceId,
    /// Bytes of one replica.
    pub size: u64,
    /// Until when readers were promised it; not part of the replicated state.
    live_lease: AtomicU64,
    /// Until when records say that readers were promised it; zero if none ever said so.
    pub replicated_lease: LogTime,
    first: Replica,
    /// Who wrote it.
    pub client: ClientNumber,
    /// What the writer said it is.
    pub data_type: u8,
    /// Never evicted.
    pub hard_pinned: bool,
    /// The lists of promises to be replicated that its slot is on, a bit for each [`List`].
    listed: AtomicU8,
    /// What few objects have.
    pub extra: Option<Box<Extra>>,
}

/// What few objects have.
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
    pub replication: Option<Replication>,
}

impl Object {
    /// A new object that nobody has read.
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

    /// All replicas.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        std::iter::once(&self.first).chain(self.extra.iter().flat_map(|extra| extra.more.iter()))
    }

    /// All replicas, to change.
    pub fn replicas_mut(&mut self) -> impl Iterator<Item = &mut Replica> {
        std::iter::once(&mut self.first).chain(self.extra.iter_mut().flat_map(|extra| extra.more.iter_mut()))
    }

    /// Adds a replica.
    pub fn push_replica(&mut self, replica: Replica) {
        self.extra_mut().more.push(replica);
    }

    /// Removes the replicas that `gone` names and returns them. If it names all, the object is left as it is and
    /// `None` says that the object itself has to go.
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

    /// Whether any replica lies in a segment that is still mounted; an object without is as good as gone.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.replicas().any(|replica| replica.segment.is_alive())
    }

    /// Whether a reader could use any replica.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.replicas().any(Replica::is_readable)
    }

    /// Whether every replica is written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.replicas().all(|replica| replica.status == ReplicaStatus::Complete)
    }

    /// Whether every replica that is still there is written: those in unmounted segments do not count any more.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.replicas()
            .filter(|replica| replica.segment.is_alive())
            .all(|replica| replica.status == ReplicaStatus::Complete)
    }

    /// What few objects have, made if it is not there.
    pub fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(Box::default)
    }

    /// Gives `extra` back when nothing is left in it.
    pub fn trim(&mut self) {
        let bare = self.extra.as_ref().is_some_and(|extra| {
            extra.more.is_empty()
                && extra.checksum.is_none()
                && extra.soft_pin_until == LogTime(0)
                && extra.group.is_none()
                && extra.replication.is_none()
        });
        if bare {
            self.extra = None;
        }
    }

    /// The group that it belongs to.
    #[must_use]
    pub fn group(&self) -> Option<&Arc<Group>> {
        self.extra.as_ref()?.group.as_ref()
    }

    /// The copy or move under way.
    #[must_use]
    pub fn replication(&self) -> Option<&Replication> {
        self.extra.as_ref()?.replication.as_ref()
    }

    /// The checksum that the writer named.
    #[must_use]
    pub fn checksum(&self) -> Option<u64> {
        self.extra.as_ref()?.checksum
    }

    /// Until when eviction spares it if it can.
    #[must_use]
    pub fn soft_pin_until(&self) -> LogTime {
        self.extra.as_ref().map_or(LogTime(0), |extra| extra.soft_pin_until)
    }

    /// Until when readers were promised it, by the object's own lease, its group's and what is replicated.
    #[must_use]
    pub fn lease(&self) -> LogTime {
        let own = self.live_lease().max(self.replicated_lease);
        self.group().map_or(own, |group| own.max(group.lease(self.id)))
    }

    /// Promises readers the object for `ttl_ms` more, and names the list that its slot has to be added to, if any. A
    /// promise is worth a record of its own only when half its time has passed since the last one; until then the object
    /// waits on the other list, which a hand-over needs.
    ///
    /// The lease is raised before the bits are read, and [`Object::unlist`] clears a bit before the lease is read, all
    /// sequentially consistent: a thread that takes the object off a list sees this promise, or this call adds it again.
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

    /// Marks the object as being on a list. False if it was already, and so must not be added.
    pub fn list(&self, list: List) -> bool {
        self.listed.fetch_or(list.bit(), Ordering::SeqCst) & list.bit() == 0
    }

    /// Marks the object as taken off a list. False if it was not on it: its slot belonged to another object then.
    pub fn unlist(&self, list: List) -> bool {
        self.listed.fetch_and(!list.bit(), Ordering::SeqCst) & list.bit() != 0
    }

    /// Whether it is about to be removed: a reader that sees this must look again when the removal is done.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        self.live_lease.load(Ordering::Acquire) == DOOMED
    }

    /// Marks it as about to be removed and returns its lease, unless a lease holds it at `now` and counts. Needs the
    /// shard's write lock: without it a reader could be promised the object between the look and the mark.
    pub fn doom(&mut self, now: LogTime, force: bool) -> Option<u64> {
        if self.lease() > now && !force {
            None
        } else {
            Some(std::mem::replace(self.live_lease.get_mut(), DOOMED))
        }
    }

    /// Makes the promises of its group its own, before it gets an id that they do not cover.
    pub fn keep_promises(&mut self) {
        *self.live_lease.get_mut() = self.live_lease().max(self.lease()).0;
    }

    /// Whether readers were promised more than records say.
    #[must_use]
    pub fn owes_renewal(&self) -> bool {
        self.lease() > self.replicated_lease
    }

    /// Takes the mark off again.
    pub fn spare(&mut self, live_lease: u64) {
        *self.live_lease.get_mut() = live_lease;
    }

    /// The live lease alone, as a number.
    #[must_use]
    pub fn live_lease(&self) -> LogTime {
        LogTime(self.live_lease.load(Ordering::SeqCst))
    }

    /// The last record that an answer about this object rests on: its own last one, and those that unmounted
    /// segments under it.
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
        // Resident bytes per object are a goal of the project; a field more here is a field more millions of times.
        assert!(std::mem::size_of::<Object>() <= 96, "{}", std::mem::size_of::<Object>());
        assert_eq!(std::mem::size_of::<Option<Object>>(), std::mem::size_of::<Object>());
    }
}
