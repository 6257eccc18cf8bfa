//! Tasks: copies and moves that clients are asked to make.

use crate::engine::record::{CopyOrMove, Record};
use crate::engine::record_size::MAX_RECORD;
use crate::engine::state::Sequencer;
use crate::engine::task::{Task, TaskStatus};
use crate::engine::types::{Answer, ErrorCode, SequenceId, Uuid};

/// Most tasks that one record assigns.
const MOST_ASSIGNED: usize = 4096;

impl Sequencer<'_> {
    /// Creates a task that asks a client for copies in segments of these names. `id` names the task.
    pub fn create_copy_task(
        &mut self,
        id: Uuid,
        key: &[u8],
        tenant: &[u8],
        targets: &[&[u8]],
    ) -> Answer<Uuid> {
        if targets.is_empty() {
            return Answer::invalid(ErrorCode::INVALID_PARAMS);
        }
        let found = match self.find(key) {
            Ok(found) => found,
            Err((code, depends_on)) => return Answer::refuse(code, depends_on),
        };
        for target in targets {
            if let Err(code) = self.check_open(target, ErrorCode::INVALID_PARAMS) {
                return Answer::refuse(code, self.core.last);
            }
        }
        let sources = self.sources(found.handle);
        let chosen = if sources.is_empty() { 0 } else { self.core.rng.below(sources.len()) };
        let Some((source, client)) = sources.get(chosen) else {
            return Answer::refuse(ErrorCode::INTERNAL_ERROR, found.object.after);
        };
        self.create(&Record::TaskCreated {
            id,
            kind: CopyOrMove::Copy,
            key,
            tenant,
            source,
            targets,
            client: *client,
        })
        .map(|()| id)
    }

    /// Creates a task that asks a client for a move from one segment to another. `id` names the task.
    pub fn create_move_task(
        &mut self,
        id: Uuid,
        key: &[u8],
        tenant: &[u8],
        source: &[u8],
        target: &[u8],
    ) -> Answer<Uuid> {
        let found = match self.find(key) {
            Ok(found) => found,
            Err((code, depends_on)) => return Answer::refuse(code, depends_on),
        };
        let known = self.check_open(source, ErrorCode::INVALID_PARAMS) != Err(ErrorCode::INVALID_PARAMS);
        if source == target || !known {
            return Answer::refuse(ErrorCode::INVALID_PARAMS, self.core.last);
        }
        if let Err(code) = self.check_open(target, ErrorCode::INVALID_PARAMS) {
            return Answer::refuse(code, self.core.last);
        }
        let sources = self.sources(found.handle);
        let Some((_, client)) = sources.iter().find(|(name, _)| **name == *source) else {
            // The replica may be missing because its segment was unmounted, so the refusal depends on that record
            // (INV-3).
            let rests_on = self.with_object(found.handle, |object| object.rests_on());
            return Answer::refuse(ErrorCode::INVALID_PARAMS, rests_on.unwrap_or(found.object.after));
        };
        self.create(&Record::TaskCreated {
            id,
            kind: CopyOrMove::Move,
            key,
            tenant,
            source,
            targets: &[target],
            client: *client,
        })
        .map(|()| id)
    }

    fn create(&mut self, record: &Record<'_>) -> Answer<()> {
        if record.size_bound() > MAX_RECORD {
            return Answer::invalid(ErrorCode::INVALID_PARAMS);
        }
        if self.core.tasks.pending_len() >= self.engine.settings.max_pending_tasks {
            return Answer::refuse(ErrorCode::TASK_PENDING_LIMIT_EXCEEDED, self.core.last);
        }
        Answer::ok((), self.commit(record))
    }

    /// Returns the names of the segments that hold the object, and their clients.
    fn sources(&self, handle: crate::engine::key::Handle) -> Vec<(Box<[u8]>, Uuid)> {
        let sources = self.with_object(handle, |object| {
            let alive = object.replicas().filter(|replica| replica.segment.is_alive());
            alive.map(|replica| (replica.segment.name.clone(), replica.segment.client)).collect()
        });
        sources.unwrap_or_default()
    }

    /// Assigns pending tasks to their client, at most as many as it asks for.
    pub fn fetch_tasks(&mut self, client: Uuid, most: u64) -> Answer<Vec<Task>> {
        let room = self.engine.settings.max_processing_tasks.saturating_sub(self.core.tasks.processing_len());
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(room).min(MOST_ASSIGNED);
        let tasks: Vec<Task> = self.core.tasks.pending_for(client).take(most).cloned().collect();
        if tasks.is_empty() {
            return Answer::ok(tasks, SequenceId(0));
        }
        let ids: Vec<Uuid> = tasks.iter().map(|task| task.id).collect();
        Answer::ok(tasks, self.commit(&Record::TaskAssigned { ids: &ids }))
    }

    /// Returns a copy of a task.
    pub fn query_task(&self, id: Uuid) -> Answer<Task> {
        match self.core.tasks.get(id) {
            Some(task) => Answer::ok(task.clone(), task.last_record),
            None => Answer::refuse(ErrorCode::TASK_NOT_FOUND, self.core.last),
        }
    }

    /// Records how a client's task ended. Repeating the call changes nothing.
    pub fn complete_task(&mut self, client: Uuid, id: Uuid, success: bool, message: &[u8]) -> Answer<()> {
        let Some(task) = self.core.tasks.get(id) else {
            return Answer::refuse(ErrorCode::TASK_NOT_FOUND, self.core.last);
        };
        if task.client != client {
            return Answer::refuse(ErrorCode::ILLEGAL_CLIENT, task.last_record);
        }
        if matches!(task.status, TaskStatus::Failed | TaskStatus::Success) {
            return Answer::ok((), task.last_record);
        }
        Answer::ok((), self.commit(&Record::TaskDone { id, success, message }))
    }
}
