//! Reads. They take shared locks, promise readers the object for a while, and change no state.

use std::ops::Bound;
use std::sync::Arc;

use super::client::Client;
use super::object::Object;
use super::segment::Segment;
use super::shard::{KeyHash, Shard};
use super::state::Engine;
use super::types::{Answer, ErrorCode, LogTime, SequenceId, Uuid};
use super::walk::PIECE;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// A shard in which a key was looked up.
struct Looked<'e> {
    shard: &'e Shard,
    /// Where the object is, if there is one.
    slot: u32,
    /// What an answer about an absent key rests on.
    last_removal: SequenceId,
}

impl Engine {
    /// Looks a key up. An object that is about to be removed is looked up again when that is done, so that no reader is
    /// promised what is no longer there.
    fn look<R>(&self, key: &[u8], mut look: impl FnMut(&Looked<'_>, Option<&Object>) -> R) -> R {
        let hash = KeyHash::of(key);
        let shard = &self.shards[hash.shard()];
        loop {
            {
                let objects = shard.objects.read();
                let slot = objects.find(hash, key);
                let found = slot.and_then(|slot| objects.at(slot));
                let doomed = found.is_some_and(Object::is_doomed);
                #[cfg(feature = "planted")]
                let doomed = doomed && !planted::active(Bug::PromiseDoomed);
                if !doomed {
                    let (slot, last_removal) = (slot.unwrap_or(0), objects.last_removal);
                    return look(&Looked { shard, slot, last_removal }, found);
                }
            }
            // The one who dooms holds the sequencer until the object is gone or spared.
            drop(self.sequencer(LogTime(0)));
        }
    }

    /// Whether a key can be read; if so, readers are promised it.
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

    /// Hands a readable object to `read` and promises readers the object.
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

    /// Hands a readable object to `read` and promises nothing.
    pub fn peek<R>(&self, key: &[u8], mut read: impl FnMut(&Object) -> R) -> Answer<R> {
        self.readable(key, |_, object| (read(object), found_by(object)))
    }

    /// Whether there is an object of that key, without a promise.
    pub fn is_present(&self, key: &[u8]) -> Answer<bool> {
        self.look(key, |at, found| match found {
            None => Answer::ok(false, at.last_removal),
            Some(object) => Answer::ok(object.is_valid(), object.rests_on()),
        })
    }

    /// Promises readers the object and returns what the answer rests on. Its shard is locked, so its slot stays its own
    /// until it is on a list. A sealed engine promises nothing, and what it would have said is never sent: bytes without a
    /// lease may be given out again at any time (INV-7).
    fn promise(&self, at: &Looked<'_>, object: &Object, now: LogTime) -> SequenceId {
        if self.is_sealed() {
            return SequenceId::NEVER;
        }
        let ttl = self.rules.lease_ttl;
        if let Some(list) = object.promise(now, ttl) {
            at.shard.promises.lock().add(list, at.slot);
        }
        if let Some(group) = object.group().filter(|group| group.promise(now, ttl)) {
            at.shard.promises.lock().add_group(group.clone());
        }
        found_by(object)
    }

    /// The mounted segments, in order of their mount.
    #[must_use]
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        let mut all = Vec::new();
        self.each_segment(|segment| all.push(segment.clone()));
        all
    }

    /// Hands the mounted segments to `visit`, in order of their mount. The lock that mounts and unmounts need is given
    /// back now and then: there may be tens of thousands.
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

    /// What is known of a client, and the record that it rests on.
    #[must_use]
    pub fn client(&self, id: Uuid) -> Option<Client> {
        self.clients.read().get(&id).cloned()
    }

    /// Whether a client has told its segments since it was last lost. That it has not rests on nothing: it is asked to
    /// do so once more.
    pub fn is_joined(&self, id: Uuid) -> Answer<bool> {
        match self.clients.read().get(&id) {
            Some(client) => Answer::ok(client.joined, client.last_record),
            None => Answer::ok(false, SequenceId(0)),
        }
    }

    /// How many clients have told their segments.
    #[must_use]
    pub fn joined_clients(&self) -> usize {
        self.clients.read().values().filter(|client| client.joined).count()
    }

    /// An entry of the metadata server, and the record that made it.
    #[must_use]
    pub fn metadata(&self, key: &[u8]) -> Option<(Arc<[u8]>, SequenceId)> {
        self.metadata.read().get(key).cloned()
    }

    /// Entries of the metadata server.
    #[must_use]
    pub fn metadata_len(&self) -> usize {
        self.metadata.read().len()
    }
}

/// What an answer rests on that hands an object out: replicas in unmounted segments are left out of it.
fn found_by(object: &Object) -> SequenceId {
    #[cfg(feature = "planted")]
    if planted::active(Bug::AnswerReadEarly) {
        return SequenceId(0);
    } else if planted::active(Bug::IgnoreUnmount) {
        return object.last_record;
    }
    object.rests_on()
}
