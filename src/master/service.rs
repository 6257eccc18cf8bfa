//! The handlers as the server calls them: counting calls, and waiting until an answer may be sent.

use std::sync::Arc;

use crate::master::handlers::{Handled, Handlers};
use crate::master::metrics::{Counters, Metrics};
use crate::wire::functions::Function;
use crate::wire::server::{BoxFuture, Outcome, Service};

/// Answers calls from the engine.
#[derive(Debug)]
pub struct MasterService {
    handlers: Handlers,
    metrics: Arc<Metrics>,
}

impl MasterService {
    /// Answers with these handlers.
    #[must_use]
    pub fn new(handlers: Handlers) -> Self {
        Self { metrics: Arc::clone(&handlers.metrics), handlers }
    }
}

impl Service for MasterService {
    fn call(&self, function: Function, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        let Handled { outcome, batch, items, failed } = self.handlers.handle(function, body, out);
        if batch {
            self.metrics.rpc.batch(function, items as usize, failed as usize);
        } else {
            self.metrics.rpc.call(function, failed == 0);
        }
        if matches!(outcome, Outcome::Error { .. }) {
            Counters::add(&self.metrics.counters.malformed_requests, 1);
        }
        outcome
    }

    /// Without a log, what is applied is as durable as it gets.
    fn durable(&self) -> u64 {
        self.handlers.engine.applied().0
    }

    fn wait_durable(&self, _id: u64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn capacity(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn may_write(&self) -> bool {
        true
    }
}
