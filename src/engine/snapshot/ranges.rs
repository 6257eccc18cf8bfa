//! Digests of a captured state by kind of item and range of keys, so that the first item in which two states differ can
//! be found in a few steps, however many there are.
//!
//! They are computed from the items themselves, not from the sum that `apply` keeps: a bit that turned in memory is in
//! no sum. Every item has a position, a hash of what names it; that of an object begins with its shard. A range is all
//! positions with a common beginning of whole bytes, so it has 256 parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SnapshotError;
use super::decode::{Decoder, Item};
use super::describe::{self, Description};
use super::plan::Part;
use crate::engine::digest;
use crate::engine::group::Group;
use crate::engine::key::KeyHash;
use crate::engine::types::{Digest, SequenceId};
use crate::engine::varint::Reader;

/// Most items of one kind that are listed one by one. More are only summed up by range.
pub const MAX_ITEMS: usize = 256;

/// Bits of a position that distinguish the parts of a range.
pub const BITS: u8 = 8;

/// Longest beginning that a range can have.
pub const MAX_BITS: u8 = 64 - BITS;

/// Kind of a replicated item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKind {
    Object,
    Segment,
    Client,
    /// A write under way.
    Write,
    /// Bytes that belong to no object but may still be in use.
    Discarded,
    Task,
    /// An entry of the metadata server.
    Metadata,
    /// The current term, and the number of the next mount.
    State,
}

impl ItemKind {
    /// All kinds, in the order in which differences are looked for.
    pub const ALL: [Self; 8] = [
        Self::Object,
        Self::Segment,
        Self::Client,
        Self::Write,
        Self::Discarded,
        Self::Task,
        Self::Metadata,
        Self::State,
    ];

    /// Returns the name of the kind in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Segment => "segment",
            Self::Client => "client",
            Self::Write => "write",
            Self::Discarded => "discarded",
            Self::Task => "task",
            Self::Metadata => "metadata",
            Self::State => "state",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The items of one kind whose positions have the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    kind: ItemKind,
    prefix: u64,
    bits: u8,
}

impl KeyRange {
    /// Creates the range of the positions that have the first `bits` bits of `prefix`; `None` if these are not whole
    /// bytes, or more than [`MAX_BITS`].
    #[must_use]
    pub fn new(kind: ItemKind, prefix: u64, bits: u8) -> Option<Self> {
        let range = Self { kind, prefix, bits };
        (bits.is_multiple_of(BITS) && bits <= MAX_BITS && range.contains(prefix)).then_some(range)
    }

    /// Returns the part of a state that has all of its items. Objects are looked for in all shards: one whose key has
    /// changed in memory is still in the shard of the right key.
    #[must_use]
    pub fn part(self) -> Part {
        match self.kind {
            ItemKind::Object => Part::Whole,
            _ => Part::WithoutObjects,
        }
    }

    fn contains(self, position: u64) -> bool {
        self.bits == 0 || (self.prefix ^ position) >> (64 - self.bits) == 0
    }

    /// Returns the part of this range that a position is in.
    fn part_of(self, position: u64) -> u8 {
        (position << self.bits >> MAX_BITS) as u8
    }
}

/// How many items there are, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemSum {
    pub count: u64,
    pub digest: Digest,
}

impl ItemSum {
    fn add(&mut self, item: u64) {
        self.count += 1;
        self.digest.add(item);
    }
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedItem {
    pub position: u64,
    pub digest: u64,
    pub description: Description,
}

/// The items of one kind that are in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindSum {
    pub sum: ItemSum,
    /// The parts of the range that have items.
    pub parts: BTreeMap<u8, ItemSum>,
    /// The items in the order of their positions, if they are at most [`MAX_ITEMS`].
    pub items: Option<Vec<ListedItem>>,
}

/// Digests of a captured state.
#[derive(Clone, Debug)]
pub struct RangeDigests {
    /// The record after which it was captured.
    pub at: SequenceId,
    /// The digest that `apply` has kept.
    pub kept: Digest,
    /// The digest of the items; `None` if not all were read.
    pub computed: Option<Digest>,
    pub kinds: BTreeMap<ItemKind, KindSum>,
}

/// Reads a capture, chunk by chunk.
#[derive(Debug)]
pub struct RangeReader {
    decoder: Decoder,
    /// What is read; everything if it is `None`.
    range: Option<KeyRange>,
    /// Digest that was written, and the last record, once the first item was read.
    said: Option<(Digest, SequenceId)>,
    kinds: BTreeMap<ItemKind, KindSum>,
    objects: u64,
    /// How many objects there should be, once the last item was read.
    end: Option<u64>,
}

impl RangeReader {
    /// Starts to read the items of this range, or without one those of all kinds.
    #[must_use]
    pub fn new(range: Option<KeyRange>) -> Self {
        let kinds = ItemKind::ALL.into_iter().filter(|kind| range.is_none_or(|range| range.kind == *kind));
        let empty = || KindSum { sum: ItemSum::default(), parts: BTreeMap::new(), items: Some(Vec::new()) };
        Self {
            decoder: Decoder::default(),
            range,
            said: None,
            kinds: kinds.map(|kind| (kind, empty())).collect(),
            objects: 0,
            end: None,
        }
    }

    /// Reads the next chunk, which consists of whole items.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        let mut from = Reader::new(chunk);
        while let Some(item) = self.decoder.next(&mut from, &mut |name| Arc::new(Group::new(name)))? {
            self.add(&item);
        }
        Ok(())
    }

    /// Returns the digests if everything was read.
    pub fn finish(mut self) -> Result<RangeDigests, SnapshotError> {
        let (Some((kept, at)), Some(objects)) = (self.said, self.end) else {
            return Err(SnapshotError::Incomplete { found: self.objects, said: 0 });
        };
        if self.objects != objects {
            return Err(SnapshotError::Incomplete { found: self.objects, said: objects });
        }
        let mut all = Digest(0);
        for kind in self.kinds.values_mut() {
            all.add(kind.sum.digest.0);
            if let Some(items) = &mut kind.items {
                items.sort_unstable_by_key(|item| (item.position, item.digest));
            }
        }
        let computed = self.range.is_none().then_some(all);
        Ok(RangeDigests { at, kept, computed, kinds: self.kinds })
    }

    fn add(&mut self, item: &Item<'_>) {
        use describe::position;
        match item {
            Item::Whole(whole) => {
                self.said = Some((whole.digest, whole.last));
                let hash = digest::term_state(&whole.term_state);
                let describe = || describe::term_state(&whole.term_state);
                self.count(ItemKind::State, position(b"term"), hash, describe);
                let hash = digest::next_segment(whole.next_segment);
                let describe = || describe::next_segment(whole.next_segment);
                self.count(ItemKind::State, position(b"next segment"), hash, describe);
            }
            Item::Mounted(segment, drain_until) => {
                let (at, hash) =
                    (position(&segment.number.0.to_le_bytes()), digest::segment(segment, *drain_until));
                self.count(ItemKind::Segment, at, hash, || describe::segment(segment, *drain_until));
            }
            Item::Client(id, client) => {
                let hash = digest::client(*id, client);
                self.count(ItemKind::Client, describe::position_of_id(*id), hash, || {
                    describe::client(*id, client)
                });
            }
            Item::Shard(_) => {}
            Item::Object(object, writer) => {
                let key = KeyHash::of(&object.key);
                let hash = digest::object(object, key, *writer);
                self.count(ItemKind::Object, describe::position_of_key(key), hash, || {
                    describe::object(object, *writer)
                });
                self.objects += 1;
            }
            Item::Processing(id, write) => {
                let hash = digest::processing(*id, write);
                self.count(ItemKind::Write, position(&id.0.to_le_bytes()), hash, || {
                    describe::write(*id, write)
                });
            }
            Item::Discarded(record, bytes) => {
                let (at, hash) = (position(&record.0.to_le_bytes()), digest::discarded(*record, bytes));
                self.count(ItemKind::Discarded, at, hash, || describe::discarded(*record, bytes));
            }
            Item::Task(task) => {
                let at = describe::position_of_id(task.id);
                self.count(ItemKind::Task, at, digest::task(task), || describe::task(task));
            }
            Item::Metadata { key, value, record: _ } => {
                let hash = digest::metadata(key, value);
                self.count(ItemKind::Metadata, position(key), hash, || describe::metadata(key, value));
            }
            Item::End(objects) => self.end = Some(*objects),
        }
    }

    fn count(&mut self, kind: ItemKind, position: u64, hash: u64, describe: impl FnOnce() -> Description) {
        let range = self.range.unwrap_or(KeyRange { kind, prefix: 0, bits: 0 });
        // An item without a hash, such as a client that only owns segments, is in no digest.
        if hash == 0 || !range.contains(position) {
            return;
        }
        let Some(found) = self.kinds.get_mut(&kind) else { return };
        found.sum.add(hash);
        found.parts.entry(range.part_of(position)).or_default().add(hash);
        match &mut found.items {
            Some(items) if items.len() < MAX_ITEMS => {
                items.push(ListedItem { position, digest: hash, description: describe() });
            }
            items => *items = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_positions_with_its_first_bytes() {
        let range = |prefix, bits| KeyRange::new(ItemKind::Object, prefix, bits);
        let all = range(0, 0).unwrap();
        assert!(all.contains(0) && all.contains(u64::MAX));
        assert_eq!((all.part_of(0), all.part_of(u64::MAX), all.part()), (0, 255, Part::Whole));
        let shard = range(7 << 56, 8).unwrap();
        assert!(shard.contains(7 << 56 | 1) && !shard.contains(6 << 56) && !shard.contains(8 << 56));
        assert_eq!((shard.part_of(7 << 56 | 9 << 48), shard.part()), (9, Part::Whole));
        let last = range(0x0102_0304_0506_0700, 56).unwrap();
        assert!(last.contains(0x0102_0304_0506_07ff) && !last.contains(0x0102_0304_0506_08ff));
        assert_eq!(last.part_of(0x0102_0304_0506_0742), 0x42);
        for (prefix, bits) in [(0, 4), (0, 64), (0, 255)] {
            assert_eq!(range(prefix, bits), None, "{prefix:x}/{bits}");
        }
        assert_eq!(KeyRange::new(ItemKind::Task, 0, 0).unwrap().part(), Part::WithoutObjects);
    }

    #[test]
    fn the_first_byte_of_an_objects_position_is_its_shard() {
        for key in ["a", "b", "another key"] {
            let hash = KeyHash::of(key.as_bytes());
            assert_eq!((describe::position_of_key(hash) >> 56) as usize, hash.shard());
        }
    }

    #[test]
    fn kinds_are_found_by_their_names() {
        for kind in ItemKind::ALL {
            assert_eq!(ItemKind::named(kind.as_str()), Some(kind));
        }
        assert_eq!(ItemKind::named("objects"), None);
    }
}
