//! Admission: the one check that every source of records passes before it enters the sequencer (R2). RPC calls, HTTP
//! changes, the admin API, searches that remove, and upkeep all pass it, and long work passes it again before each
//! chunk. Only the node's own records (`NewTerm`, heartbeats, those of a hand-over) are made without it.
//!
//! The decision is pure; each caller waits in its own way, and none holds a lock meanwhile.

use std::time::Duration;

use super::incarnation::Incarnation;
pub use super::parked_answers::PATIENCE;
use super::queue_space::{Permit, Ticket};
use super::time::Monotonic;
use crate::engine::types::SequenceId;

/// Why a change was not admitted. Nothing was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The lease has run out, or the port is being closed.
    #[error("this master no longer leads")]
    NotLeading,
    /// etcd takes no more writes.
    #[error("the log is full or refused by etcd (see the status), nothing was changed")]
    OutOfSpace,
    /// There was no space in the queue for [`PATIENCE`].
    #[error("the master's queue of unwritten changes is full, nothing was changed")]
    QueueFull,
}

impl Refusal {
    /// Returns the cause alone, without "nothing was changed", for work that had begun.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::NotLeading => "this master no longer leads",
            Self::OutOfSpace => "the log is full or refused by etcd (see the status)",
            Self::QueueFull => "the master's queue of unwritten changes is full",
        }
    }
}

/// How many chunks of long work may wait for etcd when another one begins: enough to make the next ones while a commit is
/// under way.
pub const CHUNKS_AHEAD: usize = 4;

/// How far long work is ahead of the durable prefix.
///
/// A chunk begins when everything before the last [`CHUNKS_AHEAD`] chunks is durable, so that few of them wait for etcd.
/// Without that limit a removal of millions of objects would fill the queue, and every other client's change, and every
/// read of a removed key (R3), would wait behind megabytes of its records. Only chunks that made records count, and only
/// by their own records: a sweep that finds nothing waits for no one.
#[derive(Debug, Default)]
pub struct ChunksAhead {
    /// The last record of the chunk under way; zero if it has made none.
    made: SequenceId,
    /// The last records of the last chunks that made any, the oldest first.
    ends: [SequenceId; CHUNKS_AHEAD + 1],
}

impl ChunksAhead {
    /// Notes the last record that the chunk under way has made so far.
    pub fn made(&mut self, last: SequenceId) {
        self.made = last;
    }

    /// Notes the end of a chunk.
    pub fn end_chunk(&mut self) {
        let made = std::mem::take(&mut self.made);
        if made != SequenceId(0) {
            self.ends.rotate_left(1);
            self.ends[CHUNKS_AHEAD] = made;
        }
    }

    /// Returns whether the next chunk has to wait for the log.
    #[must_use]
    pub fn is_full(&self, durable: SequenceId) -> bool {
        durable < self.ends[0]
    }
}

/// The outcome of asking for admission.
#[derive(Debug)]
pub enum Admission<'r> {
    /// The change may enter, and its records have space.
    Admitted(Permit<'r>),
    /// The caller has to ask again, with the ticket that it has now, when that is granted or a moment has passed.
    Waiting,
    Refused(Refusal),
}

impl Incarnation {
    /// Asks whether a change whose records take at most `bytes` may enter now. A caller that has to wait keeps `ticket`
    /// and passes it in again when it retries, with how long it has `waited` by then.
    pub fn admit(
        &self,
        now: Monotonic,
        bytes: usize,
        ticket: &mut Option<Ticket>,
        waited: Duration,
    ) -> Admission<'_> {
        if let Some(refusal) = self.refusal(now) {
            *ticket = None;
            return Admission::Refused(refusal);
        }
        let permit = match ticket.take() {
            None => self.queue.try_acquire(bytes).ok_or(None),
            Some(waiting) => self.queue.redeem(waiting).map_err(Some),
        };
        match permit {
            Ok(permit) => Admission::Admitted(permit),
            Err(_) if waited >= PATIENCE => Admission::Refused(Refusal::QueueFull),
            Err(waiting) => {
                *ticket = Some(waiting.unwrap_or_else(|| self.queue.wait(bytes)));
                Admission::Waiting
            }
        }
    }

    /// Like [`Self::admit`], for long work that does not ask for space yet because its last chunks are not durable.
    pub fn admit_later(&self, now: Monotonic, waited: Duration) -> Admission<'_> {
        match self.refusal(now) {
            Some(refusal) => Admission::Refused(refusal),
            None if waited >= PATIENCE => Admission::Refused(Refusal::QueueFull),
            None => Admission::Waiting,
        }
    }

    /// Returns why no change is admitted at all.
    fn refusal(&self, now: Monotonic) -> Option<Refusal> {
        if !self.gate.may_answer(now) {
            Some(Refusal::NotLeading)
        } else if self.gate.is_log_full() {
            Some(Refusal::OutOfSpace)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::EngineSettings;

    #[test]
    fn few_chunks_are_ahead_of_the_log_and_those_without_a_record_do_not_count() {
        let mut ahead = ChunksAhead::default();
        let end_chunk = |ahead: &mut ChunksAhead, made: &[u64]| {
            made.iter().for_each(|id| ahead.made(SequenceId(*id)));
            ahead.end_chunk();
        };
        for made in [&[][..], &[100, 101], &[], &[103], &[110], &[], &[119, 120], &[130]] {
            assert!(!ahead.is_full(SequenceId(0)), "before {made:?}");
            end_chunk(&mut ahead, made);
        }
        assert!(ahead.is_full(SequenceId(100)));
        assert!(!ahead.is_full(SequenceId(101)));
        end_chunk(&mut ahead, &[]);
        assert!(!ahead.is_full(SequenceId(101)));
        end_chunk(&mut ahead, &[140]);
        assert!(ahead.is_full(SequenceId(102)) && !ahead.is_full(SequenceId(103)));
    }

    const NOW: Monotonic = Monotonic(5);
    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn changes_enter_only_while_this_master_may_answer() {
        let incarnation = Incarnation::new(EngineSettings::default(), 100);
        let ask = |ticket: &mut Option<Ticket>| match incarnation.admit(NOW, 60, ticket, AT_ONCE) {
            Admission::Admitted(_) => Ok(true),
            Admission::Waiting => Ok(false),
            Admission::Refused(refusal) => Err(refusal),
        };
        assert_eq!(ask(&mut None), Err(Refusal::NotLeading));
        incarnation.gate.open_until(Monotonic(6));
        assert_eq!(ask(&mut None), Ok(true));
        let taken = incarnation.queue.try_acquire(60);
        let mut ticket = None;
        assert_eq!(ask(&mut ticket), Ok(false));
        incarnation.gate.set_log_full(true);
        assert_eq!(ask(&mut ticket), Err(Refusal::OutOfSpace));
        assert!(ticket.is_none(), "a refused change leaves the line");
        incarnation.gate.set_log_full(false);
        assert_eq!(ask(&mut ticket), Ok(false));
        incarnation.gate.close();
        assert_eq!(ask(&mut ticket), Err(Refusal::NotLeading));
        drop(taken);
        assert_eq!(incarnation.queue.bytes(), 0);
    }

    #[test]
    fn a_change_that_waited_too_long_is_refused() {
        let incarnation = Incarnation::new(EngineSettings::default(), 100);
        incarnation.gate.open_until(Monotonic(6));
        let taken = incarnation.queue.try_acquire(100);
        let mut ticket = None;
        assert!(matches!(incarnation.admit(NOW, 60, &mut ticket, AT_ONCE), Admission::Waiting));
        let almost = PATIENCE - Duration::from_millis(1);
        assert!(matches!(incarnation.admit(NOW, 60, &mut ticket, almost), Admission::Waiting));
        let refused = incarnation.admit(NOW, 60, &mut ticket, PATIENCE);
        assert!(matches!(refused, Admission::Refused(Refusal::QueueFull)) && ticket.is_none());
        drop(refused);
        assert!(matches!(incarnation.admit(NOW, 60, &mut ticket, AT_ONCE), Admission::Waiting));
        drop(taken);
        // A granted ticket is honoured, however long the caller waited for it.
        assert!(matches!(incarnation.admit(NOW, 60, &mut ticket, PATIENCE), Admission::Admitted(_)));
    }
}
