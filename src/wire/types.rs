//! Plain values of the protocol: ids, error codes, numeric enums.
//!
//! The enums are newtypes with named constants, so that a number which a later client sends survives decoding and the
//! handler that needs to know it decides what to do.

use super::struct_pack::{wire_enum, wire_struct};
pub use crate::engine::types::{ErrorCode, Uuid};

// Defined with the state machine, which knows nothing of how they travel.
wire_struct!(@implement [] [Uuid] ['input] [Uuid] [8] first: u64, second: u64);
wire_enum!(@implement ErrorCode(i32));

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
