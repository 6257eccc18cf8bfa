//! Shards that the holder of the sequencer keeps locked over several steps.
//!
//! A write looks its key up, changes the object and tells the writer about it: three visits to one shard. And writes
//! that come together are quicker together: with the shards of a few keys locked at once, what all of them will look
//! at can be fetched from memory at the same time, where one by one each would wait for its own.
//!
//! Only operations of `ops/put.rs` keep shards locked, and no other code may lock one meanwhile: records other than
//! those that these operations make let go of them first (`Sequencer::change`). [`Held::fetch`] lets go of them itself.

use std::hint::black_box;
use std::ops::{Deref, DerefMut};

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use super::shard::{Handle, KeyHash, Objects, SHARDS, Shard};
use super::state::Sequencer;

/// So many shards are kept locked at most. Readers of these wait for a few microseconds.
pub const RUN: usize = 16;

/// The shards that are kept locked.
#[derive(Debug)]
pub(super) struct Held<'e> {
    guards: SmallVec<[RwLockWriteGuard<'e, Objects>; RUN]>,
    /// The shards of the guards.
    numbers: SmallVec<[u16; RUN]>,
    /// The guard of each shard, or `NONE`: every step of a write asks.
    places: [u8; SHARDS],
}

const NONE: u8 = u8::MAX;

impl Default for Held<'_> {
    fn default() -> Self {
        Self { guards: SmallVec::new(), numbers: SmallVec::new(), places: [NONE; SHARDS] }
    }
}

impl<'e> Held<'e> {
    fn place(&self, shard: usize) -> Option<usize> {
        Some(self.places[shard]).filter(|place| *place != NONE).map(usize::from)
    }

    /// Locks a shard, unless it is or too many are.
    pub fn hold(&mut self, shards: &'e [Shard], shard: usize) {
        if self.guards.len() < RUN && self.place(shard).is_none() {
            self.places[shard] = self.guards.len() as u8;
            self.guards.push(shards[shard].objects.write());
            self.numbers.push(shard as u16);
        }
    }

    /// Lets go of all.
    pub fn let_go(&mut self) {
        self.guards.clear();
        for shard in self.numbers.drain(..) {
            self.places[usize::from(shard)] = NONE;
        }
    }

    /// Fetches the next few of these objects from memory, and where their keys stand: each pass waits for memory about
    /// once, not once for each object. A lock between two of them would make the second wait for the first.
    pub fn fetch(&mut self, shards: &'e [Shard], objects: impl Iterator<Item = Handle>) {
        let next: SmallVec<[Handle; RUN]> = objects.take(RUN).collect();
        for handle in &next {
            self.hold(shards, handle.shard());
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
        self.let_go();
    }

    /// A shard to look at.
    pub fn look<'s>(&'s self, shards: &'s [Shard], shard: usize) -> Look<'s> {
        match self.place(shard) {
            Some(place) => Look::Held(&self.guards[place]),
            None => Look::Locked(shards[shard].objects.read()),
        }
    }

    /// A shard to change.
    pub fn change<'s>(&'s mut self, shards: &'s [Shard], shard: usize) -> Change<'s> {
        match self.place(shard) {
            Some(place) => Change::Held(&mut self.guards[place]),
            None => Change::Locked(shards[shard].objects.write()),
        }
    }
}

/// The objects of a shard to look at, which is locked for this alone or kept locked.
pub(super) enum Look<'s> {
    /// Kept locked.
    Held(&'s Objects),
    /// Locked for this.
    Locked(RwLockReadGuard<'s, Objects>),
}

impl Deref for Look<'_> {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        match self {
            Self::Held(objects) => objects,
            Self::Locked(objects) => objects,
        }
    }
}

/// The objects of a shard to change, which is locked for this alone or kept locked.
pub(super) enum Change<'s> {
    /// Kept locked.
    Held(&'s mut Objects),
    /// Locked for this.
    Locked(RwLockWriteGuard<'s, Objects>),
}

impl Deref for Change<'_> {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        match self {
            Self::Held(objects) => objects,
            Self::Locked(objects) => objects,
        }
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Objects {
        match self {
            Self::Held(objects) => objects,
            Self::Locked(objects) => objects,
        }
    }
}

impl Sequencer<'_> {
    /// The objects of a shard to look at.
    pub(super) fn objects(&self, shard: usize) -> Look<'_> {
        self.held.look(&self.engine.shards, shard)
    }
}
