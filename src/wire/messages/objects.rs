//! What describes objects, replicas, segments and tasks, in requests and responses alike.

use crate::wire::struct_pack::{wire_struct, wire_variant};
use crate::wire::types::{ObjectDataType, ReplicaStatus, SoftPinAction, TaskStatus, TaskType, Uuid};

wire_struct! {
    /// A piece of a client's memory that the master may give out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Segment<'a> {
        /// Chosen by the client.
        pub id: Uuid,
        /// Its name; several segments may share one.
        pub name: &'a [u8],
        /// The first address.
        pub base: u64,
        /// Bytes.
        pub size: u64,
        /// Where transfers go.
        pub te_endpoint: &'a [u8],
        /// The transfer protocol.
        pub protocol: &'a [u8],
        /// The host that the segment is on.
        pub host_id: &'a [u8],
    }
}

wire_struct! {
    /// A piece of storage reached by NVMe over fabrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NoFSegment<'a> {
        /// Chosen by the client.
        pub id: Uuid,
        /// Its name.
        pub name: &'a [u8],
        /// The first address.
        pub base: u64,
        /// Bytes.
        pub size: u64,
        /// Where transfers go.
        pub te_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// How an object is to be stored.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ReplicateConfig<'a> {
        /// Replicas in memory.
        pub replica_num: u64,
        /// Replicas on NVMe over fabrics.
        pub nof_replica_num: u64,
        /// Replicas in the distributed file system.
        pub dfs_replica_num: u64,
        /// What to do with the soft pin.
        pub soft_pin_action: SoftPinAction,
        /// How long the soft pin lasts.
        pub soft_pin_ttl_ms: Option<u64>,
        /// Never evict.
        pub with_hard_pin: bool,
        /// Names of segments to try first.
        pub preferred_segments: Vec<&'a [u8]>,
        /// The older way to name one segment.
        pub preferred_segment: &'a [u8],
        /// Names of NVMe segments to try first.
        pub preferred_nof_segments: Vec<&'a [u8]>,
        /// Keep the keys of a batch together.
        pub prefer_alloc_in_same_node: bool,
        /// What kind of data it is.
        pub data_type: ObjectDataType,
        /// The writer's host.
        pub host_id: &'a [u8],
        /// The group of each key.
        pub group_ids: Option<Vec<&'a [u8]>>,
    }
}

wire_struct! {
    /// What the writer says at the end of a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ObjectMeta<'a> {
        /// The key.
        pub key: &'a [u8],
        /// A checksum of the value.
        pub object_checksum: Option<u64>,
    }
}

wire_struct! {
    /// A byte range in a segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct BufferDescriptor<'a> {
        /// Bytes.
        pub size: u64,
        /// The first address.
        pub address: u64,
        /// The transfer protocol: "tcp" but for CXL, RDMA included.
        pub protocol: &'a [u8],
        /// The segment's endpoint.
        pub transport_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// A replica in memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MemoryDescriptor<'a> {
        /// Where.
        pub buffer: BufferDescriptor<'a>,
    }
}

wire_struct! {
    /// A replica on NVMe over fabrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NoFDescriptor<'a> {
        /// Where.
        pub buffer: BufferDescriptor<'a>,
    }
}

wire_struct! {
    /// A replica in a file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DiskDescriptor<'a> {
        /// The file.
        pub file_path: &'a [u8],
        /// Bytes.
        pub object_size: u64,
    }
}

wire_struct! {
    /// A replica on a client's own disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LocalDiskDescriptor<'a> {
        /// Whose disk.
        pub client_id: Uuid,
        /// Bytes.
        pub object_size: u64,
        /// Where to ask for it.
        pub transport_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// A replica in the distributed file system.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DistributedFSDescriptor<'a> {
        /// The file.
        pub file_path: &'a [u8],
        /// Where in the file.
        pub offset: u64,
        /// Bytes.
        pub object_size: u64,
        /// Bytes taken.
        pub aligned_size: u64,
        /// The shard of the file system.
        pub shard_idx: i32,
    }
}

wire_variant! {
    /// Where a replica is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReplicaLocation<'a> {
        /// In memory.
        Memory(MemoryDescriptor<'a>) = 0,
        /// On NVMe over fabrics.
        NoF(NoFDescriptor<'a>) = 1,
        /// In a file.
        Disk(DiskDescriptor<'a>) = 2,
        /// On a client's own disk.
        LocalDisk(LocalDiskDescriptor<'a>) = 3,
        /// In the distributed file system.
        DistributedFS(DistributedFSDescriptor<'a>) = 4,
    }
}

wire_struct! {
    /// A replica of an object.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReplicaDescriptor<'a> {
        /// Given by the master.
        pub id: u64,
        /// Where it is.
        pub location: ReplicaLocation<'a>,
        /// How far it has come.
        pub status: ReplicaStatus,
    }
}

wire_struct! {
    /// An object that a client is to write to its disk, or to bring back from it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OffloadTaskItem<'a> {
        /// The tenant.
        pub tenant_id: &'a [u8],
        /// The key.
        pub key: &'a [u8],
        /// Bytes.
        pub size: i64,
    }
}

/// The same shape, for objects that come back from disk.
pub type PromotionTaskItem<'a> = OffloadTaskItem<'a>;

wire_struct! {
    /// Where a client put an object on its disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StorageObjectMetadata<'a> {
        /// The bucket.
        pub bucket_id: i64,
        /// Where in the bucket.
        pub offset: i64,
        /// Bytes of the key.
        pub key_size: i64,
        /// Bytes of the value.
        pub data_size: i64,
        /// Where to ask for it.
        pub transport_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// A task that a client has fetched.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TaskAssignment<'a> {
        /// The task.
        pub id: Uuid,
        /// Copy or move.
        pub kind: TaskType,
        /// What to do, as JSON.
        pub payload: &'a [u8],
        /// When it was made.
        pub created_at_ms: i64,
        /// How often the client may try.
        pub max_retry_attempts: u32,
    }
}

wire_struct! {
    /// How a task ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TaskCompleteRequest<'a> {
        /// The task.
        pub id: Uuid,
        /// How it ended.
        pub status: TaskStatus,
        /// Why.
        pub message: &'a [u8],
    }
}
