//! Calls of a connection whose work runs on blocking threads, outside the connection's loop.

use super::service::{BoxFuture, Failure, Offload};
use crate::engine::types::SequenceId;
use crate::wire::frame;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// A call whose work has ended.
pub(super) struct Done {
    /// Sequence number of the call.
    pub(super) sequence: u32,
    /// The whole frame; an error if the work panicked.
    pub(super) frame: Vec<u8>,
    /// The sequence id that the reply depends on.
    pub(super) depends_on: SequenceId,
    /// Its permit, unless the work panicked.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// The calls of one connection that are running, and the one that waits for a permit.
pub(super) struct OffloadedCalls {
    /// Permits for the work of all connections. A permit is held until the connection has the reply and is charged for
    /// it.
    places: Arc<Semaphore>,
    running: Vec<Running>,
    next: Option<Next>,
}

struct Running {
    sequence: u32,
    keeps: usize,
    holds_back: bool,
    task: JoinHandle<Done>,
}

struct Next {
    sequence: u32,
    offload: Box<Offload>,
    place: BoxFuture<Option<OwnedSemaphorePermit>>,
}

impl OffloadedCalls {
    /// Starts without any call; `places` has the permits of all connections.
    pub(super) fn new(places: Arc<Semaphore>) -> Self {
        Self { places, running: Vec::new(), next: None }
    }

    /// Starts a call, or queues it for a permit.
    pub(super) fn start(&mut self, sequence: u32, offload: Box<Offload>) {
        debug_assert!(self.next.is_none(), "a call was started behind one that waits");
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => self.run(sequence, *offload, place),
            Err(_) => {
                let places = Arc::clone(&self.places);
                // The semaphore is never closed.
                let place = Box::pin(async move { places.acquire_owned().await.ok() });
                self.next = Some(Next { sequence, offload, place });
            }
        }
    }

    fn run(&mut self, sequence: u32, offload: Offload, place: OwnedSemaphorePermit) {
        let Offload { work, keeps, holds_back } = offload;
        // The work goes on when the connection is gone, and keeps its permit until it ends.
        let task = tokio::task::spawn_blocking(move || {
            let mut reply = Vec::new();
            let start = frame::begin_response(&mut reply);
            let depends_on = match work(&mut reply) {
                Ok(depends_on) => {
                    frame::finish_response(&mut reply, start, sequence);
                    depends_on
                }
                Err(Failure { code, message }) => {
                    reply.clear();
                    frame::append_error(&mut reply, sequence, code, message);
                    SequenceId(0)
                }
            };
            Done { sequence, frame: reply, depends_on, place: Some(place) }
        });
        self.running.push(Running { sequence, keeps, holds_back, task });
    }

    /// Returns whether there is no such call.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.next.is_none()
    }

    /// Returns whether the next request of the connection has to wait for one of them.
    #[inline]
    pub(super) fn hold_back(&self) -> bool {
        self.next.is_some() || self.running.iter().any(|running| running.holds_back)
    }

    /// Returns the bytes of memory that they keep.
    #[inline]
    pub(super) fn keep(&self) -> usize {
        let next = self.next.as_ref().map_or(0, |next| next.offload.keeps);
        self.running.iter().map(|running| running.keeps).sum::<usize>() + next
    }

    /// Returns a call that is done. If there is none, the task is woken when that changes.
    pub(super) fn poll_done(&mut self, cx: &mut Context<'_>) -> Option<Done> {
        if let Some(next) = &mut self.next
            && let Poll::Ready(place) = next.place.as_mut().poll(cx)
            && let Some(Next { sequence, offload, .. }) = self.next.take()
            && let Some(place) = place
        {
            self.run(sequence, *offload, place);
        }
        for index in 0..self.running.len() {
            let Poll::Ready(done) = Pin::new(&mut self.running[index].task).poll(cx) else { continue };
            let sequence = self.running.swap_remove(index).sequence;
            if self.running.is_empty() {
                self.running = Vec::new();
            }
            return Some(done.unwrap_or_else(|error| {
                tracing::error!(%error, "a call whose work was done aside failed");
                let mut reply = Vec::new();
                frame::append_error(&mut reply, sequence, frame::HANDLER_FAILED, "the call failed");
                Done { sequence, frame: reply, depends_on: SequenceId(0), place: None }
            }));
        }
        None
    }
}
