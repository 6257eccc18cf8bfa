//! How fast a member of etcd fills up: the change over the last minutes, divided by their length.

use std::collections::VecDeque;
use std::time::Duration;

use crate::coordination::types::MemberStatus;

/// Length of the window. Long enough to have a compaction or two in it, because what they free is part of the rate.
const WINDOW: Duration = Duration::from_secs(600);

/// Shortest part of the window that has a rate: etcd counts in pages of 4 KiB, so less time would say little.
const ENOUGH: Duration = Duration::from_secs(60);

/// Upper bound of samples: a window of one each ten seconds, twice.
const MAX_SAMPLES: usize = 128;

/// The bytes in use of one member, over the window.
#[derive(Clone, Debug, Default)]
pub(super) struct Trend {
    member: u64,
    /// When, and how many bytes; the oldest first.
    samples: VecDeque<(Duration, u64)>,
}

impl Trend {
    /// Adds what the member reports now. If another member answers at the endpoint, the window begins anew.
    pub(super) fn add(&mut self, at: Duration, status: &MemberStatus) {
        if self.member != status.member {
            self.member = status.member;
            self.samples.clear();
        }
        self.samples.push_back((at, status.in_use_bytes));
        while self.samples.len() > MAX_SAMPLES
            || self.samples.front().is_some_and(|(first, _)| at.saturating_sub(*first) > WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the bytes per second by which it grows; `None` if it was not observed for long enough.
    pub(super) fn rate(&self) -> Option<f64> {
        let ((first, before), (last, after)) = (self.samples.front()?, self.samples.back()?);
        let time = last.saturating_sub(*first);
        (time >= ENOUGH).then(|| (*after as f64 - *before as f64) / time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(samples: &[(u64, u64, u64)]) -> Trend {
        let mut trend = Trend::default();
        for (seconds, member, in_use_bytes) in samples.iter().copied() {
            let status = MemberStatus { member, in_use_bytes, ..MemberStatus::default() };
            trend.add(Duration::from_secs(seconds), &status);
        }
        trend
    }

    #[test]
    fn a_rate_takes_a_minute_of_one_member() {
        /// Samples as (seconds, member, bytes in use), and the rate that they give.
        type Case<'a> = (&'a [(u64, u64, u64)], Option<f64>);
        let table: [Case; 8] = [
            (&[], None),
            (&[(0, 1, 100)], None),
            (&[(0, 1, 100), (59, 1, 200)], None),
            (&[(0, 1, 100), (60, 1, 400)], Some(5.0)),
            (&[(0, 1, 400), (30, 1, 1000), (60, 1, 100)], Some(-5.0)),
            // Another member behind the same endpoint.
            (&[(0, 1, 100), (60, 2, 400)], None),
            (&[(0, 1, 100), (60, 2, 400), (120, 2, 460)], Some(1.0)),
            // After a pause nothing is left in the window.
            (&[(0, 1, 100), (60, 1, 400), (900, 1, 500)], None),
        ];
        for (samples, rate) in table {
            assert_eq!(trend(samples).rate(), rate, "{samples:?}");
        }
    }

    #[test]
    fn only_the_window_counts() {
        // It grows by 10 bytes a second for an hour, and then no more.
        let samples: Vec<(u64, u64, u64)> = (0..720).map(|at| (10 * at, 1, 100 * at.min(360))).collect();
        assert_eq!(trend(&samples[..361]).rate(), Some(10.0));
        assert_eq!(trend(&samples).rate(), Some(0.0));
        // However often it is asked.
        let often: Vec<(u64, u64, u64)> = (0..1000).map(|at| (at / 10, 1, at)).collect();
        assert!(trend(&often).samples.len() <= MAX_SAMPLES);
    }
}
