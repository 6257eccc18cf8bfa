//! The whole state as bytes, and back: everything that is a function of the records, and nothing else. No live lease,
//! no metric, no place in memory; what can be derived from the objects (free memory, the order of eviction, groups,
//! indexes) is made again.
//!
//! The bytes are a row of items, each behind a tag, in chunks that hold whole items. Whoever keeps them puts checksums
//! around them; still, whatever they say, the answer is a state or an error. The state that comes out has to have the
//! digest that went in.

mod read;
mod write;

pub use read::Restore;

use super::digest::Digest;
use super::packing::Malformed;
use super::types::SegmentNumber;

/// A chunk is handed on when it has so many bytes. It ends with a whole item and may be that much longer.
pub const CHUNK: usize = 768 * 1024;

/// Why bytes are no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// An item cannot be read.
    #[error("an item cannot be read: {0}")]
    Malformed(#[from] Malformed),
    /// Something comes before the numbers that all begins with, or after the end.
    #[error("its items are out of order")]
    Order,
    /// There is no end, or not everything before it.
    #[error("it ends too early: {found} objects of {said}")]
    Incomplete {
        /// Objects that were there.
        found: u64,
        /// Objects that there should be.
        said: u64,
    },
    /// A replica lies in a segment that is not there.
    #[error("a replica lies in segment {number}, which is not there", number = .0.0)]
    UnknownSegment(SegmentNumber),
    /// Two replicas share bytes, or lie outside of their segment (INV-5).
    #[error("segment {number} cannot have its replicas: {why}", number = .segment.0)]
    Overlap {
        /// The segment.
        segment: SegmentNumber,
        /// The range that is not free.
        why: super::extents::NotFree,
    },
    /// An object without a replica.
    #[error("an object has no replica")]
    NoReplica,
    /// What came out is not what went in.
    #[error("its digest is {found:016x}, it says {said:016x}", found = .found.0, said = .said.0)]
    Digest {
        /// What the items add up to.
        found: Digest,
        /// What they should add up to.
        said: Digest,
    },
}

/// What an item is. The numbers never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    /// Numbers of the state as a whole: the first item.
    Core = 1,
    /// A segment, mounted or only still referred to.
    Segment = 2,
    /// A client.
    Client = 3,
    /// A shard: its objects follow.
    Shard = 4,
    /// An object.
    Object = 5,
    /// A write under way.
    Processing = 6,
    /// Bytes that belong to no object but may still be in use.
    Discarded = 7,
    /// A task.
    Task = 8,
    /// An entry of the metadata server.
    Metadata = 9,
    /// How many objects there were: the last item.
    End = 10,
}

impl Tag {
    fn of(byte: u8) -> Result<Self, Malformed> {
        Ok(match byte {
            1 => Self::Core,
            2 => Self::Segment,
            3 => Self::Client,
            4 => Self::Shard,
            5 => Self::Object,
            6 => Self::Processing,
            7 => Self::Discarded,
            8 => Self::Task,
            9 => Self::Metadata,
            10 => Self::End,
            value => return Err(Malformed::Unknown { what: "an item's tag", value: value.into() }),
        })
    }
}

/// Bits of an object's first byte.
mod object_flags {
    pub const HARD_PIN: u8 = 1;
    pub const EXTRA: u8 = 1 << 1;
    pub const CHECKSUM: u8 = 1 << 2;
    pub const SOFT_PIN: u8 = 1 << 3;
    pub const GROUP: u8 = 1 << 4;
    pub const REPLICATION: u8 = 1 << 5;
    pub const ALL: u8 = (1 << 6) - 1;
}
