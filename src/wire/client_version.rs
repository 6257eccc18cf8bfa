//! Distinguishes clients of another generation from malformed requests.
//!
//! A client of another release sends other type codes where a struct has changed. It gets the same RPC error as any
//! malformed request; the log line should name the real cause. The shapes of 0.3.12 are defined here as far as they
//! differ, and their codes derived from them.

use super::functions::Function;
use super::messages::*;
use super::struct_pack::{Wire, code_of, wire_struct};
use super::types::{ObjectDataType, Uuid};

/// Why a request's arguments could not be decoded, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The client is of a generation that this master does not support.
    #[error("the client is of generation {0}, this master speaks {SPOKEN}")]
    OtherGeneration(&'static str),
    /// The type code belongs to no known generation.
    #[error("the type code {0:#010x} of the arguments is not known for this function")]
    UnknownCode(u32),
    /// The type code is right, so the rest must be wrong.
    #[error("the arguments are malformed")]
    Malformed,
}

/// The client generation that this master supports.
pub const SPOKEN: &str = "0.3.13";

wire_struct! {
    /// How an object is to be stored, in 0.3.12.
    #[derive(Debug)]
    pub struct ReplicateConfig0312<'a> {
        /// Number of replicas that are wanted in memory.
        pub replica_num: u64,
        /// Replicas on NVMe over fabrics.
        pub nof_replica_num: u64,
        /// Whether it is evicted late.
        pub with_soft_pin: bool,
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
    /// PutStart and UpsertStart in 0.3.12.
    #[derive(Debug)]
    pub struct StartRequest0312<'a> {
        pub client_id: Uuid,
        pub key: &'a [u8],
        /// Size of the value, and so of each replica, in bytes.
        pub slice_length: u64,
        pub config: ReplicateConfig0312<'a>,
        pub tenant_id: &'a [u8],
    }
}

wire_struct! {
    /// BatchPutStart and BatchUpsertStart in 0.3.12.
    #[derive(Debug)]
    pub struct BatchStartRequest0312<'a> {
        pub client_id: Uuid,
        pub keys: Vec<&'a [u8]>,
        /// Size of each value in bytes, in the order of `keys`.
        pub slice_lengths: Vec<u64>,
        pub config: ReplicateConfig0312<'a>,
        pub tenant_id: &'a [u8],
    }
}

/// Returns the code of a function's arguments in 0.3.12, where it differs. An End contained a key there, so it looked
/// like a Revoke.
fn code_0312(function: Function) -> Option<u32> {
    Some(match function {
        Function::PutStart | Function::UpsertStart => StartRequest0312::SHAPE.code,
        Function::BatchPutStart | Function::BatchUpsertStart => BatchStartRequest0312::SHAPE.code,
        Function::PutEnd | Function::UpsertEnd => RevokeRequest::SHAPE.code,
        Function::BatchPutEnd => BatchPutRevokeRequest::SHAPE.code,
        Function::BatchUpsertEnd => BatchUpsertRevokeRequest::SHAPE.code,
        _ => return None,
    })
}

/// Returns why `body`, which could not be decoded, was refused.
pub fn explain(function: Function, body: &[u8]) -> Refusal {
    let Some(code) = code_of(body) else {
        return Refusal::Malformed;
    };
    if code_0312(function) == Some(code) {
        Refusal::OtherGeneration("0.3.12")
    } else if function.request_shape().is_some_and(|shape| shape.code == code) {
        Refusal::Malformed
    } else {
        Refusal::UnknownCode(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_0_3_12_is_named() {
        // Accepted by the master of 0.3.12.post1 and refused by the one of 0.3.13.post1.
        let body = 0x6920_ea5cu32.to_le_bytes();
        assert_eq!(explain(Function::PutStart, &body), Refusal::OtherGeneration("0.3.12"));
        assert_eq!(explain(Function::Remove, &body), Refusal::UnknownCode(0x6920_ea5c));
        for (function, code) in [
            (Function::PutEnd, 0x1b7a_228au32),
            (Function::UpsertEnd, 0x1b7a_228a),
            (Function::BatchPutEnd, 0x94ee_5d44),
            (Function::BatchUpsertEnd, 0xd609_1496),
        ] {
            // The published packages set bit 0.
            assert_eq!(explain(function, &(code | 1).to_le_bytes()), Refusal::OtherGeneration("0.3.12"));
        }
    }

    #[test]
    fn nonsense_is_not_blamed_on_a_generation() {
        assert_eq!(explain(Function::ExistKey, &[]), Refusal::Malformed);
        assert_eq!(explain(Function::ExistKey, &0x7cf9_1ed8u32.to_le_bytes()), Refusal::Malformed);
        assert_eq!(explain(Function::ExistKey, &[0; 8]), Refusal::UnknownCode(0));
    }
}
