//! Plain values of the protocol: ids, error codes, numeric enums.
//!
//! The enums are newtypes with named constants, so that a number which a later client sends survives decoding, and the
//! handler that uses it decides what to do.

use super::struct_pack::{wire_enum, wire_struct};
pub use crate::engine::types::{ErrorCode, Uuid};

// Defined with the state machine, which knows nothing of the encoding.
wire_struct!(@implement [] [Uuid] ['input] [Uuid] [8] first: u64, second: u64);
wire_enum!(@implement ErrorCode(i32));

/// Result of an operation: a value or an error code.
pub type Expected<T> = Result<T, ErrorCode>;

wire_enum! {
    /// The kind of storage of a replica.
    pub struct ReplicaType(i32) {
        /// In a segment of a client's memory.
        MEMORY = 0,
        /// In a file of a shared file system.
        DISK = 1,
        /// On a client's own disk.
        LOCAL_DISK = 2,
        /// On storage that is reached by NVMe over fabrics.
        NOF_SSD = 3,
        /// Every kind at once, as an argument.
        ALL = 4,
        /// In the distributed file system.
        DFS = 100,
    }
}

wire_enum! {
    /// The state of a replica.
    pub struct ReplicaStatus(i32) {
        /// The zero value of the protocol; this master never sends it.
        UNDEFINED = 0,
        /// Allocated; this master starts with `PROCESSING` instead.
        INITIALIZED = 1,
        /// Reserved: a client may be writing to it.
        PROCESSING = 2,
        /// Its writer has reported that all bytes are written.
        COMPLETE = 3,
        /// The replica no longer exists; this master never sends it.
        REMOVED = 4,
        /// The write failed; this master never sends it.
        FAILED = 5,
    }
}

wire_enum! {
    /// The state of a client, sent in the reply to a ping.
    pub struct ClientStatus(i32) {
        /// The zero value of the protocol; this master never sends it.
        UNDEFINED = 0,
        /// Known to this master, with all its segments.
        OK = 1,
        /// The client has to mount its segments again.
        NEED_REMOUNT = 2,
    }
}

wire_enum! {
    /// The state of a segment.
    pub struct SegmentStatus(i32) {
        /// The zero value of the protocol; this master never sends it.
        UNDEFINED = 0,
        /// Mounted, and not about to be unmounted.
        OK = 1,
        /// Being emptied; this master never sends it.
        DRAINING = 2,
        /// Emptied; this master never sends it.
        DRAINED = 3,
        /// Takes no new objects, and is unmounted when its grace period ends.
        GRACEFULLY_UNMOUNTING = 4,
        /// Being unmounted; this master never sends it.
        UNMOUNTING = 5,
    }
}

wire_enum! {
    /// The work of a task, which a client carries out.
    pub struct TaskType(i32) {
        /// Copies a replica to other segments.
        REPLICA_COPY = 0,
        /// Moves a replica to another segment.
        REPLICA_MOVE = 1,
    }
}

wire_enum! {
    /// The state of a task.
    pub struct TaskStatus(i32) {
        /// Waits for a client to fetch it.
        PENDING = 0,
        /// Fetched by the client that carries it out.
        PROCESSING = 1,
        /// Ended without success, or took too long.
        FAILED = 2,
        SUCCESS = 3,
    }
}

wire_enum! {
    /// What a write does to the soft pin of its object.
    pub struct SoftPinAction(u8) {
        /// Leaves it unchanged.
        PRESERVE = 0,
        /// Sets it when the write ends.
        ENABLE = 1,
        /// Removes it when the write ends.
        DISABLE = 2,
    }
}

wire_enum! {
    /// The kind of data in an object, as its writer declares it.
    pub struct ObjectDataType(u8) {
        /// Not declared.
        UNKNOWN = 0,
        KVCACHE = 1,
        TENSOR = 2,
        /// Model weights.
        WEIGHT = 3,
        /// Training samples.
        SAMPLE = 4,
        ACTIVATION = 5,
        GRADIENT = 6,
        OPTIMIZER_STATE = 7,
        METADATA = 8,
        /// Anything else.
        GENERAL = 9,
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
