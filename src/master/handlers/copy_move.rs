//! Calls about copies, moves, and the tasks that ask for them.

use std::hash::{BuildHasher, RandomState};

use super::task_json::payload;
use super::{Handled, Handlers, INVALID, constant, reply};
use crate::engine::ops::MAX_KEY;
use crate::engine::record::{CopyOrMove, DynamicLease};
use crate::engine::task;
use crate::engine::types::Answer;
use crate::master::reply_encoding;
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{
    ClientKeyRequest, CopyStartRequest, CopyStartResponse, CreateCopyTaskRequest, CreateMoveTaskRequest,
    DynamicReplicaCopyFinishRequest, DynamicReplicaCopyStartRequest, FetchTasksRequest,
    MarkTaskToCompleteRequest, MoveStartRequest, QueryTaskResponse, TaskAssignment,
};
use crate::wire::types::{ErrorCode, TaskStatus, TaskType, Uuid};

/// Most targets that one copy may name: a record has to fit into a batch of the log.
const MAX_TARGETS: usize = 100;

/// The tenant of every object.
const TENANT: &[u8] = b"default";

impl Handlers {
    pub(super) fn copy_start<F: Rpc>(&self, request: CopyStartRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let lease = DynamicLease::default();
        self.begin_copy::<F>(
            request.client_id,
            request.key,
            request.src_segment,
            &request.tgt_segments,
            lease,
            out,
        )
    }

    pub(super) fn dynamic_copy_start<F: Rpc>(
        &self,
        request: DynamicReplicaCopyStartRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let lease = DynamicLease {
            id: request.dynamic_replication_lease_id,
            epoch: request.dynamic_replication_version_epoch,
        };
        self.begin_copy::<F>(
            request.client_id,
            request.key,
            request.src_segment,
            &request.tgt_segments,
            lease,
            out,
        )
    }

    fn begin_copy<F: Rpc>(
        &self,
        client: Uuid,
        key: &[u8],
        source: &[u8],
        targets: &[&[u8]],
        lease: DynamicLease,
        out: &mut Vec<u8>,
    ) -> Handled {
        if targets.len() > MAX_TARGETS {
            return constant::<F, CopyStartResponse<'_>>(Err(INVALID), out);
        }
        let answer = self.engine.sequencer(|| self.now()).copy_start(client, key, source, targets, lease);
        let result = answer.result.as_ref().map(reply_encoding::copy).map_err(|code| *code);
        encode_response::<F, _>(&result, out);
        Handled::one(result.is_err(), answer.depends_on)
    }

    pub(super) fn copy_end<F: Rpc>(&self, request: ClientKeyRequest<'_>, out: &mut Vec<u8>) -> Handled {
        self.finish::<F>(&request, CopyOrMove::Copy, true, out)
    }

    pub(super) fn copy_revoke<F: Rpc>(&self, request: ClientKeyRequest<'_>, out: &mut Vec<u8>) -> Handled {
        self.finish::<F>(&request, CopyOrMove::Copy, false, out)
    }

    pub(super) fn move_end<F: Rpc>(&self, request: ClientKeyRequest<'_>, out: &mut Vec<u8>) -> Handled {
        self.finish::<F>(&request, CopyOrMove::Move, true, out)
    }

    pub(super) fn move_revoke<F: Rpc>(&self, request: ClientKeyRequest<'_>, out: &mut Vec<u8>) -> Handled {
        self.finish::<F>(&request, CopyOrMove::Move, false, out)
    }

    fn finish<F: Rpc>(
        &self,
        request: &ClientKeyRequest<'_>,
        kind: CopyOrMove,
        done: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.finish_leased::<F>(request.client_id, request.key, kind, DynamicLease::default(), done, out)
    }

    pub(super) fn dynamic_copy_end<F: Rpc>(
        &self,
        request: DynamicReplicaCopyFinishRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.finish_dynamic::<F>(&request, true, out)
    }

    pub(super) fn dynamic_copy_revoke<F: Rpc>(
        &self,
        request: DynamicReplicaCopyFinishRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.finish_dynamic::<F>(&request, false, out)
    }

    fn finish_dynamic<F: Rpc>(
        &self,
        request: &DynamicReplicaCopyFinishRequest<'_>,
        done: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        let lease = DynamicLease {
            id: request.dynamic_replication_lease_id,
            epoch: request.dynamic_replication_version_epoch,
        };
        self.finish_leased::<F>(request.client_id, request.key, CopyOrMove::Copy, lease, done, out)
    }

    fn finish_leased<F: Rpc>(
        &self,
        client: Uuid,
        key: &[u8],
        kind: CopyOrMove,
        lease: DynamicLease,
        done: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        let mut sequencer = self.engine.sequencer(self.now());
        let answer = if done {
            sequencer.end_copy_or_move(client, key, kind, lease)
        } else {
            sequencer.revoke_copy_or_move(client, key, kind, lease)
        };
        drop(sequencer);
        reply::<F, _>(answer, out)
    }

    pub(super) fn move_start<F: Rpc>(&self, request: MoveStartRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let answer = self.engine.sequencer(|| self.now()).move_start(
            request.client_id,
            request.key,
            request.src_segment,
            request.tgt_segment,
        );
        let result = answer.result.as_ref().map(reply_encoding::movement).map_err(|code| *code);
        encode_response::<F, _>(&result, out);
        Handled::one(result.is_err(), answer.depends_on)
    }

    pub(super) fn create_copy_task<F: Rpc>(
        &self,
        request: CreateCopyTaskRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        if !tellable(request.key, &request.targets) {
            return constant::<F, Uuid>(Err(INVALID), out);
        }
        let mut sequencer = self.engine.sequencer(self.now());
        let answer = sequencer.create_copy_task(new_id(), request.key, TENANT, &request.targets);
        drop(sequencer);
        reply::<F, _>(answer, out)
    }

    pub(super) fn create_move_task<F: Rpc>(
        &self,
        request: CreateMoveTaskRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        if !tellable(request.key, &[request.source, request.target]) {
            return constant::<F, Uuid>(Err(INVALID), out);
        }
        let mut sequencer = self.engine.sequencer(self.now());
        let answer =
            sequencer.create_move_task(new_id(), request.key, TENANT, request.source, request.target);
        drop(sequencer);
        reply::<F, _>(answer, out)
    }

    pub(super) fn query_task<F: Rpc>(&self, task: Uuid, out: &mut Vec<u8>) -> Handled {
        let answer = self.engine.sequencer(self.now()).query_task(task);
        let result = answer.result.as_ref().map(|task| QueryTaskResponse {
            id: task.id,
            kind: kind(task.kind),
            status: TaskStatus(task.status as i32),
            created_at_ms: task.created.0 as i64,
            last_updated_at_ms: task.updated.0 as i64,
            assigned_client: task.client,
            message: &task.message,
        });
        encode_response::<F, _>(&result.map_err(|code| *code), out);
        Handled::one(answer.result.is_err(), answer.depends_on)
    }

    pub(super) fn fetch_tasks<F: Rpc>(&self, request: FetchTasksRequest, out: &mut Vec<u8>) -> Handled {
        let answer: Answer<Vec<task::Task>> =
            self.engine.sequencer(self.now()).fetch_tasks(request.client_id, request.batch_size);
        let tasks = answer.result.unwrap_or_default();
        let payloads: Vec<String> = tasks.iter().map(payload).collect();
        let assigned = tasks.iter().zip(&payloads).map(|(task, payload)| TaskAssignment {
            id: task.id,
            kind: kind(task.kind),
            payload: payload.as_bytes(),
            created_at_ms: task.created.0 as i64,
            max_retry_attempts: self.told.max_retry_attempts,
        });
        encode_response::<F, _>(&Ok::<_, ErrorCode>(assigned.collect::<Vec<_>>()), out);
        Handled::one(false, answer.depends_on)
    }

    pub(super) fn mark_task_to_complete<F: Rpc>(
        &self,
        request: MarkTaskToCompleteRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let done = request.request;
        let success = match done.status {
            TaskStatus::SUCCESS => true,
            TaskStatus::FAILED => false,
            _ => return constant::<F, ()>(Err(INVALID), out),
        };
        // A client's error message is for people to read, so it is cut at a bounded length.
        let message = &done.message[..done.message.len().min(MAX_KEY)];
        let mut sequencer = self.engine.sequencer(self.now());
        let answer = sequencer.complete_task(request.client_id, done.id, success, message);
        drop(sequencer);
        reply::<F, _>(answer, out)
    }
}

fn kind(kind: CopyOrMove) -> TaskType {
    match kind {
        CopyOrMove::Copy => TaskType::REPLICA_COPY,
        CopyOrMove::Move => TaskType::REPLICA_MOVE,
    }
}

/// Returns whether a task with this key and these names can be sent to a client: the payload is JSON, and the record
/// has to fit into a batch.
fn tellable(key: &[u8], names: &[&[u8]]) -> bool {
    let fits = |text: &[u8]| text.len() <= MAX_KEY && std::str::from_utf8(text).is_ok();
    fits(key) && names.len() <= MAX_TARGETS && names.iter().all(|name| fits(name))
}

/// Creates a random task id: two 64-bit values from the standard library's random hash seeds.
fn new_id() -> Uuid {
    let word = || RandomState::new().hash_one(std::time::Instant::now());
    Uuid { first: word(), second: word() }
}
