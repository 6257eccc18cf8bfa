//! Reads. They take shared locks, grant live leases, and change no replicated state.

use std::ops::Bound;
use std::sync::Arc;

use super::client::Client;
use super::object::Object;
use super::segment::Segment;
use super::shard::Shard;
use super::state::Engine;
use super::types::{Answer, ErrorCode, LogTime, SequenceId, Uuid};
use super::walk::PIECE;
use crate::engine::key::KeyHash;

/// Result of looking a key up in its shard.
struct Looked<'e> {
    shard: &'e Shard,
    /// Slot of the object, if there is one.
    slot: u32,
    /// Record that an answer about an absent key depends on.
    last_removal: SequenceId,
}

impl Engine {
    /// Looks a key up. If its object is about to be removed, looks again when that is done, so that no reader is
    /// granted a lease on an object that is gone.
    fn look<R>(&self, key: &[u8], mut look: impl FnMut(&Looked<'_>, Option<&Object>) -> R) -> R {
        let hash = KeyHash::of(key);
        let shard = &self.shards[hash.shard()];
        loop {
            {
                let objects = shard.read();
                let slot = objects.find(hash, key);
                let found = slot.and_then(|slot| objects.at(slot));
                let doomed = found.is_some_and(Object::is_doomed);
                let doomed = doomed && !planted!(PromiseDoomed);
                if !doomed {
                    let (slot, last_removal) = (slot.unwrap_or(0), objects.last_removal);
                    return look(&Looked { shard, slot, last_removal }, found);
                }
            }
            // The operation that marked the object holds the sequencer until it is removed or spared: wait for that.
            drop(self.sequencer(LogTime(0)));
        }
    }

    /// Returns whether a key can be read; if so, grants a lease on it.
    pub fn exist(&self, key: &[u8], now: LogTime) -> Answer<bool> {
        self.look(key, |at, found| match found {
            None => Answer::ok(false, at.last_removal),
            Some(object) if object.is_readable() => {
                let rests_on = self.promise(at, object, now);
                Answer::ok(true, rests_on)
            }
            Some(object) => Answer::ok(false, object.rests_on()),
        })
    }

    /// Calls `read` with a readable object and grants a lease on it.
    pub fn get<R>(&self, key: &[u8], now: LogTime, mut read: impl FnMut(&Object) -> R) -> Answer<R> {
        self.readable(key, |at, object| {
            let rests_on = self.promise(at, object, now);
            (read(object), rests_on)
        })
    }

    fn readable<R>(
        &self,
        key: &[u8],
        mut read: impl FnMut(&Looked<'_>, &Object) -> (R, SequenceId),
    ) -> Answer<R> {
        self.look(key, |at, found| match found {
            None => Answer::refuse(ErrorCode::OBJECT_NOT_FOUND, at.last_removal),
            Some(object) if object.is_readable() => {
                let (value, rests_on) = read(at, object);
                Answer::ok(value, rests_on)
            }
            Some(object) if object.is_valid() => {
                Answer::refuse(ErrorCode::REPLICA_IS_NOT_READY, object.rests_on())
            }
            Some(object) => Answer::refuse(ErrorCode::OBJECT_NOT_FOUND, object.rests_on()),
        })
    }

    /// Calls `read` with a readable object, without granting a lease.
    pub fn peek<R>(&self, key: &[u8], mut read: impl FnMut(&Object) -> R) -> Answer<R> {
        self.readable(key, |_, object| (read(object), found_by(object)))
    }

    /// Returns whether a key has an object in mounted memory, readable or not, without granting a lease.
    pub fn is_present(&self, key: &[u8]) -> Answer<bool> {
        self.look(key, |at, found| match found {
            None => Answer::ok(false, at.last_removal),
            Some(object) => Answer::ok(object.is_valid(), object.rests_on()),
        })
    }

    /// Grants a lease on the object and returns the record that the answer depends on. Its shard is locked, so its slot
    /// cannot be reused before it is on a list. A sealed engine grants nothing, and the answer is never sent: bytes
    /// without a lease may be reallocated at any time (INV-7).
    fn promise(&self, at: &Looked<'_>, object: &Object, now: LogTime) -> SequenceId {
        if self.is_sealed() {
            return SequenceId::NEVER;
        }
        let ttl = self.settings.lease_ttl_ms;
        if let Some(list) = object.promise(now, ttl) {
            at.shard.promises.lock().add(list, at.slot);
        }
        if let Some(group) = object.group().filter(|group| group.promise(now, ttl)) {
            at.shard.promises.lock().add_group(group.clone());
        }
        found_by(object)
    }

    /// Returns the mounted segments, in order of their mount.
    #[must_use]
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        let mut all = Vec::new();
        self.each_segment(|segment| all.push(segment.clone()));
        all
    }

    /// Calls `visit` with the mounted segments, in order of their mount. Releases the lock after every piece: mounts
    /// and unmounts need it, and there may be tens of thousands of segments.
    pub(super) fn each_segment(&self, mut visit: impl FnMut(&Arc<Segment>)) {
        let mut after = Bound::Unbounded;
        loop {
            let segments = self.segments.read();
            let mut last = None;
            for (nth, (number, segment)) in segments.range((after, Bound::Unbounded)).take(PIECE).enumerate()
            {
                visit(segment);
                last = (nth + 1 == PIECE).then_some(*number);
            }
            let Some(last) = last else { return };
            after = Bound::Excluded(last);
        }
    }

    /// Returns a copy of what is known of a client.
    #[must_use]
    pub fn client(&self, id: Uuid) -> Option<Client> {
        self.clients.read().get(&id).cloned()
    }

    /// Returns whether a client has reported all its segments and counts as alive. For an unknown client the answer
    /// needs no durability wait: the client is merely asked to remount.
    pub fn is_joined(&self, id: Uuid) -> Answer<bool> {
        match self.clients.read().get(&id) {
            Some(client) => Answer::ok(client.joined, client.last_record),
            None => Answer::ok(false, SequenceId(0)),
        }
    }

    /// Returns how many clients have reported all their segments.
    #[must_use]
    pub fn joined_clients(&self) -> usize {
        self.clients.read().values().filter(|client| client.joined).count()
    }

    /// Returns an entry of the metadata server, and the record that stored it.
    #[must_use]
    pub fn metadata(&self, key: &[u8]) -> Option<(Arc<[u8]>, SequenceId)> {
        self.metadata.read().get(key).cloned()
    }

    /// Returns the number of entries of the metadata server.
    #[must_use]
    pub fn metadata_len(&self) -> usize {
        self.metadata.read().len()
    }
}

/// Returns the record that an answer with this object depends on: the unmount of a replica that it leaves out counts,
/// too.
fn found_by(object: &Object) -> SequenceId {
    planted!(AnswerReadEarly => return SequenceId(0));
    planted!(IgnoreUnmount => return object.last_record);
    object.rests_on()
}
