//! The responses of the functions. A handler can answer with a list that it only borrows.

use super::objects::ReplicaDescriptor;
use crate::wire::struct_pack::{List, wire_struct};
use crate::wire::types::{ClientStatus, TaskStatus, TaskType, Uuid};

wire_struct! {
    /// The readable replicas of an object.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GetReplicaListResponse<'a> {
        pub replicas: List<'a, ReplicaDescriptor<'a>>,
        /// How long they may be read.
        pub lease_ttl_ms: u64,
        /// Checksum that the writer named at the end of the write, if any.
        pub object_checksum: Option<u64>,
    }
}

wire_struct! {
    /// The answer to a ping.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PingResponse {
        /// The version of the leadership entry; clients ignore it.
        pub view_version: i64,
        /// Whether the client has to mount its segments again.
        pub client_status: ClientStatus,
    }
}

wire_struct! {
    /// Settings for clients that keep files.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GetStorageConfigResponse<'a> {
        /// Directory for files; empty for none.
        pub fsdir: &'a [u8],
        /// Whether clients may evict files from their disks.
        pub enable_disk_eviction: bool,
        /// Most bytes that files may take; 0 for no limit.
        pub quota_bytes: u64,
    }
}

wire_struct! {
    /// The owner of a segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NoFSegmentOwnerInfo {
        pub segment_id: Uuid,
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Source and targets of a copy.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CopyStartResponse<'a> {
        /// The replica that the client reads from.
        pub source: ReplicaDescriptor<'a>,
        /// The replicas that the client writes to.
        pub targets: List<'a, ReplicaDescriptor<'a>>,
    }
}

wire_struct! {
    /// Source and target of a move.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MoveStartResponse<'a> {
        /// The replica that the client reads from.
        pub source: ReplicaDescriptor<'a>,
        /// Replica to write to; `None` if the target has the object already.
        pub target: Option<ReplicaDescriptor<'a>>,
    }
}

wire_struct! {
    /// Memory for an object that comes back from disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PromotionAllocStartResponse<'a> {
        /// The replica that the client writes to.
        pub memory_descriptor: ReplicaDescriptor<'a>,
    }
}

wire_struct! {
    /// The state of a task.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct QueryTaskResponse<'a> {
        pub id: Uuid,
        pub kind: TaskType,
        pub status: TaskStatus,
        pub created_at_ms: i64,
        pub last_updated_at_ms: i64,
        /// The client that carries it out.
        pub assigned_client: Uuid,
        /// Message of that client, or of the timeout.
        pub message: &'a [u8],
    }
}
