//! Plain values of the protocol: ids, error codes, numeric enums.
//!
//! The enums are newtypes with named constants, so that a number which a later client sends survives decoding and the
//! handler that needs to know it decides what to do.

use super::struct_pack::{wire_enum, wire_struct};

wire_struct! {
    trivial(8)
    /// The id of a client, a segment or a task: two numbers chosen by whoever made it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub struct Uuid {
        /// The first half.
        pub first: u64,
        /// The second half.
        pub second: u64,
    }
}

/// Two decimal numbers with a dash, as the reference prints ids in logs and over HTTP.
impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.second)
    }
}

/// What an operation answers: a value or an error code.
pub type Expected<T> = Result<T, ErrorCode>;

wire_enum! {
    /// Where a replica lives.
    pub struct ReplicaType(i32) {
        /// In a client's memory.
        MEMORY = 0,
        /// In a file of a shared file system.
        DISK = 1,
        /// On a client's own disk.
        LOCAL_DISK = 2,
        /// On NVMe over fabrics.
        NOF_SSD = 3,
        /// Every kind at once, as an argument.
        ALL = 4,
        /// In the distributed file system.
        DFS = 100,
    }
}

wire_enum! {
    /// How far a replica has come.
    pub struct ReplicaStatus(i32) {
        /// Never set.
        UNDEFINED = 0,
        /// Allocated.
        INITIALIZED = 1,
        /// Being written.
        PROCESSING = 2,
        /// Readable.
        COMPLETE = 3,
        /// Gone.
        REMOVED = 4,
        /// The write failed.
        FAILED = 5,
    }
}

wire_enum! {
    /// What the master thinks of a client, told in the answer to a ping.
    pub struct ClientStatus(i32) {
        /// Never set.
        UNDEFINED = 0,
        /// Known, with its segments.
        OK = 1,
        /// The client has to mount its segments again.
        NEED_REMOUNT = 2,
    }
}

wire_enum! {
    /// What state a segment is in.
    pub struct SegmentStatus(i32) {
        /// Never set.
        UNDEFINED = 0,
        /// In use.
        OK = 1,
        /// Being emptied.
        DRAINING = 2,
        /// Empty.
        DRAINED = 3,
        /// Takes nothing new and goes when its grace period ends.
        GRACEFULLY_UNMOUNTING = 4,
        /// Going.
        UNMOUNTING = 5,
    }
}

wire_enum! {
    /// What a task does.
    pub struct TaskType(i32) {
        /// Copies a replica to other segments.
        REPLICA_COPY = 0,
        /// Moves a replica to another segment.
        REPLICA_MOVE = 1,
    }
}

wire_enum! {
    /// How far a task has come.
    pub struct TaskStatus(i32) {
        /// Waits for a client to fetch it.
        PENDING = 0,
        /// Fetched.
        PROCESSING = 1,
        /// Ended without success.
        FAILED = 2,
        /// Done.
        SUCCESS = 3,
    }
}

wire_enum! {
    /// What a write does to the soft pin of its object.
    pub struct SoftPinAction(u8) {
        /// Leaves it.
        PRESERVE = 0,
        /// Sets it.
        ENABLE = 1,
        /// Takes it away.
        DISABLE = 2,
    }
}

wire_enum! {
    /// What kind of data an object holds, as its writer says.
    pub struct ObjectDataType(u8) {
        /// Not said.
        UNKNOWN = 0,
        /// KV cache.
        KVCACHE = 1,
        /// A tensor.
        TENSOR = 2,
        /// Model weights.
        WEIGHT = 3,
        /// Training samples.
        SAMPLE = 4,
        /// Activations.
        ACTIVATION = 5,
        /// Gradients.
        GRADIENT = 6,
        /// An optimizer's state.
        OPTIMIZER_STATE = 7,
        /// Metadata.
        METADATA = 8,
        /// Anything else.
        GENERAL = 9,
    }
}

wire_enum! {
    /// The error codes of the store, with the reference's names.
    pub struct ErrorCode(i32) {
        /// Success.
        OK = 0,
        /// Something went wrong inside.
        INTERNAL_ERROR = -1,
        /// A buffer is too small.
        BUFFER_OVERFLOW = -10,
        /// No such shard.
        SHARD_INDEX_OUT_OF_RANGE = -100,
        /// No such segment, or no such client where a segment is looked up by its client.
        SEGMENT_NOT_FOUND = -101,
        /// The segment is there already.
        SEGMENT_ALREADY_EXISTS = -102,
        /// No such client.
        CLIENT_NOT_FOUND = -103,
        /// No memory could be allocated.
        NO_AVAILABLE_HANDLE = -200,
        /// A version or an epoch does not fit.
        INVALID_VERSION = -300,
        /// Not a valid key.
        INVALID_KEY = -400,
        /// A write failed.
        WRITE_FAIL = -500,
        /// An argument makes no sense.
        INVALID_PARAMS = -600,
        /// The object or task belongs to another client.
        ILLEGAL_CLIENT = -601,
        /// The object is not being written.
        INVALID_WRITE = -700,
        /// The object cannot be read.
        INVALID_READ = -701,
        /// The replica makes no sense.
        INVALID_REPLICA = -702,
        /// The object exists and no replica is readable.
        REPLICA_IS_NOT_READY = -703,
        /// No such object.
        OBJECT_NOT_FOUND = -704,
        /// The object is there already.
        OBJECT_ALREADY_EXISTS = -705,
        /// A reader holds a lease on the object.
        OBJECT_HAS_LEASE = -706,
        /// The lease ended before the read did.
        LEASE_EXPIRED = -707,
        /// A copy or move of the object is under way.
        OBJECT_HAS_REPLICATION_TASK = -708,
        /// No copy or move of the object is under way.
        OBJECT_NO_REPLICATION_TASK = -709,
        /// No such replica.
        REPLICA_NOT_FOUND = -710,
        /// The replica is there already.
        REPLICA_ALREADY_EXISTS = -711,
        /// The source of a copy or move is gone.
        REPLICA_IS_GONE = -712,
        /// The replica is not in this client's memory.
        REPLICA_NOT_IN_LOCAL_MEMORY = -713,
        /// A replica is in use.
        OBJECT_REPLICA_BUSY = -714,
        /// The transfer failed.
        TRANSFER_FAIL = -800,
        /// The bytes are not what was written.
        CHECKSUM_MISMATCH = -801,
        /// The call failed.
        RPC_FAIL = -900,
        /// The call took too long.
        RPC_TIMEOUT = -901,
        /// etcd refused.
        ETCD_OPERATION_ERROR = -1000,
        /// No such key in etcd.
        ETCD_KEY_NOT_EXIST = -1001,
        /// A comparison in etcd failed.
        ETCD_TRANSACTION_FAIL = -1002,
        /// A call to etcd was cancelled.
        ETCD_CTX_CANCELLED = -1003,
        /// No such log entry.
        OPLOG_ENTRY_NOT_FOUND = -1004,
        /// Kubernetes refused.
        K8S_LEASE_OPERATION_ERROR = -1005,
        /// No such Lease in Kubernetes.
        K8S_LEASE_NOT_FOUND = -1006,
        /// The log was not read to its end.
        INCOMPLETE_OPLOG_CATCH_UP = -1007,
        /// Not now: the thing is in another state.
        UNAVAILABLE_IN_CURRENT_STATUS = -1010,
        /// Not with this configuration.
        UNAVAILABLE_IN_CURRENT_MODE = -1011,
        /// Not supported.
        NOT_SUPPORTED = -1012,
        /// No such file.
        FILE_NOT_FOUND = -1100,
        /// A file could not be opened.
        FILE_OPEN_FAIL = -1101,
        /// A file could not be read.
        FILE_READ_FAIL = -1102,
        /// A file could not be written.
        FILE_WRITE_FAIL = -1103,
        /// A buffer for file access makes no sense.
        FILE_INVALID_BUFFER = -1104,
        /// A file could not be locked.
        FILE_LOCK_FAIL = -1105,
        /// A file handle makes no sense.
        FILE_INVALID_HANDLE = -1106,
        /// No such bucket.
        BUCKET_NOT_FOUND = -1200,
        /// The bucket is there already.
        BUCKET_ALREADY_EXISTS = -1201,
        /// Too many keys for a bucket.
        KEYS_EXCEED_BUCKET_LIMIT = -1202,
        /// Too many keys.
        KEYS_ULTRA_LIMIT = -1203,
        /// Offloading is off.
        UNABLE_OFFLOAD = -1300,
        /// Offloading is not possible now.
        UNABLE_OFFLOADING = -1301,
        /// No such task.
        TASK_NOT_FOUND = -1400,
        /// Too many tasks wait.
        TASK_PENDING_LIMIT_EXCEEDED = -1401,
        /// No such job.
        JOB_NOT_FOUND = -1402,
        /// The type cannot be serialised.
        SERIALIZE_UNSUPPORTED = -1500,
        /// Serialising failed.
        SERIALIZE_FAIL = -1501,
        /// Deserialising failed.
        DESERIALIZE_FAIL = -1502,
        /// Persisting failed.
        PERSISTENT_FAIL = -1503,
        /// The distributed file system did not answer.
        DFS_NETWORK_TIMEOUT = -1600,
        /// There is no distributed file system.
        DFS_SERVICE_UNAVAILABLE = -1601,
        /// The distributed file system is full.
        DFS_QUOTA_EXCEEDED = -1602,
        /// The distributed file system refused.
        DFS_PERMISSION_DENIED = -1603,
        /// A handle of the distributed file system is stale.
        DFS_STALE_HANDLE = -1604,
        /// A write to the distributed file system was cut short.
        DFS_PARTIAL_WRITE = -1605,
        /// The tenant has used up its quota.
        TENANT_QUOTA_EXCEEDED = -1700,
        /// No such tenant.
        TENANT_NOT_REGISTERED = -1701,
        /// The tenant has objects.
        TENANT_NOT_EMPTY = -1702,
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, ReplicaType, Uuid};

    #[test]
    fn an_id_prints_as_two_decimal_numbers() {
        assert_eq!(Uuid { first: 1, second: 0xabcdef }.to_string(), "1-11259375");
    }

    #[test]
    fn a_number_without_a_name_survives() {
        assert_eq!(ErrorCode::OBJECT_NOT_FOUND.to_string(), "OBJECT_NOT_FOUND");
        assert_eq!(ErrorCode(-4711).to_string(), "ErrorCode(-4711)");
        assert_eq!(ReplicaType(100).name(), Some("DFS"));
        assert_eq!(ReplicaType(5).name(), None);
    }
}
