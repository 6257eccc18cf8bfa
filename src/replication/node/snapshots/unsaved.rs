//! For how long there have been changes that no snapshot of this master has. In log time, so that a quiet primary and a
//! master that was away do not make a snapshot older.

use crate::engine::types::{LogTime, SequenceId};

/// Since when there are changes that no announced snapshot has.
#[derive(Debug, Default)]
pub(super) struct Unsaved {
    /// The newest announced snapshot when this was last looked at.
    newest: Option<SequenceId>,
    since: Option<LogTime>,
}

impl Unsaved {
    /// Notes the newest announced snapshot, and the last record that has changed the state. Digests do not count.
    pub(super) fn note(&mut self, newest: Option<SequenceId>, changed: SequenceId, log_time: LogTime) {
        if newest != self.newest {
            (self.newest, self.since) = (newest, None);
        }
        // An empty log has no time yet.
        let is_saved = changed == SequenceId(0) || newest.is_some_and(|newest| newest >= changed);
        self.since = (!is_saved).then(|| self.since.unwrap_or(log_time));
    }

    /// Forgets since when: this master reads the log, in which time passes faster.
    pub(super) fn forget(&mut self) {
        self.since = None;
    }

    /// Returns for how long, in milliseconds.
    pub(super) fn ms(&self, log_time: LogTime) -> u64 {
        self.since.map_or(0, |since| log_time.0.saturating_sub(since.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_counts_from_the_first_change_that_no_snapshot_has() {
        let mut unsaved = Unsaved::default();
        let mut ms = |newest: Option<u64>, changed: u64, at: u64| {
            unsaved.note(newest.map(SequenceId), SequenceId(changed), LogTime(at));
            unsaved.ms(LogTime(at))
        };
        assert_eq!([ms(None, 0, 0), ms(None, 1, 1000), ms(None, 5, 4000)], [0, 0, 3000]);
        // A snapshot that has everything: digests alone make it no older.
        assert_eq!([ms(Some(5), 5, 4000), ms(Some(5), 5, 90_000)], [0, 0]);
        // The first change after a quiet time.
        assert_eq!([ms(Some(5), 9, 100_000), ms(Some(5), 12, 107_000)], [0, 7000]);
        // The next snapshot, while changes go on: those after it count from now.
        assert_eq!([ms(Some(10), 13, 108_000), ms(Some(10), 20, 109_000)], [0, 1000]);
        // A log that is read.
        unsaved.forget();
        unsaved.note(Some(SequenceId(10)), SequenceId(30), LogTime(900_000));
        assert_eq!(unsaved.ms(LogTime(901_000)), 1000);
    }
}
