//! Decides whether to wait a moment before the next batch is sent, so that the callers that were just answered can be
//! part of it.
//!
//! With one batch in flight, callers fall into two groups that take turns, and each waits for two commits: its own and
//! the one that was in flight when it came. A caller that was answered is likely to come back at once with its next
//! call. So the next batch waits until as many records have come as were just answered, though never longer than a
//! commit takes. If callers do not come back, the next `REST` batches do not wait.

use std::time::Duration;

use super::time::Monotonic;

/// Upper bound of the wait, however long the last commit took.
const LONGEST: Duration = Duration::from_millis(5);
/// How many batches are sent without a wait after a wait that did not pay.
const REST: u8 = 16;

/// The wait before a batch is sent.
#[derive(Debug, Default)]
pub struct Linger {
    wait: Option<Wait>,
    /// How many more batches are sent without a wait.
    rest: u8,
}

#[derive(Debug)]
struct Wait {
    until: Monotonic,
    /// Records in the queue when the wait began.
    before: u64,
    /// The wait ends when this many records are in the queue.
    wanted: u64,
}

impl Linger {
    /// Begins a wait after a commit: a batch of `answered` records `took` so long, and `waiting` records are queued
    /// already.
    pub fn committed(&mut self, now: Monotonic, answered: u64, waiting: u64, took: Duration) {
        self.wait = None;
        if self.rest > 0 {
            self.rest -= 1;
        } else {
            let until = now.plus(took.min(LONGEST));
            self.wait = Some(Wait { until, before: waiting, wanted: waiting + answered });
        }
    }

    /// Returns whether the queued records, `waiting` of them now, are to be held back a little longer.
    pub fn delays(&mut self, now: Monotonic, waiting: u64) -> bool {
        let Some(wait) = &self.wait else { return false };
        if waiting < wait.wanted && now < wait.until {
            return true;
        }
        // Fewer than half of the callers came back: waiting did not pay.
        if waiting - wait.before.min(waiting) < (wait.wanted - wait.before).div_ceil(2) {
            self.rest = REST;
        }
        self.wait = None;
        false
    }

    /// Returns when the wait ends, if there is one.
    #[must_use]
    pub fn until(&self) -> Option<Monotonic> {
        self.wait.as_ref().map(|wait| wait.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_micros(1000);

    #[test]
    fn those_who_were_answered_are_waited_for() {
        let mut linger = Linger::default();
        linger.committed(Monotonic(0), 4, 4, COMMIT);
        assert!(linger.delays(Monotonic(10), 4));
        assert!(linger.delays(Monotonic(20), 7));
        assert!(!linger.delays(Monotonic(30), 8));
        assert!(!linger.delays(Monotonic(40), 1), "it is over");
    }

    #[test]
    fn nobody_waits_longer_than_for_a_commit() {
        let mut linger = Linger::default();
        linger.committed(Monotonic(0), 4, 4, COMMIT);
        assert_eq!(linger.until(), Some(Monotonic(1000)));
        assert!(linger.delays(Monotonic(999), 6));
        assert!(!linger.delays(Monotonic(1000), 6));
        linger.committed(Monotonic(0), 4, 4, Duration::from_secs(1));
        assert_eq!(linger.until(), Some(Monotonic(5000)), "however long a commit takes");
    }

    #[test]
    fn a_lone_caller_is_never_held_back() {
        let mut linger = Linger::default();
        linger.committed(Monotonic(0), 1, 0, COMMIT);
        assert!(!linger.delays(Monotonic(1), 1));
    }

    #[test]
    fn the_first_who_comes_back_waits_for_the_others() {
        let mut linger = Linger::default();
        linger.committed(Monotonic(0), 8, 0, COMMIT);
        assert!(linger.delays(Monotonic(1), 1));
        assert!(!linger.delays(Monotonic(2), 8));
    }

    #[test]
    fn where_nobody_comes_back_nobody_is_waited_for() {
        let mut linger = Linger::default();
        linger.committed(Monotonic(0), 4, 4, COMMIT);
        assert!(!linger.delays(Monotonic(1000), 5));
        for _ in 0..REST {
            linger.committed(Monotonic(0), 4, 4, COMMIT);
            assert!(!linger.delays(Monotonic(1), 4));
        }
        linger.committed(Monotonic(0), 4, 4, COMMIT);
        assert!(linger.delays(Monotonic(1), 4), "it is tried again");
    }
}
