//! Counters of every RPC, cheap enough for the hot path: one cache line per RPC, and relaxed additions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::wire::functions::Function;

/// Number of RPCs, each of which has a slot.
const RPC_COUNT: usize = Function::ALL.len();

/// The counters of one RPC. Aligned to a cache line of its own, so that threads that serve different RPCs do not
/// slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    requests: AtomicU64,
    failures: AtomicU64,
    partial_successes: AtomicU64,
    items: AtomicU64,
    failed_items: AtomicU64,
}

/// Counts of one RPC, or the sums of several.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RpcCounts {
    /// Calls received.
    pub requests: u64,
    /// Calls that failed; a batch fails when no item of it succeeds.
    pub failures: u64,
    /// Batches of which some items failed, but not all.
    pub partial_successes: u64,
    /// Items of batches; single calls count none.
    pub items: u64,
    /// Items of batches that failed.
    pub failed_items: u64,
}

impl std::ops::Add for RpcCounts {
    type Output = RpcCounts;

    fn add(self, other: RpcCounts) -> RpcCounts {
        RpcCounts {
            requests: self.requests + other.requests,
            failures: self.failures + other.failures,
            partial_successes: self.partial_successes + other.partial_successes,
            items: self.items + other.items,
            failed_items: self.failed_items + other.failed_items,
        }
    }
}

/// The counters of all RPCs.
#[derive(Debug)]
pub struct RpcMetrics {
    slots: Box<[Slot; RPC_COUNT]>,
}

impl Default for RpcMetrics {
    fn default() -> Self {
        RpcMetrics { slots: Box::new(std::array::from_fn(|_| Slot::default())) }
    }
}

impl RpcMetrics {
    /// Counts one call of an RPC that is not a batch.
    pub fn call(&self, rpc: Function, succeeded: bool) {
        let slot = self.slot(rpc);
        slot.requests.fetch_add(1, Relaxed);
        if !succeeded {
            slot.failures.fetch_add(1, Relaxed);
        }
    }

    /// Counts the failure of a call that was counted when it started.
    pub fn failed(&self, rpc: Function) {
        self.slot(rpc).failures.fetch_add(1, Relaxed);
    }

    /// Counts one batch call. It fails if none of its items succeeds; an empty batch fails as well, as in the
    /// reference.
    pub fn batch(&self, rpc: Function, items: usize, failed: usize) {
        let slot = self.slot(rpc);
        slot.requests.fetch_add(1, Relaxed);
        slot.items.fetch_add(items as u64, Relaxed);
        if failed > 0 {
            slot.failed_items.fetch_add(failed as u64, Relaxed);
        }
        if failed >= items {
            slot.failures.fetch_add(1, Relaxed);
        } else if failed > 0 {
            slot.partial_successes.fetch_add(1, Relaxed);
        }
    }

    /// Returns the counts of this RPC so far.
    pub fn counts(&self, rpc: Function) -> RpcCounts {
        let slot = self.slot(rpc);
        RpcCounts {
            requests: slot.requests.load(Relaxed),
            failures: slot.failures.load(Relaxed),
            partial_successes: slot.partial_successes.load(Relaxed),
            items: slot.items.load(Relaxed),
            failed_items: slot.failed_items.load(Relaxed),
        }
    }

    /// Returns the counts of the RPC with this name so far; zeros for an unknown name.
    pub fn counts_of(&self, name: &str) -> RpcCounts {
        Function::ALL.iter().find(|rpc| rpc.name() == name).map(|rpc| self.counts(*rpc)).unwrap_or_default()
    }

    fn slot(&self, rpc: Function) -> &Slot {
        &self.slots[rpc as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_fails_when_nothing_of_it_succeeds() {
        let metrics = RpcMetrics::default();
        let rpc = Function::BatchPutStart;
        for (items, failed) in [(3, 0), (3, 1), (2, 2), (0, 0)] {
            metrics.batch(rpc, items, failed);
        }
        let expected =
            RpcCounts { requests: 4, failures: 2, partial_successes: 1, items: 8, failed_items: 3 };
        assert_eq!(metrics.counts(rpc), expected);
        assert_eq!(metrics.counts_of("BatchPutEnd"), RpcCounts::default());
    }
}
