//! Data that only the holder of the sequencer accesses: indexes over the objects, free memory, reservations, tasks.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::client::Writers;
use super::digest;
use super::divergence::Divergence;
use super::eviction::EvictionIndex;
use super::extents::Extents;
use super::faults::{Fault, Faults, Reason};
use super::format::Format;
use super::group::{Group, Membership};
use super::object_index::ObjectIndex;
use super::open_segments::OpenSegments;
use super::reserved::{Discarded, Processing};
use super::segment::Segment;
use super::segment_ranges::SegmentRanges;
use super::snapshot::CoreHook;
use super::task::Tasks;
use super::term_state::{TermReport, TermState};
use super::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Uuid};
use super::unmounted_writes::UnmountedWrites;
use crate::engine::key::{Handle, KeyHash};
use crate::engine::types::Digest;

/// Data that only the holder of the sequencer accesses.
#[derive(Debug, Default)]
pub struct Core {
    /// The last record that was applied; zero before the first.
    pub last: SequenceId,
    /// Timestamp of that record.
    pub log_time: LogTime,
    /// Format of the records that this engine makes. Not state: each batch names its own format.
    pub format: Format,
    /// The current term, as the last `NewTerm` set it.
    pub term_state: TermState,
    /// What the new primary found at that time.
    pub report: TermReport,
    /// Signs that this replica diverges from the log.
    pub divergence: Divergence,
    /// The last `Digest` record that matched. Not state.
    pub digest_matched: SequenceId,
    /// The last record other than a `Digest`. Not state.
    pub last_change: SequenceId,
    /// Locations of objects, by id.
    pub object_index: ObjectIndex,
    /// The object that was accessed last: nearly always the one that the next record names.
    pub hint: Cell<Option<Hint>>,
    /// Ids of writers, by the number that objects store.
    pub writers: Writers,
    /// Mounted segments with their free memory.
    pub segments: BTreeMap<SegmentNumber, Mounted>,
    /// Mounted segments by the id that their client gave them.
    pub segment_ids: HashMap<Uuid, SegmentNumber>,
    /// Mounted segments by endpoint and address.
    pub segment_ranges: SegmentRanges,
    /// Writes into memory that is no longer mounted.
    pub unmounted_writes: UnmountedWrites,
    /// Segments that take new objects, by the name that users know.
    pub names: BTreeMap<Box<[u8]>, Vec<SegmentNumber>>,
    /// The same segments, to choose from at random.
    pub open: OpenSegments,
    /// The same segments by host.
    pub hosts: BTreeMap<Box<[u8]>, Vec<SegmentNumber>>,
    /// Random generator for the choice of segments. Not state: the choice is in the record.
    pub rng: Rng,
    /// The number of the next mount.
    pub next_segment: u32,
    /// Writes under way, oldest first.
    pub processing: BTreeMap<ObjectId, Processing>,
    /// Bytes that clients may still be using, by the record that discarded them.
    pub discarded: BTreeMap<SequenceId, Discarded>,
    /// Sum of these bytes over all replicas.
    pub discarded_bytes: u128,
    /// When discarded bytes are released, the earliest first.
    pub releases: BTreeSet<(LogTime, SequenceId)>,
    /// Copies and moves under way, oldest first.
    pub copy_moves: BTreeSet<(LogTime, ObjectId)>,
    /// Segments that are being drained, the first to be unmounted first.
    pub drains: BTreeSet<(LogTime, SegmentNumber)>,
    /// Writes under way all of whose segments are unmounted: only their bytes are kept (R4).
    pub lost_writes: BTreeSet<ObjectId>,
    /// Objects all of whose segments are unmounted but for which a copy or move is under way.
    pub lost_copies: BTreeSet<ObjectId>,
    /// Groups with their members, by name.
    pub groups: HashMap<Box<[u8]>, (Arc<Group>, Membership)>,
    pub eviction: EvictionIndex,
    /// Number of objects that could be evicted, were their lease over.
    pub evictable: usize,
    pub tasks: Tasks,
    /// Bytes of keys and values of the metadata server.
    pub metadata_bytes: usize,
    /// The sum over all replicated items that come and go; see [`Core::digest`].
    pub digest: Digest,
    /// Records that could not be applied to an object, which was dropped.
    pub faults: Faults,
    /// Keeps what a snapshot under way needs of reservations that end.
    pub(super) hook: Option<Box<CoreHook>>,
}

/// Location and key hash of an object, to save a second look-up.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    pub id: ObjectId,
    pub handle: Handle,
    /// The hash of its key.
    pub key: KeyHash,
}

impl Core {
    /// Records a fault of the record that is being applied.
    pub(super) fn fault(&mut self, objects: Vec<ObjectId>, reason: Reason) {
        self.faults.add(Fault { record: self.last, objects, reason });
    }

    /// Returns the sum over all that is replicated.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut sum = self.digest;
        sum.add(digest::next_segment(self.next_segment));
        sum
    }

    /// Returns the hint if it is about this object.
    #[must_use]
    pub fn hinted(&self, id: ObjectId) -> Option<Hint> {
        self.hint.get().filter(|hint| hint.id == id)
    }
}

/// A mounted segment with its free memory.
#[derive(Debug)]
pub struct Mounted {
    pub segment: Arc<Segment>,
    pub extents: Extents,
    /// When it is to be unmounted, if it is being drained.
    pub drain_until: Option<LogTime>,
    /// Its place in [`Core::open`], if it takes new objects.
    pub open: Option<u32>,
    /// What a client may be writing to in it: the strays to look for when the segment is unmounted.
    pub reserved: BTreeSet<Reserved>,
}

impl Mounted {
    /// Creates a mounted segment in which nothing is reserved.
    pub fn new(segment: Arc<Segment>, extents: Extents, drain_until: Option<LogTime>) -> Self {
        Self { segment, extents, drain_until, open: None, reserved: BTreeSet::new() }
    }
}

/// Bytes that a client may be writing to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reserved {
    /// Those of an object that is being written, copied or moved.
    Object(ObjectId),
    /// Those that this record discarded.
    Discarded(SequenceId),
}

/// A small random generator (xorshift).
#[derive(Debug)]
pub struct Rng(u64);

impl Default for Rng {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Rng {
    /// Restarts from a seed, made odd because zero would yield only zeros.
    pub fn seed(&mut self, seed: u64) {
        self.0 = seed | 1;
    }

    /// Returns a random number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }
}
