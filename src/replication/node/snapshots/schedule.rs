//! When a master takes its next snapshot without a request.

use std::time::Duration;

use crate::engine::types::LogTime;
use crate::replication::time::Monotonic;

/// When the next snapshot is due.
#[derive(Debug)]
pub(super) struct Schedule {
    /// `None` takes none without a request.
    interval: Option<Duration>,
    next: Next,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    /// The first one, and one after an attempt that was not completed.
    At(Monotonic),
    /// An interval after the last one began at this log time; `None` if that was before the process started, which
    /// counts as now.
    After(Option<LogTime>),
}

/// The share of a master in the interval, so that masters take their snapshots at different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Standbys whose name comes before the name of this one.
    pub before: usize,
    /// All that take snapshots.
    pub of: usize,
}

impl Schedule {
    /// Creates the schedule of a master that has just started. Without any snapshot it takes the first one as soon as
    /// it can.
    pub(super) fn new(interval: Option<Duration>, holds_one: bool, now: Monotonic) -> Self {
        Self { interval, next: if holds_one { Next::After(None) } else { Next::At(now) } }
    }

    pub(super) fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Returns whether one is due.
    pub(super) fn is_due(&mut self, now: Monotonic, log_time: LogTime, share: Share) -> bool {
        let Some(interval) = self.interval else { return false };
        match &mut self.next {
            Next::At(at) => now >= *at,
            Next::After(since) => {
                let since = *since.get_or_insert(log_time);
                log_time >= next_slot(since, interval, share)
            }
        }
    }

    /// Records that one begins, or that none is needed, at this log time.
    pub(super) fn passed(&mut self, log_time: LogTime) {
        self.next = Next::After(Some(log_time));
    }

    /// Tries again at this time.
    pub(super) fn retry(&mut self, at: Monotonic) {
        self.next = Next::At(at);
    }
}

/// Returns the next time for a master with this share: in each interval of the log's clock there is one for every
/// master, at equal distances. No two of one master are less than half an interval apart, whatever becomes of its share.
fn next_slot(since: LogTime, interval: Duration, share: Share) -> LogTime {
    let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
    let of = u64::try_from(share.of).unwrap_or(u64::MAX).max(1);
    let phase = (interval / of).saturating_mul(u64::try_from(share.before).unwrap_or(u64::MAX)) % interval;
    let earliest = since.0.saturating_add(interval / 2);
    let rest = earliest % interval;
    let wait = if phase < rest { interval - rest + phase } else { phase - rest };
    LogTime(earliest.saturating_add(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(600);

    fn slot(since: u64, before: usize, of: usize) -> u64 {
        next_slot(LogTime(since), INTERVAL, Share { before, of }).0
    }

    #[test]
    fn two_masters_are_half_an_interval_apart_and_three_a_third() {
        for since in [0, 1, 299_999, 300_000, 1_700_000_000_123] {
            let apart = |of: usize| {
                let slots: Vec<u64> = (0..of).map(|before| slot(since, before, of) % 600_000).collect();
                slots.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == 600_000 / of as u64)
            };
            assert!(apart(2) && apart(3), "{since}");
        }
        assert_eq!((slot(0, 0, 2), slot(0, 1, 2)), (600_000, 300_000));
    }

    #[test]
    fn a_master_takes_one_in_each_interval() {
        for (before, of) in [(0, 1), (0, 2), (1, 2), (2, 3), (7, 3), (0, 0)] {
            let first = slot(1_700_000_000_123, before, of);
            let waited = first - 1_700_000_000_123;
            assert!((300_000..900_000).contains(&waited), "{waited}");
            assert_eq!(slot(first, before, of), first + 600_000);
            // It begins a little later than it was due, and the next one does not move.
            assert_eq!(slot(first + 900, before, of), first + 600_000);
        }
    }

    #[test]
    fn no_interval_is_too_long_or_too_short() {
        for interval in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            let at = next_slot(LogTime(u64::MAX - 5), interval, Share { before: 1, of: 2 });
            assert!(at.0 >= u64::MAX - 5);
        }
    }

    #[test]
    fn one_that_holds_none_takes_it_at_once_and_one_that_failed_when_it_was_told() {
        let (alone, now) = (Share { before: 0, of: 1 }, Monotonic(5_000_000));
        assert!(Schedule::new(Some(INTERVAL), false, now).is_due(now, LogTime(7), alone));
        assert!(!Schedule::new(None, false, now).is_due(now, LogTime(7), alone));
        let mut schedule = Schedule::new(Some(INTERVAL), true, now);
        assert!(!schedule.is_due(now, LogTime(300_000), alone), "this is when it has started");
        assert!(!schedule.is_due(now, LogTime(599_999), alone));
        assert!(schedule.is_due(now, LogTime(600_000), alone));
        schedule.passed(LogTime(600_000));
        assert!(!schedule.is_due(now, LogTime(600_001), alone));
        schedule.retry(now.plus(Duration::from_secs(1)));
        assert!(!schedule.is_due(now, LogTime(9_000_000), alone));
        assert!(schedule.is_due(now.plus(Duration::from_secs(1)), LogTime(600_001), alone));
    }
}
