//! Descriptions of objects, replicas, segments and tasks, in requests and responses alike.

use crate::wire::struct_pack::{wire_struct, wire_variant};
use crate::wire::types::{ObjectDataType, ReplicaStatus, SoftPinAction, TaskStatus, TaskType, Uuid};

wire_struct! {
    /// A range of a client's memory that the master allocates from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Segment<'a> {
        /// Chosen by the client that mounts it.
        pub id: Uuid,
        /// Several segments may share one name.
        pub name: &'a [u8],
        /// First address of the range.
        pub base: u64,
        /// Length of the range, in bytes.
        pub size: u64,
        /// Endpoint of the owner's transfer engine.
        pub te_endpoint: &'a [u8],
        pub protocol: &'a [u8],
        pub host_id: &'a [u8],
    }
}

wire_struct! {
    /// A range of storage reached by NVMe over fabrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NoFSegment<'a> {
        /// Chosen by the client that mounts it.
        pub id: Uuid,
        pub name: &'a [u8],
        /// First address of the range.
        pub base: u64,
        /// Length of the range, in bytes.
        pub size: u64,
        pub te_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// How an object is to be stored.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ReplicateConfig<'a> {
        /// Number of replicas that are wanted in memory.
        pub replica_num: u64,
        /// Replicas on NVMe over fabrics.
        pub nof_replica_num: u64,
        /// Replicas in the distributed file system.
        pub dfs_replica_num: u64,
        /// What happens to the soft pin.
        pub soft_pin_action: SoftPinAction,
        /// Length of the soft pin.
        pub soft_pin_ttl_ms: Option<u64>,
        /// Whether it is never evicted.
        pub with_hard_pin: bool,
        /// Names of segments that are tried first.
        pub preferred_segments: Vec<&'a [u8]>,
        /// Older field for the name of one segment.
        pub preferred_segment: &'a [u8],
        /// Names of NVMe segments that are tried first.
        pub preferred_nof_segments: Vec<&'a [u8]>,
        /// Whether the keys of a batch are kept on one node.
        pub prefer_alloc_in_same_node: bool,
        pub data_type: ObjectDataType,
        /// The writer's host; empty if it does not say.
        pub host_id: &'a [u8],
        /// The group of each key.
        pub group_ids: Option<Vec<&'a [u8]>>,
    }
}

wire_struct! {
    /// What the writer reports at the end of a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ObjectMeta<'a> {
        pub key: &'a [u8],
        /// Checksum of the value, if the writer names one.
        pub object_checksum: Option<u64>,
    }
}

wire_struct! {
    /// A byte range in a segment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct BufferDescriptor<'a> {
        /// Length of the range, in bytes.
        pub size: u64,
        /// First address of the range.
        pub address: u64,
        /// The transfer protocol: "tcp" but for CXL, RDMA included.
        pub protocol: &'a [u8],
        /// Endpoint of the transfer engine of the segment's owner.
        pub transport_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// A replica in the memory of a client.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MemoryDescriptor<'a> {
        pub buffer: BufferDescriptor<'a>,
    }
}

wire_struct! {
    /// A replica on NVMe over fabrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NoFDescriptor<'a> {
        pub buffer: BufferDescriptor<'a>,
    }
}

wire_struct! {
    /// A replica in a file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DiskDescriptor<'a> {
        pub file_path: &'a [u8],
        /// Size of the object, in bytes.
        pub object_size: u64,
    }
}

wire_struct! {
    /// A replica on a client's own disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LocalDiskDescriptor<'a> {
        /// The client that has the disk.
        pub client_id: Uuid,
        /// Size of the object, in bytes.
        pub object_size: u64,
        /// Endpoint from which it is read.
        pub transport_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// A replica in the distributed file system.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DistributedFSDescriptor<'a> {
        pub file_path: &'a [u8],
        /// Offset in the file, in bytes.
        pub offset: u64,
        /// Size of the object, in bytes.
        pub object_size: u64,
        /// Bytes that it occupies, padding included.
        pub aligned_size: u64,
        /// The shard of the file system.
        pub shard_idx: i32,
    }
}

wire_variant! {
    /// Where a replica is, by kind of storage.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReplicaLocation<'a> {
        Memory(MemoryDescriptor<'a>) = 0,
        NoF(NoFDescriptor<'a>) = 1,
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
        /// Assigned by the master.
        pub id: u64,
        pub location: ReplicaLocation<'a>,
        pub status: ReplicaStatus,
    }
}

wire_struct! {
    /// An object that a client is to write to its disk, or to bring back from it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OffloadTaskItem<'a> {
        pub tenant_id: &'a [u8],
        pub key: &'a [u8],
        /// Size of the object, in bytes.
        pub size: i64,
    }
}

/// The same shape, for objects that come back from disk.
pub type PromotionTaskItem<'a> = OffloadTaskItem<'a>;

wire_struct! {
    /// Where a client put an object on its disk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StorageObjectMetadata<'a> {
        pub bucket_id: i64,
        /// Offset in the bucket.
        pub offset: i64,
        /// Bytes of the key.
        pub key_size: i64,
        /// Bytes of the value.
        pub data_size: i64,
        /// Endpoint from which it is read.
        pub transport_endpoint: &'a [u8],
    }
}

wire_struct! {
    /// A task that a client has fetched.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TaskAssignment<'a> {
        pub id: Uuid,
        pub kind: TaskType,
        /// What to do, as JSON.
        pub payload: &'a [u8],
        pub created_at_ms: i64,
        /// How often the client may retry it.
        pub max_retry_attempts: u32,
    }
}

wire_struct! {
    /// The result of a task.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TaskCompleteRequest<'a> {
        pub id: Uuid,
        pub status: TaskStatus,
        /// Message of the client, for people.
        pub message: &'a [u8],
    }
}
