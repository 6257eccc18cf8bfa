//! Snapshots of the whole state: everything that is a function of the records, and nothing else. Live leases, metrics
//! and slots are not included; what can be derived from the objects (free memory, the order of eviction, groups,
//! indexes) is rebuilt.
//!
//! A [`Capture`] is the state at one moment, written while later records are applied. What is small is encoded when it
//! begins. Objects are scanned a slice at a time, and one that changes before the scan has come to it is encoded first,
//! as it was (`hook.rs`). So no change waits longer than one slice takes, some tenths of a millisecond. The memory that it
//! takes is one bit for each object, two copies of what is small, and what has changed and was not fetched yet, at most
//! [`MAX_WAITING`] bytes: if more would wait, because the snapshot is written more slowly than the state changes, it is
//! given up.
//!
//! The bytes are a sequence of items, each behind a tag, in chunks of whole items. The code that stores them adds
//! checksums; still, whatever the bytes are, reading them gives a state or an error. [`Restore`] makes an engine of them,
//! which has to have the digest that was written; [`Check`] only computes the digest.

mod begin;
mod capture;
mod check;
mod chunks;
mod decode;
mod describe;
mod encode;
mod hook;
mod plan;
mod planned;
mod ranges;
mod restore;
mod scan;
mod whole;

pub use capture::{Capture, CaptureError, MAX_WAITING};
pub use check::Check;
pub use describe::Description;
pub(super) use hook::{CoreHook, ShardHook};
pub(super) use plan::Plan;
pub use plan::{BeginError, Part};
pub use planned::{PlanError, PlannedCapture};
pub use ranges::{
    BITS, ItemKind, ItemSum, KeyRange, KindSum, ListedItem, MAX_BITS, MAX_ITEMS, RangeDigests, RangeReader,
};
pub use restore::Restore;

use super::types::SegmentNumber;
use super::varint::Malformed;
use crate::engine::types::Digest;

/// A chunk is passed on when it has at least this many bytes. It ends with a whole item, so it may be longer.
pub const CHUNK: usize = 768 * 1024;

/// Items that are scanned before their lock is released.
const SLICE: usize = 1024;

/// Why bytes cannot be restored to a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// An item cannot be read.
    #[error("an item cannot be read: {0}")]
    Malformed(#[from] Malformed),
    /// An item comes before the `Core` item, which has to be the first, or after the end.
    #[error("its items are out of order")]
    Order,
    /// The end is missing, or objects before it are.
    #[error("it ends too early: {found} objects of {said}")]
    Incomplete {
        /// Objects that were read.
        found: u64,
        /// Objects that there should be; zero if the end is missing.
        said: u64,
    },
    /// A replica lies in a segment that was not read before it.
    #[error("a replica lies in segment {number}, which is not there", number = .0.0)]
    UnknownSegment(SegmentNumber),
    /// Two replicas share bytes, or lie outside of their segment (INV-5).
    #[error("segment {number} cannot have its replicas: {why}", number = .segment.0)]
    Overlap {
        segment: SegmentNumber,
        /// The range that is not free.
        why: super::extents::NotFree,
    },
    #[error("an object has no replica")]
    NoReplica,
    /// The restored state does not have the digest that was written.
    #[error("its digest is {found:016x}, it says {said:016x}", found = .found.0, said = .said.0)]
    Digest {
        /// Digest of the restored state.
        found: Digest,
        /// Digest that was written.
        said: Digest,
    },
}

/// Kind of an item. The numbers never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    /// Numbers of the state as a whole: the first item.
    Core = 1,
    /// A segment: mounted, or unmounted and still referred to by a replica. An unmounted one may come twice.
    Segment = 2,
    Client = 3,
    /// The last removal in a shard, one after the other.
    Shard = 4,
    Object = 5,
    /// A write under way.
    Processing = 6,
    /// Bytes that belong to no object but may still be in use.
    Discarded = 7,
    Task = 8,
    /// An entry of the metadata server.
    Metadata = 9,
    /// How many objects there were: the last item.
    End = 10,
    /// A writer: objects name it by its position among the writers.
    Writer = 11,
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
            11 => Self::Writer,
            value => return Err(Malformed::Unknown { what: "an item's tag", value: value.into() }),
        })
    }
}

/// Flag bits in an object's first byte.
mod object_flags {
    pub const HARD_PIN: u8 = 1;
    pub const EXTRA: u8 = 1 << 1;
    pub const CHECKSUM: u8 = 1 << 2;
    pub const SOFT_PIN: u8 = 1 << 3;
    pub const GROUP: u8 = 1 << 4;
    pub const REPLICATION: u8 = 1 << 5;
    pub const ALL: u8 = (1 << 6) - 1;
}
