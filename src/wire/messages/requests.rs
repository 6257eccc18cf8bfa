//! The arguments of calls. Several arguments travel as a tuple, whose literal is that of a struct; a single argument
//! travels as itself, so those calls have no type here.

use super::objects::{ObjectMeta, ReplicateConfig, Segment, TaskCompleteRequest};
use crate::wire::struct_pack::{Decode, DecodeError, Encode, Literal, Reader, Wire, Writer, wire_struct};
use crate::wire::types::{ReplicaType, Uuid};

/// The arguments of a call that has none: there is no body, not even a type code, and one that is there is ignored.
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
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Names a batch of objects: BatchExistKey, BatchGetReplicaList.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KeysRequest<'a> {
        /// The keys.
        pub keys: Vec<&'a [u8]>,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Clears replicas of the caller's objects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchReplicaClearRequest<'a> {
        /// The keys.
        pub object_keys: Vec<&'a [u8]>,
        /// Who calls.
        pub client_id: Uuid,
        /// Only replicas on this segment; empty: all.
        pub segment_name: &'a [u8],
    }
}

wire_struct! {
    /// Starts a write: PutStart, UpsertStart.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StartRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// Bytes of the value.
        pub slice_length: u64,
        /// How to store it.
        pub config: ReplicateConfig<'a>,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Ends a write: PutEnd, UpsertEnd.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct EndRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// Key and checksum.
        pub object_meta: ObjectMeta<'a>,
        /// Which replicas are meant.
        pub replica_type: ReplicaType,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Gives a write up: PutRevoke, UpsertRevoke.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RevokeRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// Which replicas are meant.
        pub replica_type: ReplicaType,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Starts a batch of writes: BatchPutStart, BatchUpsertStart.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchStartRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The keys.
        pub keys: Vec<&'a [u8]>,
        /// Bytes of each value.
        pub slice_lengths: Vec<u64>,
        /// How to store it.
        pub config: ReplicateConfig<'a>,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Ends a batch of writes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchPutEndRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// Keys and checksums.
        pub object_metas: Vec<ObjectMeta<'a>>,
        /// Which replicas are meant.
        pub replica_type: ReplicaType,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Gives a batch of writes up.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchPutRevokeRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The keys.
        pub keys: Vec<&'a [u8]>,
        /// Which replicas are meant.
        pub replica_type: ReplicaType,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Ends a batch of upserts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchUpsertEndRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// Keys and checksums.
        pub object_metas: Vec<ObjectMeta<'a>>,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Gives a batch of upserts up.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchUpsertRevokeRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The keys.
        pub keys: Vec<&'a [u8]>,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Removes one object, or many by a regular expression: Remove, RemoveByRegex.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RemoveRequest<'a> {
        /// The key, or the expression.
        pub key: &'a [u8],
        /// In spite of leases.
        pub force: bool,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Removes every object.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RemoveAllRequest<'a> {
        /// In spite of leases.
        pub force: bool,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Removes a batch of objects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchRemoveRequest<'a> {
        /// The keys.
        pub keys: Vec<&'a [u8]>,
        /// In spite of leases.
        pub force: bool,
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Offers memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MountSegmentRequest<'a> {
        /// The segment.
        pub segment: Segment<'a>,
        /// Who calls.
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Offers all memory of a client again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReMountSegmentRequest<'a> {
        /// All segments of the client.
        pub segments: Vec<Segment<'a>>,
        /// Who calls.
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Takes a segment back: UnmountSegment, UnmountNoFSegment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct UnmountSegmentRequest {
        /// The segment.
        pub segment_id: Uuid,
        /// Who calls.
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Takes a segment back after a while.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GracefulUnmountSegmentRequest {
        /// The segment.
        pub segment_id: Uuid,
        /// Who calls.
        pub client_id: Uuid,
        /// How long it stays readable.
        pub grace_period_ms: u64,
    }
}

wire_struct! {
    /// Names an object and the client that works on it: CopyEnd, CopyRevoke, MoveEnd, MoveRevoke,
    /// NotifyPromotionSuccess, NotifyPromotionFailure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClientKeyRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// Starts a copy.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CopyStartRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Copy or move from here.
        pub src_segment: &'a [u8],
        /// Copy to these.
        pub tgt_segments: Vec<&'a [u8]>,
    }
}

wire_struct! {
    /// Starts a copy that the master asked for by itself.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DynamicReplicaCopyStartRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Copy or move from here.
        pub src_segment: &'a [u8],
        /// Copy to these.
        pub tgt_segments: Vec<&'a [u8]>,
        /// The lease under which the copy runs.
        pub dynamic_replication_lease_id: Uuid,
        /// The version that is copied.
        pub dynamic_replication_version_epoch: u64,
    }
}

wire_struct! {
    /// Ends or gives up such a copy: DynamicReplicaCopyEnd, DynamicReplicaCopyRevoke.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DynamicReplicaCopyFinishRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// The lease under which the copy runs.
        pub dynamic_replication_lease_id: Uuid,
        /// The version that is copied.
        pub dynamic_replication_version_epoch: u64,
    }
}

wire_struct! {
    /// Starts a move.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MoveStartRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Copy or move from here.
        pub src_segment: &'a [u8],
        /// Move to this.
        pub tgt_segment: &'a [u8],
    }
}

wire_struct! {
    /// Asks for a copy.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CreateCopyTaskRequest<'a> {
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Copy to these.
        pub targets: Vec<&'a [u8]>,
    }
}

wire_struct! {
    /// Asks for a move.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CreateMoveTaskRequest<'a> {
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Move from here.
        pub source: &'a [u8],
        /// Move to this.
        pub target: &'a [u8],
    }
}

wire_struct! {
    /// Takes tasks to do.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FetchTasksRequest {
        /// Who calls.
        pub client_id: Uuid,
        /// How many at most.
        pub batch_size: u64,
    }
}

wire_struct! {
    /// Says how a task ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MarkTaskToCompleteRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// How it ended.
        pub request: TaskCompleteRequest<'a>,
    }
}
