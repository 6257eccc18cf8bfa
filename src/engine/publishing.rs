//! Publishes numbers and status whenever the sequencer is released, so that their readers do not wait for it.

use super::divergence::Divergence;
use super::faults::Fault;
use super::published::{Published, Reading};
use super::state::{Engine, Sequencer};
use super::term_state::{TermReport, TermState};
use super::types::{LogTime, SequenceId, Term};

impl Sequencer<'_> {
    /// Returns the numbers for metrics, all of the same moment.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let core = &*self.core;
        Reading {
            sequence_id: core.last,
            digest: core.digest(),
            discarded_bytes: u64::try_from(core.discarded_bytes).unwrap_or(u64::MAX),
            writing: core.processing.len(),
            lost_writes: core.lost_writes.len(),
            lost_copies: core.lost_copies.len(),
            tasks_pending: core.tasks.pending_len(),
            tasks_processing: core.tasks.processing_len(),
        }
    }

    /// Returns how many records could not be applied to an object.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.core.faults.count
    }
}

impl Drop for Sequencer<'_> {
    fn drop(&mut self) {
        let core = &*self.core;
        let published = Published {
            reading: self.reading(),
            term_state: core.term_state,
            report: core.report,
            divergence: core.divergence,
            digest_matched: core.digest_matched,
            last_change: core.last_change,
            log_time: core.log_time,
            faults: core.faults.count,
        };
        let before = std::mem::replace(&mut *self.engine.published.lock(), published);
        if before.faults != published.faults {
            *self.engine.recent_faults.lock() = core.faults.last();
        }
    }
}

impl Engine {
    fn published(&self) -> Published {
        *self.published.lock()
    }

    /// Returns the numbers for metrics, all of the moment at which the sequencer was last released.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.published().reading
    }

    /// Returns how many records could not be applied to an object.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.published().faults
    }

    /// Returns the last few records that could not be applied to an object, oldest first.
    #[must_use]
    pub fn recent_faults(&self) -> Vec<Fault> {
        self.recent_faults.lock().clone()
    }

    /// Returns whether the last record is a `Resign`: the primary of this term has handed over.
    #[must_use]
    pub fn resigned(&self) -> bool {
        let published = self.published();
        published.term_state.has_resigned(published.reading.sequence_id)
    }

    /// Returns the current term, as the last `NewTerm` set it.
    #[must_use]
    pub fn term(&self) -> Term {
        self.published().term_state.term
    }

    /// Returns the current term as the log describes it.
    #[must_use]
    pub fn term_state(&self) -> TermState {
        self.published().term_state
    }

    /// Returns the end of the hold: until then nothing is evicted, and nothing removed unless forced (R6).
    #[must_use]
    pub fn hold_until(&self) -> LogTime {
        self.published().term_state.hold_until
    }

    /// Returns what the primary of this term found when it took over.
    #[must_use]
    pub fn term_report(&self) -> TermReport {
        self.published().report
    }

    /// Returns the last `Digest` record that this replica matched; zero if there was none since it was created.
    #[must_use]
    pub fn digest_matched(&self) -> SequenceId {
        self.published().digest_matched
    }

    /// Returns the last record other than a `Digest`, which a quiet primary writes each second; zero if there was none
    /// since this state was created or read from a snapshot.
    #[must_use]
    pub fn last_change(&self) -> SequenceId {
        self.published().last_change
    }

    /// Returns the timestamp of the last record.
    #[must_use]
    pub fn log_time(&self) -> LogTime {
        self.published().log_time
    }

    /// Returns the signs that this replica diverges from the log.
    #[must_use]
    pub fn divergence(&self) -> Divergence {
        self.published().divergence
    }
}
