//! Writes live leases of readers to the log.
//!
//! A read grants a lease without a record. Leases reach the log in three ways: a list of those that are due, drained
//! each second; all of them before a hand-over; and those of objects that eviction visits. In between the log is up to
//! half a lease behind, which the hold of R6 makes up for after a crash.

use std::ops::Bound;

use crate::engine::chunks::Chunks;
use crate::engine::group::Group;
use crate::engine::promises::List;
use crate::engine::record::Record;
use crate::engine::shard::Shard;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{LogTime, ObjectId, SequenceId};

/// Most leases in one record: no client waits longer than half a millisecond for the sequencer, and the record's fixed
/// bytes are still a small share.
const CHUNK: usize = 1024;

/// Most entries of the lists that are taken off them at a time: what cannot be written to the log has to be put back, and
/// a hand-over waits for that with the port closed.
const PORTION: usize = 16 * CHUNK;

impl Engine {
    /// Writes the due leases that were granted since the last call to the log, and returns how many. An object is due
    /// again only when half its lease time has passed since its lease was last written.
    pub fn replicate_leases(&self, now: LogTime) -> usize {
        self.replicate_leases_while(now, &mut || true, &|| false).0
    }

    /// Like [`Engine::replicate_leases`], but asks before each record, and stops looking for leases when
    /// `cancelled`. Returns how many leases were written, and whether that is all: the next call finds the rest.
    pub fn replicate_leases_while(
        &self,
        now: LogTime,
        chunks: &mut dyn Chunks,
        cancelled: &dyn Fn() -> bool,
    ) -> (usize, bool) {
        if self.is_sealed() {
            return (0, false);
        }
        let (mut written, mut due) = (0, Vec::new());
        let mut write = |due: &mut Vec<ObjectId>| {
            let lists = (std::mem::take(due), List::Due);
            let (renewed, complete) = self.renew_all(lists, LogTime(0), now, chunks, cancelled);
            written += renewed;
            complete
        };
        for shard in &self.shards {
            let mut more = true;
            while more && !cancelled() {
                let most = PORTION - due.len();
                more = shard.take_promised(List::Due, LogTime(0), most, |_, object| due.push(object.id));
                if due.len() == PORTION && !write(&mut due) {
                    return (written, false);
                }
            }
            if cancelled() {
                write(&mut due);
                return (written, false);
            }
            shard.tidy_promises(now);
        }
        let complete = write(&mut due);
        (written, complete)
    }

    /// Writes every live lease that is longer than the replicated one to the log, and returns how many. Its cost is
    /// proportional to their number: before a hand-over call it once while reads are still answered, so that the second
    /// call, when they no longer are, finds little to write.
    pub fn flush_leases(&self, now: LogTime) -> usize {
        self.flush_leases_while(now, &mut || true).0
    }

    /// Like [`Engine::flush_leases`], but asks before each record. Returns how many leases were written, and
    /// whether that is all: the next call finds the rest.
    pub fn flush_leases_while(&self, now: LogTime, chunks: &mut dyn Chunks) -> (usize, bool) {
        if self.is_sealed() {
            return (0, false);
        }
        let (mut written, mut owed) = (0, Vec::new());
        for shard in &self.shards {
            let mut more = true;
            while more {
                more = self.take_promised(shard, now, &mut owed);
                if owed.len() >= PORTION {
                    let lists = (std::mem::take(&mut owed), List::Early);
                    let (renewed, complete) = self.renew_all(lists, now, now, chunks, &|| false);
                    written += renewed;
                    if !complete {
                        return (written, false);
                    }
                }
            }
        }
        let (renewed, complete) = self.renew_all((owed, List::Early), now, now, chunks, &|| false);
        (written + renewed, complete)
    }

    /// Takes a portion off a shard's lists and adds the objects with an unreplicated lease beyond `now` to `owed`.
    /// Returns whether there is more.
    fn take_promised(&self, shard: &Shard, now: LogTime, owed: &mut Vec<ObjectId>) -> bool {
        for list in [List::Due, List::Early] {
            let more = shard.take_promised(list, now, PORTION, |_, object| {
                planted!(FlushSkipsGroups => if object.group().is_some() { return; });
                owed.push(object.id);
            });
            if more {
                return true;
            }
        }
        for group in shard.take_promised_groups(now) {
            planted!(FlushSkipsGroups => continue);
            self.members_of(&group, owed);
        }
        false
    }

    /// Returns how many entries the lists of unreplicated leases have, some of which may have ended.
    #[must_use]
    pub fn listed_promises(&self) -> usize {
        self.shards.iter().map(|shard| shard.promises.lock().len()).sum()
    }

    /// Adds the members of a group to `ids`. Releases the sequencer after every chunk, because a group may be large.
    fn members_of(&self, group: &Group, ids: &mut Vec<ObjectId>) {
        let mut after = Bound::Unbounded;
        loop {
            let sequencer = self.sequencer(LogTime(0));
            let Some((_, membership)) = sequencer.core.groups.get(&group.id) else { return };
            for members in [&membership.members, &membership.pinned] {
                ids.extend(members.range((after, Bound::Unbounded)).take(CHUNK));
            }
            // Continue both sets from the lower of their ends, so that no member is left out; `renew_all` drops
            // duplicates.
            let ends = [&membership.members, &membership.pinned]
                .map(|members| members.range((after, Bound::Unbounded)).nth(CHUNK - 1));
            match ends.into_iter().flatten().min() {
                Some(end) => after = Bound::Excluded(*end),
                None => return,
            }
        }
    }

    /// Writes the leases of these objects that end after `past` to the log, in order of id: neighbours take few bytes
    /// there. Objects whose lease could not be written are put on `list`.
    fn renew_all(
        &self,
        (mut ids, list): (Vec<ObjectId>, List),
        past: LogTime,
        now: LogTime,
        chunks: &mut dyn Chunks,
        cancelled: &dyn Fn() -> bool,
    ) -> (usize, bool) {
        ids.sort_unstable();
        ids.dedup();
        let (mut renewed, mut done) = (0, 0);
        for chunk in ids.chunks(CHUNK) {
            let written = if !cancelled() && chunks.next_chunk() {
                self.run_chunk(now, chunks, |sequencer| sequencer.renew(chunk, past))
            } else {
                None
            };
            let Some(written) = written else {
                // They were taken off the lists, and the next hand-over must find them (R6).
                ids[done..].chunks(CHUNK).for_each(|chunk| self.sequencer(now).relist(chunk, list));
                return (renewed, false);
            };
            renewed += written;
            done += chunk.len();
        }
        (renewed, true)
    }
}

impl Sequencer<'_> {
    /// Writes the leases of these objects that end after `past` and are longer than the replicated ones to the log.
    /// Returns how many, or `None` if the engine is sealed.
    fn renew(&mut self, ids: &[ObjectId], past: LogTime) -> Option<usize> {
        let owed = |id: &ObjectId| {
            let handle = self.engine.handle(&self.core, *id)?;
            self.with_object(handle, |object| {
                let owes = object.owes_renewal() && object.lease() > past;
                owes.then(|| (object.id, object.lease()))
            })?
        };
        let leases: Vec<(ObjectId, LogTime)> = ids.iter().filter_map(owed).collect();
        if !leases.is_empty() && self.commit(&Record::RenewLeases { leases: &leases }) == SequenceId::NEVER {
            return None;
        }
        Some(leases.len())
    }

    /// Puts objects back on a list. A hand-over reads both lists.
    fn relist(&self, ids: &[ObjectId], list: List) {
        for handle in ids.iter().filter_map(|id| self.engine.handle(&self.core, *id)) {
            let shard = &self.engine.shards[handle.shard()];
            self.with_object(handle, |object| shard.relist(list, handle.slot(), object));
        }
    }
}
