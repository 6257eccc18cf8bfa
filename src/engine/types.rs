//! The numbers and names of the state machine, each a type of its own so that they cannot be mixed up.

use std::fmt;

/// The position of a record in the log: global, gap-free, ordered. Zero means "before the first record".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

impl SequenceId {
    /// The id of a change that a sealed engine refused: above every record, so an answer that depends on it is never
    /// sent (INV-3).
    pub const NEVER: Self = Self(u64::MAX);
}

/// Id by which records name an object: the sequence id of its Start record, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// The term of one primary: the revision that created its election key. Grows with every change of primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Log time in milliseconds. Zero stands for "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(pub u64);

impl LogTime {
    /// Returns the time `ms` milliseconds later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Which mount a replica lies on: counts mounts, so that a segment mounted again is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u32);

/// The pair of 64-bit words by which Mooncake identifies clients, segments and tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid {
    pub first: u64,
    pub second: u64,
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.second)
    }
}

/// An error code of the Mooncake protocol; zero is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ErrorCode(pub i32);

macro_rules! error_codes {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: ErrorCode = ErrorCode($value);)*

            /// Returns the name that the protocol gives this number, if it has one.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

error_codes! {
    OK = 0, "Success.";
    INTERNAL_ERROR = -1, "Something went wrong inside.";
    BUFFER_OVERFLOW = -10, "A buffer is too small.";
    SHARD_INDEX_OUT_OF_RANGE = -100, "No such shard.";
    SEGMENT_NOT_FOUND = -101, "No such segment, or no such client where a segment is looked up by its client.";
    SEGMENT_ALREADY_EXISTS = -102, "The segment is there already.";
    CLIENT_NOT_FOUND = -103, "No such client.";
    NO_AVAILABLE_HANDLE = -200, "No memory could be allocated.";
    INVALID_VERSION = -300, "A version or an epoch does not fit.";
    INVALID_KEY = -400, "Not a valid key.";
    WRITE_FAIL = -500, "A write failed.";
    INVALID_PARAMS = -600, "An argument makes no sense.";
    ILLEGAL_CLIENT = -601, "The object or task belongs to another client.";
    INVALID_WRITE = -700, "The object is not being written.";
    INVALID_READ = -701, "The object cannot be read.";
    INVALID_REPLICA = -702, "The replica makes no sense.";
    REPLICA_IS_NOT_READY = -703, "The object exists and no replica is readable.";
    OBJECT_NOT_FOUND = -704, "No such object.";
    OBJECT_ALREADY_EXISTS = -705, "The object is there already.";
    OBJECT_HAS_LEASE = -706, "A reader holds a lease on the object.";
    LEASE_EXPIRED = -707, "The lease ended before the read did.";
    OBJECT_HAS_REPLICATION_TASK = -708, "A copy or move of the object is under way.";
    OBJECT_NO_REPLICATION_TASK = -709, "No copy or move of the object is under way.";
    REPLICA_NOT_FOUND = -710, "No such replica.";
    REPLICA_ALREADY_EXISTS = -711, "The replica is there already.";
    REPLICA_IS_GONE = -712, "The source of a copy or move is gone.";
    REPLICA_NOT_IN_LOCAL_MEMORY = -713, "The replica is not in this client's memory.";
    OBJECT_REPLICA_BUSY = -714, "A replica is in use.";
    TRANSFER_FAIL = -800, "The transfer failed.";
    CHECKSUM_MISMATCH = -801, "The bytes are not what was written.";
    RPC_FAIL = -900, "The call failed.";
    RPC_TIMEOUT = -901, "The call took too long.";
    ETCD_OPERATION_ERROR = -1000, "etcd refused.";
    ETCD_KEY_NOT_EXIST = -1001, "No such key in etcd.";
    ETCD_TRANSACTION_FAIL = -1002, "A comparison in etcd failed.";
    ETCD_CTX_CANCELLED = -1003, "A call to etcd was cancelled.";
    OPLOG_ENTRY_NOT_FOUND = -1004, "No such log entry.";
    K8S_LEASE_OPERATION_ERROR = -1005, "Kubernetes refused.";
    K8S_LEASE_NOT_FOUND = -1006, "No such Lease in Kubernetes.";
    INCOMPLETE_OPLOG_CATCH_UP = -1007, "The log was not read to its end.";
    UNAVAILABLE_IN_CURRENT_STATUS = -1010, "Not now: the thing is in another state.";
    UNAVAILABLE_IN_CURRENT_MODE = -1011, "Not with this configuration.";
    NOT_SUPPORTED = -1012, "Not supported.";
    FILE_NOT_FOUND = -1100, "No such file.";
    FILE_OPEN_FAIL = -1101, "A file could not be opened.";
    FILE_READ_FAIL = -1102, "A file could not be read.";
    FILE_WRITE_FAIL = -1103, "A file could not be written.";
    FILE_INVALID_BUFFER = -1104, "A buffer for file access makes no sense.";
    FILE_LOCK_FAIL = -1105, "A file could not be locked.";
    FILE_INVALID_HANDLE = -1106, "A file handle makes no sense.";
    BUCKET_NOT_FOUND = -1200, "No such bucket.";
    BUCKET_ALREADY_EXISTS = -1201, "The bucket is there already.";
    KEYS_EXCEED_BUCKET_LIMIT = -1202, "Too many keys for a bucket.";
    KEYS_ULTRA_LIMIT = -1203, "Too many keys.";
    UNABLE_OFFLOAD = -1300, "Offloading is off.";
    UNABLE_OFFLOADING = -1301, "Offloading is not possible now.";
    TASK_NOT_FOUND = -1400, "No such task.";
    TASK_PENDING_LIMIT_EXCEEDED = -1401, "Too many tasks wait.";
    JOB_NOT_FOUND = -1402, "No such job.";
    SERIALIZE_UNSUPPORTED = -1500, "The type cannot be serialised.";
    SERIALIZE_FAIL = -1501, "Serialising failed.";
    DESERIALIZE_FAIL = -1502, "Deserialising failed.";
    PERSISTENT_FAIL = -1503, "Persisting failed.";
    DFS_NETWORK_TIMEOUT = -1600, "The distributed file system did not answer.";
    DFS_SERVICE_UNAVAILABLE = -1601, "There is no distributed file system.";
    DFS_QUOTA_EXCEEDED = -1602, "The distributed file system is full.";
    DFS_PERMISSION_DENIED = -1603, "The distributed file system refused.";
    DFS_STALE_HANDLE = -1604, "A handle of the distributed file system is stale.";
    DFS_PARTIAL_WRITE = -1605, "A write to the distributed file system was cut short.";
    TENANT_QUOTA_EXCEEDED = -1700, "The tenant has used up its quota.";
    TENANT_NOT_REGISTERED = -1701, "No such tenant.";
    TENANT_NOT_EMPTY = -1702, "The tenant has objects.";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "ErrorCode({})", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Result of an operation, and the last record that it depends on: the answer may be sent when that record is durable.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Answer<T> {
    /// The value or the refusal.
    pub result: Result<T, ErrorCode>,
    /// The highest sequence id that the result depends on.
    pub depends_on: SequenceId,
}

impl<T> Answer<T> {
    /// Creates a success that depends on this record.
    pub fn ok(value: T, depends_on: SequenceId) -> Self {
        Self { result: Ok(value), depends_on }
    }

    /// Creates a refusal that depends on this record.
    pub fn refuse(code: ErrorCode, depends_on: SequenceId) -> Self {
        Self { result: Err(code), depends_on }
    }

    /// Creates a refusal for the arguments alone, whatever the state.
    pub fn invalid(code: ErrorCode) -> Self {
        Self::refuse(code, SequenceId(0))
    }

    /// Returns the same answer with its value changed.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { result: self.result.map(f), depends_on: self.depends_on }
    }
}

/// A sum of item hashes. Items come and go in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Digest {
    /// Adds the hash of an item.
    pub fn add(&mut self, item: u64) {
        self.0 = self.0.wrapping_add(item);
    }

    /// Subtracts the hash of an item that is gone.
    pub fn subtract(&mut self, item: u64) {
        self.0 = self.0.wrapping_sub(item);
    }
}

/// The number by which clients, copies and moves tell replicas apart: made of the record that reserved the replica and
/// its index there, so that it is never used again. It has 56 bits, which leaves 48 for the record: enough for eight
/// years of a million records a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub u64);

impl ReplicaId {
    /// Creates the id of the `nth` replica that this record reserved.
    #[must_use]
    pub fn new(record: SequenceId, nth: usize) -> Self {
        Self((record.0 << 8 | nth as u64 & 0xff) & 0x00ff_ffff_ffff_ffff)
    }
}

/// Index of a client in the table of writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientNumber(pub u32);
