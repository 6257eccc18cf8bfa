//! Calls of a connection whose replies come later, while later calls of the connection go on.

use super::service::{Deferred, DeferredReply, Failure};
use std::task::{Context, Poll};

/// The deferred calls of one connection. The service bounds their number.
#[derive(Default)]
pub(super) struct DeferredCalls {
    calls: Vec<(u32, Deferred)>,
}

/// A call whose reply is ready.
pub(super) struct Settled {
    /// Sequence number of the call.
    pub(super) sequence: u32,
    /// Its reply, or the RPC error that is sent instead.
    pub(super) reply: Result<DeferredReply, Failure>,
}

impl DeferredCalls {
    /// Adds a call whose reply is yet to come.
    pub(super) fn push(&mut self, sequence: u32, call: Deferred) {
        self.calls.push((sequence, call));
    }

    /// Returns whether there is no such call.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the bytes of memory that they keep.
    #[inline]
    pub(super) fn keep(&self) -> usize {
        self.calls.iter().map(|(_, call)| call.keeps).sum()
    }

    /// Returns the first call whose reply is ready. If there is none, the task is woken when that changes.
    pub(super) fn poll_settled(&mut self, cx: &mut Context<'_>) -> Option<Settled> {
        for index in 0..self.calls.len() {
            let (sequence, call) = &mut self.calls[index];
            let Poll::Ready(reply) = call.reply.as_mut().poll(cx) else { continue };
            let sequence = *sequence;
            self.calls.remove(index);
            if self.calls.is_empty() {
                // An idle connection keeps no memory.
                self.calls = Vec::new();
            }
            return Some(Settled { sequence, reply });
        }
        None
    }
}
