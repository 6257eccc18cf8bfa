//! Records as bytes.
//!
//! A record is a kind, the difference of its time from that of the record before it, and its fields in the order of the
//! type. Times in it are differences from its own, ids are differences from the id written last, and a client that is
//! the same as before is not repeated: nearly all of these take one byte. So a record can be decoded only after those
//! before it in the same body; a body can be decoded alone.
//!
//! The meaning of a kind in one format never changes. A new kind, other fields, or another meaning is another format:
//! encoding and decoding take the format as an argument.

mod decode;
mod encode;
pub mod json;

pub use decode::{Records, Scratch};
pub use encode::encode;

use crate::engine::types::{LogTime, ObjectId, Uuid};

/// Base values for delta-encoding the next record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    time: LogTime,
    object: ObjectId,
    client: Uuid,
}

/// The first byte of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    PutStart = 1,
    UpsertStart = 2,
    End = 3,
    Revoke = 4,
    Discard = 5,
    Release = 6,
    Remove = 7,
    ClearReplicas = 8,
    Sweep = 9,
    RemoveAll = 10,
    Evict = 11,
    ReplicationStart = 12,
    ReplicationEnd = 13,
    ReplicationRevoke = 14,
    MountSegment = 15,
    ClientJoined = 16,
    DrainSegment = 17,
    UnmountSegment = 18,
    ClientExpired = 19,
    TaskCreated = 20,
    TaskAssigned = 21,
    TaskDone = 22,
    MetadataPut = 23,
    MetadataDelete = 24,
    RenewLeases = 25,
    NewTerm = 26,
    Resign = 27,
    Digest = 28,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    const ALL: [Kind; 28] = [
        Kind::PutStart,
        Kind::UpsertStart,
        Kind::End,
        Kind::Revoke,
        Kind::Discard,
        Kind::Release,
        Kind::Remove,
        Kind::ClearReplicas,
        Kind::Sweep,
        Kind::RemoveAll,
        Kind::Evict,
        Kind::ReplicationStart,
        Kind::ReplicationEnd,
        Kind::ReplicationRevoke,
        Kind::MountSegment,
        Kind::ClientJoined,
        Kind::DrainSegment,
        Kind::UnmountSegment,
        Kind::ClientExpired,
        Kind::TaskCreated,
        Kind::TaskAssigned,
        Kind::TaskDone,
        Kind::MetadataPut,
        Kind::MetadataDelete,
        Kind::RenewLeases,
        Kind::NewTerm,
        Kind::Resign,
        Kind::Digest,
    ];

    fn of(byte: u8) -> Option<Self> {
        let kind = *Self::ALL.get(usize::from(byte).checked_sub(1)?)?;
        debug_assert_eq!(kind as u8, byte);
        Some(kind)
    }
}

/// Bits of the byte that a reservation starts with.
mod start {
    pub const HARD_PIN: u8 = 1;
    pub const GROUP: u8 = 1 << 1;
    pub const SOFT_PIN_ON: u8 = 1 << 2;
    pub const SOFT_PIN_OFF: u8 = 1 << 3;
    pub const DATA_TYPE: u8 = 1 << 4;
    pub const SAME_CLIENT: u8 = 1 << 5;
    pub const ALL: u8 = (1 << 6) - 1;
}
