//! Runs: writes that are executed together.

use std::hint::black_box;

use super::put::{ReplicaTypes, Write};
use crate::engine::key::Key;
use crate::engine::locked_shards::MAX_LOCKED;
use crate::engine::object::Object;
use crate::engine::state::Sequencer;
use crate::engine::types::{Answer, SequenceId, Uuid};

/// A sequence of a few writes whose shards are kept locked until all are done.
pub struct WriteRun<'s, 'e> {
    sequencer: &'s mut Sequencer<'e>,
}

impl<'e> Sequencer<'e> {
    /// Begins a run of writes to these keys: locks their shards, and prefetches up to [`WriteRun::LENGTH`] of them together.
    pub fn run<'s>(&'s mut self, keys: &[Key<'_>]) -> WriteRun<'s, 'e> {
        let shards = &self.engine.shards;
        for key in keys {
            self.locked.lock(shards, key.hash.shard());
        }
        // First prefetch the tables, then the objects that they point to: the cache misses of a pass overlap, so it
        // waits for memory about once and not once for each key. With a single key nothing overlaps.
        if keys.len() > 1 {
            let keys = &keys[..keys.len().min(MAX_LOCKED)];
            let touched = keys.iter().fold(0, |sum: u64, key| {
                sum.wrapping_add(self.objects(key.hash.shard()).touch_table(key.hash))
            });
            black_box(touched);
            let mut slots = [None; MAX_LOCKED];
            for (slot, key) in slots.iter_mut().zip(keys) {
                *slot = self.objects(key.hash.shard()).likely(key.hash);
            }
            let touched = slots.iter().zip(keys).fold(0, |sum: u64, (slot, key)| {
                sum.wrapping_add(self.objects(key.hash.shard()).touch(*slot))
            });
            black_box(touched);
        }
        WriteRun { sequencer: self }
    }
}

impl WriteRun<'_, '_> {
    /// Most keys of one run: their shards stay locked together.
    pub const LENGTH: usize = MAX_LOCKED;

    /// Returns the id that the next record will have.
    #[must_use]
    pub fn next_id(&self) -> SequenceId {
        self.sequencer.next_id()
    }

    /// Reserves memory for a new object and, on success, answers what `tell` makes of it.
    pub fn put_start<R>(&mut self, write: &Write<'_>, tell: impl FnOnce(&Object) -> R) -> Answer<R> {
        self.sequencer.start_put(write, tell)
    }

    /// Starts to write a key that may exist: reuses the memory of a complete object of the same size, else reserves new
    /// memory. On success, answers what `tell` makes of the object.
    pub fn upsert_start<R>(&mut self, write: &Write<'_>, tell: impl FnOnce(&Object) -> R) -> Answer<R> {
        self.sequencer.start_upsert(write, tell)
    }

    /// Completes a write: the object becomes readable.
    pub fn end(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        types: ReplicaTypes,
        checksum: Option<u64>,
    ) -> Answer<()> {
        self.sequencer.end_write(client, key, types, checksum)
    }

    /// Cancels a write and frees its memory.
    pub fn revoke(&mut self, client: Uuid, key: Key<'_>, types: ReplicaTypes) -> Answer<()> {
        self.sequencer.revoke_write(client, key, types)
    }
}

impl Drop for WriteRun<'_, '_> {
    fn drop(&mut self) {
        self.sequencer.locked.unlock_all();
    }
}
