//! History: the log and its last batch that a master knows to be durable. It outlives a rebuild of the state and, in
//! the data directory, the process, so that a master notices a log that was deleted, replaced, or restored from a
//! backup (F6).

use super::log_position::Position;
use crate::cluster::log_end::History;
use crate::cluster::log_end::Latest;
use crate::engine::types::SequenceId;

impl History {
    /// Returns the history of a follower or writer at this position; `None` before the first batch.
    #[must_use]
    pub fn at(position: &Position) -> Option<Self> {
        position.at().map(Self)
    }

    /// Returns why a log with this end cannot be the one of this history; `None` if it fits.
    #[must_use]
    pub fn misfit(&self, end: Option<&Latest>) -> Option<String> {
        let Some(end) = end else {
            return Some(format!(
                "the log is gone from etcd, but this master knows records up to {} of log {}",
                self.0.last.0, self.0.log
            ));
        };
        if end.log != self.0.log {
            return Some(format!(
                "etcd has log {}, but this master knows records up to {} of log {}: another history",
                end.log, self.0.last.0, self.0.log
            ));
        }
        if end.last < self.0.last || end.term < self.0.term {
            return Some(format!(
                "the log ends at record {} of term {}, but this master knows record {} of term {}: it was shortened, \
                 or etcd was restored from a backup",
                end.last.0, end.term.0, self.0.last.0, self.0.term.0
            ));
        }
        if end.last == self.0.last && end.checksum != self.0.checksum {
            return Some(format!(
                "the log ends with another batch at record {} than this master knows: another history",
                end.last.0
            ));
        }
        None
    }

    /// Returns whether a reader that went from `before` to `position` has passed the end of this history without
    /// finding the batch that it names.
    #[must_use]
    pub fn is_missed(&self, before: SequenceId, position: &Position) -> bool {
        let passed = before < self.0.last && self.0.last <= position.applied;
        passed && (position.applied != self.0.last || position.checksum != self.0.checksum)
    }

    /// Returns the longer history if both are of the same log, else the one that was seen.
    #[must_use]
    pub fn newer(known: Option<Self>, seen: Option<Self>) -> Option<Self> {
        match (known, seen) {
            (Some(known), Some(seen)) if known.0.log == seen.0.log && known.0.last > seen.0.last => {
                Some(known)
            }
            (known, seen) => seen.or(known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::log_end::{Checksum, LogId};
    use crate::engine::types::Term;

    const KNOWN: History =
        History(Latest { log: LogId(7), term: Term(5), last: SequenceId(40), checksum: Checksum(0xabc) });

    fn end(log: u64, term: u64, last: u64) -> Latest {
        let checksum = if last == 40 { KNOWN.0.checksum } else { Checksum(1) };
        Latest { log: LogId(log), term: Term(term), last: SequenceId(last), checksum }
    }

    #[test]
    fn a_log_fits_if_it_is_the_same_and_not_shorter() {
        assert_eq!(KNOWN.misfit(Some(&end(7, 5, 40))), None);
        assert_eq!(KNOWN.misfit(Some(&end(7, 9, 100))), None);
        for (other, word) in [
            (None, "gone"),
            (Some(end(8, 9, 100)), "another history"),
            (Some(end(7, 5, 39)), "shortened"),
            (Some(end(7, 4, 41)), "shortened"),
            (Some(Latest { checksum: Checksum(1), ..end(7, 5, 40) }), "another batch"),
        ] {
            let reason = KNOWN.misfit(other.as_ref()).unwrap_or_default();
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn a_reader_notices_that_the_last_known_batch_is_another() {
        let at = |applied: u64, checksum: u64| Position {
            log: Some(LogId(7)),
            applied: SequenceId(applied),
            checksum: Checksum(checksum),
            term: Term(5),
        };
        assert!(!KNOWN.is_missed(SequenceId(30), &at(39, 1)));
        assert!(!KNOWN.is_missed(SequenceId(30), &at(40, 0xabc)));
        assert!(KNOWN.is_missed(SequenceId(30), &at(40, 0xabd)));
        assert!(KNOWN.is_missed(SequenceId(30), &at(41, 0xabc)));
        assert!(!KNOWN.is_missed(SequenceId(40), &at(50, 1)));
    }

    #[test]
    fn it_is_kept_as_text_that_people_can_read() {
        let text = serde_json::to_string(&KNOWN).unwrap();
        assert_eq!(text, r#"{"log":"0000000000000007","term":5,"last":40,"checksum":"0000000000000abc"}"#);
        assert_eq!(serde_json::from_str::<History>(&text).unwrap(), KNOWN);
    }
}
