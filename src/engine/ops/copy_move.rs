//! Copies and moves of replicas, made by clients.

use super::find::Found;
use super::placement::Places;
use crate::engine::key::Key;
use crate::engine::object::{Replica, Replicas};
use crate::engine::record::{CopyOrMove, DynamicLease, Record};
use crate::engine::state::Sequencer;
use crate::engine::task::CopyMove;
use crate::engine::types::{Answer, ErrorCode, SequenceId, Uuid};

/// Answer to the start of a copy or move: what to read and where to write.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// Size of each replica, in bytes.
    pub size: u64,
    pub source: Replica,
    pub targets: Replicas,
}

/// Arguments of a copy or move that is to start.
struct Request<'a> {
    kind: CopyOrMove,
    client: Uuid,
    source: &'a [u8],
    targets: &'a [&'a [u8]],
    dynamic: DynamicLease,
}

impl Sequencer<'_> {
    /// Begins a copy to segments of these names; those that have a replica already are skipped.
    pub fn copy_start(
        &mut self,
        client: Uuid,
        key: &[u8],
        source: &[u8],
        targets: &[&[u8]],
        dynamic: DynamicLease,
    ) -> Answer<Replicated> {
        if dynamic.id != Uuid::default() {
            return self.refuse_dynamic(key);
        }
        let request = Request { kind: CopyOrMove::Copy, client, source, targets, dynamic };
        self.start_copy_or_move(key, &request)
    }

    /// Begins a move to a segment of that name.
    pub fn move_start(
        &mut self,
        client: Uuid,
        key: &[u8],
        source: &[u8],
        target: &[u8],
    ) -> Answer<Replicated> {
        if source == target {
            return Answer::invalid(ErrorCode::INVALID_PARAMS);
        }
        let request = Request {
            kind: CopyOrMove::Move,
            client,
            source,
            targets: &[target],
            dynamic: DynamicLease::default(),
        };
        self.start_copy_or_move(key, &request)
    }

    /// Refuses a dynamic copy: dynamic replication is off, so no lease of it can be valid.
    fn refuse_dynamic(&self, key: &[u8]) -> Answer<Replicated> {
        match self.find(key) {
            Err((code, depends_on)) => Answer::refuse(code, depends_on),
            Ok(found) => {
                let busy =
                    self.with_object(found.handle, |object| object.copy_move().is_some()) == Some(true);
                let code = if busy {
                    ErrorCode::OBJECT_HAS_REPLICATION_TASK
                } else {
                    ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS
                };
                Answer::refuse(code, found.object.after)
            }
        }
    }

    fn start_copy_or_move(&mut self, key: &[u8], request: &Request<'_>) -> Answer<Replicated> {
        for target in request.targets {
            if let Err(code) = self.check_open(target, ErrorCode::SEGMENT_NOT_FOUND) {
                return Answer::refuse(code, self.core.last);
            }
        }
        let found = match self.find(key) {
            Ok(found) => found,
            Err((code, depends_on)) => return Answer::refuse(code, depends_on),
        };
        let after = found.object.after;
        let seen = self.with_object(found.handle, |object| {
            let source = object
                .replicas()
                .find(|replica| *replica.segment.name == *request.source && replica.is_readable())
                .cloned();
            let held: Vec<Box<[u8]>> = object
                .replicas()
                .filter(|replica| replica.segment.is_alive())
                .map(|replica| replica.segment.name.clone())
                .collect();
            (object.copy_move().is_some(), source, held, object.size, object.rests_on())
        });
        let Some((busy, source, held, size, rests_on)) = seen else {
            return Answer::refuse(ErrorCode::INTERNAL_ERROR, after);
        };
        if busy {
            return Answer::refuse(ErrorCode::OBJECT_HAS_REPLICATION_TASK, after);
        }
        // The replica may be missing because its segment was unmounted, so the refusal depends on that record (INV-3).
        let Some(source) = source else { return Answer::refuse(ErrorCode::REPLICA_NOT_FOUND, rests_on) };
        if self.holds_starts() {
            return Answer::refuse(ErrorCode::NO_AVAILABLE_HANDLE, self.core.last);
        }
        let mut places = Places::new();
        for target in request.targets.iter().filter(|target| !held.iter().any(|name| **name == ***target)) {
            match self.core.place_in(target, size, &places) {
                Some(place) => places.push(place),
                None => return Answer::refuse(ErrorCode::NO_AVAILABLE_HANDLE, self.core.last),
            }
        }
        let id = self.commit(&Record::ReplicationStart {
            object: found.object,
            kind: request.kind,
            client: request.client,
            source: source.id(),
            places: &places,
            dynamic: request.dynamic,
        });
        let targets = self.with_object(found.handle, |object| {
            let ids = object.copy_move().map(|task| task.targets.clone()).unwrap_or_default();
            object.replicas().filter(|replica| ids.contains(&replica.id())).cloned().collect()
        });
        Answer::ok(Replicated { size, source, targets: targets.unwrap_or_default() }, id)
    }

    /// Checks that new replicas can be placed in a segment of that name. `unknown` is the error if none is mounted.
    pub(super) fn check_open(&self, name: &[u8], unknown: ErrorCode) -> Result<(), ErrorCode> {
        if self.core.names.contains_key(name) {
            Ok(())
        } else if self.core.segments.values().any(|mounted| *mounted.segment.name == *name) {
            Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS)
        } else {
            Err(unknown)
        }
    }

    /// Ends a copy or move that its client has written. If the source or a target was unmounted meanwhile, this ends it
    /// too, but answers `REPLICA_IS_GONE`.
    pub fn end_copy_or_move(
        &mut self,
        client: Uuid,
        key: &[u8],
        kind: CopyOrMove,
        dynamic: DynamicLease,
    ) -> Answer<()> {
        let (found, task) = match self.find_copy_move(client, key, kind, dynamic) {
            Ok(found) => found,
            Err(refusal) => return self.end_stray_copy(client, key, kind, refusal),
        };
        let whole = self.with_object(found.handle, |object| {
            let is_target = |replica: &Replica| task.targets.contains(&replica.id());
            let is_source = |replica: &Replica| replica.id() == task.source;
            let source = object.replicas().any(|replica| is_source(replica) && replica.is_readable());
            let written =
                object.replicas().filter(|replica| is_target(replica) && replica.segment.is_alive());
            let elsewhere = |replica: &Replica| {
                !is_source(replica)
                    && (replica.is_readable() || is_target(replica) && replica.segment.is_alive())
            };
            let whole = source
                && written.count() == task.targets.len()
                && (kind == CopyOrMove::Copy || object.replicas().any(elsewhere));
            (whole, object.lease())
        });
        let (whole, lease) = whole.unwrap_or_default();
        let release_at = self.release_at(lease);
        let id = self.commit(&Record::ReplicationEnd { object: found.object, release_at });
        if whole { Answer::ok((), id) } else { Answer::refuse(ErrorCode::REPLICA_IS_GONE, id) }
    }

    /// Cancels a copy or move and frees its targets.
    pub fn revoke_copy_or_move(
        &mut self,
        client: Uuid,
        key: &[u8],
        kind: CopyOrMove,
        dynamic: DynamicLease,
    ) -> Answer<()> {
        match self.find_copy_move(client, key, kind, dynamic) {
            Err(refusal) => self.end_stray_copy(client, key, kind, refusal),
            Ok((found, _)) => {
                Answer::ok((), self.commit(&Record::ReplicationRevoke { object: found.object }))
            }
        }
    }

    /// Frees the bytes of a copy or move whose object lost all its segments: an End or Revoke of its client means that
    /// the transfer is over. The call is refused all the same.
    fn end_stray_copy(
        &mut self,
        client: Uuid,
        key: &[u8],
        kind: CopyOrMove,
        (code, depends_on): (ErrorCode, SequenceId),
    ) -> Answer<()> {
        let its_own = |copy: &CopyMove| copy.client == client && copy.kind == kind;
        let found = self.find_stray(Key::new(key)).filter(|found| {
            self.with_object(found.handle, |object| object.copy_move().is_some_and(its_own)) == Some(true)
        });
        let ended = found.map(|found| self.commit(&Record::ReplicationRevoke { object: found.object }));
        Answer::refuse(code, ended.unwrap_or(depends_on))
    }

    fn find_copy_move(
        &self,
        client: Uuid,
        key: &[u8],
        kind: CopyOrMove,
        dynamic: DynamicLease,
    ) -> Result<(Found, CopyMove), (ErrorCode, SequenceId)> {
        let found = self.find(key)?;
        let after = found.object.after;
        let task = self.with_object(found.handle, |object| object.copy_move().cloned()).flatten();
        let Some(task) = task else { return Err((ErrorCode::OBJECT_NO_REPLICATION_TASK, after)) };
        if task.client != client {
            return Err((ErrorCode::ILLEGAL_CLIENT, after));
        }
        if task.kind != kind {
            return Err((ErrorCode::INVALID_PARAMS, after));
        }
        if task.dynamic != dynamic {
            return Err((ErrorCode::INVALID_VERSION, after));
        }
        Ok((found, task))
    }
}
