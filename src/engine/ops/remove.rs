//! Removing objects.

use super::find::Found;
use crate::engine::chunks::Chunks;
use crate::engine::exempt::Confined;
use crate::engine::format::Format;
use crate::engine::key::Handle;
use crate::engine::locked_shards::MAX_LOCKED;
use crate::engine::object::Object;
use crate::engine::record::{ObjectRef, Record, RemoveSource};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{Answer, ErrorCode, LogTime, ObjectId, SequenceId, Uuid};
use crate::engine::unmounted_writes::is_stray;

/// Most objects that one rule removes, and that the records of one chunk name: other clients wait meanwhile.
pub(super) const CHUNK: usize = 1024;

/// Most objects that a record changes if they were found in the order of their slots: by a search or a sweep. They are
/// no neighbours in the indexes and in memory, so each takes several times as long as in a rule, which goes by id, and
/// other clients wait for the sequencer meanwhile.
pub(super) const SCATTERED: usize = 256;

impl Sequencer<'_> {
    /// Removes one object; refused without `force` while it has a lease.
    pub fn remove(&mut self, key: &[u8], force: bool) -> Answer<()> {
        match self.find(key).and_then(|found| self.condemn(&found, force).map(|()| found.object)) {
            Err((code, depends_on)) => Answer::refuse(code, depends_on),
            Ok(object) => {
                let record = Record::Remove { objects: &[object], source: RemoveSource::Explicit };
                Answer::ok((), self.commit(&record))
            }
        }
    }

    /// Removes several objects, with one record for every `CHUNK`, and calls `each` with the outcome of every key, in
    /// order.
    pub fn batch_remove(
        &mut self,
        keys: &[&[u8]],
        force: bool,
        mut each: impl FnMut(Result<(), ErrorCode>),
    ) -> SequenceId {
        let mut depends_on = SequenceId(0);
        let mut condemned = Vec::with_capacity(keys.len().min(CHUNK));
        for key in keys {
            match self.find(key).and_then(|found| self.condemn(&found, force).map(|()| found.object)) {
                Ok(object) => {
                    condemned.push(object);
                    each(Ok(()));
                }
                Err((code, rests_on)) => {
                    depends_on = depends_on.max(rests_on);
                    each(Err(code));
                }
            }
        }
        for chunk in condemned.chunks(CHUNK) {
            depends_on = self.commit(&Record::Remove { objects: chunk, source: RemoveSource::Explicit });
        }
        depends_on
    }

    /// Removes those objects of a chunk that may be removed. They were found without the sequencer, so they are checked
    /// again here.
    fn remove_found(&mut self, ids: &[ObjectId], force: bool, source: RemoveSource) -> (u64, SequenceId) {
        if self.engine.is_sealed() {
            return (0, SequenceId::NEVER);
        }
        let locate = |id: &ObjectId| self.engine.handle(&self.core, *id).map(|handle| (*id, handle));
        let there: Vec<(ObjectId, Handle)> = ids.iter().filter_map(locate).collect();
        let mut ahead = there.iter().map(|(_, handle)| *handle);
        let mut condemned = Vec::with_capacity(there.len());
        for (nth, (id, handle)) in there.iter().enumerate() {
            if nth % MAX_LOCKED == 0 {
                self.locked.fetch(&self.engine.shards, &mut ahead);
            }
            let handle = *handle;
            let seen =
                self.with_object(handle, |object| (object.last_record, object.client, object.is_valid()));
            // An object that lost its segments since it was found may be a write whose client is still transferring
            // bytes (R4).
            let Some((after, client, true)) = seen else { continue };
            let found = Found { handle, object: ObjectRef { id: *id, after }, client };
            if self.condemn(&found, force).is_ok() {
                condemned.push(found.object);
            }
        }
        if condemned.is_empty() {
            return (0, self.core.last);
        }
        (condemned.len() as u64, self.commit(&Record::Remove { objects: &condemned, source }))
    }

    /// Checks that an object may be removed and marks it, so that no reader is granted a lease on it from here on.
    fn condemn(&mut self, found: &Found, force: bool) -> Result<(), (ErrorCode, SequenceId)> {
        let after = found.object.after;
        // A sealed engine commits nothing, and a mark without a removal would keep readers waiting for ever.
        if self.engine.is_sealed() {
            return Err((ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS, SequenceId::NEVER));
        }
        let mut confined = Confined::to(self.exempt_since());
        let held = !force && !self.is_within(&mut confined, found.handle);
        let mut objects = self.locked.change(&self.engine.shards, found.handle.shard());
        let Some(object) = objects.at_mut(found.handle.slot()) else {
            return Err((ErrorCode::OBJECT_NOT_FOUND, after));
        };
        if !force && (held || object.lease() > self.now) {
            return Err((ErrorCode::OBJECT_HAS_LEASE, after));
        }
        if !object.is_written() {
            return Err((ErrorCode::REPLICA_IS_NOT_READY, after));
        }
        if object.copy_move().is_some() {
            return Err((ErrorCode::OBJECT_HAS_REPLICATION_TASK, after));
        }
        object.doom(self.now, true);
        Ok(())
    }

    /// Removes by one rule those of the next `CHUNK` objects, in order of id, that may be removed. Leases that are not
    /// replicated yet are written to the log first, so that the rule spares the same objects on every replica. Returns
    /// how many were removed and the first id that was not visited.
    fn remove_some(&mut self, from: ObjectId, last: ObjectId, force: bool) -> Option<(u64, ObjectId)> {
        // A sealed engine commits nothing, and a mark without a removal would keep readers waiting for ever.
        if self.engine.is_sealed() {
            return None;
        }
        // In format 1 a rule cannot spare what the old primary may have promised to readers (R6).
        if self.in_reader_hold() && !force && self.core.format < Format::Two {
            return None;
        }
        let reserved_since = if force { SequenceId(0) } else { self.exempt_since() };
        let mut confined = Confined::to(reserved_since);
        let now = self.now;
        let next: Vec<(ObjectId, Handle)> =
            self.core.object_index.range(from).take_while(|(id, _)| *id <= last).take(CHUNK).collect();
        let up_to = next.last()?.0;
        let (mut count, mut doomed) = (0, false);
        let mut promised: Vec<(ObjectId, LogTime)> = Vec::new();
        let mut ahead = next.iter().map(|(_, handle)| *handle);
        for (nth, (id, handle)) in next.iter().enumerate() {
            if nth % MAX_LOCKED == 0 {
                self.locked.fetch(&self.engine.shards, &mut ahead);
            }
            if !self.is_within(&mut confined, *handle) {
                continue;
            }
            let mut objects = self.locked.change(&self.engine.shards, handle.shard());
            let Some(object) = objects.at_mut(handle.slot()) else { continue };
            if !object.is_complete() || object.copy_move().is_some() {
                continue;
            }
            if object.doom(now, force).is_some() {
                doomed = true;
                count += u64::from(object.is_valid());
            } else if object.owes_renewal() {
                promised.push((*id, object.lease()));
            }
        }
        // Objects without a mounted segment do not count, but they are marked as well and so have to be removed.
        if doomed {
            if !promised.is_empty() {
                self.commit(&Record::RenewLeases { leases: &promised });
            }
            self.commit(&Record::RemoveAll { from, up_to, force, reserved_since });
        }
        Some((count, ObjectId(up_to.0 + 1)))
    }

    /// Clears the replicas of an object in segments of that name, or the whole object for an empty name, on behalf of
    /// its owner. Returns whether anything was removed.
    pub fn replica_clear(&mut self, client: Uuid, key: &[u8], segment_name: &[u8]) -> Answer<bool> {
        let found = match self.find(key) {
            Ok(found) => found,
            Err((_, depends_on)) => return Answer::ok(false, depends_on),
        };
        if self.engine.is_sealed() {
            return Answer::ok(false, SequenceId::NEVER);
        }
        let now = self.now;
        let may_go = self.with_object(found.handle, |object| {
            let there = |object: &Object| {
                object
                    .replicas()
                    .any(|replica| replica.is_readable() && *replica.segment.name == *segment_name)
            };
            self.core.writers.id(object.client) == client
                && object.lease() <= now
                && if segment_name.is_empty() { object.is_written() } else { there(object) }
        });
        let mut confined = Confined::to(self.exempt_since());
        let exempt = self.is_within(&mut confined, found.handle);
        if may_go != Some(true) || !exempt || !self.doom_if_unleased(found.handle) {
            return Answer::ok(false, found.object.after);
        }
        let id = if segment_name.is_empty() {
            self.clear_whole(&found)
        } else {
            let id = self.commit(&Record::ClearReplicas { object: found.object, segment_name });
            // Readers may use the replicas that are left, so take the mark off.
            let mut objects = self.locked.change(&self.engine.shards, found.handle.shard());
            if let Some(object) =
                objects.at_mut(found.handle.slot()).filter(|object| object.id == found.object.id)
            {
                object.spare(0);
            }
            id
        };
        Answer::ok(true, id)
    }

    /// Removes an object. If a client may still be writing a copy of it into an unmounted segment, all its bytes stay
    /// reserved for as long as that may take (R4).
    fn clear_whole(&mut self, found: &Found) -> SequenceId {
        let copied_since = self.with_object(found.handle, |object| {
            object.replicas().any(is_stray).then(|| self.written_since(object)).flatten()
        });
        match copied_since.flatten() {
            Some(started) => {
                let release_at = started.plus(self.engine.settings.release_timeout_ms);
                self.commit(&Record::Discard { object: found.object, release_at })
            }
            None => {
                let (objects, source) = (&[found.object], RemoveSource::ReplicaClear);
                self.commit(&Record::Remove { objects, source })
            }
        }
    }

    fn doom_if_unleased(&mut self, handle: Handle) -> bool {
        let mut objects = self.locked.change(&self.engine.shards, handle.shard());
        objects.at_mut(handle.slot()).is_some_and(|object| object.doom(self.now, false).is_some())
    }
}

impl Engine {
    /// Removes those of the objects that may be removed, in chunks, and releases the sequencer in between. Returns how
    /// many were removed and the record that the answer depends on.
    pub fn remove_matching(&self, ids: &[ObjectId], force: bool, now: LogTime) -> (u64, SequenceId) {
        self.remove_matching_while(ids, force, now, &mut || true)
    }

    /// Like [`Self::remove_matching`], but asks before each chunk.
    pub fn remove_matching_while(
        &self,
        ids: &[ObjectId],
        force: bool,
        now: LogTime,
        chunks: &mut dyn Chunks,
    ) -> (u64, SequenceId) {
        let mut total = (0, SequenceId(0));
        for chunk in ids.chunks(SCATTERED) {
            if !chunks.next_chunk() {
                break;
            }
            let remove =
                |sequencer: &mut Sequencer<'_>| sequencer.remove_found(chunk, force, RemoveSource::Regex);
            let (count, depends_on) = self.run_chunk(now, chunks, remove);
            total = (total.0 + count, depends_on.max(total.1));
        }
        total
    }

    /// Removes every object that may be removed. Returns how many were, and the record that the answer depends on.
    pub fn remove_all(&self, force: bool, now: LogTime) -> (u64, SequenceId) {
        self.remove_all_while(force, now, &mut || true)
    }

    /// Like [`Self::remove_all`], but asks before each chunk.
    pub fn remove_all_while(&self, force: bool, now: LogTime, chunks: &mut dyn Chunks) -> (u64, SequenceId) {
        // Objects that are started from here on are not visited, or a busy store might keep this going for ever.
        let last = ObjectId(self.sequencer(now).core.last.0);
        let (mut total, mut from) = (0, ObjectId(0));
        while chunks.next_chunk() {
            let remove = |sequencer: &mut Sequencer<'_>| sequencer.remove_some(from, last, force);
            let Some((count, next)) = self.run_chunk(now, chunks, remove) else { break };
            total += count;
            from = next;
        }
        let rests_on = if self.is_sealed() { SequenceId::NEVER } else { self.last_visible() };
        (total, rests_on)
    }
}
