//! A part of the objects, chosen by key, with a lock of its own.
//!
//! Readers take the read lock; only the holder of the sequencer takes the write lock.

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::key::KeyHash;
use super::object::Object;
use super::promises::Promises;
use super::slab::Slab;
use super::snapshot::ShardHook;
use super::table::Table;
use super::types::SequenceId;

/// Objects that one shard can hold: a handle has 24 bits for the slot in the shard.
pub const SHARD_CAPACITY: usize = 1 << 24;

/// A shard with its locks.
#[derive(Debug, Default)]
pub struct Shard {
    objects: RwLock<Objects>,
    /// Live leases that are not replicated yet.
    pub promises: Mutex<Promises>,
}

impl Shard {
    /// Locks the objects for a reader. The holder of the sequencer may have this shard locked already: it reads through
    /// `Sequencer::objects`.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read()
    }

    /// Locks the objects for the holder of the sequencer, which changes them through its locked shards (`locked_shards.rs`).
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write()
    }
}

/// The objects of one shard.
#[derive(Debug, Default)]
pub struct Objects {
    by_key: Table,
    slab: Slab<Object>,
    /// The last record that removed an object here: an answer about an absent key depends on it.
    pub last_removal: SequenceId,
    /// Keeps what a snapshot under way needs of objects that change.
    pub(super) hook: Option<Box<ShardHook>>,
}

impl Objects {
    /// Returns the slot of the object with this key.
    #[must_use]
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<u32> {
        self.by_key.find(hash.tag(), |slot| self.slab.get(slot).is_some_and(|object| *object.key == *key))
    }

    /// Returns the likely slot of the object with a key of this hash, from the table alone: the key is not compared.
    #[must_use]
    pub fn likely(&self, hash: KeyHash) -> Option<u32> {
        self.by_key.find(hash.tag(), |_| true)
    }

    /// Loads the table entry of a key of this hash into the CPU cache. The number means nothing: it only depends on
    /// that memory, so that the load is not optimised away.
    #[must_use]
    pub fn touch_table(&self, hash: KeyHash) -> u64 {
        u64::from(self.by_key.touch(hash.tag()))
    }

    /// Loads the object at this slot, or the slot of the next new one, into the CPU cache. The number means nothing: it
    /// only depends on that memory, so that the load is not optimised away.
    #[must_use]
    pub fn touch(&self, slot: Option<u32>) -> u64 {
        match slot {
            Some(slot) => self.slab.get(slot).map_or(0, |object| {
                u64::from(object.key.first().copied().unwrap_or(0)) + u64::from(object.client.0)
            }),
            None => u64::from(self.slab.is_next_free()),
        }
    }

    /// Returns the object with this key.
    #[must_use]
    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Option<&Object> {
        self.slab.get(self.find(hash, key)?)
    }

    /// Returns the object at this slot.
    #[must_use]
    pub fn at(&self, slot: u32) -> Option<&Object> {
        self.slab.get(slot)
    }

    /// Returns the object at this slot for modification.
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut Object> {
        if self.hook.is_some() {
            self.keep(slot);
        }
        self.slab.get_mut(slot)
    }

    /// Keeps the object at this slot for the snapshot under way, before it changes.
    #[cold]
    fn keep(&mut self, slot: u32) {
        if let (Some(hook), Some(object)) = (&mut self.hook, self.slab.get(slot)) {
            hook.before_change(slot, object);
        }
    }

    /// Stores an object whose key is not here yet, and returns its slot.
    pub fn insert(&mut self, hash: KeyHash, object: Object) -> u32 {
        let slot = self.slab.insert(object);
        self.by_key.insert(hash.tag(), slot);
        slot
    }

    /// Removes and returns the object at this slot; `record` is the record that removes it.
    pub fn remove(&mut self, slot: u32, record: SequenceId) -> Option<Object> {
        if self.hook.is_some() {
            self.keep(slot);
        }
        let object = self.slab.remove(slot)?;
        self.last_removal = record;
        self.by_key.remove(KeyHash::of(&object.key).tag(), slot);
        Some(object)
    }

    /// Returns how many objects are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns whether no object is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Returns the objects by slot.
    pub(super) fn slab(&self) -> &Slab<Object> {
        &self.slab
    }

    /// Returns all objects, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.slab.iter()
    }
}
