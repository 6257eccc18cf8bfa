//! The heard end of the log: the newest durable prefix that this master was told by the primary or read from etcd, and
//! whether this master keeps up with it. A watch alone does not show that: a standby that applies slowly, or whose
//! watch has stalled, does not know which records it has not seen.

use std::time::Duration;

use crate::cluster::log_end::{Latest, LogId};
use crate::engine::types::{SequenceId, Term};
use crate::replication::time::Monotonic;

/// A heard end that is older than this is ignored.
const FRESH: Duration = Duration::from_secs(3);

/// A standby that has heard nothing for this long reads the end of the log itself.
const READ_AFTER: Duration = Duration::from_secs(1);

/// The newest end of the log that this master has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// `None` if there is no log.
    log: Option<LogId>,
    term: Term,
    last: SequenceId,
    at: Monotonic,
}

/// What a primary reports about its log.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrimaryWord {
    pub log: LogId,
    pub term: Term,
    pub durable: SequenceId,
    /// Milliseconds on the primary's clock.
    pub sent_ms: u64,
}

/// Estimates how long a primary's reports were in transit, compared with the quickest one: a standby that is short of
/// processor time finds old reports in its queues, and must not take them for new ones.
#[derive(Debug, Default)]
struct Transit {
    term: Term,
    /// The least difference between the two clocks at arrival, in microseconds, and when it was measured. It may grow
    /// by a thousandth of the time, so that clocks of slightly different speed do no harm.
    quickest: Option<(i64, Monotonic)>,
}

impl Transit {
    /// Returns when a report that arrives now was sent, by this master's clock; never earlier than it really was.
    fn said_at(&mut self, now: Monotonic, term: Term, sent_ms: u64) -> Monotonic {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let difference = signed(now.0).saturating_sub(signed(sent_ms.saturating_mul(1000)));
        if self.term != term {
            (self.term, self.quickest) = (term, None);
        }
        let drifted =
            |(least, at): (i64, Monotonic)| least.saturating_add(signed(now.0.saturating_sub(at.0) / 1000));
        let least = self.quickest.map_or(difference, drifted).min(difference);
        self.quickest = Some((least, now));
        Monotonic(now.0.saturating_sub(u64::try_from(difference - least).unwrap_or(0)))
    }
}

/// The heard end, and when an end that this master has applied was heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    end: Option<End>,
    transit: Transit,
    /// An end whose records are still to be applied, and when it was heard.
    pending: Option<(SequenceId, Monotonic)>,
    /// When the newest end that has been applied by now was heard.
    confirmed: Option<Monotonic>,
}

impl Heard {
    /// Records the durable prefix that the primary of a term reported. A report of an older term is ignored, and the
    /// end of another log is forgotten.
    pub(super) fn told(&mut self, now: Monotonic, word: &PrimaryWord) {
        let PrimaryWord { log, term, durable, sent_ms } = *word;
        let same = self.end.filter(|end| end.log == Some(log));
        if same.is_some_and(|end| term < end.term) {
            return;
        }
        let at = self.transit.said_at(now, term, sent_ms);
        if self.end.is_none_or(|end| end.at <= at) {
            self.put(at, Some(log), term, durable);
        }
    }

    /// Records the end of the log that a linearizable read returned.
    pub(super) fn read(&mut self, now: Monotonic, end: Option<&Latest>) {
        match end {
            Some(end) => self.put(now, Some(end.log), end.term, end.last),
            None => self.put(now, None, Term(0), SequenceId(0)),
        }
    }

    fn put(&mut self, now: Monotonic, log: Option<LogId>, term: Term, last: SequenceId) {
        let end = match self.end.filter(|end| end.log == log) {
            Some(end) => End { term: end.term.max(term), last: end.last.max(last), at: now, log },
            None => {
                self.pending = None;
                self.confirmed = None;
                End { log, term, last, at: now }
            }
        };
        self.end = Some(end);
        self.pending.get_or_insert((end.last, now));
    }

    /// Records that this master has applied the log up to `applied`.
    pub(super) fn applied(&mut self, applied: SequenceId) {
        let Some(end) = self.end else { return };
        if end.last <= applied {
            self.confirmed = Some(end.at);
            self.pending = None;
        } else if let Some((last, at)) = self.pending
            && last <= applied
        {
            self.confirmed = Some(at);
            self.pending = Some((end.last, end.at));
        }
    }

    /// Returns whether an end that was heard lately has been applied.
    pub(super) fn is_caught_up(&self, now: Monotonic) -> bool {
        self.confirmed.is_some_and(|at| now.since(at) < FRESH)
    }

    /// Returns how many records this master is behind; `None` if that is unknown.
    pub(super) fn lag(&self, now: Monotonic, log: Option<LogId>, applied: SequenceId) -> Option<u64> {
        let end = self.end.filter(|end| now.since(end.at) < FRESH)?;
        (end.log == log || log.is_none()).then(|| end.last.0.saturating_sub(applied.0))
    }

    /// Returns the newest durable prefix that was heard.
    pub(super) fn last(&self) -> SequenceId {
        self.end.map_or(SequenceId(0), |end| end.last)
    }

    /// Returns whether the end has to be read because no report came lately.
    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        self.end.is_none_or(|end| now.since(end.at) >= READ_AFTER)
    }

    /// Forgets everything, for a master that begins to follow anew.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: LogId = LogId(7);

    fn at(ms: u64) -> Monotonic {
        Monotonic(ms * 1000)
    }

    fn word(sent_ms: u64, log: LogId, term: Term, durable: SequenceId) -> PrimaryWord {
        PrimaryWord { log, term, durable, sent_ms }
    }

    #[test]
    fn words_that_waited_on_their_way_are_as_old_as_they_are() {
        let mut heard = Heard::default();
        // The primary's clock has another starting point.
        for step in 0..10 {
            heard.told(at(step * 100), &word(7_000_000 + step * 100, LOG, Term(1), SequenceId(step)));
            heard.applied(SequenceId(step));
        }
        assert!(heard.is_caught_up(at(1_000)));
        // From here on each report is delayed by four seconds.
        for step in 10..60 {
            let sent = 7_000_000 + step * 100;
            heard.told(at(step * 100 + 4_000), &word(sent, LOG, Term(1), SequenceId(step)));
            heard.applied(SequenceId(step));
            assert!(!heard.is_caught_up(at(step * 100 + 4_000)), "{step}");
            assert_eq!(heard.lag(at(step * 100 + 4_000), Some(LOG), SequenceId(step)), None);
        }
        // A clock that runs a little faster does no harm.
        let mut heard = Heard::default();
        for second in 0..100_000 {
            heard.told(
                at(second * 1_000 + second / 10),
                &word(second * 1_000, LOG, Term(1), SequenceId(second)),
            );
            heard.applied(SequenceId(second));
            assert!(heard.is_caught_up(at(second * 1_000 + second / 10)));
        }
    }

    #[test]
    fn a_standby_that_applies_slowly_is_not_caught_up_and_says_how_far_it_is_behind() {
        let mut heard = Heard::default();
        assert_eq!(heard.lag(at(0), Some(LOG), SequenceId(0)), None);
        heard.told(at(0), &word(0, LOG, Term(1), SequenceId(10)));
        heard.applied(SequenceId(10));
        assert!(heard.is_caught_up(at(1)));
        for second in 1..10 {
            heard.told(at(second * 1000), &word(second * 1000, LOG, Term(1), SequenceId(10 + second * 1000)));
            heard.applied(SequenceId(10 + second));
        }
        assert_eq!(heard.lag(at(9_000), Some(LOG), SequenceId(19)), Some(8_991));
        assert!(!heard.is_caught_up(at(9_000)));
        heard.applied(SequenceId(9_010));
        assert!(heard.is_caught_up(at(9_000)));
    }

    #[test]
    fn under_steady_load_a_standby_that_is_a_moment_behind_stays_caught_up() {
        let mut heard = Heard::default();
        for step in 0..100 {
            heard.told(at(step * 100), &word(step * 100, LOG, Term(1), SequenceId(step * 1000 + 900)));
            heard.applied(SequenceId(step * 1000));
            assert!(step < 2 || heard.is_caught_up(at(step * 100)), "{step}");
        }
    }

    #[test]
    fn what_was_heard_long_ago_says_nothing() {
        let mut heard = Heard::default();
        heard.told(at(0), &word(0, LOG, Term(1), SequenceId(10)));
        heard.applied(SequenceId(10));
        assert!(heard.is_due(at(1000)));
        assert!(!heard.is_caught_up(at(3000)));
        assert_eq!(heard.lag(at(3000), Some(LOG), SequenceId(10)), None);
    }

    #[test]
    fn an_older_term_and_another_log_are_not_mixed_in() {
        let mut heard = Heard::default();
        heard.told(at(0), &word(0, LOG, Term(5), SequenceId(10)));
        heard.told(at(1), &word(1, LOG, Term(4), SequenceId(90)));
        assert_eq!(heard.lag(at(1), Some(LOG), SequenceId(10)), Some(0));
        heard.told(at(2), &word(2, LogId(8), Term(1), SequenceId(3)));
        assert_eq!(heard.lag(at(2), Some(LOG), SequenceId(10)), None);
        assert_eq!(heard.last(), SequenceId(3));
    }
}
