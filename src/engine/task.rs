//! Work that clients do for the store: copies and moves of replicas, and the queue of tasks that asks for them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::record::{CopyOrMove, DynamicLease};
use super::types::{LogTime, SequenceId, Uuid};
use crate::engine::types::ReplicaId;

/// A copy or move of one object that is under way.
#[derive(Clone, Debug)]
pub struct CopyMove {
    pub kind: CopyOrMove,
    pub client: Uuid,
    /// The replica that is read; it cannot be evicted or written meanwhile.
    pub source: ReplicaId,
    /// The replicas that are written.
    pub targets: Vec<ReplicaId>,
    pub started: LogTime,
    /// Lease that the client named for a dynamic copy; zero for a plain one.
    pub dynamic: DynamicLease,
}

/// Life-cycle state of a task. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum TaskStatus {
    /// Its client has not fetched it yet.
    Pending = 0,
    /// Its client works on it.
    Processing = 1,
    Failed = 2,
    Success = 3,
}

/// A copy or move that a client is asked to make.
#[derive(Clone, Debug)]
pub struct Task {
    pub id: Uuid,
    pub kind: CopyOrMove,
    pub key: Box<[u8]>,
    /// The tenant that was named.
    pub tenant: Box<[u8]>,
    /// The segment to read from.
    pub source: Box<[u8]>,
    /// The segments to write to.
    pub targets: Vec<Box<[u8]>>,
    /// The client that is to do it.
    pub client: Uuid,
    pub status: TaskStatus,
    /// When it was asked for.
    pub created: LogTime,
    pub updated: LogTime,
    /// Message of its client, or of the timeout, from its end.
    pub message: Box<[u8]>,
    /// The last record about it.
    pub last_record: SequenceId,
}

/// All tasks, with a queue for each status.
#[derive(Debug, Default)]
pub struct Tasks {
    all: HashMap<Uuid, Task>,
    /// Tasks that wait to be fetched, by client, oldest first.
    pending: HashMap<Uuid, VecDeque<Uuid>>,
    pending_len: usize,
    /// Tasks that clients work on, by the record that assigned them, oldest first.
    processing: BTreeSet<(SequenceId, Uuid)>,
    /// Ended tasks, oldest first.
    finished: VecDeque<Uuid>,
}

impl Tasks {
    /// Returns the task with this id.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<&Task> {
        self.all.get(&id)
    }

    /// Returns how many wait to be fetched.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.pending_len
    }

    /// Returns how many are being worked on.
    #[must_use]
    pub fn processing_len(&self) -> usize {
        self.processing.len()
    }

    /// Returns the tasks that wait for `client`, oldest first.
    pub fn pending_for(&self, client: Uuid) -> impl Iterator<Item = &Task> {
        self.pending.get(&client).into_iter().flatten().filter_map(|id| self.all.get(id))
    }

    /// Returns the tasks that have waited since before `pending_since`, or been worked on since before
    /// `processing_since`.
    #[must_use]
    pub fn overdue(&self, pending_since: LogTime, processing_since: LogTime) -> Vec<(Uuid, TaskStatus)> {
        let waiting = self.pending.values().flat_map(|queue| {
            queue.iter().filter_map(|id| self.all.get(id)).take_while(|task| task.updated < pending_since)
        });
        let worked_on = self
            .processing
            .iter()
            .filter_map(|(_, id)| self.all.get(id))
            .take_while(|task| task.updated < processing_since);
        waiting.chain(worked_on).map(|task| (task.id, task.status)).collect()
    }

    /// Returns all tasks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.all.values()
    }

    pub(super) fn insert(&mut self, task: Task) {
        self.pending.entry(task.client).or_default().push_back(task.id);
        self.pending_len += 1;
        self.all.insert(task.id, task);
    }

    pub(super) fn assign(&mut self, id: Uuid, now: LogTime, record: SequenceId) {
        self.leave_queues(id);
        if let Some(task) = self.all.get_mut(&id) {
            task.status = TaskStatus::Processing;
            task.updated = now;
            task.last_record = record;
            self.processing.insert((record, id));
        }
    }

    pub(super) fn finish(
        &mut self,
        id: Uuid,
        success: bool,
        message: &[u8],
        now: LogTime,
        record: SequenceId,
    ) {
        self.leave_queues(id);
        if let Some(task) = self.all.get_mut(&id) {
            task.status = if success { TaskStatus::Success } else { TaskStatus::Failed };
            task.updated = now;
            task.message = message.into();
            task.last_record = record;
            self.finished.push_back(id);
        }
    }

    /// Removes and returns the oldest ended task if there are more than `keep`.
    pub(super) fn forget_finished(&mut self, keep: usize) -> Option<Task> {
        while self.finished.len() > keep {
            let forgotten = self.finished.pop_front().and_then(|id| self.all.remove(&id));
            if forgotten.is_some() {
                return forgotten;
            }
        }
        None
    }

    fn leave_queues(&mut self, id: Uuid) {
        let Some(task) = self.all.get(&id) else { return };
        match task.status {
            TaskStatus::Pending => {
                if let Some(queue) = self.pending.get_mut(&task.client) {
                    let before = queue.len();
                    if queue.front() == Some(&id) {
                        queue.pop_front();
                    } else {
                        queue.retain(|other| *other != id);
                    }
                    self.pending_len -= before - queue.len();
                    if queue.is_empty() {
                        self.pending.remove(&task.client);
                    }
                }
            }
            TaskStatus::Processing => {
                self.processing.remove(&(task.last_record, id));
            }
            TaskStatus::Failed | TaskStatus::Success => {}
        }
    }
}
