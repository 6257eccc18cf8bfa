//! Walks over all objects, in pieces: the lock of a shard is held for a piece at a time, so that the sequencer, which
//! every writer waits for, waits for a fraction of a millisecond, however many objects there are.
//!
//! A walk goes by place. An object keeps its place for as long as it is there, so one that is there during the whole walk
//! is visited exactly once; one that comes or goes meanwhile is visited or not. A key that is written anew with another
//! size gets another object, which may be visited besides the old one or instead of it.

use super::object::{Object, Replica};
use super::shard::{Objects, SHARDS};
use super::state::Engine;
use super::types::{ObjectId, SequenceId};

/// Objects of one piece.
pub const PIECE: usize = 1024;

/// Objects with their keys.
pub type Keys = Vec<(ObjectId, Box<[u8]>)>;

/// Where a walk over all objects goes on. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
    slot: u32,
}

impl Cursor {
    /// The beginning of one shard.
    #[must_use]
    pub fn of_shard(shard: usize) -> Self {
        Self { shard, slot: 0 }
    }

    /// The shard that is next.
    #[must_use]
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// Whether the walk has ended.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.shard >= SHARDS
    }
}

impl Engine {
    /// Visits the next piece of the objects that are there, readable or not, and promises nothing. False, and nothing
    /// is visited, at the end of the walk. What it did not visit may be missing because of a record that is not durable
    /// yet: an answer made of it rests on [`Engine::settled`], read after the last piece (INV-3).
    pub fn walk_piece(&self, cursor: &mut Cursor, mut visit: impl FnMut(&Object)) -> bool {
        self.piece(cursor, |object| {
            if object.is_valid() {
                visit(object);
            }
        })
    }

    fn piece(&self, cursor: &mut Cursor, visit: impl FnMut(&Object)) -> bool {
        let Some(shard) = self.shards.get(cursor.shard) else { return false };
        let next = shard.objects.read().visit_from(cursor.slot, PIECE, visit);
        *cursor = match next {
            Some(slot) => Cursor { slot, ..*cursor },
            None => Cursor::of_shard(cursor.shard + 1),
        };
        true
    }

    /// Visits the objects of one shard that are there, readable or not, and promises nothing. Returns what an answer
    /// made of them rests on.
    pub fn walk(&self, shard: usize, mut visit: impl FnMut(&Object)) -> SequenceId {
        let mut cursor = Cursor::of_shard(shard);
        while cursor.shard == shard && self.walk_piece(&mut cursor, &mut visit) {}
        self.settled()
    }

    /// The keys of the next piece, copied out, so that no lock is held while they are matched against something. `None`
    /// at the end of the walk.
    pub fn keys(&self, cursor: &mut Cursor) -> Option<Keys> {
        let mut keys = Vec::new();
        self.walk_piece(cursor, |object| keys.push((object.id, object.key.clone()))).then_some(keys)
    }

    /// The objects of the next piece that have a replica to be swept away. `None` at the end of the walk.
    pub fn stale(&self, cursor: &mut Cursor) -> Option<Vec<ObjectId>> {
        let mut stale = Vec::new();
        let more = self.piece(cursor, |object| {
            if object.replicas().any(Replica::can_be_swept) {
                stale.push(object.id);
            }
        });
        more.then_some(stale)
    }

    /// The last record that removed an object of a shard: what an answer about an absent key rests on.
    #[must_use]
    pub fn last_removal(&self, shard: usize) -> SequenceId {
        self.shards.get(shard).map_or(SequenceId(0), |shard| shard.objects.read().last_removal)
    }
}

impl Objects {
    /// Visits up to about `most` objects from a place on. Returns where to go on, unless all were visited.
    fn visit_from(&self, slot: u32, most: usize, visit: impl FnMut(&Object)) -> Option<u32> {
        self.slab().visit_from(slot, most, visit)
    }
}
