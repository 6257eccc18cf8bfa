//! The leader lease, as the primary itself may count it.

use std::time::Duration;

use super::call_ids::CallId;
use super::clocks::TOLERANCE;
use super::time::Monotonic;
use crate::coordination::types::LeaseId;

/// Subtracted from the time to live, so that a clock that runs a little slow here or fast in etcd does no harm. The
/// watch over the clocks notices when they drift apart by more.
const MARGIN: Duration = TOLERANCE;

/// Upper bound of keep-alives in flight.
const MAX_ASKED: usize = 8;

/// The lease of the election key.
#[derive(Clone, Debug)]
pub struct LeaderLease {
    pub id: LeaseId,
    /// When the last request that etcd answered was sent. The lease runs at least from then.
    confirmed: Monotonic,
    /// Whether `confirmed` no longer counts; see [`LeaderLease::forget`].
    forgotten: bool,
    ttl: Duration,
    /// Keep-alives in flight, and when each was sent.
    asked: Vec<(CallId, Monotonic)>,
    /// When the next keep-alive is due.
    pub next: Monotonic,
}

impl LeaderLease {
    /// Returns a lease that was requested at `sent`.
    #[must_use]
    pub fn granted(id: LeaseId, ttl: Duration, sent: Monotonic) -> Self {
        Self { id, confirmed: sent, forgotten: false, ttl, asked: Vec::new(), next: sent }
    }

    /// Returns the time to live, as etcd granted or last confirmed it.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Records that a keep-alive was sent. Those before it may still be answered.
    pub fn asked(&mut self, call: CallId, now: Monotonic) {
        if self.asked.len() >= MAX_ASKED {
            self.asked.remove(0);
        }
        self.asked.push((call, now));
    }

    /// Removes a keep-alive that was answered, or never will be. Returns when it was sent.
    pub fn answered(&mut self, call: CallId) -> Option<Monotonic> {
        let at = self.asked.iter().position(|(asked, _)| *asked == call)?;
        Some(self.asked.remove(at).1)
    }

    /// Records that a keep-alive sent at `sent` was answered.
    pub fn confirm(&mut self, ttl: Duration, sent: Monotonic) {
        self.confirmed = self.confirmed.max(sent);
        self.forgotten = false;
        self.ttl = ttl;
    }

    /// Forgets every confirmation so far, and every keep-alive in flight: they were sent before a moment at which the
    /// clock that counts the lease may have stood still. Another keep-alive is due at once.
    pub fn forget(&mut self, now: Monotonic) {
        self.forgotten = true;
        self.asked.clear();
        self.next = now;
    }

    /// Returns until when the lease surely holds: counted from when the request was sent, not from when the answer
    /// came, minus a margin of a tenth or `MARGIN`, whichever is longer.
    #[must_use]
    pub fn deadline(&self) -> Monotonic {
        if self.forgotten {
            return Monotonic(0);
        }
        self.confirmed.plus(self.ttl.saturating_sub(MARGIN.max(self.ttl / 10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_question() {
        let second = Duration::from_secs(1);
        let mut lease = LeaderLease::granted(LeaseId(1), 5 * second, Monotonic(1_000_000));
        assert_eq!(lease.deadline(), Monotonic(5_500_000));
        lease.confirm(20 * second, Monotonic(2_000_000));
        assert_eq!(lease.deadline(), Monotonic(20_000_000));
        // The answer to an earlier keep-alive changes nothing.
        lease.confirm(20 * second, Monotonic(1_500_000));
        assert_eq!(lease.deadline(), Monotonic(20_000_000));
    }

    #[test]
    fn what_was_sent_before_a_jump_confirms_nothing() {
        let second = Duration::from_secs(1);
        let mut lease = LeaderLease::granted(LeaseId(1), 5 * second, Monotonic(1_000_000));
        lease.asked(CallId(1), Monotonic(2_000_000));
        lease.forget(Monotonic(2_500_000));
        assert_eq!(lease.deadline(), Monotonic(0));
        assert_eq!(lease.next, Monotonic(2_500_000), "asked again at once");
        assert_eq!(lease.answered(CallId(1)), None);
        lease.asked(CallId(2), Monotonic(2_500_000));
        let sent = lease.answered(CallId(2)).unwrap();
        lease.confirm(5 * second, sent);
        assert_eq!(lease.deadline(), Monotonic(7_000_000));
    }
}
