//! What all connections together may hold for slow peers.
//!
//! Each connection has a small allowance. Beyond it, a request that arrives in pieces or a huge reply that nobody reads
//! is charged to a common budget, so that a thousand peers which each stay within the limits of one cannot exhaust
//! the memory of the master.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a connection may hold without being charged: what the limits of a single connection come to with small
/// requests and replies.
const ALLOWANCE: usize = 128 << 10;

/// The common budget.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }
}

/// What one connection is charged; given back when it goes.
pub(super) struct Charge {
    budget: Arc<Budget>,
    charged: usize,
}

impl Charge {
    /// Nothing yet.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, charged: 0 }
    }

    /// Charges a connection that holds `held` bytes; `false` if the budget does not allow it. A connection that is the
    /// only one to be charged is always allowed: a healthy client may ask for one reply larger than the budget.
    #[inline]
    pub(super) fn settle(&mut self, held: usize) -> bool {
        let due = held.saturating_sub(ALLOWANCE);
        if due > self.charged {
            let more = due - self.charged;
            let before = self.budget.used.fetch_add(more, Ordering::Relaxed);
            let alone = before == self.charged;
            self.charged = due;
            return alone || before + more <= self.budget.limit;
        }
        if due < self.charged {
            self.budget.used.fetch_sub(self.charged - due, Ordering::Relaxed);
            self.charged = due;
        }
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWANCE, Budget, Charge};
    use std::sync::atomic::Ordering;

    #[test]
    fn only_what_is_beyond_the_allowance_is_charged_and_all_of_it_comes_back() {
        let budget = Budget::new(1000);
        let mut first = Charge::new(budget.clone());
        let mut second = Charge::new(budget.clone());
        assert!(first.settle(ALLOWANCE));
        assert!(first.settle(ALLOWANCE + 600));
        assert!(second.settle(ALLOWANCE + 400));
        assert!(!second.settle(ALLOWANCE + 401), "over the budget");
        drop(second);
        assert!(first.settle(ALLOWANCE + 2000), "nobody else is charged");
        assert!(first.settle(10));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
