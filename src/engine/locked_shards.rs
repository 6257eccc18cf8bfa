//! Shards that the holder of the sequencer keeps locked over several steps.
//!
//! A write looks its key up, changes the object and builds the answer from it: three accesses to one shard. And a batch
//! of writes is faster than its writes one by one: with the shards of a few keys locked at once, everything that they
//! will access is prefetched together, so that their cache misses overlap.
//!
//! Only operations of `ops/put.rs` keep shards locked, and no other code may lock one meanwhile, or it would deadlock:
//! applying a record other than `PutStart` and `End` unlocks them first (`Sequencer::change`). [`LockedShards::fetch`] unlocks
//! them itself.

use std::hint::black_box;
use std::ops::{Deref, DerefMut};

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use super::shard::{Objects, Shard};
use crate::engine::key::{Handle, KeyHash, SHARDS};

/// Most shards that are kept locked. Their readers wait for a few microseconds.
pub const MAX_LOCKED: usize = 16;

/// The shards that are kept locked.
#[derive(Debug)]
pub(super) struct LockedShards<'e> {
    guards: SmallVec<[RwLockWriteGuard<'e, Objects>; MAX_LOCKED]>,
    /// Shard of each guard, in the same order.
    numbers: SmallVec<[u16; MAX_LOCKED]>,
    /// Index of the guard of each shard, or `NONE`. An array, because every step of a write looks it up.
    places: [u8; SHARDS],
}

const NONE: u8 = u8::MAX;

impl Default for LockedShards<'_> {
    fn default() -> Self {
        Self { guards: SmallVec::new(), numbers: SmallVec::new(), places: [NONE; SHARDS] }
    }
}

impl<'e> LockedShards<'e> {
    fn place(&self, shard: usize) -> Option<usize> {
        Some(self.places[shard]).filter(|place| *place != NONE).map(usize::from)
    }

    /// Locks a shard and keeps it locked, unless it is locked already or [`MAX_LOCKED`] shards are.
    pub fn lock(&mut self, shards: &'e [Shard], shard: usize) {
        if self.guards.len() < MAX_LOCKED && self.place(shard).is_none() {
            self.places[shard] = self.guards.len() as u8;
            self.guards.push(shards[shard].write());
            self.numbers.push(shard as u16);
        }
    }

    /// Unlocks all shards, so that waiting readers go on.
    pub fn unlock_all(&mut self) {
        self.guards.clear();
        for shard in self.numbers.drain(..) {
            self.places[usize::from(shard)] = NONE;
        }
    }

    /// Prefetches the next few of these objects, and the table entries of their keys: the cache misses of a pass
    /// overlap, so it waits for memory about once and not once for each object. All shards are locked beforehand,
    /// because taking a lock between two loads would make the second wait for the first.
    pub fn fetch(&mut self, shards: &'e [Shard], objects: impl Iterator<Item = Handle>) {
        let next: SmallVec<[Handle; MAX_LOCKED]> = objects.take(MAX_LOCKED).collect();
        for handle in &next {
            self.lock(shards, handle.shard());
        }
        let look = |sum: u64, handle: &Handle| {
            sum.wrapping_add(self.look(shards, handle.shard()).touch(Some(handle.slot())))
        };
        black_box(next.iter().fold(0, look));
        let look = |sum: u64, handle: &Handle| {
            let objects = self.look(shards, handle.shard());
            let hash = objects.at(handle.slot()).map(|object| KeyHash::of(&object.key));
            sum.wrapping_add(hash.map_or(0, |hash| objects.touch_table(hash)))
        };
        black_box(next.iter().fold(0, look));
        self.unlock_all();
    }

    /// Returns read access to a shard: through its kept guard, or by a new read lock.
    pub fn look<'s>(&'s self, shards: &'s [Shard], shard: usize) -> Look<'s> {
        match self.place(shard) {
            Some(place) => Look::Kept(&self.guards[place]),
            None => Look::Locked(shards[shard].read()),
        }
    }

    /// Returns write access to a shard: through its kept guard, or by a new write lock.
    pub fn change<'s>(&'s mut self, shards: &'s [Shard], shard: usize) -> Change<'s> {
        match self.place(shard) {
            Some(place) => Change::Kept(&mut self.guards[place]),
            None => Change::Locked(shards[shard].write()),
        }
    }
}

/// Read access to the objects of a shard, which is locked for this access alone or kept locked.
pub(super) enum Look<'s> {
    Kept(&'s Objects),
    Locked(RwLockReadGuard<'s, Objects>),
}

impl Deref for Look<'_> {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        match self {
            Self::Kept(objects) => objects,
            Self::Locked(objects) => objects,
        }
    }
}

/// Write access to the objects of a shard, which is locked for this access alone or kept locked.
pub(super) enum Change<'s> {
    Kept(&'s mut Objects),
    Locked(RwLockWriteGuard<'s, Objects>),
}

impl Deref for Change<'_> {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        match self {
            Self::Kept(objects) => objects,
            Self::Locked(objects) => objects,
        }
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Objects {
        match self {
            Self::Kept(objects) => objects,
            Self::Locked(objects) => objects,
        }
    }
}
