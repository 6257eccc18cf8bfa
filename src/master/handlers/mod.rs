//! Handlers of all calls: decode a request of the protocol, run an operation of the engine, encode the reply.

mod batches;
mod config;
mod copy_move;
mod features_off;
mod objects;
mod patterns;
mod put_metrics;
mod segments;
mod task_json;

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::types::{Answer, LogTime, SequenceId};
use crate::master::live_state::AnswerGate;
use crate::master::metrics::Metrics;
use crate::replication::liveness::Liveness;
use crate::replication::term_guard::TermGuards;
use crate::replication::time::RunningClock;
use crate::wire::client_version;
use crate::wire::functions::{Function, Rpc, decode_request, encode_response, rpc};
use crate::wire::server::Outcome;
use crate::wire::struct_pack::Encode;
use crate::wire::types::{ErrorCode, Expected};

/// The handlers, with everything that they work with.
#[derive(Debug)]
pub struct Handlers {
    pub engine: Arc<Engine>,
    pub clock: RunningClock,
    /// Deadlines of clients.
    pub liveness: Arc<Liveness>,
    pub metrics: Arc<Metrics>,
    /// Settings that clients are told.
    pub told: Told,
    /// Admission of the records of long work.
    pub answer_gate: AnswerGate,
    pub guards: TermGuards,
}

/// Settings that the master passes on to clients.
#[derive(Clone, Debug)]
pub struct Told {
    /// Directory for files; empty for none.
    pub fsdir: Vec<u8>,
    /// Whether clients may evict files from their disks.
    pub enable_disk_eviction: bool,
    /// Most bytes that files may take; zero for no limit.
    pub quota_bytes: u64,
    /// How often a client retries a task.
    pub max_retry_attempts: u32,
}

/// Result of a call, with numbers for the metrics.
pub struct Handled {
    /// What the server does with the reply.
    pub outcome: Outcome,
    pub batch: bool,
    /// Number of items that the call was about.
    pub items: u32,
    /// Number of them that failed.
    pub failed: u32,
    /// Number of them that found no memory, if the call has changed nothing, so that it can be retried; else zero. They
    /// are not yet counted in the metric of failed allocations.
    pub starved: u32,
}

impl Handled {
    fn one(failed: bool, depends_on: SequenceId) -> Self {
        let outcome = Outcome::Ready { depends_on };
        Self { outcome, batch: false, items: 1, failed: u32::from(failed), starved: 0 }
    }

    fn batch(items: usize, failed: usize, depends_on: SequenceId) -> Self {
        let outcome = Outcome::Ready { depends_on };
        Self { outcome, batch: true, items: items as u32, failed: failed as u32, starved: 0 }
    }

    fn with_starved(self, starved: u32) -> Self {
        Self { starved, ..self }
    }
}

/// Writes the answer of an operation as the reply of `F`.
fn reply<F: Rpc, T>(answer: Answer<T>, out: &mut Vec<u8>) -> Handled
where
    Expected<T>: Encode,
{
    let failed = answer.result.is_err();
    encode_response::<F, _>(&answer.result, out);
    Handled::one(failed, answer.depends_on)
}

/// Writes an answer that depends on no record.
fn constant<F: Rpc, T>(result: Expected<T>, out: &mut Vec<u8>) -> Handled
where
    Expected<T>: Encode,
{
    reply::<F, T>(Answer { result, depends_on: SequenceId(0) }, out)
}

/// Writes one answer for each item of a batch.
fn reply_batch<F: Rpc, T>(results: &Vec<Expected<T>>, depends_on: SequenceId, out: &mut Vec<u8>) -> Handled
where
    Vec<Expected<T>>: Encode,
{
    encode_response::<F, _>(results, out);
    let failed = results.iter().filter(|result| result.is_err()).count();
    Handled::batch(results.len(), failed, depends_on)
}

impl Handlers {
    fn now(&self) -> LogTime {
        self.clock.now()
    }

    /// Handles a call: decodes the request, runs its handler, and writes the reply to `out`.
    pub fn handle(&self, function: Function, body: &[u8], out: &mut Vec<u8>) -> Handled {
        /// Decodes the arguments of a function and calls its handler.
        macro_rules! dispatch {
            ($($name:ident => $handler:ident,)*) => {
                match function {
                    $(Function::$name => match decode_request::<rpc::$name>(body) {
                        Ok(request) => self.$handler::<rpc::$name>(request, out),
                        Err(_) => refuse_arguments(function, body),
                    },)*
                }
            };
        }
        dispatch! {
            ExistKey => exist_key,
            GetReplicaList => get_replica_list,
            BatchExistKey => batch_exist_key,
            BatchGetReplicaList => batch_get_replica_list,
            GetReplicaListByRegex => get_replica_list_by_regex,
            PutStart => put_start,
            PutEnd => end,
            PutRevoke => revoke,
            BatchPutStart => batch_put_start,
            BatchPutEnd => batch_put_end,
            BatchPutRevoke => batch_put_revoke,
            UpsertStart => upsert_start,
            UpsertEnd => end,
            UpsertRevoke => revoke,
            BatchUpsertStart => batch_upsert_start,
            BatchUpsertEnd => batch_upsert_end,
            BatchUpsertRevoke => batch_upsert_revoke,
            Remove => remove,
            RemoveByRegex => remove_by_regex,
            RemoveAll => remove_all,
            BatchRemove => batch_remove,
            BatchReplicaClear => batch_replica_clear,
            MountSegment => mount_segment,
            ReMountSegment => remount_segment,
            UnmountSegment => unmount_segment,
            GracefulUnmountSegment => graceful_unmount_segment,
            QuerySegmentStatus => query_segment_status,
            QuerySegmentStatusById => query_segment_status_by_id,
            BatchQueryIp => batch_query_ip,
            Ping => ping,
            ServiceReady => service_ready,
            GetStorageConfig => get_storage_config,
            GetFsdir => get_fsdir,
            CopyStart => copy_start,
            CopyEnd => copy_end,
            CopyRevoke => copy_revoke,
            DynamicReplicaCopyStart => dynamic_copy_start,
            DynamicReplicaCopyEnd => dynamic_copy_end,
            DynamicReplicaCopyRevoke => dynamic_copy_revoke,
            MoveStart => move_start,
            MoveEnd => move_end,
            MoveRevoke => move_revoke,
            CreateCopyTask => create_copy_task,
            CreateMoveTask => create_move_task,
            QueryTask => query_task,
            FetchTasks => fetch_tasks,
            MarkTaskToComplete => mark_task_to_complete,
            MountNoFSegment => no_nof,
            ReMountNoFSegment => no_nof,
            UnmountNoFSegment => no_nof,
            GetAllNoFSegments => get_all_nof_segments,
            GetNoFSegmentsByName => get_nof_segments_by_name,
            MountLocalDiskSegment => no_offload,
            UnmountLocalDiskSegment => no_offload,
            OffloadObjectHeartbeat => offload_object_heartbeat,
            ReportSsdCapacity => report_ssd_capacity,
            NotifyOffloadSuccess => notify_offload_success,
            PromotionObjectHeartbeat => promotion_object_heartbeat,
            PromotionAllocStart => promotion_alloc_start,
            NotifyPromotionSuccess => notify_promotion_success,
            NotifyPromotionFailure => notify_promotion_failure,
            EvictDiskReplica => evict_disk_replica,
            BatchEvictDiskReplica => batch_evict_disk_replica,
            PollRemoveAll => poll_remove_all,
        }
    }
}

/// Refuses a request of another client generation, or a malformed one. The server logs which it is.
fn refuse_arguments(function: Function, body: &[u8]) -> Handled {
    let outcome = Outcome::Refused(client_version::explain(function, body));
    Handled { outcome, batch: false, items: 1, failed: 1, starved: 0 }
}

/// Error for arguments that were decoded but are invalid.
const INVALID: ErrorCode = ErrorCode::INVALID_PARAMS;
