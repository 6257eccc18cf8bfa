//! Changing an object and keeping everything that is derived from it true: the digest, the order of eviction, the
//! group, the free memory.

use std::sync::Arc;

use crate::engine::core::{Core, Discarded, Hint, Mounted};
use crate::engine::digest;
use crate::engine::eviction::Standing;
use crate::engine::extents::NotTaken;
use crate::engine::group::{Group, Membership};
use crate::engine::object::{Object, Replica, Replicas};
use crate::engine::record::LeaseBucket;
use crate::engine::shard::{Handle, KeyHash};
use crate::engine::state::{Counts, Engine, Sequencer};
use crate::engine::strays::addresses;
use crate::engine::types::{LogTime, ObjectId, SequenceId};

/// What becomes of the bytes of a removed object.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// They can be given out again.
    Free,
    /// Somebody may be using them until then.
    Hold(LogTime),
}

/// What is derived from one object.
struct Imprint {
    hash: u64,
    id: ObjectId,
    lease: LogTime,
    soft_pin_until: LogTime,
    /// Whether it could be evicted.
    can_go: bool,
    /// The group that it goes with.
    group: Option<Arc<Group>>,
}

impl Imprint {
    /// Of an object whose key has this hash.
    fn of(object: &Object, key: KeyHash, core: &Core) -> Self {
        let soft_pin_until = object.soft_pin_until();
        let pinned = object.hard_pinned || soft_pin_until != LogTime(0);
        Self {
            hash: digest::object(object, key, core.writers.id(object.client)),
            id: object.id,
            lease: object.replicated_lease,
            soft_pin_until,
            can_go: !object.hard_pinned && object.replication().is_none() && object.is_complete(),
            group: if pinned { None } else { object.group().cloned() },
        }
    }

    fn standing(&self) -> Standing {
        Standing { bucket: LeaseBucket::of(self.lease), id: self.id, soft_pin_until: self.soft_pin_until }
    }
}

impl Core {
    fn imprint_off(&mut self, imprint: &Imprint) {
        self.digest.subtract(imprint.hash);
        self.evictable -= usize::from(imprint.can_go);
        match &imprint.group {
            None if imprint.can_go => self.eviction.remove(imprint.standing()),
            None => {}
            Some(group) => self.regroup(group, |membership| {
                membership.members.remove(&imprint.id);
                membership.ready.remove(&(imprint.lease, imprint.id));
            }),
        }
    }

    fn imprint_on(&mut self, imprint: &Imprint) {
        self.digest.add(imprint.hash);
        self.evictable += usize::from(imprint.can_go);
        match &imprint.group {
            None if imprint.can_go => self.eviction.insert(imprint.standing()),
            None => {}
            Some(group) => self.regroup(group, |membership| {
                membership.members.insert(imprint.id);
                if imprint.can_go {
                    membership.ready.insert((imprint.lease, imprint.id));
                }
            }),
        }
    }

    /// Changes who is in a group, or who of it could go, and moves the group in the order of eviction.
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

    fn enter_group(&mut self, group: &Group) {
        if let Some((_, membership)) = self.groups.get_mut(&group.id) {
            membership.objects += 1;
        }
    }

    fn leave_group(&mut self, group: &Group) {
        let Some((_, membership)) = self.groups.get_mut(&group.id) else { return };
        membership.objects -= 1;
        if membership.objects == 0 {
            self.groups.remove(&group.id);
        }
    }

    /// The group of this name, made if it is not there.
    pub(in crate::engine) fn group(&mut self, name: &[u8]) -> Arc<Group> {
        if let Some((group, _)) = self.groups.get(name) {
            return group.clone();
        }
        let group = Arc::new(Group::new(name));
        self.groups.insert(name.into(), (group.clone(), Membership::default()));
        group
    }

    /// Gives a replica's bytes free: in its segment if that is still there; otherwise, if somebody could still write to
    /// them, wherever the same memory is mounted now.
    pub(super) fn free(&mut self, counts: &Counts, replica: &Replica, size: u64) {
        if let Some(mounted) = self.segments.get_mut(&replica.segment.number) {
            self.faults += u64::from(mounted.give(counts, replica.offset, size).is_err());
        } else if self.strays.remove(replica) {
            let ended = addresses(replica, size);
            for number in self.atlas.at(&replica.segment.te_endpoint, ended.clone()) {
                let Some(mounted) = self.segments.get_mut(&number) else { continue };
                if let Some(range) = self.strays.given_back(&mounted.segment, &ended) {
                    let given = mounted.give(counts, range.start, range.end - range.start);
                    self.faults += u64::from(given.is_err());
                }
            }
        }
    }

    /// Keeps bytes reserved until `release_at` under the name of the record that discarded them.
    pub(super) fn hold(
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

    /// Adds bytes to those that are kept reserved.
    pub(in crate::engine) fn keep_discarded(&mut self, record: SequenceId, bytes: Discarded) {
        self.digest.add(digest::discarded(record, &bytes));
        self.releases.insert((bytes.release_at, record));
        self.discarded_bytes += bytes.bytes();
        self.discarded.insert(record, bytes);
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
    /// Where the object with this id lies.
    pub(in crate::engine) fn handle(&self, core: &Core, id: ObjectId) -> Option<Handle> {
        core.ids.find(id)
    }
}

impl Sequencer<'_> {
    /// Changes an object. With `record`, this is the last record about it from now on.
    pub(super) fn alter(
        &mut self,
        handle: Handle,
        record: Option<SequenceId>,
        change: impl FnOnce(&mut Object, &mut Core),
    ) {
        let engine = self.engine;
        let core = &mut *self.core;
        let mut objects = self.held.change(&engine.shards, handle.shard());
        let Some(object) = objects.at_mut(handle.slot()) else { return };
        let key = core.hinted(object.id).map_or_else(|| KeyHash::of(&object.key), |hint| hint.key);
        let before = Imprint::of(object, key, core);
        change(object, core);
        object.trim();
        if let Some(record) = record {
            object.last_record = record;
        }
        let after = Imprint::of(object, key, core);
        core.imprint_off(&before);
        core.imprint_on(&after);
        if before.soft_pin_until != after.soft_pin_until {
            match (before.soft_pin_until, after.soft_pin_until) {
                (LogTime(0), _) => Counts::add(&engine.counts.soft_pinned, 1),
                (_, LogTime(0)) => Counts::subtract(&engine.counts.soft_pinned, 1),
                _ => {}
            }
        }
    }

    /// Puts a new object in its place.
    pub(in crate::engine) fn settle(&mut self, object: Object, hash: KeyHash) {
        let engine = self.engine;
        let core = &mut *self.core;
        let imprint = Imprint::of(&object, hash, core);
        let id = object.id;
        if let Some(group) = object.group() {
            group.joined(id);
            core.enter_group(group);
        }
        core.imprint_on(&imprint);
        if imprint.soft_pin_until != LogTime(0) {
            Counts::add(&engine.counts.soft_pinned, 1);
        }
        let shard = hash.shard();
        let slot = self.held.change(&engine.shards, shard).insert(hash, object);
        let handle = Handle::new(shard, slot);
        self.core.ids.insert(id, handle);
        self.core.hint.set(Some(Hint { id, handle, key: hash }));
        Counts::add(&engine.counts.objects, 1);
    }

    /// Takes an object away. Its replicas' bytes meet their fate.
    pub(super) fn unsettle(&mut self, handle: Handle, record: SequenceId, fate: Fate) {
        let engine = self.engine;
        let removed = self.held.change(&engine.shards, handle.shard()).remove(handle.slot(), record);
        let Some(object) = removed else { return };
        let core = &mut *self.core;
        let id = object.id;
        core.ids.remove(id);
        let imprint = Imprint::of(&object, KeyHash::of(&object.key), core);
        core.imprint_off(&imprint);
        if let Some(group) = object.group() {
            core.leave_group(group);
        }
        if imprint.soft_pin_until != LogTime(0) {
            Counts::subtract(&engine.counts.soft_pinned, 1);
        }
        core.end_processing(id);
        if let Some(task) = object.replication() {
            core.replications.remove(&(task.started, id));
        }
        core.writers.give(object.client);
        Counts::subtract(&engine.counts.objects, 1);
        match fate {
            Fate::Free => {
                object.replicas().for_each(|replica| core.free(&engine.counts, replica, object.size))
            }
            Fate::Hold(release_at) => {
                let replicas = object.replicas().cloned().collect();
                core.hold(&engine.counts, record, release_at, object.size, replicas);
            }
        }
    }
}

impl Core {
    pub(super) fn end_processing(&mut self, id: ObjectId) -> Option<crate::engine::core::Processing> {
        let processing = self.processing.remove(&id)?;
        self.digest.subtract(digest::processing(id, &processing));
        Some(processing)
    }
}
