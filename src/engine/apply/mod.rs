//! `apply`: the one way in which metadata changes, on the primary and on standbys alike.
//!
//! Everything here is a function of the state and the record. No clock, no setting, no live lease is read.

mod copy_move;
mod derived;
mod objects;
mod places;
mod segments;
mod term;

pub(super) use derived::{Fate, reserved_in};

use std::sync::atomic::Ordering;

use super::core::Core;
use super::digest;
use super::format::Format;
use super::record::Record;
use super::state::Sequencer;
use super::task::{Task, TaskStatus};
use super::term_state::TermState;
use super::types::{LogTime, SequenceId};

impl Sequencer<'_> {
    pub(super) fn change(&mut self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        // The code below is the meaning of records in all of these formats; those of format 1 have no `reserved_since`.
        // A new format has to say where it differs.
        let (Format::One | Format::Two) = format;
        // Before any effect of the record can be seen (INV-3, `Engine::last_visible`).
        self.engine.begun.store(id.0, Ordering::Release);
        // Any other record may lock any shard, and would deadlock with those that are kept locked.
        if !matches!(record, Record::PutStart(_) | Record::End { .. }) {
            self.locked.unlock_all();
        }
        match *record {
            Record::PutStart(ref start) => self.apply_start(id, at, start),
            Record::UpsertStart { ref start, replaces, release_at } => {
                self.apply_upsert_start(id, at, start, replaces, release_at);
            }
            Record::End { object, checksum } => self.apply_end(id, at, object, checksum),
            Record::Revoke { object } => self.apply_remove(id, object, Fate::Free),
            Record::Discard { object, release_at } => {
                self.apply_remove(id, object, Fate::Discard(release_at))
            }
            Record::Release { reservation } => self.apply_release(id, reservation),
            Record::Remove { objects, source: _ } => {
                for object in objects {
                    self.apply_remove(id, *object, Fate::Free);
                }
            }
            Record::ClearReplicas { object, segment_name } => self.apply_clear(id, object, segment_name),
            Record::Sweep { objects } => self.apply_sweep(id, objects),
            Record::RemoveAll { from, up_to, force, reserved_since } => {
                self.apply_remove_all(id, at, from..=up_to, force, reserved_since);
            }
            Record::Evict(ref rule) => self.apply_evict(id, at, rule),
            Record::ReplicationStart { object, kind, client, source, places, dynamic } => {
                self.apply_copy_move_start(id, at, object, kind, client, source, places, dynamic);
            }
            Record::ReplicationEnd { object, release_at } => self.apply_copy_move_end(id, object, release_at),
            Record::ReplicationRevoke { object } => self.apply_copy_move_revoke(id, object),
            Record::MountSegment { ref segment, number, client } => {
                self.apply_mount(id, segment, number, client)
            }
            Record::ClientJoined { client } => self.apply_joined(id, client),
            Record::DrainSegment { number, until } => self.apply_drain(id, number, until),
            Record::UnmountSegment { number } => self.apply_unmount(id, number),
            Record::ClientExpired { client } => self.apply_expired(id, client),
            Record::TaskCreated { id: task, kind, key, tenant, source, targets, client } => {
                let task = Task {
                    id: task,
                    kind,
                    key: key.into(),
                    tenant: tenant.into(),
                    source: source.into(),
                    targets: targets.iter().map(|target| (*target).into()).collect(),
                    client,
                    status: TaskStatus::Pending,
                    created: at,
                    updated: at,
                    message: Box::default(),
                    last_record: id,
                };
                self.core.digest.add(digest::task(&task));
                self.core.tasks.insert(task);
            }
            Record::TaskAssigned { ids } => {
                for task in ids {
                    self.retell_task(*task, |tasks| tasks.assign(*task, at, id));
                }
            }
            Record::TaskDone { id: task, success, message } => {
                self.retell_task(task, |tasks| tasks.finish(task, success, message, at, id));
                self.core.forget_tasks();
            }
            Record::MetadataPut { key, value } => {
                let old = self.engine.metadata.write().insert(key.into(), (value.into(), id));
                self.core.metadata_bytes += key.len() + value.len();
                if let Some((old, _)) = old {
                    self.core.metadata_bytes -= key.len() + old.len();
                    self.core.digest.subtract(digest::metadata(key, &old));
                }
                self.core.digest.add(digest::metadata(key, value));
            }
            Record::MetadataDelete { key } => {
                if let Some((old, _)) = self.engine.metadata.write().remove(key) {
                    self.core.metadata_bytes -= key.len() + old.len();
                    self.core.digest.subtract(digest::metadata(key, &old));
                }
            }
            Record::RenewLeases { leases } => self.apply_renew(leases),
            Record::NewTerm { term, primary: _, boot_id, hold_until, lease_ttl, leader_ttl, kept_tasks } => {
                let term_state = TermState {
                    term,
                    boot_id,
                    hold_until,
                    lease_ttl,
                    leader_ttl,
                    kept_tasks,
                    ..TermState::default()
                };
                self.apply_new_term(id, at, term_state);
            }
            Record::Resign { term, hold_until } => self.apply_resign(id, term, hold_until),
            Record::Digest { digest } => self.apply_digest(id, digest),
        }
    }

    /// Changes a task and the digest with it.
    fn retell_task(&mut self, id: super::types::Uuid, change: impl FnOnce(&mut super::task::Tasks)) {
        let core = &mut *self.core;
        if let Some(task) = core.tasks.get(id) {
            core.digest.subtract(digest::task(task));
        }
        change(&mut core.tasks);
        if let Some(task) = core.tasks.get(id) {
            core.digest.add(digest::task(task));
        }
    }
}

impl Core {
    /// Drops the oldest ended tasks beyond `kept_tasks`. That takes no record of its own: every replica has that number
    /// from `NewTerm`.
    fn forget_tasks(&mut self) {
        while let Some(task) = self.tasks.forget_finished(self.term_state.kept_tasks as usize) {
            self.digest.subtract(digest::task(&task));
        }
    }
}
