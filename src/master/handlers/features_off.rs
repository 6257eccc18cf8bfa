//! Calls of features that this master does not have: NVMe over fabrics, local disks, offloading, promotion. They answer
//! what the reference answers with those features off.

use super::{Handled, Handlers, constant, reply, reply_batch};
use crate::engine::types::{Answer, SequenceId};
use crate::wire::functions::Rpc;
use crate::wire::messages::{
    BatchEvictDiskReplicaRequest, ClientKeyRequest, EvictDiskReplicaRequest, NoArguments, NoFSegment,
    NoFSegmentOwnerInfo, NotifyOffloadSuccessRequest, OffloadRequest, OffloadTaskItem,
    PromotionAllocStartRequest, PromotionAllocStartResponse, ReportSsdCapacityRequest,
};
use crate::wire::types::{ErrorCode, ReplicaType, Uuid};

impl Handlers {
    pub(super) fn no_nof<F: Rpc>(&self, _: F::Request<'_>, out: &mut Vec<u8>) -> Handled {
        constant::<F, ()>(Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE), out)
    }

    pub(super) fn get_all_nof_segments<F: Rpc>(&self, _: NoArguments, out: &mut Vec<u8>) -> Handled {
        constant::<F, Vec<NoFSegment<'_>>>(Ok(Vec::new()), out)
    }

    pub(super) fn get_nof_segments_by_name<F: Rpc>(&self, _: &[u8], out: &mut Vec<u8>) -> Handled {
        constant::<F, Vec<NoFSegmentOwnerInfo>>(Err(ErrorCode::SEGMENT_NOT_FOUND), out)
    }

    pub(super) fn no_offload<F: Rpc>(&self, _: F::Request<'_>, out: &mut Vec<u8>) -> Handled {
        constant::<F, ()>(Err(ErrorCode::UNABLE_OFFLOAD), out)
    }

    pub(super) fn offload_object_heartbeat<F: Rpc>(&self, _: OffloadRequest, out: &mut Vec<u8>) -> Handled {
        constant::<F, Vec<OffloadTaskItem<'_>>>(Err(ErrorCode::SEGMENT_NOT_FOUND), out)
    }

    pub(super) fn promotion_object_heartbeat<F: Rpc>(&self, _: Uuid, out: &mut Vec<u8>) -> Handled {
        constant::<F, Vec<OffloadTaskItem<'_>>>(Err(ErrorCode::SEGMENT_NOT_FOUND), out)
    }

    pub(super) fn poll_remove_all<F: Rpc>(&self, _: Uuid, out: &mut Vec<u8>) -> Handled {
        constant::<F, bool>(Err(ErrorCode::SEGMENT_NOT_FOUND), out)
    }

    pub(super) fn report_ssd_capacity<F: Rpc>(
        &self,
        request: ReportSsdCapacityRequest,
        out: &mut Vec<u8>,
    ) -> Handled {
        let code = if request.ssd_total_capacity_bytes < 0 {
            ErrorCode::INVALID_PARAMS
        } else {
            ErrorCode::SEGMENT_NOT_FOUND
        };
        constant::<F, ()>(Err(code), out)
    }

    pub(super) fn notify_offload_success<F: Rpc>(
        &self,
        request: NotifyOffloadSuccessRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let fits = request.tasks.len() == request.metadatas.len();
        constant::<F, ()>(if fits { Ok(()) } else { Err(ErrorCode::INVALID_PARAMS) }, out)
    }

    pub(super) fn promotion_alloc_start<F: Rpc>(
        &self,
        request: PromotionAllocStartRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let answer = self.on_disk_only(request.key);
        let never = Answer::<PromotionAllocStartResponse<'_>>::refuse(answer.0, answer.1);
        reply::<F, _>(never, out)
    }

    pub(super) fn notify_promotion_success<F: Rpc>(
        &self,
        request: ClientKeyRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let (code, depends_on) = self.on_disk_only(request.key);
        reply::<F, ()>(Answer::refuse(code, depends_on), out)
    }

    pub(super) fn notify_promotion_failure<F: Rpc>(
        &self,
        request: ClientKeyRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        reply::<F, ()>(self.if_present(request.key), out)
    }

    pub(super) fn evict_disk_replica<F: Rpc>(
        &self,
        request: EvictDiskReplicaRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        reply::<F, ()>(self.evict_from_disk(request.key, request.replica_type), out)
    }

    pub(super) fn batch_evict_disk_replica<F: Rpc>(
        &self,
        request: BatchEvictDiskReplicaRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let mut depends_on = SequenceId(0);
        let each = |key: &&[u8]| {
            let answer = self.evict_from_disk(key, request.replica_type);
            depends_on = depends_on.max(answer.depends_on);
            answer.result
        };
        let results = request.keys.iter().map(each).collect();
        reply_batch::<F, ()>(&results, depends_on, out)
    }

    fn evict_from_disk(&self, key: &[u8], replica_type: ReplicaType) -> Answer<()> {
        let present = self.if_present(key);
        let on_disk = matches!(replica_type, ReplicaType::DISK | ReplicaType::LOCAL_DISK);
        if present.result.is_ok() && !on_disk {
            return Answer::refuse(ErrorCode::INVALID_PARAMS, present.depends_on);
        }
        present
    }

    fn if_present(&self, key: &[u8]) -> Answer<()> {
        let present = self.engine.is_present(key);
        match present.result {
            Ok(true) => Answer::ok((), present.depends_on),
            _ => Answer::refuse(ErrorCode::OBJECT_NOT_FOUND, present.depends_on),
        }
    }

    /// Returns the error for a call about a disk replica: an object that exists is in memory and never on disk.
    fn on_disk_only(&self, key: &[u8]) -> (ErrorCode, SequenceId) {
        let present = self.if_present(key);
        let code = if present.result.is_ok() {
            ErrorCode::REPLICA_IS_NOT_READY
        } else {
            ErrorCode::OBJECT_NOT_FOUND
        };
        (code, present.depends_on)
    }
}
