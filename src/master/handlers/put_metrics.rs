//! Metrics about the Starts of one call.

use super::Handlers;
use crate::engine::object::Object;
use crate::engine::types::{Answer, ErrorCode};
use crate::master::metrics::Counters;

/// Results of the Starts of one call. They are collected here first, because all threads share the counters and batches
/// are large.
#[derive(Default)]
pub(super) struct PutMetrics {
    /// Number of consecutive objects of one size, and that size.
    run: (u64, u64),
    partial: u64,
    starved: u32,
    /// Whether any of them made a record.
    changed: bool,
}

impl PutMetrics {
    /// Counts a Start that succeeded.
    pub(super) fn began(&mut self, wanted: u64, object: &Object, handlers: &Handlers) {
        if self.run.1 != object.size {
            self.observe(handlers);
            self.run.1 = object.size;
        }
        self.run.0 += 1;
        self.partial += u64::from((object.replicas().count() as u64) < wanted);
    }

    /// Counts the answer of a Start, successful or not, and notes whether it made a record: an upsert that finds no
    /// memory may still have dropped the write before it.
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

    /// Adds everything to the metrics, except those that found no memory if nothing was changed: their number is
    /// returned.
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
