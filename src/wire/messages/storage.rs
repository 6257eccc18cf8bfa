//! The arguments of calls about storage other than memory: a client's disk, and NVMe over fabrics.

use super::objects::{NoFSegment, OffloadTaskItem, StorageObjectMetadata};
use crate::wire::struct_pack::wire_struct;
use crate::wire::types::{ReplicaType, Uuid};

wire_struct! {
    /// Mounts a segment on NVMe over fabrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MountNoFSegmentRequest<'a> {
        pub segment: NoFSegment<'a>,
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Mounts all NVMe segments of a client again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReMountNoFSegmentRequest<'a> {
        /// All segments of the client.
        pub segments: Vec<NoFSegment<'a>>,
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Reports that a client is alive and whether it takes objects to its disk: MountLocalDiskSegment,
    /// OffloadObjectHeartbeat.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OffloadRequest {
        pub client_id: Uuid,
        /// Whether the client takes objects to disk.
        pub enable_offloading: bool,
    }
}

wire_struct! {
    /// Reports the capacity of a client's disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReportSsdCapacityRequest {
        pub client_id: Uuid,
        pub ssd_total_capacity_bytes: i64,
    }
}

wire_struct! {
    /// Reports objects that were written to disk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NotifyOffloadSuccessRequest<'a> {
        pub client_id: Uuid,
        pub tasks: Vec<OffloadTaskItem<'a>>,
        /// Where each object is, in the order of `tasks`.
        pub metadatas: Vec<StorageObjectMetadata<'a>>,
    }
}

wire_struct! {
    /// Requests memory for an object that comes back from disk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PromotionAllocStartRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        /// Size of the object, in bytes.
        pub size: u64,
        /// Names of segments that are tried first.
        pub preferred_segments: Vec<&'a [u8]>,
    }
}

wire_struct! {
    /// Reports that a client has evicted an object from its disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct EvictDiskReplicaRequest<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        pub tenant_id: &'a [u8],
        /// The kind of replicas that is meant.
        pub replica_type: ReplicaType,
    }
}

wire_struct! {
    /// Reports that a client has evicted objects from its disk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchEvictDiskReplicaRequest<'a> {
        pub client_id: Uuid,
        pub keys: Vec<&'a [u8]>,
        pub tenant_id: &'a [u8],
        /// The kind of replicas that is meant.
        pub replica_type: ReplicaType,
    }
}
