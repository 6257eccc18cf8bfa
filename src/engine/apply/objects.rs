//! Records about objects.

use std::ops::RangeInclusive;

use super::derived::Fate;
use crate::engine::core::Core;
use crate::engine::digest;
use crate::engine::divergence::BrokenChain;
use crate::engine::exempt::Confined;
use crate::engine::faults::Reason;
use crate::engine::group::Membership;
use crate::engine::key::{Handle, Key};
use crate::engine::object::{Object, Replica, ReplicaStatus};
use crate::engine::record::{EvictRule, LeaseBucket, ObjectRef, SoftPin, Start};
use crate::engine::reserved::Processing;
use crate::engine::state::{Counts, Sequencer};
use crate::engine::types::{LogTime, ObjectId, SequenceId};

impl Sequencer<'_> {
    /// Returns the location of the object that a record names. If it does not exist, or its last record is another one,
    /// that is a fault of the log: it is counted, and the record has no effect on the object.
    pub(super) fn named(&mut self, object: ObjectRef) -> Option<Handle> {
        let at = |handle: Handle| {
            let objects = self.objects(handle.shard());
            let found = objects.at(handle.slot()).filter(|found| found.id == object.id);
            found.map(|found| found.last_record)
        };
        // The hint nearly always is about this object, which saves a search.
        let hinted = self.core.hinted(object.id).map(|hint| hint.handle);
        let found = match hinted.and_then(|handle| Some((handle, at(handle)?))) {
            Some(found) => Some(found),
            None => self.engine.handle(&self.core, object.id).and_then(|handle| Some((handle, at(handle)?))),
        };
        match found {
            Some((handle, last_record)) if last_record == object.after => Some(handle),
            _ => {
                self.core.fault(vec![object.id], Reason::BrokenChain);
                let found = found.map(|(_, last_record)| last_record);
                let (record, after) = (self.core.last, object.after);
                self.core.divergence.chain(BrokenChain { object: object.id, record, after, found });
                None
            }
        }
    }

    pub(super) fn apply_start(&mut self, id: SequenceId, at: LogTime, start: &Start<'_>) {
        let Key { bytes: key, hash } = start.key;
        let object_id = ObjectId(id.0);
        let there = self.objects(hash.shard()).get(hash, key).map(|object| object.id);
        if let Some(there) = there {
            return self.core.fault(vec![object_id, there], Reason::KeyTaken);
        }
        let mut replicas = match self.take_places(id, start.places, start.size) {
            Ok(replicas) => replicas,
            Err(reason) => return self.drop_unplaced(at, None, start.places, start.size, reason),
        };
        if replicas.is_empty() {
            return self.core.fault(vec![object_id], Reason::UnknownSegment);
        }
        let client = self.core.writers.take(start.client);
        let first = replicas.remove(0);
        let mut object = Object::new(key, object_id, start.size, client, first);
        replicas.into_iter().for_each(|replica| object.push_replica(replica));
        if let Some(group) = start.group {
            object.extra_mut().group = Some(self.core.group(group));
        }
        object.hard_pinned = start.hard_pin;
        object.data_type = start.data_type;
        self.core.begin_processing(object_id, at, start.soft_pin);
        self.insert_object(object, hash);
    }

    pub(super) fn apply_upsert_start(
        &mut self,
        id: SequenceId,
        at: LogTime,
        start: &Start<'_>,
        replaces: Option<ObjectRef>,
        release_at: LogTime,
    ) {
        let Some(replaces) = replaces else { return self.apply_start(id, at, start) };
        let Some(handle) = self.named(replaces) else { return };
        if !start.places.is_empty() {
            let soft_pin_until = self.soft_pin_of(handle);
            self.remove_object(handle, id, Fate::Discard(release_at));
            self.apply_start(id, at, start);
            if soft_pin_until != LogTime(0)
                && let Some(handle) = self.engine.handle(&self.core, ObjectId(id.0))
            {
                self.alter(handle, Some(id), |object, _| object.extra_mut().soft_pin_until = soft_pin_until);
            }
            return;
        }
        self.core.object_index.remove(replaces.id);
        self.alter(handle, Some(id), |object, core| {
            core.writers.give(object.client);
            object.client = core.writers.take(start.client);
            object.keep_promises();
            object.id = ObjectId(id.0);
            object.group().into_iter().for_each(|group| group.joined(ObjectId(id.0)));
            object.data_type = start.data_type;
            object.replicas_mut().for_each(|replica| replica.status = ReplicaStatus::Processing);
        });
        self.core.object_index.insert(ObjectId(id.0), handle);
        self.core.begin_processing(ObjectId(id.0), at, start.soft_pin);
    }

    fn soft_pin_of(&self, handle: Handle) -> LogTime {
        let objects = self.objects(handle.shard());
        objects.at(handle.slot()).map_or(LogTime(0), Object::soft_pin_until)
    }

    pub(super) fn apply_end(
        &mut self,
        id: SequenceId,
        at: LogTime,
        object: ObjectRef,
        checksum: Option<u64>,
    ) {
        let Some(handle) = self.named(object) else { return };
        let soft_pin = self.core.end_processing(object.id).map_or(SoftPin::Preserve, |write| write.soft_pin);
        let mut lost = false;
        self.alter(handle, Some(id), |object, _| {
            for replica in object.replicas_mut() {
                replica.status = ReplicaStatus::Complete;
                lost |= !replica.segment.is_alive();
            }
            // An object without readers counts as read at its End; otherwise it would be evicted before all that were
            // read.
            object.replicated_lease = object.replicated_lease.max(at);
            if checksum.is_some() || object.extra.is_some() {
                object.extra_mut().checksum = checksum;
            }
            match soft_pin {
                SoftPin::Preserve => {}
                SoftPin::Enable(ttl) => object.extra_mut().soft_pin_until = at.plus(ttl),
                SoftPin::Disable => {
                    if let Some(extra) = &mut object.extra {
                        extra.soft_pin_until = LogTime(0);
                    }
                }
            }
        });
        if lost {
            // The sweep for this segment may already have run and spared these replicas for their writer, so drop them
            // here.
            self.drop_replicas(handle, Some(id), |replica| !replica.segment.is_alive());
        }
    }

    pub(super) fn apply_remove(&mut self, id: SequenceId, object: ObjectRef, fate: Fate) {
        if let Some(handle) = self.named(object) {
            self.remove_object(handle, id, fate);
        }
    }

    pub(super) fn apply_release(&mut self, id: SequenceId, reservation: SequenceId) {
        let engine = self.engine;
        let core = &mut *self.core;
        if let Some(discarded) = core.take_discarded(reservation) {
            for replica in &discarded.replicas {
                core.free(&engine.counts, replica, discarded.size);
            }
            return;
        }
        let object = ObjectId(reservation.0);
        let Some(handle) = engine.handle(core, object) else { return };
        if core.processing.contains_key(&object) {
            self.remove_object(handle, id, Fate::Free);
        } else {
            self.drop_copy_move(handle, id);
        }
    }

    pub(super) fn apply_clear(&mut self, id: SequenceId, object: ObjectRef, segment_name: &[u8]) {
        let Some(handle) = self.named(object) else { return };
        let complete_there = |replica: &Replica| {
            replica.status == ReplicaStatus::Complete && *replica.segment.name == *segment_name
        };
        self.drop_replicas(handle, Some(id), complete_there);
    }

    /// Drops replicas in unmounted segments, except those that a client may still be writing to (R4).
    pub(super) fn apply_sweep(&mut self, id: SequenceId, objects: &[ObjectId]) {
        for object in objects {
            let Some(handle) = self.engine.handle(&self.core, *object) else { continue };
            let size = self.objects(handle.shard()).at(handle.slot()).map_or(0, |object| object.size);
            self.drop_replicas(handle, Some(id), Replica::can_be_swept);
            if self.engine.handle(&self.core, *object).is_none() {
                self.core.report.objects_removed += 1;
                self.core.report.bytes_removed = self.core.report.bytes_removed.saturating_add(size);
            }
        }
    }

    /// Drops replicas and frees their bytes; removes the object with its last one.
    pub(super) fn drop_replicas(
        &mut self,
        handle: Handle,
        record: Option<SequenceId>,
        mut gone: impl FnMut(&Replica) -> bool,
    ) {
        let engine = self.engine;
        let mut last = false;
        self.alter(handle, record, |object, core| match object.take_replicas(&mut gone) {
            None => last = true,
            Some(replicas) => {
                let size = object.size;
                replicas.iter().for_each(|replica| core.free(&engine.counts, replica, size));
            }
        });
        if last {
            self.remove_object(handle, self.core.last, Fate::Free);
        }
    }

    pub(super) fn apply_remove_all(
        &mut self,
        id: SequenceId,
        at: LogTime,
        ids: RangeInclusive<ObjectId>,
        force: bool,
        reserved_since: SequenceId,
    ) {
        let objects =
            self.core.object_index.range(*ids.start()).take_while(|(object, _)| object <= ids.end());
        let handles: Vec<Handle> = objects.map(|(_, handle)| handle).collect();
        let mut confined = Confined::to(reserved_since);
        for handle in handles {
            // A group is within the rule as a whole or not at all, so removing one member changes nothing for the
            // others.
            if !self.is_within(&mut confined, handle) {
                continue;
            }
            let goes = self.objects(handle.shard()).at(handle.slot()).is_some_and(|object| {
                object.is_complete()
                    && object.copy_move().is_none()
                    && (force || object.replicated_lease <= at)
            });
            if goes {
                self.remove_object(handle, id, Fate::Free);
            }
        }
    }

    pub(super) fn apply_evict(&mut self, id: SequenceId, at: LogTime, rule: &EvictRule) {
        for victim in self.victims(rule, at) {
            if let Some(handle) = self.engine.handle(&self.core, victim) {
                let bytes = self.bytes_of(handle);
                self.remove_object(handle, id, Fate::Free);
                Counts::add(&self.engine.counts.evicted_bytes, bytes);
            }
        }
        // After the victims, because the primary that made the rule did not consider these objects. A bounded number: a
        // primary that finds more commits one record after the other.
        for object in self.core.eviction.soft_pins_ended(at) {
            if let Some(handle) = self.engine.handle(&self.core, object) {
                self.alter(handle, None, |object, _| object.extra_mut().soft_pin_until = LogTime(0));
            }
        }
    }

    fn bytes_of(&self, handle: Handle) -> u64 {
        let objects = self.objects(handle.shard());
        let bytes = |object: &Object| object.size.saturating_mul(object.replicas().count() as u64);
        objects.at(handle.slot()).map_or(0, bytes)
    }

    /// Returns the victims of a rule at time `at`: a function of the replicated state, the rule and the time.
    fn victims(&self, rule: &EvictRule, at: LogTime) -> Vec<ObjectId> {
        let ended = LeaseBucket::ended_by(at);
        let mut victims = Vec::new();
        let mut confined = Confined::to(rule.reserved_since);
        for (bucket, id) in self.core.eviction.named_by(rule) {
            let Some(handle) = self.engine.handle(&self.core, id) else { continue };
            if !self.is_within(&mut confined, handle) {
                continue;
            }
            let objects = self.objects(handle.shard());
            let Some(object) = objects.at(handle.slot()) else { continue };
            // In a bucket that has ended all leases have; in the current one only some have.
            if bucket > ended && self.core.lease_of(object) > at {
                continue;
            }
            self.core.with_group(object, &mut victims);
        }
        victims
    }

    pub(super) fn apply_renew(&mut self, leases: &[(ObjectId, LogTime)]) {
        for (object, until) in leases {
            if let Some(handle) = self.engine.handle(&self.core, *object) {
                self.alter(handle, None, |object, _| {
                    object.replicated_lease = object.replicated_lease.max(*until);
                });
            }
        }
    }
}

impl Core {
    fn begin_processing(&mut self, id: ObjectId, started: LogTime, soft_pin: SoftPin) {
        let write = Processing { started, soft_pin };
        self.digest.add(digest::processing(id, &write));
        self.processing.insert(id, write);
    }

    /// Returns the group that this candidate for eviction stands for, if any. One with a soft pin stands alone.
    fn group_of(&self, candidate: &Object) -> Option<&Membership> {
        let alone = candidate.soft_pin_until() != LogTime(0);
        let group = candidate.group().filter(|_| !alone)?;
        self.groups.get(&group.id).map(|(_, membership)| membership)
    }

    /// Returns the replicated lease of a candidate for eviction, or of the group that it stands for.
    pub(in crate::engine) fn lease_of(&self, candidate: &Object) -> LogTime {
        self.group_of(candidate).map_or(candidate.replicated_lease, Membership::lease)
    }

    /// Adds a candidate to a list of victims, and with it the rest of the group that it stands for.
    pub(in crate::engine) fn with_group(&self, candidate: &Object, victims: &mut Vec<ObjectId>) {
        match self.group_of(candidate) {
            Some(membership) => victims.extend(membership.members.iter()),
            None => victims.push(candidate.id),
        }
    }
}
