//! What only the holder of the sequencer touches: indexes over the objects, free memory, reservations, tasks.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use super::atlas::Atlas;
use super::client::Writers;
use super::digest::{self, Digest};
use super::doubts::Doubts;
use super::eviction::EvictionIndex;
use super::extents::Extents;
use super::faults::Faults;
use super::format::Format;
use super::group::{Group, Membership};
use super::ids::Ids;
use super::object::{Replica, ReplicaStatus, Replicas};
use super::open_segments::OpenSegments;
use super::record::SoftPin;
use super::reign::{Reign, TermReport};
use super::segment::Segment;
use super::shard::{Handle, KeyHash};
use super::strays::Strays;
use super::task::Tasks;
use super::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Uuid};

/// What only the holder of the sequencer touches.
#[derive(Debug, Default)]
pub struct Core {
    /// The last record applied.
    pub last: SequenceId,
    /// Its timestamp.
    pub log_time: LogTime,
    /// What this engine writes its own records in. Not state: each batch says what it is written in.
    pub format: Format,
    /// What the last `NewTerm` left behind.
    pub reign: Reign,
    /// What it found.
    pub report: TermReport,
    /// Signs that this replica is not what the log says.
    pub doubts: Doubts,
    /// Where objects lie, by id.
    pub ids: Ids,
    /// The object that was looked at last: nearly always the next to be named by a record.
    pub hint: Cell<Option<Hint>>,
    /// Who wrote which object.
    pub writers: Writers,
    /// Mounted segments with their free memory.
    pub segments: BTreeMap<SegmentNumber, Mounted>,
    /// Mounted segments by the name that their client gave them.
    pub segment_ids: HashMap<Uuid, SegmentNumber>,
    /// Mounted segments by where they are.
    pub atlas: Atlas,
    /// Writes into memory that is no longer mounted.
    pub strays: Strays,
    /// Segments that take new objects, by the name that users know.
    pub names: BTreeMap<Box<[u8]>, Vec<SegmentNumber>>,
    /// The same segments, to choose from at random.
    pub open: OpenSegments,
    /// The same segments by host.
    pub hosts: BTreeMap<Box<[u8]>, Vec<SegmentNumber>>,
    /// Where chance comes from when a segment is chosen. Not state: the choice is in the record.
    pub chance: Chance,
    /// The number of the next mount.
    pub next_segment: u32,
    /// Writes under way, oldest first.
    pub processing: BTreeMap<ObjectId, Processing>,
    /// Bytes that somebody may still be using, by the record that discarded them.
    pub discarded: BTreeMap<SequenceId, Discarded>,
    /// How many bytes these are together.
    pub discarded_bytes: u128,
    /// When discarded bytes are free, soonest first.
    pub releases: BTreeSet<(LogTime, SequenceId)>,
    /// Copies and moves under way, oldest first.
    pub replications: BTreeSet<(LogTime, ObjectId)>,
    /// Segments that are being drained, the first to be unmounted first.
    pub drains: BTreeSet<(LogTime, SegmentNumber)>,
    /// Writes under way all of whose segments are gone: only their bytes are kept (R4).
    pub lost_writes: BTreeSet<ObjectId>,
    /// Objects all of whose segments are gone but for which a copy or move is under way.
    pub lost_copies: BTreeSet<ObjectId>,
    /// Groups with their members.
    pub groups: HashMap<Box<[u8]>, (Arc<Group>, Membership)>,
    /// The order of eviction.
    pub eviction: EvictionIndex,
    /// Objects that could be evicted, were their lease over.
    pub evictable: usize,
    /// Tasks for clients.
    pub tasks: Tasks,
    /// Bytes of keys and values of the metadata server.
    pub metadata_bytes: usize,
    /// The sum over all replicated items that come and go; see [`Core::digest`].
    pub digest: Digest,
    /// Records that could not be applied to an object, which was dropped.
    pub faults: Faults,
}

/// An object, and what would have to be looked up or worked out again.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// Its id.
    pub id: ObjectId,
    /// Where it lies.
    pub handle: Handle,
    /// The hash of its key.
    pub key: KeyHash,
}

impl Core {
    /// The sum over all that is replicated.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut sum = self.digest;
        sum.add(digest::next_segment(self.next_segment));
        sum
    }

    /// What is known of this object, if it was the last to be looked at.
    #[must_use]
    pub fn hinted(&self, id: ObjectId) -> Option<Hint> {
        self.hint.get().filter(|hint| hint.id == id)
    }
}

/// A mounted segment with its free memory.
#[derive(Debug)]
pub struct Mounted {
    /// The segment.
    pub segment: Arc<Segment>,
    /// What of it is free.
    pub extents: Extents,
    /// When it is to be unmounted, if it is being drained.
    pub drain_until: Option<LogTime>,
    /// Its place among those that take new objects, if it does.
    pub open: Option<u32>,
    /// What a client may be writing to in it. When the segment goes, these are the ones to look at.
    pub reserved: BTreeSet<Reserved>,
}

impl Mounted {
    /// A segment in which nothing is reserved.
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

/// A write under way.
#[derive(Clone, Copy, Debug)]
pub struct Processing {
    /// When it began.
    pub started: LogTime,
    /// What becomes of the soft pin at its end.
    pub soft_pin: SoftPin,
}

/// Bytes that belong to no object but may still be in use.
#[derive(Debug)]
pub struct Discarded {
    /// When they are free.
    pub release_at: LogTime,
    /// How many bytes each replica has.
    pub size: u64,
    /// Where they are.
    pub replicas: Replicas,
}

impl Discarded {
    /// The bytes of all replicas. Sizes come from outside, and two of them may be more than a word can tell.
    #[must_use]
    pub fn bytes(&self) -> u128 {
        u128::from(self.size) * self.replicas.len() as u128
    }

    /// The segments in which a client may be writing to them.
    pub(super) fn written_in(&self) -> SmallVec<[SegmentNumber; 2]> {
        let written = |replica: &&Replica| replica.status == ReplicaStatus::Processing;
        self.replicas.iter().filter(written).map(|replica| replica.segment.number).collect()
    }
}

/// A small source of chance.
#[derive(Debug)]
pub struct Chance(u64);

impl Default for Chance {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Chance {
    /// Starts from another point.
    pub fn seed(&mut self, seed: u64) {
        self.0 = seed | 1;
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }
}
