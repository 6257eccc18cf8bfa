//! A part of the objects, chosen by key, with a lock of its own.
//!
//! Readers take the read lock; only the holder of the sequencer takes the write lock.

use parking_lot::{Mutex, RwLock};
use xxhash_rust::xxh3::xxh3_64;

use super::object::Object;
use super::promises::Promises;
use super::slab::Slab;
use super::table::Table;
use super::types::SequenceId;

/// How many shards there are. Which shard a key is in is the same in all versions, since an answer about an absent key
/// rests on the last removal in its shard.
pub const SHARDS: usize = 256;

/// Objects that one shard can hold: a handle has 24 bits for the place in the shard.
pub const SHARD_CAPACITY: usize = 1 << 24;

/// A key's hash: the same in all versions and on all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The hash of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// The shard. The tag of an entry has the lowest bits; these are others.
    #[must_use]
    pub fn shard(self) -> usize {
        (self.0 >> 40) as usize % SHARDS
    }

    /// The part of it that the table keeps.
    fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// A key with its hash, which is worked out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    /// The key.
    pub bytes: &'k [u8],
    /// Its hash.
    pub hash: KeyHash,
}

impl<'k> Key<'k> {
    /// Hashes `bytes`.
    #[must_use]
    pub fn new(bytes: &'k [u8]) -> Self {
        Self { bytes, hash: KeyHash::of(bytes) }
    }
}

/// Where an object lies: shard and place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u32);

impl Handle {
    /// Packs shard and place.
    #[must_use]
    pub fn new(shard: usize, slot: u32) -> Self {
        Self((shard as u32) << 24 | slot)
    }

    /// The shard.
    #[must_use]
    pub fn shard(self) -> usize {
        (self.0 >> 24) as usize
    }

    /// The place in the shard.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.0 & 0x00ff_ffff
    }
}

/// A shard with its locks.
#[derive(Debug, Default)]
pub struct Shard {
    /// The objects.
    pub objects: RwLock<Objects>,
    /// Promises to readers that wait to be replicated.
    pub promises: Mutex<Promises>,
}

/// The objects of one shard.
#[derive(Debug, Default)]
pub struct Objects {
    by_key: Table,
    slab: Slab<Object>,
    /// The last record that removed an object here: what an answer about an absent key rests on.
    pub last_removal: SequenceId,
}

impl Objects {
    /// The place of the object with this key.
    #[must_use]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<u32> {
        self.by_key.find(hash.tag(), |slot| self.slab.get(slot).is_some_and(|object| *object.key == *key))
    }

    /// Where the object with a key of this hash most likely is, going by the table alone.
    #[must_use]
    pub fn likely(&self, hash: KeyHash) -> Option<u32> {
        self.by_key.find(hash.tag(), |_| true)
    }

    /// Looks at where a key of this hash would be in the table, so that it is in the cache when it is needed. The number
    /// means nothing: it is made of what was looked at.
    #[must_use]
    pub fn touch_table(&self, hash: KeyHash) -> u64 {
        u64::from(self.by_key.touch(hash.tag()))
    }

    /// Looks at the object at this place, or at the place of the next new one, so that it is in the cache when it is
    /// needed. The number means nothing: it is made of what was looked at.
    #[must_use]
    pub fn touch(&self, slot: Option<u32>) -> u64 {
        match slot {
            Some(slot) => self.slab.get(slot).map_or(0, |object| {
                u64::from(object.key.first().copied().unwrap_or(0)) + u64::from(object.client.0)
            }),
            None => u64::from(self.slab.is_next_free()),
        }
    }

    /// The object with this key.
    #[must_use]
    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Option<&Object> {
        self.slab.get(self.find(hash, key)?)
    }

    /// The object at this place.
    #[must_use]
    pub fn at(&self, slot: u32) -> Option<&Object> {
        self.slab.get(slot)
    }

    /// The object at this place, to change.
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut Object> {
        self.slab.get_mut(slot)
    }

    /// Stores an object whose key is not here yet.
    pub fn insert(&mut self, hash: KeyHash, object: Object) -> u32 {
        let slot = self.slab.insert(object);
        self.by_key.insert(hash.tag(), slot);
        slot
    }

    /// Takes the object at this place out.
    pub fn remove(&mut self, slot: u32, record: SequenceId) -> Option<Object> {
        let object = self.slab.remove(slot)?;
        self.last_removal = record;
        self.by_key.remove(KeyHash::of(&object.key).tag(), slot);
        Some(object)
    }

    /// How many objects are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no object is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// The objects by place.
    pub(super) fn slab(&self) -> &Slab<Object> {
        &self.slab
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.slab.iter()
    }
}
