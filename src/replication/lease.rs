//! The lease that a primary leads with, as the primary itself may count it.

use std::time::Duration;

use super::node::CallId;
use super::time::Monotonic;
use crate::coordination::types::LeaseId;

/// What is taken off the time to live, so that a clock that runs a little slow here or fast in etcd does no harm.
pub(super) const MARGIN: Duration = Duration::from_millis(500);

/// So many keep-alives may be on their way.
const MAX_ASKED: usize = 8;

/// A lease to lead with.
#[derive(Clone, Debug)]
pub struct LeaderLease {
    /// The lease.
    pub id: LeaseId,
    /// When the last request that etcd answered was sent. The lease runs at least from then.
    confirmed: Monotonic,
    /// Whether it surely held then; see [`LeaderLease::forget`].
    forgotten: bool,
    ttl: Duration,
    /// Keep-alives on their way, and when they were sent.
    asked: Vec<(CallId, Monotonic)>,
    /// When the next keep-alive is due.
    pub next: Monotonic,
}

impl LeaderLease {
    /// A lease that was asked for at `sent`.
    #[must_use]
    pub fn granted(id: LeaseId, ttl: Duration, sent: Monotonic) -> Self {
        Self { id, confirmed: sent, forgotten: false, ttl, asked: Vec::new(), next: sent }
    }

    /// Its time to live, as etcd granted or last confirmed it.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A keep-alive was sent. Those before it may still be answered.
    pub fn asked(&mut self, call: CallId, now: Monotonic) {
        if self.asked.len() >= MAX_ASKED {
            self.asked.remove(0);
        }
        self.asked.push((call, now));
    }

    /// A keep-alive was answered, or will not be: when it was sent.
    pub fn answered(&mut self, call: CallId) -> Option<Monotonic> {
        let at = self.asked.iter().position(|(asked, _)| *asked == call)?;
        Some(self.asked.remove(at).1)
    }

    /// A keep-alive that was sent at `sent` has been answered.
    pub fn confirm(&mut self, ttl: Duration, sent: Monotonic) {
        self.confirmed = self.confirmed.max(sent);
        self.forgotten = false;
        self.ttl = ttl;
    }

    /// Forgets every confirmation so far, and every keep-alive on its way: they were sent before a moment at which the
    /// clock that the lease is counted by may have stood still. Another keep-alive is due at once.
    pub fn forget(&mut self, now: Monotonic) {
        self.forgotten = true;
        self.asked.clear();
        self.next = now;
    }

    /// Until when it surely holds: counted from when the request was sent, not from when the answer came, and with a
    /// margin of a tenth or half a second.
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
        // An answer to an earlier question changes nothing.
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
