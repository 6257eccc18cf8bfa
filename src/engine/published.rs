//! What probes, metrics and status ask for: published whenever the sequencer is released, so that who asks never waits for
//! it. All of it is of the same moment, so a digest belongs to the sequence id beside it.

use super::digest::Digest;
use super::doubts::Doubts;
use super::reign::{Reign, TermReport};
use super::state::{Engine, Sequencer};
use super::types::{LogTime, SequenceId, Term};

/// Numbers for metrics, all of the same moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// The last record applied.
    pub sequence_id: SequenceId,
    /// The digest at that record.
    pub digest: Digest,
    /// Bytes that belong to no object but may still be in use.
    pub discarded_bytes: u64,
    /// Objects that are being written.
    pub writing: usize,
    /// Those of them that went with their segments and are kept only because a client may still be writing (R4).
    pub lost_writes: usize,
    /// Written objects that went with their segments and are kept only because a client may still be writing a copy.
    pub lost_copies: usize,
    /// Tasks that wait.
    pub tasks_pending: usize,
    /// Tasks that clients work on.
    pub tasks_processing: usize,
}

/// What is published.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Published {
    reading: Reading,
    reign: Reign,
    report: TermReport,
    doubts: Doubts,
    faults: u64,
}

impl Sequencer<'_> {
    /// Numbers for metrics, all of the same moment.
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
}

impl Sequencer<'_> {
    /// Records that could not be applied to an object.
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
            reign: core.reign,
            report: core.report,
            doubts: core.doubts,
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

    /// Numbers for metrics, all of the moment at which the sequencer was last released.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.published().reading
    }

    /// Records that could not be applied to an object.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.published().faults
    }

    /// Whether the last record says that the primary of this term has handed over.
    #[must_use]
    pub fn resigned(&self) -> bool {
        let published = self.published();
        published.reign.has_resigned(published.reading.sequence_id)
    }

    /// The current term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.published().reign.term
    }

    /// What the log says of the current term.
    #[must_use]
    pub fn reign(&self) -> Reign {
        self.published().reign
    }

    /// Until then nothing is evicted, and nothing removed unless forced (R6).
    #[must_use]
    pub fn hold_until(&self) -> LogTime {
        self.published().reign.hold_until
    }

    /// What the primary of this term found when it took over.
    #[must_use]
    pub fn term_report(&self) -> TermReport {
        self.published().report
    }

    /// Signs that this replica is not what the log says it should be.
    #[must_use]
    pub fn doubts(&self) -> Doubts {
        self.published().doubts
    }
}
