//! Writing objects: Put, Upsert, their End and Revoke.

use std::sync::atomic::Ordering;

use super::placement::{Places, Wanted};
use crate::engine::key::Key;
use crate::engine::object::{Object, ReplicaStatus, Replicas};
use crate::engine::record::{Record, SoftPin, Start};
use crate::engine::settings::Strategy;
use crate::engine::shard::SHARD_CAPACITY;
use crate::engine::state::Sequencer;
use crate::engine::types::{Answer, ErrorCode, ObjectId, SequenceId, Uuid};

use super::find::Found;

/// What a client asks for when it starts a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteConfig<'a> {
    /// How many replicas are wanted; fewer are placed if there is not enough memory for all.
    pub replicas: u64,
    /// What becomes of the soft pin at the End.
    pub soft_pin: SoftPin,
    /// Whether the object is never evicted.
    pub hard_pin: bool,
    /// Names of segments to try first, in order.
    pub preferred: &'a [&'a [u8]],
    /// The writer's host; empty if it does not say.
    pub host_id: &'a [u8],
    /// Kind of data, as the writer names it.
    pub data_type: u8,
    /// The group to put it in; `None` leaves an existing object in its group.
    pub group: Option<&'a [u8]>,
}

/// The start of a write: who writes what.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub client: Uuid,
    pub key: Key<'a>,
    /// Size of each replica, in bytes.
    pub size: u64,
    pub config: WriteConfig<'a>,
}

/// Answer to the start of a write: where the client has to write.
#[derive(Clone, Debug)]
pub struct Started {
    /// Size of each replica, in bytes.
    pub size: u64,
    pub replicas: Replicas,
}

/// Which kinds of replicas an End or Revoke is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaTypes {
    /// Replicas in memory, alone or with other kinds.
    Memory,
    /// Only other kinds, which no object here has.
    Others,
}

impl<'a> Write<'a> {
    /// Returns the group of a new object: an empty name means none.
    fn group(&self) -> Option<&'a [u8]> {
        self.config.group.filter(|group| !group.is_empty())
    }
}

impl Started {
    /// Copies what the writer of `object` needs to know.
    fn of(object: &Object) -> Self {
        Self { size: object.size, replicas: object.replicas().cloned().collect() }
    }
}

impl Sequencer<'_> {
    /// Reserves memory for a new object.
    pub fn put_start(
        &mut self,
        client: Uuid,
        key: &[u8],
        size: u64,
        config: &WriteConfig<'_>,
    ) -> Answer<Started> {
        let write = Write { client, key: Key::new(key), size, config: *config };
        self.run(&[write.key]).put_start(&write, Started::of)
    }

    /// Starts to write a key that may exist: reuses the memory of a complete object of the same size, else reserves new
    /// memory.
    pub fn upsert_start(
        &mut self,
        client: Uuid,
        key: &[u8],
        size: u64,
        config: &WriteConfig<'_>,
    ) -> Answer<Started> {
        let write = Write { client, key: Key::new(key), size, config: *config };
        self.run(&[write.key]).upsert_start(&write, Started::of)
    }

    /// Completes a write: the object becomes readable.
    pub fn end(
        &mut self,
        client: Uuid,
        key: &[u8],
        types: ReplicaTypes,
        checksum: Option<u64>,
    ) -> Answer<()> {
        let key = Key::new(key);
        self.run(&[key]).end(client, key, types, checksum)
    }

    /// Cancels a write and frees its memory.
    pub fn revoke(&mut self, client: Uuid, key: &[u8], types: ReplicaTypes) -> Answer<()> {
        let key = Key::new(key);
        self.run(&[key]).revoke(client, key, types)
    }

    pub(super) fn start_put<R>(&mut self, write: &Write<'_>, tell: impl FnOnce(&Object) -> R) -> Answer<R> {
        let mut stuck = None;
        if let Some(found) = self.find_to_write(write.key) {
            let complete = self.with_object(found.handle, |object| {
                object.replicas().any(|replica| replica.status == ReplicaStatus::Complete)
            });
            let started = self.core.processing.get(&found.object.id).map(|write| write.started);
            match started {
                Some(started)
                    if complete != Some(true)
                        && started.plus(self.engine.settings.discard_timeout_ms) < self.now =>
                {
                    stuck = Some((found, started.plus(self.engine.settings.release_timeout_ms)));
                }
                _ => return Answer::refuse(ErrorCode::OBJECT_ALREADY_EXISTS, found.object.after),
            }
        }
        let places = match self.places(write) {
            Ok(places) => places,
            Err((code, depends_on)) => return Answer::refuse(code, depends_on),
        };
        // Only now that the new write has memory: without it the stuck write keeps its key.
        if let Some((found, release_at)) = stuck {
            self.commit(&Record::Discard { object: found.object, release_at });
        }
        let id = self.commit(&Record::PutStart(start(write, &places, write.group())));
        self.started(id, tell)
    }

    pub(super) fn start_upsert<R>(
        &mut self,
        write: &Write<'_>,
        tell: impl FnOnce(&Object) -> R,
    ) -> Answer<R> {
        let Some(found) = self.find_to_write(write.key) else { return self.start_put(write, tell) };
        let seen = self.with_object(found.handle, |object| {
            let group = object.group().map(|group| group.id.clone());
            (group, object.copy_move().is_some(), object.size, object.hard_pinned, object.lease())
        });
        let Some((group, replicating, old_size, hard_pinned, lease)) = seen else {
            return Answer::refuse(ErrorCode::INTERNAL_ERROR, found.object.after);
        };
        let group = group.as_deref();
        if write.config.group.is_some_and(|wanted| wanted != group.unwrap_or(b"")) {
            return Answer::refuse(ErrorCode::INVALID_PARAMS, found.object.after);
        }
        if replicating {
            return Answer::refuse(ErrorCode::OBJECT_HAS_REPLICATION_TASK, found.object.after);
        }
        let release_at = self.release_at(lease);
        if self.core.processing.contains_key(&found.object.id) {
            // This upsert replaces a write under way, of which only the reservation stays: hard pin and group are those
            // of this request, as in the reference. A soft pin from before that write stays.
            let places = match self.places(write) {
                Ok(places) => places,
                Err((code, _)) => {
                    let discarded = self.commit(&Record::Discard { object: found.object, release_at });
                    return Answer::refuse(code, discarded);
                }
            };
            let start = start(write, &places, write.group());
            let id = self.commit(&Record::UpsertStart { start, replaces: Some(found.object), release_at });
            return self.started(id, tell);
        }
        let write = Write { config: WriteConfig { hard_pin: hard_pinned, ..write.config }, ..*write };
        let places = if old_size == write.size && !self.holds_starts() {
            Places::new()
        } else {
            match self.places(&write) {
                Ok(places) => places,
                Err((code, depends_on)) => return Answer::refuse(code, depends_on),
            }
        };
        let start = start(&write, &places, group);
        let id = self.commit(&Record::UpsertStart { start, replaces: Some(found.object), release_at });
        self.started(id, tell)
    }

    fn places(&mut self, write: &Write<'_>) -> Result<Places, (ErrorCode, SequenceId)> {
        let last = self.core.last;
        if self.holds_starts() {
            return Err((ErrorCode::NO_AVAILABLE_HANDLE, last));
        }
        // With fewer objects in all than one shard can hold, no shard is full and none need be locked.
        let many = self.engine.len() >= SHARD_CAPACITY as u64 - 1;
        if many && self.objects(write.key.hash.shard()).len() >= SHARD_CAPACITY - 1 {
            return Err((ErrorCode::NO_AVAILABLE_HANDLE, last));
        }
        let config = &write.config;
        let own_host = self.host_of(write.client, config);
        let wanted = Wanted {
            size: write.size,
            replicas: config.replicas,
            preferred: config.preferred,
            host_id: own_host.as_deref().unwrap_or(config.host_id),
            strategy: self.engine.settings.strategy,
        };
        let places = self.core.choose_places(&wanted);
        if places.is_empty() {
            if self.core.open.len() as u64 >= config.replicas.max(1) {
                self.engine.counts.starved.store(true, Ordering::Relaxed);
            }
            return Err((ErrorCode::NO_AVAILABLE_HANDLE, last));
        }
        Ok(places)
    }

    /// Returns the host of a writer that names none, taken from its first segment. `None` if the strategy does not use
    /// it.
    fn host_of(&self, client: Uuid, config: &WriteConfig<'_>) -> Option<Box<[u8]>> {
        if self.engine.settings.strategy != Strategy::LocalFirst || !config.host_id.is_empty() {
            return None;
        }
        let first = *self.engine.clients.read().get(&client)?.segments.first()?;
        self.core.segments.get(&first).map(|mounted| mounted.segment.host_id.clone())
    }

    /// Builds the answer to a Start. It depends on the record that reserved the bytes (R3).
    fn started<R>(&self, id: SequenceId, tell: impl FnOnce(&Object) -> R) -> Answer<R> {
        let object = ObjectId(id.0);
        // The hint nearly always is about this object, which saves a search.
        let hinted = self.core.hinted(object).map(|hint| hint.handle);
        let handle = hinted.or_else(|| self.core.object_index.find(object));
        let told = handle.and_then(|handle| {
            let objects = self.objects(handle.shard());
            objects.at(handle.slot()).filter(|found| found.id == object).map(tell)
        });
        match told {
            Some(told) if planted!(AnswerStartEarly) => Answer::ok(told, SequenceId(0)),
            Some(told) => Answer::ok(told, id),
            None => Answer::refuse(ErrorCode::INTERNAL_ERROR, id),
        }
    }

    pub(super) fn end_write(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        types: ReplicaTypes,
        checksum: Option<u64>,
    ) -> Answer<()> {
        let found = match self.find_owned(client, key) {
            Ok(found) => found,
            Err((code, depends_on)) => {
                return Answer::refuse(code, self.end_stray(client, key, types).unwrap_or(depends_on));
            }
        };
        if self.core.processing.contains_key(&found.object.id) {
            if types == ReplicaTypes::Others {
                return Answer::ok((), found.object.after);
            }
            return Answer::ok((), self.commit(&Record::End { object: found.object, checksum }));
        }
        let complete = self.with_object(found.handle, |object| object.is_written()) == Some(true);
        if complete && types == ReplicaTypes::Memory {
            Answer::ok((), found.object.after)
        } else {
            Answer::refuse(ErrorCode::INVALID_WRITE, found.object.after)
        }
    }

    pub(super) fn revoke_write(&mut self, client: Uuid, key: Key<'_>, types: ReplicaTypes) -> Answer<()> {
        let found = match self.find_owned(client, key) {
            Ok(found) => found,
            Err((code, depends_on)) => {
                return Answer::refuse(code, self.end_stray(client, key, types).unwrap_or(depends_on));
            }
        };
        if !self.core.processing.contains_key(&found.object.id) {
            return Answer::refuse(ErrorCode::INVALID_WRITE, found.object.after);
        }
        if types == ReplicaTypes::Others {
            return Answer::ok((), found.object.after);
        }
        Answer::ok((), self.commit(&Record::Revoke { object: found.object }))
    }

    /// Frees the bytes of a write whose object lost all its segments: an End or Revoke of its writer means that the
    /// transfer is over. Returns the record that frees them.
    fn end_stray(&mut self, client: Uuid, key: Key<'_>, types: ReplicaTypes) -> Option<SequenceId> {
        let found = self.find_stray(key)?;
        let its_own = self.core.writers.id(found.client) == client
            && self.core.processing.contains_key(&found.object.id)
            && types == ReplicaTypes::Memory;
        its_own.then(|| self.commit(&Record::Revoke { object: found.object }))
    }

    fn find_owned(&self, client: Uuid, key: Key<'_>) -> Result<Found, (ErrorCode, SequenceId)> {
        let found = self.find_hashed(key)?;
        if self.core.writers.id(found.client) == client {
            Ok(found)
        } else {
            Err((ErrorCode::ILLEGAL_CLIENT, found.object.after))
        }
    }
}

fn start<'a>(write: &Write<'a>, places: &'a Places, group: Option<&'a [u8]>) -> Start<'a> {
    let WriteConfig { soft_pin, hard_pin, data_type, replicas: _, preferred: _, host_id: _, group: _ } =
        write.config;
    Start {
        key: write.key,
        client: write.client,
        size: write.size,
        places,
        hard_pin,
        soft_pin,
        group,
        data_type,
    }
}
