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
    starved: u32,
    /// Some of them made a record.
    changed: bool,
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

    /// How one ended, whether it began or not, and whether it made a record: an upsert that finds no memory may drop the
    /// write before it all the same.
    pub(super) fn answered<T>(&mut self, answer: &Answer<T>, changed: bool) {
        self.starved += u32::from(matches!(answer.result, Err(ErrorCode::NO_AVAILABLE_HANDLE)));
        self.changed |= changed;
    }

    fn observe(&mut self, handlers: &Handlers) {
        if self.run.0 > 0 {
            handlers.metrics.value_sizes.observe(self.run.1, self.run.0);
            self.run.0 = 0;
        }
    }

    /// Adds all to the metrics, but for those that found no memory if nothing was changed: these are returned.
    pub(super) fn count(mut self, handlers: &Handlers) -> u32 {
        self.observe(handlers);
        let counters = &handlers.metrics.counters;
        let (counted, returned) = if self.changed { (self.starved, 0) } else { (0, self.starved) };
        for (counter, by) in [
            (&counters.put_start_partial_allocations, self.partial),
            (&counters.put_start_alloc_failures, counted.into()),
        ] {
            if by > 0 {
                Counters::add(counter, by);
            }
        }
        returned
    }
}
