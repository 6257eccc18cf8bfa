//! The arguments of calls. Several arguments are encoded as a tuple, whose literal is that of a struct; a single
//! argument is encoded as itself, so those calls have no type here.

use super::objects::{ObjectMeta, ReplicateConfig, Segment, TaskCompleteRequest};
use crate::wire::struct_pack::{Decode, DecodeError, Encode, Literal, Reader, Wire, Writer, wire_struct};
use crate::wire::types::{ReplicaType, Uuid};

/// The arguments of a call without any: there is no body, not even a type code, and a body that is sent is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoArguments;

impl Wire for NoArguments {
    const LITERAL: Literal = Literal::NONE;
    const MIN_SIZE: usize = 0;
}

impl Encode for NoArguments {
    fn largest(&self) -> usize {
        0
    }

    fn encode(&self, _: &mut Writer<'_>) {}
}

impl Decode<'_> for NoArguments {
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

wire_struct! {
    /// Names one object, or many by a regular expression: ExistKey, GetReplicaList, GetReplicaListByRegex.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyRequest<'a> {
        /// The key, or the expression.
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Names a batch of objects: BatchExistKey, BatchGetReplicaList.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KeysRequest<'a> {
        pub keys: Vec<&'a [u8]>,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Clears replicas of the caller's objects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchReplicaClearRequest<'a> {
        pub object_keys: Vec<&'a [u8]>,
        pub client_id: Uuid,
        /// Only replicas on this segment; empty for all.
        pub segment_name: &'a [u8],
    }
}

wire_struct! {
    /// Starts a write: PutStart, UpsertStart.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StartRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        /// Size of the value, and so of each replica, in bytes.
        pub slice_length: u64,
        pub config: ReplicateConfig<'a>,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Ends a write: PutEnd, UpsertEnd.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct EndRequest<'a> {
        pub client_id: Uuid,
        pub object_meta: ObjectMeta<'a>,
        /// The kind of replicas that is meant.
        pub replica_type: ReplicaType,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Aborts a write: PutRevoke, UpsertRevoke.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RevokeRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        /// The kind of replicas that is meant.
        pub replica_type: ReplicaType,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Starts a batch of writes: BatchPutStart, BatchUpsertStart.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchStartRequest<'a> {
        pub client_id: Uuid,
        pub keys: Vec<&'a [u8]>,
        /// Size of each value in bytes, in the order of `keys`.
        pub slice_lengths: Vec<u64>,
        pub config: ReplicateConfig<'a>,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Ends a batch of writes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchPutEndRequest<'a> {
        pub client_id: Uuid,
        pub object_metas: Vec<ObjectMeta<'a>>,
        /// The kind of replicas that is meant.
        pub replica_type: ReplicaType,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Aborts a batch of writes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchPutRevokeRequest<'a> {
        pub client_id: Uuid,
        pub keys: Vec<&'a [u8]>,
        /// The kind of replicas that is meant.
        pub replica_type: ReplicaType,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Ends a batch of upserts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchUpsertEndRequest<'a> {
        pub client_id: Uuid,
        pub object_metas: Vec<ObjectMeta<'a>>,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Aborts a batch of upserts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchUpsertRevokeRequest<'a> {
        pub client_id: Uuid,
        pub keys: Vec<&'a [u8]>,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Removes one object, or many by a regular expression: Remove, RemoveByRegex.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RemoveRequest<'a> {
        /// The key, or the expression.
        pub key: &'a [u8],
        /// Removes objects with a lease, too.
        pub force: bool,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Removes all objects; those with a lease only with `force`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RemoveAllRequest<'a> {
        /// Removes objects with a lease, too.
        pub force: bool,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Removes a batch of objects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchRemoveRequest<'a> {
        pub keys: Vec<&'a [u8]>,
        /// Removes objects with a lease, too.
        pub force: bool,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Mounts a segment of memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MountSegmentRequest<'a> {
        pub segment: Segment<'a>,
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Mounts all segments of a client again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReMountSegmentRequest<'a> {
        /// All segments of the client.
        pub segments: Vec<Segment<'a>>,
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Unmounts a segment: UnmountSegment, UnmountNoFSegment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct UnmountSegmentRequest {
        pub segment_id: Uuid,
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Unmounts a segment after a grace period.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GracefulUnmountSegmentRequest {
        pub segment_id: Uuid,
        pub client_id: Uuid,
        /// How long its objects stay readable.
        pub grace_period_ms: u64,
    }
}

wire_struct! {
    /// Names an object and the client that works on it: CopyEnd, CopyRevoke, MoveEnd, MoveRevoke,
    /// NotifyPromotionSuccess, NotifyPromotionFailure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClientKeyRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Starts a copy of an object to other segments.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CopyStartRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        pub src_segment: &'a [u8],
        pub tgt_segments: Vec<&'a [u8]>,
    }
}

wire_struct! {
    /// Starts a copy that the master requested by itself.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DynamicReplicaCopyStartRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        pub src_segment: &'a [u8],
        pub tgt_segments: Vec<&'a [u8]>,
        /// The lease under which the copy runs.
        pub dynamic_replication_lease_id: Uuid,
        /// The version that is copied.
        pub dynamic_replication_version_epoch: u64,
    }
}

wire_struct! {
    /// Ends or aborts such a copy: DynamicReplicaCopyEnd, DynamicReplicaCopyRevoke.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DynamicReplicaCopyFinishRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        /// The lease under which the copy runs.
        pub dynamic_replication_lease_id: Uuid,
        /// The version that is copied.
        pub dynamic_replication_version_epoch: u64,
    }
}

wire_struct! {
    /// Starts a move of a replica to another segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MoveStartRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        pub src_segment: &'a [u8],
        pub tgt_segment: &'a [u8],
    }
}

wire_struct! {
    /// Creates a task that copies an object to other segments.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CreateCopyTaskRequest<'a> {
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        /// Names of the segments to copy to.
        pub targets: Vec<&'a [u8]>,
    }
}

wire_struct! {
    /// Creates a task that moves a replica to another segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CreateMoveTaskRequest<'a> {
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        /// Name of the segment to move from.
        pub source: &'a [u8],
        /// Name of the segment to move to.
        pub target: &'a [u8],
    }
}

wire_struct! {
    /// Fetches tasks to carry out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FetchTasksRequest {
        pub client_id: Uuid,
        /// Most tasks that are returned.
        pub batch_size: u64,
    }
}

wire_struct! {
    /// Reports how a task ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MarkTaskToCompleteRequest<'a> {
        pub client_id: Uuid,
        pub request: TaskCompleteRequest<'a>,
    }
}
