//! Walks over all objects, in pieces: the lock of a shard is held for one piece at a time, so that the holder of the
//! sequencer, for which every writer waits, waits a fraction of a millisecond, however many objects there are.
//!
//! A walk goes by slot. An object keeps its slot for as long as it exists, so one that exists during the whole walk is
//! visited exactly once; one that is added or removed meanwhile is visited or not. A key that is rewritten with another
//! size gets another object, which may be visited besides the old one or instead of it.

use super::object::{Object, Replica};
use super::shard::Objects;
use super::state::Engine;
use super::types::{ObjectId, SequenceId};
use crate::engine::key::SHARDS;

/// Number of objects after which a walk releases its lock.
pub const PIECE: usize = 1024;

/// Objects with their keys.
pub type Keys = Vec<(ObjectId, Box<[u8]>)>;

/// Position of a walk over all objects. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
    slot: u32,
}

impl Cursor {
    /// Creates a cursor at the beginning of one shard.
    #[must_use]
    pub fn of_shard(shard: usize) -> Self {
        Self { shard, slot: 0 }
    }

    /// Returns the shard that is next.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Returns whether the walk has ended.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.shard >= SHARDS
    }
}

impl Engine {
    /// Visits the next piece of the objects in mounted memory, readable or not, without granting leases. Returns false,
    /// and visits nothing, at the end of the walk. An object may be missing because of a record that is not durable
    /// yet: an answer made of a walk depends on [`Engine::last_visible`], read after the last piece (INV-3).
    pub fn walk_piece(&self, cursor: &mut Cursor, mut visit: impl FnMut(&Object)) -> bool {
        self.piece(cursor, |object| {
            if object.is_valid() {
                visit(object);
            }
        })
    }

    fn piece(&self, cursor: &mut Cursor, visit: impl FnMut(&Object)) -> bool {
        let Some(shard) = self.shards.get(cursor.shard) else { return false };
        let next = shard.read().visit_from(cursor.slot, PIECE, visit);
        *cursor = match next {
            Some(slot) => Cursor { slot, ..*cursor },
            None => Cursor::of_shard(cursor.shard + 1),
        };
        true
    }

    /// Visits the objects of one shard in mounted memory, readable or not, without granting leases. Returns the record
    /// that an answer made of them depends on.
    pub fn walk(&self, shard: usize, mut visit: impl FnMut(&Object)) -> SequenceId {
        let mut cursor = Cursor::of_shard(shard);
        while cursor.shard == shard && self.walk_piece(&mut cursor, &mut visit) {}
        self.last_visible()
    }

    /// Returns copies of the keys of the next piece, so that no lock is held while they are matched against a pattern.
    /// Returns `None` at the end of the walk.
    pub fn keys(&self, cursor: &mut Cursor) -> Option<Keys> {
        let mut keys = Vec::new();
        self.walk_piece(cursor, |object| keys.push((object.id, object.key.clone()))).then_some(keys)
    }

    /// Returns the objects of the next piece that have a replica to be swept away. `None` at the end of the walk.
    pub fn stale(&self, cursor: &mut Cursor) -> Option<Vec<ObjectId>> {
        let mut stale = Vec::new();
        let more = self.piece(cursor, |object| {
            if object.replicas().any(Replica::can_be_swept) {
                stale.push(object.id);
            }
        });
        more.then_some(stale)
    }

    /// Returns the last record that removed an object of a shard: an answer about an absent key depends on it.
    #[must_use]
    pub fn last_removal(&self, shard: usize) -> SequenceId {
        self.shards.get(shard).map_or(SequenceId(0), |shard| shard.read().last_removal)
    }
}

impl Objects {
    /// Visits up to about `most` objects from a slot on. Returns where to continue, or `None` if all were visited.
    fn visit_from(&self, slot: u32, most: usize, mut visit: impl FnMut(&Object)) -> Option<u32> {
        self.slab().visit_from(slot, most, |_, object| visit(object))
    }
}
