//! The position in the log: accepts batches in their order, applies them, and detects a batch of another history.

use bytes::Bytes;

use super::batch::{Batch, BatchError};
use super::incarnation::Incarnation;
use super::writer::End;
use crate::cluster::log_end::{Checksum, Latest, LogId};
use crate::engine::types::{SequenceId, Term};

/// How far a standby has applied the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The log; `None` before its first batch.
    pub log: Option<LogId>,
    /// The last record applied; the next batch has to follow it.
    pub applied: SequenceId,
    /// The checksum of the batch that this record is in.
    pub checksum: Checksum,
    /// The term in which that batch was written.
    pub term: Term,
}

/// The outcome of offering a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    Applied,
    /// It had been applied before.
    Known,
    /// Batches before it are missing.
    Gap,
    /// It cannot be read.
    Damaged(String),
    /// It is part of another history.
    Foreign(String),
    /// It is a batch of another log.
    OtherLog(String),
    /// The state is not the one that this position describes: it has a change that did not come from the log.
    Diverged(String),
}

impl Position {
    /// Returns the value that the key `latest` has if the log ends here; `None` if there is no log.
    #[must_use]
    pub fn latest(&self) -> Option<Bytes> {
        Some(self.at()?.to_bytes())
    }

    /// Returns the batch that this position is after; `None` before the first one.
    #[must_use]
    pub fn at(&self) -> Option<Latest> {
        let log = self.log?;
        Some(Latest { log, term: self.term, last: self.applied, checksum: self.checksum })
    }

    /// Returns the position after this batch.
    #[must_use]
    pub fn after(at: &Latest) -> Self {
        Self { log: Some(at.log), applied: at.last, checksum: at.checksum, term: at.term }
    }

    /// Returns the end of the log for a writer that continues from here. A new log gets the id `fresh`.
    #[must_use]
    pub fn end(&self, fresh: LogId) -> End {
        End {
            log: self.log.unwrap_or(fresh),
            last: self.applied,
            checksum: self.checksum,
            latest: self.latest(),
        }
    }

    /// Returns the position at which a writer stopped.
    #[must_use]
    pub fn behind(end: &End, term: Term) -> Self {
        Self { log: Some(end.log), applied: end.last, checksum: end.checksum, term }
    }

    /// Applies a batch if it is the next one.
    pub fn offer(&mut self, bytes: &[u8], incarnation: &Incarnation) -> Offered {
        let batch = match Batch::open(bytes) {
            Ok(batch) => batch,
            Err(error) => return Offered::Damaged(damage(&error)),
        };
        let header = &batch.header;
        if self.log.is_some_and(|log| log != header.log) {
            return Offered::OtherLog(format!("batch {} belongs to another log", header.first.0));
        }
        if header.last <= self.applied {
            let same = header.last < self.applied || batch.checksum == self.checksum;
            return if same {
                Offered::Known
            } else {
                Offered::Foreign(format!("another batch ends at {}", header.last.0))
            };
        }
        if header.first.0 > self.applied.0 + 1 {
            return Offered::Gap;
        }
        if header.first.0 <= self.applied.0 {
            return Offered::Foreign(format!("batch {} overlaps what was applied", header.first.0));
        }
        let follows = header.previous == self.checksum;
        let follows = follows || planted!(SkipChain);
        if !follows {
            return Offered::Foreign(format!("batch {} follows another one", header.first.0));
        }
        if header.term < self.term {
            return Offered::Foreign(format!("batch {} is of an earlier term", header.first.0));
        }
        let now = crate::engine::types::LogTime(0);
        let mut sequencer = incarnation.engine.sequencer(now);
        // A change that did not come from the log has taken ids that the next records would get (INV-1, INV-8).
        let found = incarnation.engine.applied();
        if found != self.applied {
            return Offered::Diverged(format!(
                "the state is at record {}, but the log was followed to record {}",
                found.0, self.applied.0
            ));
        }
        batch.each(|id, at, record| sequencer.apply(header.format, id, at, record));
        planted!(ApplyTwice => batch.each(|id, at, record| sequencer.apply_again(header.format, id, at, record)));
        drop(sequencer);
        *self =
            Self { log: Some(header.log), applied: header.last, checksum: batch.checksum, term: header.term };
        // What was read from the log is durable.
        incarnation.gate.advance(self.applied);
        Offered::Applied
    }
}

fn damage(error: &BatchError) -> String {
    error.to_string()
}
