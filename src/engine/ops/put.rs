//! Writing objects: Put, Upsert, their End and Revoke.

use std::sync::atomic::Ordering;

use super::placement::{Places, Wanted};
use crate::engine::object::{Object, ReplicaStatus, Replicas};
use crate::engine::record::{Record, SoftPin, Start};
use crate::engine::rules::Strategy;
use crate::engine::shard::{Key, SHARD_CAPACITY};
use crate::engine::state::Sequencer;
use crate::engine::types::{Answer, ErrorCode, ObjectId, SequenceId, Uuid};

use super::find::Found;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// How an object is to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteConfig<'a> {
    /// How many replicas are wanted; fewer are given when there is no room for all.
    pub replicas: u64,
    /// What becomes of the soft pin at the End.
    pub soft_pin: SoftPin,
    /// Never evict it.
    pub hard_pin: bool,
    /// Names of segments to try first, in order.
    pub preferred: &'a [&'a [u8]],
    /// The writer's host.
    pub host_id: &'a [u8],
    /// What the writer says it is.
    pub data_type: u8,
    /// The group that it belongs to; `None` leaves a written object in its group.
    pub group: Option<&'a [u8]>,
}

/// A write that may begin.
#[derive(Clone, Debug)]
pub struct Started {
    /// Bytes of one replica.
    pub size: u64,
    /// Where to write.
    pub replicas: Replicas,
}

/// Which kinds of replicas an End or Revoke is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaTypes {
    /// Those in memory, alone or among others.
    Memory,
    /// Kinds that no object here has.
    Others,
}

impl Started {
    /// What the writer of an object needs to know of it.
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
        let key = Key::new(key);
        self.run(&[key]).put_start(client, key, size, config, Started::of)
    }

    /// Reserves memory to write a key again, or the memory that it has if the size is the same.
    pub fn upsert_start(
        &mut self,
        client: Uuid,
        key: &[u8],
        size: u64,
        config: &WriteConfig<'_>,
    ) -> Answer<Started> {
        let key = Key::new(key);
        self.run(&[key]).upsert_start(client, key, size, config, Started::of)
    }

    /// The writer is done.
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

    /// The writer gives up.
    pub fn revoke(&mut self, client: Uuid, key: &[u8], types: ReplicaTypes) -> Answer<()> {
        let key = Key::new(key);
        self.run(&[key]).revoke(client, key, types)
    }

    pub(super) fn start_put<R>(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        size: u64,
        config: &WriteConfig<'_>,
        tell: impl FnOnce(&Object) -> R,
    ) -> Answer<R> {
        let mut stuck = None;
        if let Some(found) = self.find_to_write(key) {
            let complete = self.view(found.handle, |object| {
                object.replicas().any(|replica| replica.status == ReplicaStatus::Complete)
            });
            let started = self.core.processing.get(&found.object.id).map(|write| write.started);
            match started {
                Some(started)
                    if complete != Some(true)
                        && started.plus(self.engine.rules.discard_timeout) < self.now =>
                {
                    stuck = Some((found, started.plus(self.engine.rules.release_timeout)));
                }
                _ => return Answer::refuse(ErrorCode::OBJECT_ALREADY_EXISTS, found.object.after),
            }
        }
        let places = match self.places(client, key, size, config) {
            Ok(places) => places,
            Err((code, depends_on)) => return Answer::refuse(code, depends_on),
        };
        if let Some((found, release_at)) = stuck {
            self.commit(&Record::Discard { object: found.object, release_at });
        }
        self.start_at(client, key, size, config, &places, tell)
    }

    pub(super) fn start_upsert<R>(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        size: u64,
        config: &WriteConfig<'_>,
        tell: impl FnOnce(&Object) -> R,
    ) -> Answer<R> {
        let Some(found) = self.find_to_write(key) else {
            return self.start_put(client, key, size, config, tell);
        };
        let seen = self.view(found.handle, |object| {
            let group = object.group().map(|group| group.id.clone());
            (group, object.replication().is_some(), object.size, object.hard_pinned, object.lease())
        });
        let Some((group, replicating, old_size, hard_pinned, lease)) = seen else {
            return Answer::refuse(ErrorCode::INTERNAL_ERROR, found.object.after);
        };
        let group = group.as_deref();
        if config.group.is_some_and(|wanted| wanted != group.unwrap_or(b"")) {
            return Answer::refuse(ErrorCode::INVALID_PARAMS, found.object.after);
        }
        if replicating {
            return Answer::refuse(ErrorCode::OBJECT_HAS_REPLICATION_TASK, found.object.after);
        }
        let release_at = self.release_at(lease);
        if self.core.processing.contains_key(&found.object.id) {
            // A write that is pushed aside leaves nothing behind but its reservation: hard pin and group are what this
            // request says, as in the reference. A soft pin from before that write stays.
            let places = match self.places(client, key, size, config) {
                Ok(places) => places,
                Err((code, _)) => {
                    let discarded = self.commit(&Record::Discard { object: found.object, release_at });
                    return Answer::refuse(code, discarded);
                }
            };
            let group = config.group.filter(|group| !group.is_empty());
            let start = start(client, key, size, config, &places, group);
            let id = self.commit(&Record::UpsertStart { start, replaces: Some(found.object), release_at });
            return self.started(id, tell);
        }
        let config = WriteConfig { hard_pin: hard_pinned, ..*config };
        let places = if old_size == size {
            Places::new()
        } else {
            match self.places(client, key, size, &config) {
                Ok(places) => places,
                Err((code, depends_on)) => return Answer::refuse(code, depends_on),
            }
        };
        let start = start(client, key, size, &config, &places, group);
        let id = self.commit(&Record::UpsertStart { start, replaces: Some(found.object), release_at });
        self.started(id, tell)
    }

    fn start_at<R>(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        size: u64,
        config: &WriteConfig<'_>,
        places: &Places,
        tell: impl FnOnce(&Object) -> R,
    ) -> Answer<R> {
        let group = config.group.filter(|group| !group.is_empty());
        let id = self.commit(&Record::PutStart(start(client, key, size, config, places, group)));
        self.started(id, tell)
    }

    fn places(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        size: u64,
        config: &WriteConfig<'_>,
    ) -> Result<Places, (ErrorCode, SequenceId)> {
        let last = self.core.last;
        // With fewer objects than one shard can hold there is no need to look.
        let many = self.engine.len() >= SHARD_CAPACITY as u64 - 1;
        if many && self.objects(key.hash.shard()).len() >= SHARD_CAPACITY - 1 {
            return Err((ErrorCode::NO_AVAILABLE_HANDLE, last));
        }
        let own_host = self.host_of(client, config);
        let wanted = Wanted {
            size,
            replicas: config.replicas,
            preferred: config.preferred,
            host_id: own_host.as_deref().unwrap_or(config.host_id),
            strategy: self.engine.rules.strategy,
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

    /// The host of a writer that does not say where it is but has a segment there, if that matters.
    fn host_of(&self, client: Uuid, config: &WriteConfig<'_>) -> Option<Box<[u8]>> {
        if self.engine.rules.strategy != Strategy::LocalFirst || !config.host_id.is_empty() {
            return None;
        }
        let first = *self.engine.clients.read().get(&client)?.segments.first()?;
        self.core.segments.get(&first).map(|mounted| mounted.segment.host_id.clone())
    }

    /// What a writer is told: it rests on the record that reserved the bytes (R3).
    fn started<R>(&self, id: SequenceId, tell: impl FnOnce(&Object) -> R) -> Answer<R> {
        let object = ObjectId(id.0);
        // The object that was made last is nearly always the one, and needs no search.
        let hinted = self.core.hinted(object).map(|hint| hint.handle);
        let handle = hinted.or_else(|| self.core.ids.find(object));
        let told = handle.and_then(|handle| {
            let objects = self.objects(handle.shard());
            objects.at(handle.slot()).filter(|found| found.id == object).map(tell)
        });
        match told {
            #[cfg(feature = "planted")]
            Some(told) if planted::active(Bug::AnswerStartEarly) => Answer::ok(told, SequenceId(0)),
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
        let complete = self.view(found.handle, |object| object.is_written()) == Some(true);
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

    /// A writer whose object went with its segments writes no more: its bytes need not be kept from others any longer.
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

fn start<'a>(
    client: Uuid,
    key: Key<'a>,
    size: u64,
    config: &WriteConfig<'_>,
    places: &'a Places,
    group: Option<&'a [u8]>,
) -> Start<'a> {
    Start {
        key,
        client,
        size,
        places,
        hard_pin: config.hard_pin,
        soft_pin: config.soft_pin,
        group,
        data_type: config.data_type,
    }
}
