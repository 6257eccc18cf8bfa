//! Writing promises to readers down.
//!
//! Reads promise objects without a record. The promises reach the log in three ways: a list of those that are worth it,
//! drained each second; all of them before a hand-over; and those of objects that eviction comes across. Between them
//! the log is up to half a lease behind, which R6 makes up for after a crash.

use crate::engine::object::Object;
use crate::engine::record::Record;
use crate::engine::shard::SHARDS;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{LogTime, ObjectId};

/// At most so many promises in one record: nobody waits longer than half a millisecond for the sequencer, and the
/// record's own bytes are still few among them.
const CHUNK: usize = 1024;

impl Engine {
    /// Writes the promises down that were made since the last time and are worth it: an object is on the list again only
    /// when half its time has passed since it was last written down. Returns how many.
    pub fn replicate_leases(&self, now: LogTime) -> usize {
        let mut dirty = Vec::new();
        for shard in &self.shards {
            dirty.append(&mut shard.dirty.lock());
        }
        self.renew_all(dirty, now)
    }

    /// Writes every promise down that is longer than what records say, and returns how many. Looks at every object:
    /// before a hand-over call it once while reads are still answered, so that the second time, when they are not, finds
    /// little to write.
    pub fn flush_leases(&self, now: LogTime) -> usize {
        let mut owed = Vec::new();
        for shard in 0..SHARDS {
            let objects = self.shards[shard].objects.read();
            let owes = |object: &&Object| object.owes_renewal() && object.lease() > now;
            owed.extend(objects.iter().filter(owes).map(|object| object.id));
        }
        self.renew_all(owed, now)
    }

    /// In order of id: neighbours take few bytes in the log.
    fn renew_all(&self, mut ids: Vec<ObjectId>, now: LogTime) -> usize {
        ids.sort_unstable();
        ids.chunks(CHUNK).map(|chunk| self.sequencer(now).renew(chunk)).sum()
    }
}

impl Sequencer<'_> {
    /// Writes the promises that hold these objects down, unless records say as much already.
    fn renew(&mut self, ids: &[ObjectId]) -> usize {
        let owed = |id: &ObjectId| {
            let handle = self.engine.handle(&self.core, *id)?;
            self.view(handle, |object| {
                object.clear_dirty();
                object.owes_renewal().then(|| (object.id, object.lease()))
            })?
        };
        let leases: Vec<(ObjectId, LogTime)> = ids.iter().filter_map(owed).collect();
        if !leases.is_empty() {
            self.commit(&Record::RenewLeases { leases: &leases });
        }
        leases.len()
    }
}
