//! The arguments of calls about storage other than memory: a client's disk, and NVMe over fabrics.

use super::objects::{NoFSegment, OffloadTaskItem, StorageObjectMetadata};
use crate::wire::struct_pack::wire_struct;
use crate::wire::types::{ReplicaType, Uuid};

wire_struct! {
    /// Offers storage on NVMe over fabrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MountNoFSegmentRequest<'a> {
        /// The segment.
        pub segment: NoFSegment<'a>,
        /// Who calls.
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Offers all NVMe storage of a client again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReMountNoFSegmentRequest<'a> {
        /// All segments of the client.
        pub segments: Vec<NoFSegment<'a>>,
        /// Who calls.
        pub client_id: Uuid,
    }
}

wire_struct! {
    /// Says that a client is there and whether it takes objects to its disk: MountLocalDiskSegment,
    /// OffloadObjectHeartbeat.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OffloadRequest {
        /// Who calls.
        pub client_id: Uuid,
        /// Whether the client takes objects to disk.
        pub enable_offloading: bool,
    }
}

wire_struct! {
    /// Says how much disk a client has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReportSsdCapacityRequest {
        /// Who calls.
        pub client_id: Uuid,
        /// Bytes on disk.
        pub ssd_total_capacity_bytes: i64,
    }
}

wire_struct! {
    /// Says which objects are on disk now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NotifyOffloadSuccessRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The objects.
        pub tasks: Vec<OffloadTaskItem<'a>>,
        /// Where each one is.
        pub metadatas: Vec<StorageObjectMetadata<'a>>,
    }
}

wire_struct! {
    /// Asks for memory for an object that comes back from disk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PromotionAllocStartRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Bytes.
        pub size: u64,
        /// Names of segments to try first.
        pub preferred_segments: Vec<&'a [u8]>,
    }
}

wire_struct! {
    /// Says that a client dropped an object from its disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct EvictDiskReplicaRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The key.
        pub key: &'a [u8],
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Which replicas are meant.
        pub replica_type: ReplicaType,
    }
}

wire_struct! {
    /// Says that a client dropped objects from its disk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchEvictDiskReplicaRequest<'a> {
        /// Who calls.
        pub client_id: Uuid,
        /// The keys.
        pub keys: Vec<&'a [u8]>,
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// Which replicas are meant.
        pub replica_type: ReplicaType,
    }
}
