//! The handlers as the server calls them: counting calls, and waiting until an answer may be sent.

use crate::master::handlers::{Handled, Handlers};
use crate::wire::functions::Function;
use crate::wire::server::{BoxFuture, Outcome, Service};

/// Answers calls from the engine.
#[derive(Debug)]
pub struct MasterService {
    handlers: Handlers,
}

impl MasterService {
    /// Answers with these handlers.
    #[must_use]
    pub fn new(handlers: Handlers) -> Self {
        Self { handlers }
    }
}

impl Service for MasterService {
    fn call(&self, function: Function, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        let Handled { outcome, .. } = self.handlers.handle(function, body, out);
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
