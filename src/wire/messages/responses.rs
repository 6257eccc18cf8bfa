//! What the functions answer. A handler can answer with a list that it only borrows.

use super::objects::ReplicaDescriptor;
use crate::wire::struct_pack::{List, wire_struct};
use crate::wire::types::{ClientStatus, TaskStatus, TaskType, Uuid};

wire_struct! {
    /// The readable replicas of an object.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GetReplicaListResponse<'a> {
        /// The replicas.
        pub replicas: List<'a, ReplicaDescriptor<'a>>,
        /// How long they may be read.
        pub lease_ttl_ms: u64,
        /// The checksum that the writer gave.
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
    /// Where clients keep files.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GetStorageConfigResponse<'a> {
        /// The directory; empty: none.
        pub fsdir: &'a [u8],
        /// Whether files are evicted.
        pub enable_disk_eviction: bool,
        /// How many bytes files may take; 0: no limit.
        pub quota_bytes: u64,
    }
}

wire_struct! {
    /// Which client owns a segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NoFSegmentOwnerInfo {
        /// The segment.
        pub segment_id: Uuid,
        /// Its owner.
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// What a copy reads and writes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CopyStartResponse<'a> {
        /// Read from here.
        pub source: ReplicaDescriptor<'a>,
        /// Write to these.
        pub targets: List<'a, ReplicaDescriptor<'a>>,
    }
}

wire_struct! {
    /// What a move reads and writes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MoveStartResponse<'a> {
        /// Read from here.
        pub source: ReplicaDescriptor<'a>,
        /// Write to this; none when the target has the object already.
        pub target: Option<ReplicaDescriptor<'a>>,
    }
}

wire_struct! {
    /// Where an object that comes back from disk goes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PromotionAllocStartResponse<'a> {
        /// Write to this.
        pub memory_descriptor: ReplicaDescriptor<'a>,
    }
}

wire_struct! {
    /// How far a task has come.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct QueryTaskResponse<'a> {
        /// The task.
        pub id: Uuid,
        /// Copy or move.
        pub kind: TaskType,
        /// How far it has come.
        pub status: TaskStatus,
        /// When it was made.
        pub created_at_ms: i64,
        /// When it last changed.
        pub last_updated_at_ms: i64,
        /// Who does it.
        pub assigned_client: Uuid,
        /// What its client said.
        pub message: &'a [u8],
    }
}
