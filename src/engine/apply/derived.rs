//! Changes objects and keeps everything that is derived from them up to date: the digest, the order of eviction, the
//! groups, the free memory.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::core::{Core, Hint, Mounted, Reserved};
use crate::engine::digest;
use crate::engine::eviction::Standing;
use crate::engine::extents::NotTaken;
use crate::engine::faults::Reason;
use crate::engine::group::{Group, Membership};
use crate::engine::key::{Handle, KeyHash};
use crate::engine::object::{Object, Replica, Replicas};
use crate::engine::record::LeaseBucket;
use crate::engine::reserved::Discarded;
use crate::engine::state::{Counts, Engine, Sequencer};
use crate::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId};
use crate::engine::unmounted_writes::addresses;

/// What becomes of the bytes of a removed object.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// They can be allocated again at once.
    Free,
    /// They stay reserved until then, because clients may be using them.
    Discard(LogTime),
}

/// Values that are derived from one object.
struct Derived {
    hash: u64,
    id: ObjectId,
    lease: LogTime,
    soft_pin_until: LogTime,
    /// Whether it could be evicted, were its lease over.
    can_go: bool,
    /// The group that it belongs to.
    group: Option<Arc<Group>>,
    /// Whether it has a pin and so stands alone in the order of eviction, also in a group.
    pinned: bool,
    /// The segments in which a client may be writing to it.
    reserved: SmallVec<[SegmentNumber; 2]>,
}

/// Returns the segments of an object that is being written, copied or moved: all of them, since it is lost with the
/// last.
pub(in crate::engine) fn reserved_in(object: &Object) -> SmallVec<[SegmentNumber; 2]> {
    if object.is_complete() && object.copy_move().is_none() {
        return SmallVec::new();
    }
    object.replicas().map(|replica| replica.segment.number).collect()
}

impl Derived {
    /// Derives the values from an object whose key has this hash.
    fn of(object: &Object, key: KeyHash, core: &Core) -> Self {
        let soft_pin_until = object.soft_pin_until();
        let pinned = object.hard_pinned || soft_pin_until != LogTime(0);
        Self {
            hash: digest::object(object, key, core.writers.id(object.client)),
            id: object.id,
            lease: object.replicated_lease,
            soft_pin_until,
            can_go: !object.hard_pinned && object.copy_move().is_none() && object.is_complete(),
            group: object.group().cloned(),
            pinned,
            reserved: reserved_in(object),
        }
    }

    /// Returns whether its position in the order of eviction is its own, not its group's.
    fn stands_alone(&self) -> bool {
        self.pinned || self.group.is_none()
    }

    fn standing(&self) -> Standing {
        Standing { bucket: LeaseBucket::of(self.lease), id: self.id, soft_pin_until: self.soft_pin_until }
    }
}

impl Core {
    /// Notes a reservation in these segments; unmounted ones are skipped.
    fn reserve(&mut self, numbers: impl IntoIterator<Item = SegmentNumber>, what: Reserved) {
        for number in numbers {
            if let Some(mounted) = self.segments.get_mut(&number) {
                mounted.reserved.insert(what);
            }
        }
    }

    /// Removes a reservation from these segments.
    fn unreserve(&mut self, numbers: impl IntoIterator<Item = SegmentNumber>, what: Reserved) {
        for number in numbers {
            if let Some(mounted) = self.segments.get_mut(&number) {
                mounted.reserved.remove(&what);
            }
        }
    }

    /// Removes a copy or move from the indexes of those under way.
    pub(super) fn end_copy_move(&mut self, started: LogTime, id: ObjectId) {
        self.copy_moves.remove(&(started, id));
        self.lost_copies.remove(&id);
    }

    fn remove_derived(&mut self, derived: &Derived) {
        self.digest.subtract(derived.hash);
        self.evictable -= usize::from(derived.can_go);
        if derived.stands_alone() && derived.can_go {
            self.eviction.remove(derived.standing());
        }
        match &derived.group {
            None => {}
            Some(group) if derived.pinned => self.pin_in_group(group, derived.id, false),
            Some(group) => self.regroup(group, |membership| {
                membership.members.remove(&derived.id);
                membership.ready.remove(&(derived.lease, derived.id));
            }),
        }
    }

    fn add_derived(&mut self, derived: &Derived) {
        self.digest.add(derived.hash);
        self.evictable += usize::from(derived.can_go);
        if derived.stands_alone() && derived.can_go {
            self.eviction.insert(derived.standing());
        }
        match &derived.group {
            None => {}
            Some(group) if derived.pinned => self.pin_in_group(group, derived.id, true),
            Some(group) => self.regroup(group, |membership| {
                membership.members.insert(derived.id);
                if derived.can_go {
                    membership.ready.insert((derived.lease, derived.id));
                }
            }),
        }
    }

    /// Changes the members of a group, or which of them could be evicted, and moves the group in the order of eviction.
    fn regroup(&mut self, group: &Group, change: impl FnOnce(&mut Membership)) {
        let Some((_, membership)) = self.groups.get_mut(&group.id) else { return };
        let before = membership.standing();
        change(membership);
        let after = membership.standing();
        if before != after {
            before.into_iter().for_each(|standing| self.eviction.remove(standing));
            after.into_iter().for_each(|standing| self.eviction.insert(standing));
        }
    }

    /// Adds or removes a member with a pin. The standing of the group does not depend on it.
    fn pin_in_group(&mut self, group: &Group, id: ObjectId, pinned: bool) {
        if let Some((_, membership)) = self.groups.get_mut(&group.id) {
            if pinned {
                membership.pinned.insert(id);
            } else {
                membership.pinned.remove(&id);
            }
        }
    }

    /// Removes a group that has no objects left.
    fn leave_group(&mut self, group: &Group) {
        if self.groups.get(&group.id).is_some_and(|(_, membership)| membership.is_empty()) {
            self.groups.remove(&group.id);
        }
    }

    /// Returns the group of this name, created if it does not exist.
    pub(in crate::engine) fn group(&mut self, name: &[u8]) -> Arc<Group> {
        if let Some((group, _)) = self.groups.get(name) {
            return group.clone();
        }
        let group = Arc::new(Group::new(name));
        self.groups.insert(name.into(), (group.clone(), Membership::default()));
        group
    }

    /// Frees a replica's bytes: in its segment if that is mounted; otherwise, if they were left out of later mounts as
    /// a stray, wherever the same memory is mounted now.
    pub(super) fn free(&mut self, counts: &Counts, replica: &Replica, size: u64) {
        if let Some(mounted) = self.segments.get_mut(&replica.segment.number) {
            if mounted.give(counts, replica.offset, size).is_err() {
                self.fault(Vec::new(), Reason::NotTaken);
            }
            self.refit(replica.segment.number);
        } else if self.unmounted_writes.remove(replica) {
            let ended = addresses(replica, size);
            let numbers: SmallVec<[SegmentNumber; 2]> =
                self.segment_ranges.at(&replica.segment.te_endpoint, ended.clone()).collect();
            for number in numbers {
                let Some(mounted) = self.segments.get_mut(&number) else { continue };
                if let Some(range) = self.unmounted_writes.given_back(&mounted.segment, &ended)
                    && mounted.give(counts, range.start, range.end - range.start).is_err()
                {
                    self.fault(Vec::new(), Reason::NotTaken);
                }
                self.refit(number);
            }
        }
    }

    /// Keeps bytes reserved until `release_at`, under the id of the record that discarded them.
    pub(super) fn discard_bytes(
        &mut self,
        counts: &Counts,
        record: SequenceId,
        release_at: LogTime,
        size: u64,
        replicas: Replicas,
    ) {
        if replicas.is_empty() {
            return;
        }
        Counts::add(&counts.discarded, 1);
        let bytes = Discarded { release_at, size, replicas };
        self.keep_discarded(record, bytes);
    }

    /// Adds bytes to the discarded ones, which stay reserved.
    pub(in crate::engine) fn keep_discarded(&mut self, record: SequenceId, bytes: Discarded) {
        self.digest.add(digest::discarded(record, &bytes));
        self.releases.insert((bytes.release_at, record));
        self.discarded_bytes += bytes.bytes();
        self.reserve(bytes.written_in(), Reserved::Discarded(record));
        if let Some(hook) = &mut self.hook {
            hook.discarding(record);
        }
        self.discarded.insert(record, bytes);
    }

    /// Removes bytes from the discarded ones and returns them.
    pub(super) fn take_discarded(&mut self, record: SequenceId) -> Option<Discarded> {
        let bytes = self.discarded.remove(&record)?;
        if let Some(hook) = &mut self.hook {
            hook.released(record, &bytes);
        }
        self.discarded_bytes -= bytes.bytes();
        self.releases.remove(&(bytes.release_at, record));
        self.digest.subtract(digest::discarded(record, &bytes));
        self.unreserve(bytes.written_in(), Reserved::Discarded(record));
        Some(bytes)
    }
}

impl Mounted {
    fn give(&mut self, counts: &Counts, offset: u64, size: u64) -> Result<(), NotTaken> {
        let before = self.extents.used_bytes();
        let given = self.extents.give(offset, size);
        let after = self.extents.used_bytes();
        self.segment.set_used(after);
        Counts::subtract(&counts.allocated, before - after);
        given
    }
}

impl Engine {
    /// Returns the location of the object with this id.
    pub(in crate::engine) fn handle(&self, core: &Core, id: ObjectId) -> Option<Handle> {
        core.object_index.find(id)
    }
}

impl Sequencer<'_> {
    /// Changes an object and everything that is derived from it. With `record`, that is the last record about it from
    /// now on.
    pub(super) fn alter(
        &mut self,
        handle: Handle,
        record: Option<SequenceId>,
        change: impl FnOnce(&mut Object, &mut Core),
    ) {
        let engine = self.engine;
        let core = &mut *self.core;
        let mut objects = self.locked.change(&engine.shards, handle.shard());
        let Some(object) = objects.at_mut(handle.slot()) else { return };
        let key = core.hinted(object.id).map_or_else(|| KeyHash::of(&object.key), |hint| hint.key);
        let before = Derived::of(object, key, core);
        change(object, core);
        object.trim();
        if let Some(record) = record {
            object.last_record = record;
        }
        let after = Derived::of(object, key, core);
        core.remove_derived(&before);
        core.add_derived(&after);
        if (before.id, &before.reserved) != (after.id, &after.reserved) {
            core.unreserve(before.reserved, Reserved::Object(before.id));
            core.reserve(after.reserved, Reserved::Object(after.id));
        }
        if before.soft_pin_until != after.soft_pin_until {
            match (before.soft_pin_until, after.soft_pin_until) {
                (LogTime(0), _) => Counts::add(&engine.counts.soft_pinned, 1),
                (_, LogTime(0)) => Counts::subtract(&engine.counts.soft_pinned, 1),
                _ => {}
            }
        }
    }

    /// Stores a new object and adds it to all indexes.
    pub(in crate::engine) fn insert_object(&mut self, object: Object, hash: KeyHash) {
        let engine = self.engine;
        let core = &mut *self.core;
        let derived = Derived::of(&object, hash, core);
        let id = object.id;
        object.group().into_iter().for_each(|group| group.joined(id));
        core.add_derived(&derived);
        core.reserve(derived.reserved, Reserved::Object(id));
        if derived.soft_pin_until != LogTime(0) {
            Counts::add(&engine.counts.soft_pinned, 1);
        }
        let shard = hash.shard();
        let slot = self.locked.change(&engine.shards, shard).insert(hash, object);
        let handle = Handle::new(shard, slot);
        self.core.object_index.insert(id, handle);
        self.core.hint.set(Some(Hint { id, handle, key: hash }));
        Counts::add(&engine.counts.objects, 1);
    }

    /// Removes an object from its shard and from all indexes. `fate` says what becomes of its replicas' bytes.
    pub(super) fn remove_object(&mut self, handle: Handle, record: SequenceId, fate: Fate) {
        let engine = self.engine;
        let removed = self.locked.change(&engine.shards, handle.shard()).remove(handle.slot(), record);
        let Some(object) = removed else { return };
        let core = &mut *self.core;
        let id = object.id;
        core.object_index.remove(id);
        let derived = Derived::of(&object, KeyHash::of(&object.key), core);
        core.remove_derived(&derived);
        core.unreserve(derived.reserved, Reserved::Object(id));
        if let Some(group) = object.group() {
            core.leave_group(group);
        }
        if derived.soft_pin_until != LogTime(0) {
            Counts::subtract(&engine.counts.soft_pinned, 1);
        }
        core.end_processing(id);
        if let Some(task) = object.copy_move() {
            core.end_copy_move(task.started, id);
        }
        core.writers.give(object.client);
        Counts::subtract(&engine.counts.objects, 1);
        match fate {
            Fate::Free => {
                object.replicas().for_each(|replica| core.free(&engine.counts, replica, object.size))
            }
            Fate::Discard(release_at) => {
                let replicas = object.replicas().cloned().collect();
                core.discard_bytes(&engine.counts, record, release_at, object.size, replicas);
            }
        }
    }
}

impl Core {
    pub(super) fn end_processing(&mut self, id: ObjectId) -> Option<crate::engine::reserved::Processing> {
        let processing = self.processing.remove(&id)?;
        if let Some(hook) = &mut self.hook {
            hook.write_ended(id, &processing);
        }
        self.lost_writes.remove(&id);
        self.digest.subtract(digest::processing(id, &processing));
        Some(processing)
    }
}
