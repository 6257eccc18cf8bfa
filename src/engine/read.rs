//! Reads. They take shared locks, promise readers the object for a while, and change no state.

use std::sync::Arc;

use super::client::Client;
use super::object::{Object, Replica};
use super::segment::Segment;
use super::shard::{KeyHash, Objects, SHARDS, Shard};
use super::state::Engine;
use super::types::{Answer, ErrorCode, LogTime, ObjectId, SequenceId, Uuid};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// Objects with their keys.
pub type Keys = Vec<(ObjectId, Box<[u8]>)>;

impl Engine {
    /// Looks a key up. An object that is about to be removed is looked up again when that is done, so that nobody is
    /// promised what is no longer there.
    fn look<R>(&self, key: &[u8], mut look: impl FnMut(&Shard, &Objects, Option<&Object>) -> R) -> R {
        let hash = KeyHash::of(key);
        let shard = &self.shards[hash.shard()];
        loop {
            {
                let objects = shard.objects.read();
                let found = objects.get(hash, key);
                if !found.is_some_and(Object::is_doomed) {
                    return look(shard, &objects, found);
                }
            }
            // The one who dooms holds the sequencer until the object is gone or spared.
            drop(self.sequencer(LogTime(0)));
        }
    }

    /// Whether a key can be read; if so, readers are promised it.
    pub fn exist(&self, key: &[u8], now: LogTime) -> Answer<bool> {
        self.look(key, |shard, objects, found| match found {
            None => Answer::ok(false, objects.last_removal),
            Some(object) if object.is_readable() => {
                self.promise(shard, object, now);
                Answer::ok(true, found_by(object))
            }
            Some(object) => Answer::ok(false, object.rests_on()),
        })
    }

    /// Hands a readable object to `read` and promises readers the object.
    pub fn get<R>(&self, key: &[u8], now: LogTime, mut read: impl FnMut(&Object) -> R) -> Answer<R> {
        self.readable(key, |shard, object| {
            self.promise(shard, object, now);
            read(object)
        })
    }

    fn readable<R>(&self, key: &[u8], mut read: impl FnMut(&Shard, &Object) -> R) -> Answer<R> {
        self.look(key, |shard, objects, found| match found {
            None => Answer::refuse(ErrorCode::OBJECT_NOT_FOUND, objects.last_removal),
            Some(object) if object.is_readable() => Answer::ok(read(shard, object), found_by(object)),
            Some(object) if object.is_valid() => {
                Answer::refuse(ErrorCode::REPLICA_IS_NOT_READY, object.rests_on())
            }
            Some(object) => Answer::refuse(ErrorCode::OBJECT_NOT_FOUND, object.rests_on()),
        })
    }

    /// Hands a readable object to `read` and promises nothing.
    pub fn peek<R>(&self, key: &[u8], mut read: impl FnMut(&Object) -> R) -> Answer<R> {
        self.readable(key, |_, object| read(object))
    }

    /// Whether there is an object of that key, without a promise.
    pub fn is_present(&self, key: &[u8]) -> Answer<bool> {
        self.look(key, |_, objects, found| match found {
            None => Answer::ok(false, objects.last_removal),
            Some(object) => Answer::ok(object.is_valid(), object.rests_on()),
        })
    }

    fn promise(&self, shard: &Shard, object: &Object, now: LogTime) {
        if object.promise(now, self.rules.lease_ttl) {
            shard.dirty.lock().push(object.id);
        }
    }

    /// The keys of one shard, copied out: whoever matches them against something may take its time.
    #[must_use]
    pub fn keys(&self, shard: usize) -> (Keys, SequenceId) {
        let mut keys = Vec::new();
        let last_removal = self.walk(shard, |object| keys.push((object.id, object.key.clone())));
        (keys, last_removal)
    }

    /// Walks the objects of one shard that are there, readable or not, and promises nothing.
    pub fn walk(&self, shard: usize, mut visit: impl FnMut(&Object)) -> SequenceId {
        let objects = self.shards[shard % SHARDS].objects.read();
        objects.iter().filter(|object| object.is_valid()).for_each(&mut visit);
        objects.last_removal
    }

    /// The objects of one shard that have a replica to be swept away.
    #[must_use]
    pub fn stale(&self, shard: usize) -> Vec<ObjectId> {
        let objects = self.shards[shard % SHARDS].objects.read();
        let is_stale = |object: &&Object| object.replicas().any(Replica::can_be_swept);
        objects.iter().filter(is_stale).map(|object| object.id).collect()
    }

    /// The mounted segments, in order of their mount.
    #[must_use]
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.segments.read().values().cloned().collect();
        all.sort_by_key(|segment| segment.number);
        all
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
