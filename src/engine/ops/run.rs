//! Writes that come together.

use std::hint::black_box;

use super::put::{ReplicaTypes, WriteConfig};
use crate::engine::held::RUN;
use crate::engine::object::Object;
use crate::engine::shard::Key;
use crate::engine::state::Sequencer;
use crate::engine::types::{Answer, SequenceId, Uuid};

/// A few writes, one after the other, whose shards are kept locked until all are done.
pub struct Run<'s, 'e> {
    sequencer: &'s mut Sequencer<'e>,
}

impl<'e> Sequencer<'e> {
    /// Begins a run of writes to these keys. Up to [`Run::LENGTH`] of them are fetched from memory together.
    pub fn run<'s>(&'s mut self, keys: &[Key<'_>]) -> Run<'s, 'e> {
        let shards = &self.engine.shards;
        for key in keys {
            self.held.hold(shards, key.hash.shard());
        }
        // First the tables, then what they point to: each pass waits for memory about once, not once for each key. A
        // single key has nothing to wait with.
        if keys.len() > 1 {
            let keys = &keys[..keys.len().min(RUN)];
            let touched = keys.iter().fold(0, |sum: u64, key| {
                sum.wrapping_add(self.objects(key.hash.shard()).touch_table(key.hash))
            });
            black_box(touched);
            let mut slots = [None; RUN];
            for (slot, key) in slots.iter_mut().zip(keys) {
                *slot = self.objects(key.hash.shard()).likely(key.hash);
            }
            let touched = slots.iter().zip(keys).fold(0, |sum: u64, (slot, key)| {
                sum.wrapping_add(self.objects(key.hash.shard()).touch(*slot))
            });
            black_box(touched);
        }
        Run { sequencer: self }
    }
}

impl Run<'_, '_> {
    /// So many keys make a good run.
    pub const LENGTH: usize = RUN;

    /// The id that the next record will have.
    #[must_use]
    pub fn next_id(&self) -> SequenceId {
        self.sequencer.next_id()
    }

    /// Reserves memory for a new object, and hands it to `tell` if that went well.
    pub fn put_start<R>(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        size: u64,
        config: &WriteConfig<'_>,
        tell: impl FnOnce(&Object) -> R,
    ) -> Answer<R> {
        self.sequencer.start_put(client, key, size, config, tell)
    }

    /// Reserves memory to write a key again, or the memory that it has if the size is the same, and hands the object
    /// to `tell` if that went well.
    pub fn upsert_start<R>(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        size: u64,
        config: &WriteConfig<'_>,
        tell: impl FnOnce(&Object) -> R,
    ) -> Answer<R> {
        self.sequencer.start_upsert(client, key, size, config, tell)
    }

    /// The writer is done.
    pub fn end(
        &mut self,
        client: Uuid,
        key: Key<'_>,
        types: ReplicaTypes,
        checksum: Option<u64>,
    ) -> Answer<()> {
        self.sequencer.end_write(client, key, types, checksum)
    }

    /// The writer gives up.
    pub fn revoke(&mut self, client: Uuid, key: Key<'_>, types: ReplicaTypes) -> Answer<()> {
        self.sequencer.revoke_write(client, key, types)
    }
}

impl Drop for Run<'_, '_> {
    fn drop(&mut self) {
        self.sequencer.held.let_go();
    }
}
