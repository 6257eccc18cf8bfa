//! The calls to etcd of each step, and what their answers mean.

use std::time::Duration;

use bytes::Bytes;

use super::deciding::{copies, needs};
use super::{
    CHUNK_BATCHES, Compaction, FIRST_CHUNK, INTERVAL, MAX_CHUNK, Obstacle, RETRY, RETRY_LATER, Step,
};
use crate::cluster::keys::Keys;
use crate::cluster::log_end::LogId;
use crate::cluster::log_floor::LogFloor;
use crate::cluster::view::ClusterView;
use crate::coordination::types::{
    Compare, Failure, Get, KeyRange, LeaseId, Op, OpResult, Page, Request, Response, Txn,
};
use crate::engine::types::{SequenceId, Term};
use crate::replication::floor::{FloorHeld, Holdings, covers};
use crate::replication::node::{CallId, Node, Phase};
use crate::replication::time::Monotonic;

/// Returns the condition that a key has this value, or does not exist.
fn unchanged(key: Bytes, value: Option<&Bytes>) -> Compare {
    match value {
        Some(value) => Compare::Value { key, equals: value.clone() },
        None => Compare::CreateRevision { key, equals: 0 },
    }
}

/// Returns the range of the batches that begin with records from `first` up to, but without, `end`.
fn batches(keys: &Keys, log: LogId, first: SequenceId, end: SequenceId) -> KeyRange {
    planted!(DeleteAnyLog => return KeyRange::between(keys.batches().start, keys.batch(log, end)));
    KeyRange::between(keys.batch(log, first), keys.batch(log, end))
}

/// Returns the record after this one.
fn next(id: SequenceId) -> SequenceId {
    SequenceId(id.0.saturating_add(1))
}

impl Node {
    /// Returns the call of the next step.
    pub(super) fn compaction_request(&self) -> Option<Request> {
        let Phase::Leading(leadership) = &self.phase else { return None };
        let (compaction, log) = (&leadership.compaction, leadership.writer.end().log);
        let keys = &self.settings.keys;
        let one = |range, limit| Get { range, revision: 0, limit, keys_only: limit > 0 };
        Some(match compaction.step {
            Step::Decide => return None,
            Step::ReadFloor => Request::Get(Get::all(KeyRange::key(keys.floor()))),
            Step::WriteFloor(floor) => Request::Txn(compaction.write(keys, leadership.term, floor)),
            Step::ReadNeeds => {
                let after = KeyRange::key(keys.batch(log, next(compaction.floor)));
                let success = vec![Op::Get(Get::all(keys.members())), Op::Get(one(after, 1))];
                Request::Txn(Txn { success, ..Txn::default() })
            }
            Step::FindFirst => {
                let below = batches(keys, log, SequenceId(0), next(compaction.floor));
                Request::Get(one(below, 1))
            }
            Step::Delete(first) => Request::Txn(compaction.delete(keys, log, first)),
        })
    }

    /// Handles the answer to the call of a step.
    pub(in crate::replication::node) fn compaction_answered(
        &mut self,
        now: Monotonic,
        call: CallId,
        result: Result<Response, Failure>,
    ) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        // An answer to a call of an earlier term means nothing in this one.
        if leadership.compaction.call != Some(call) {
            return;
        }
        let log = leadership.writer.end().log;
        let compaction = &mut leadership.compaction;
        compaction.call = None;
        // Without an answer it is unknown whether the call was carried out: the same step again (R5).
        compaction.due = now.plus(RETRY);
        match (compaction.step, result) {
            (Step::ReadFloor, Ok(Response::Got { page, .. })) => compaction.floor_read(now, log, &page),
            (Step::WriteFloor(floor), Ok(Response::Txn { succeeded, .. })) => {
                compaction.floor_written(now, floor, succeeded);
            }
            (Step::ReadNeeds, Ok(Response::Txn { results, revision, .. })) => {
                if let [OpResult::Got(members), OpResult::Got(after)] = results.as_slice() {
                    let view = ClusterView::read(&self.settings.keys, revision, &members.entries);
                    self.needs_read(now, &view, !after.entries.is_empty());
                }
            }
            (Step::FindFirst, Ok(Response::Got { page, .. })) => {
                let key = page.entries.first().map(|entry| &entry.key);
                let first = key.map(|key| self.settings.keys.first_of_batch(log, key).unwrap_or_default());
                compaction.first_found(now, first);
            }
            (Step::Delete(first), Ok(Response::Txn { succeeded, results, .. })) => {
                compaction.chunk_deleted(now, first, succeeded, &results);
            }
            (_, Ok(_) | Err(_)) => {}
        }
    }

    /// Deletes the batches below the floor unless a member needs one of them, or the snapshots that it rests on are gone.
    fn needs_read(&mut self, now: Monotonic, view: &ClusterView, ends_batch: bool) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let (log, compaction) = (leadership.writer.end().log, &mut leadership.compaction);
        let members = || view.members.values().filter_map(|member| member.value.as_ref());
        let copies = copies(members().collect::<Vec<_>>().into_iter(), log);
        let needs = needs(members(), log, &self.settings.name);
        let cancelled = |it: &str, boot_id| compaction.patience.is_cancelled(now, it, boot_id);
        let mut needs = needs.iter().filter(|(it, _)| !cancelled(&it.name, it.boot_id)).map(|(_, need)| need);
        let need = needs.find(|need| need.after < compaction.floor);
        let need = if planted!(FloorIgnoresNeed) { None } else { need };
        let wanted = self.settings.snapshot_copies;
        let holdings =
            Holdings { log, floor: compaction.floor, copies: &copies, needs: &[], members: &[], wanted };
        let obstacle = if let Some(need) = need {
            Some(FloorHeld::Needed { member: need.member.clone(), after: need.after }.to_string())
        } else if !covers(&holdings) {
            Some("the snapshots that it rests on are gone".to_owned())
        } else {
            None
        };
        if let Some(obstacle) = obstacle {
            let reason = format!("batches below the floor are kept: {obstacle}");
            compaction.held(now, Obstacle { reason, lasting: None });
            return compaction.go_on(Step::Decide, now.plus(INTERVAL));
        }
        if !ends_batch {
            let reason = format!("no batch begins after record {}, where the floor is", compaction.floor.0);
            compaction.held(now, Obstacle { reason, lasting: Some(Duration::ZERO) });
            return compaction.go_on(Step::Decide, now.plus(RETRY_LATER));
        }
        compaction.go_on(Step::FindFirst, now);
    }
}

impl Compaction {
    /// Returns the transaction that writes the floor: only while this primary leads, and over the value that it knows.
    fn write(&self, keys: &Keys, term: Term, floor: LogFloor) -> Txn {
        let mine = Compare::CreateRevision { key: keys.election(), equals: term.0 };
        let put = Op::Put { key: keys.floor(), value: floor.to_bytes(), lease: LeaseId(0) };
        let compare = vec![mine, unchanged(keys.floor(), self.key.as_ref())];
        Txn { compare, success: vec![put], failure: Vec::new() }
    }

    /// Returns the transaction that deletes a chunk of the batches below the floor. It compares the floor, which names
    /// the log, and no term: what may be missing under one primary may be missing under the next.
    fn delete(&self, keys: &Keys, log: LogId, first: SequenceId) -> Txn {
        let range = batches(keys, log, first, self.end_of_chunk(first));
        let compare = vec![unchanged(keys.floor(), self.key.as_ref())];
        Txn { compare, success: vec![Op::Delete(range)], failure: Vec::new() }
    }

    fn end_of_chunk(&self, first: SequenceId) -> SequenceId {
        SequenceId(first.0.saturating_add(self.chunk)).min(next(self.floor))
    }

    fn floor_read(&mut self, now: Monotonic, log: LogId, page: &Page) {
        let value = page.entries.first().map(|entry| entry.value.clone());
        let floor = value.as_ref().map(|value| LogFloor::from_bytes(value)).transpose();
        match floor {
            Ok(floor) => {
                // The floor of another log means nothing for this one.
                self.floor = floor.filter(|floor| floor.log == log).map_or(SequenceId(0), |it| it.last);
                self.cleared = SequenceId(0);
                self.key = value;
                self.go_on(Step::Decide, now);
            }
            Err(why) => {
                let reason =
                    format!("the floor key cannot be read: {why}; delete it, and it is written again");
                self.held(now, Obstacle { reason, lasting: Some(Duration::ZERO) });
                self.go_on(Step::ReadFloor, now.plus(RETRY_LATER));
            }
        }
    }

    fn floor_written(&mut self, now: Monotonic, floor: LogFloor, succeeded: bool) {
        if !succeeded {
            // An earlier attempt without an answer may have written it, or this primary leads no longer.
            return self.go_on(Step::ReadFloor, now);
        }
        tracing::debug!(floor = floor.last.0, log = %floor.log, "moved the floor of the log");
        (self.floor, self.key) = (floor.last, Some(floor.to_bytes()));
        self.go_on(Step::ReadNeeds, now);
    }

    /// Planted bug: batches are deleted and the floor is written never.
    #[cfg(feature = "planted")]
    pub(super) fn delete_without_floor(&mut self, floor: LogFloor, now: Monotonic) {
        self.floor = floor.last;
        self.go_on(Step::FindFirst, now);
    }

    fn first_found(&mut self, now: Monotonic, first: Option<SequenceId>) {
        match first {
            Some(first) => self.go_on(Step::Delete(first), now),
            None => self.all_deleted(now),
        }
    }

    fn chunk_deleted(&mut self, now: Monotonic, first: SequenceId, succeeded: bool, results: &[OpResult]) {
        if !succeeded {
            // Another primary has moved the floor, or a person.
            return self.go_on(Step::ReadFloor, now);
        }
        let deleted = match results.first() {
            Some(OpResult::Deleted(batches)) => *batches,
            _ => 0,
        };
        self.deleted += deleted;
        let end = self.end_of_chunk(first);
        if deleted > CHUNK_BATCHES {
            self.chunk = (self.chunk / 2).max(FIRST_CHUNK);
        } else if deleted < CHUNK_BATCHES / 4 {
            self.chunk = (self.chunk * 2).min(MAX_CHUNK);
        }
        if end > self.floor { self.all_deleted(now) } else { self.go_on(Step::Delete(end), now) }
    }

    fn all_deleted(&mut self, now: Monotonic) {
        if self.cleared < self.floor {
            tracing::info!(
                floor = self.floor.0,
                deleted = self.deleted,
                "deleted the batches below the floor"
            );
        }
        self.cleared = self.floor;
        self.go_on(Step::Decide, now);
    }
}
