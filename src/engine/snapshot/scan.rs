//! The scan over what may be millions of items, a slice at a time: its lock is released after each.

use std::ops::Bound;

use parking_lot::{MutexGuard, RwLockReadGuard};

use super::capture::{Capture, Stage};
use super::encode;
use crate::engine::core::Core;
use crate::engine::types::{LogTime, ObjectId};

impl Capture {
    /// Encodes the next objects of a shard, and returns what is next.
    pub(super) fn scan_shard(&mut self, shard: usize, most: usize, out: &mut Vec<u8>) -> Stage {
        let objects = self.engine.shards[shard].read();
        let mut next = None;
        if let Some(hook) = &objects.hook {
            next = objects.slab().visit_from(hook.cursor(), most, |slot, object| {
                if hook.is_original(slot, object) {
                    self.encoder.object(out, object);
                    self.unchanged += 1;
                }
            });
            hook.advance(next.unwrap_or(u32::MAX));
        }
        // A writer that waits goes first.
        RwLockReadGuard::unlock_fair(objects);
        match next {
            Some(_) => Stage::Shard(shard),
            None if shard + 1 < self.shards.end => Stage::Shard(shard + 1),
            None => Stage::Writes,
        }
    }

    /// Encodes the next writes under way, and returns what is next.
    pub(super) fn scan_writes(&mut self, most: usize, out: &mut Vec<u8>) -> Stage {
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let Core { processing, hook: Some(hook), .. } = &mut *sequencer.core else { return Stage::Rest };
        let last = ObjectId(self.at.0);
        let mut more = false;
        for (id, write) in processing.range((Bound::Excluded(hook.writes), Bound::Included(last))).take(most)
        {
            encode::processing(out, *id, write);
            hook.writes = *id;
            more = true;
        }
        if more {
            // A thread that waits for the sequencer goes first.
            MutexGuard::bump(&mut sequencer.core);
            return Stage::Writes;
        }
        hook.writes = last;
        Stage::Discarded
    }

    /// Encodes the next discarded bytes, and returns what is next.
    pub(super) fn scan_discarded(&mut self, most: usize, out: &mut Vec<u8>) -> Stage {
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let Core { discarded, hook: Some(hook), .. } = &mut *sequencer.core else { return Stage::Rest };
        let mut more = false;
        let range = (Bound::Excluded(hook.discarded), Bound::Included(self.at));
        for (record, bytes) in discarded.range(range).take(most) {
            if hook.is_original(*record) {
                self.encoder.discarded(out, *record, bytes);
            }
            hook.discarded = *record;
            more = true;
        }
        if more {
            MutexGuard::bump(&mut sequencer.core);
            return Stage::Discarded;
        }
        hook.discarded = self.at;
        Stage::Rest
    }
}
