//! Timed work: each function looks for what is due and commits the records for it, a bounded number at a time, so that
//! no client waits long for the sequencer.

use crate::engine::chunks::Chunks;
use crate::engine::record::Record;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::task::TaskStatus;
use crate::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId};
use crate::engine::walk::Cursor;

use super::remove::SCATTERED;
use super::segments::STEP as SEGMENTS_STEP;

/// Most due items of one kind that are handled before the sequencer is released.
const STEP: usize = 256;

/// How much an upkeep round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Reservations whose time had passed.
    pub released: usize,
    /// Segments whose grace period was over.
    pub unmounted: usize,
    /// Tasks that took too long.
    pub tasks_failed: usize,
}

impl Engine {
    /// Handles everything that is due at `now`, except leases, eviction and clients.
    pub fn upkeep(&self, now: LogTime) -> Upkeep {
        self.upkeep_while(now, &mut || true)
    }

    /// Like [`Self::upkeep`], but asks before each chunk.
    pub fn upkeep_while(&self, now: LogTime, chunks: &mut dyn Chunks) -> Upkeep {
        let mut total = Upkeep::default();
        while chunks.next_chunk() {
            let done = self.run_chunk(now, chunks, |sequencer| sequencer.upkeep_step());
            total.released += done.released;
            total.unmounted += done.unmounted;
            total.tasks_failed += done.tasks_failed;
            if done.released < STEP && done.tasks_failed < STEP && done.unmounted < SEGMENTS_STEP {
                break;
            }
        }
        total
    }

    /// Drops replicas in unmounted segments. Returns how many objects had some.
    pub fn sweep(&self, now: LogTime) -> usize {
        self.sweep_while(now, &mut || true)
    }

    /// Like [`Self::sweep`], but asks before each step.
    pub fn sweep_while(&self, now: LogTime, chunks: &mut dyn Chunks) -> usize {
        let (mut cursor, mut total) = (Cursor::default(), 0);
        while chunks.next_chunk() {
            let Some(found) = self.sweep_step(&mut cursor, now, chunks) else { break };
            total += found;
        }
        total
    }

    /// Runs one step of a sweep over all objects: one piece of a walk, and records for those that have replicas in
    /// unmounted segments. Returns how many had, or `None` at the end and in a sealed engine.
    pub fn sweep_step(&self, cursor: &mut Cursor, now: LogTime, chunks: &mut dyn Chunks) -> Option<usize> {
        let stale = self.stale(cursor)?;
        for chunk in stale.chunks(SCATTERED) {
            let sweep = |sequencer: &mut Sequencer<'_>| sequencer.commit(&Record::Sweep { objects: chunk });
            if self.run_chunk(now, chunks, sweep) == SequenceId::NEVER {
                return None;
            }
        }
        Some(stale.len())
    }
}

impl Sequencer<'_> {
    /// Seeds the random generator for placement.
    pub fn seed_rng(&mut self, seed: u64) {
        self.core.rng.seed(seed);
    }

    fn upkeep_step(&mut self) -> Upkeep {
        // In a sealed engine what is due stays due, and the loop of the caller would not end.
        if self.engine.is_sealed() {
            return Upkeep::default();
        }
        let settings = &self.engine.settings;
        let now = self.now;
        let before = |ms: u64| LogTime(now.0.saturating_sub(ms));
        let stuck = before(settings.release_timeout_ms);
        let mut due: Vec<SequenceId> = self
            .core
            .releases
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, id)| *id)
            .take(STEP)
            .collect();
        // The record that began a write may also have discarded bytes (an upsert), and a `Release` of its id means
        // those first. So the write has to wait until they are due, which is later if the timeout was longer then.
        let held = |id: &ObjectId| {
            self.core.discarded.get(&SequenceId(id.0)).is_some_and(|bytes| bytes.release_at > now)
        };
        let writes = self.core.processing.iter().take_while(|(_, write)| write.started < stuck);
        let writes = writes.filter(|(id, _)| !held(id));
        due.extend(writes.map(|(id, _)| SequenceId(id.0)).take(STEP.saturating_sub(due.len())));
        let copies = self.core.copy_moves.iter().take_while(|(started, _)| *started < stuck);
        let copies = copies.filter(|(_, id)| !held(id));
        due.extend(copies.map(|(_, id)| SequenceId(id.0)).take(STEP.saturating_sub(due.len())));
        for reservation in &due {
            self.commit(&Record::Release { reservation: *reservation });
        }

        let drained = self.core.drains.iter().take_while(|(until, _)| *until <= now);
        let drained: Vec<SegmentNumber> = drained.map(|(_, number)| *number).take(SEGMENTS_STEP).collect();
        for number in &drained {
            self.commit(&Record::UnmountSegment { number: *number });
        }

        let limit = |timeout: u64| if timeout == 0 { LogTime(0) } else { before(timeout) };
        let mut overdue = self
            .core
            .tasks
            .overdue(limit(settings.pending_task_timeout_ms), limit(settings.processing_task_timeout_ms));
        overdue.truncate(STEP);
        for (id, status) in &overdue {
            let message: &[u8] =
                if *status == TaskStatus::Pending { b"pending timeout" } else { b"processing timeout" };
            self.commit(&Record::TaskDone { id: *id, success: false, message });
        }
        Upkeep { released: due.len(), unmounted: drained.len(), tasks_failed: overdue.len() }
    }
}
