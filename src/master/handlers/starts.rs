//! Counting how the Starts of one call went.

use super::Handlers;
use crate::engine::object::Object;
use crate::engine::types::{Answer, ErrorCode};
use crate::master::metrics::Counters;

/// How the Starts of one call went. Counted here first: the counters are everybody's, and batches are many.
#[derive(Default)]
pub(super) struct Starts {
    /// Objects of one size that came one after the other, and that size.
    run: (u64, u64),
    partial: u64,
    starved: u64,
}

impl Starts {
    /// One that began.
    pub(super) fn began(&mut self, wanted: u64, object: &Object, handlers: &Handlers) {
        if self.run.1 != object.size {
            self.observe(handlers);
            self.run.1 = object.size;
        }
        self.run.0 += 1;
        self.partial += u64::from((object.replicas().count() as u64) < wanted);
    }

    /// How one ended, whether it began or not.
    pub(super) fn answered<T>(&mut self, answer: &Answer<T>) {
        self.starved += u64::from(matches!(answer.result, Err(ErrorCode::NO_AVAILABLE_HANDLE)));
    }

    fn observe(&mut self, handlers: &Handlers) {
        if self.run.0 > 0 {
            handlers.metrics.value_sizes.observe(self.run.1, self.run.0);
            self.run.0 = 0;
        }
    }

    /// Adds all to the metrics.
    pub(super) fn count(mut self, handlers: &Handlers) {
        self.observe(handlers);
        let counters = &handlers.metrics.counters;
        for (counter, by) in [
            (&counters.put_start_partial_allocations, self.partial),
            (&counters.put_start_alloc_failures, self.starved),
        ] {
            if by > 0 {
                Counters::add(counter, by);
            }
        }
    }
}
