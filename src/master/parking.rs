//! The puts that wait for clients to rejoin after a takeover, with their requests. [`ParkedPuts`] decides which of them
//! wait, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::master::handlers::Handlers;
use crate::master::metrics::{Counters, Metrics};
use crate::master::rpc_failures::NOT_LEADING;
use crate::replication::parked_puts::{Openings, ParkedPuts, PutTicket};
use crate::replication::time::Monotonic;
use crate::wire::functions::Function;
use crate::wire::server::{Deferred, DeferredReply, Failure};

/// The parked puts of one opening of the port.
#[derive(Debug)]
pub(super) struct Parking {
    puts: Arc<Mutex<ParkedPuts<ParkedCall>>>,
    /// Notified when some put may be due for a retry.
    due: Notify,
    /// True once no put may be parked any more, which is nearly always; calls then check nothing else.
    over: AtomicBool,
}

/// A put that is parked, with its request.
#[derive(Debug)]
pub(super) struct ParkedCall {
    pub(super) function: Function,
    pub(super) body: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<DeferredReply, Failure>>,
    _counted: Counted,
}

/// Counts a put in the gauge for as long as it is parked.
#[derive(Debug)]
struct Counted(Arc<Metrics>);

impl Counted {
    fn new(metrics: &Arc<Metrics>) -> Self {
        Counters::add(&metrics.counters.parked_puts, 1);
        Counters::add(&metrics.counters.parked_puts_ever, 1);
        Self(Arc::clone(metrics))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counters.parked_puts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The position of a parked put in the queue, owned by its connection: dropped when the connection is closed.
struct Position {
    puts: Arc<Mutex<ParkedPuts<ParkedCall>>>,
    ticket: PutTicket,
}

impl Drop for Position {
    fn drop(&mut self) {
        let call = self.puts.lock().leave(self.ticket);
        drop(call);
    }
}

impl Parking {
    /// Begins at the moment when the port opens.
    pub(super) fn new(now: Monotonic) -> Self {
        let puts = Arc::new(Mutex::new(ParkedPuts::new(now)));
        Self { puts, due: Notify::new(), over: AtomicBool::new(false) }
    }

    /// Returns the count of openings before a put is tried. `None` if no put is parked any more.
    pub(super) fn openings(&self) -> Option<Openings> {
        (!self.over.load(Ordering::Acquire)).then(|| self.puts.lock().openings())
    }

    /// Runs a call that may open segments, and has parked puts retried after it.
    pub(super) fn opening<R>(&self, call: impl FnOnce() -> R) -> R {
        if self.over.load(Ordering::Acquire) {
            return call();
        }
        self.puts.lock().rejoining();
        let result = call();
        self.puts.lock().rejoined();
        self.due.notify_one();
        result
    }

    /// Parks a put that found no memory, unless there is nothing to wait for.
    pub(super) fn park(
        &self,
        handlers: &Handlers,
        now: Monotonic,
        tried: Openings,
        function: Function,
        body: &[u8],
    ) -> Option<Deferred> {
        let (reply, answer) = oneshot::channel();
        let are_closed = || handlers.engine.has_closed_segments();
        let call =
            || ParkedCall { function, body: body.to_vec(), reply, _counted: Counted::new(&handlers.metrics) };
        let ticket = self.puts.lock().park(now, tried, body.len(), are_closed, call)?;
        // Segments may have opened since the put was tried.
        self.due.notify_one();
        let position = Position { puts: Arc::clone(&self.puts), ticket };
        let reply = Box::pin(async move {
            let _position = position;
            // A dropped sender means that this master stops serving.
            answer.await.unwrap_or(Err(NOT_LEADING))
        });
        Some(Deferred { reply, keeps: body.len() })
    }

    /// Returns when parking is over at the latest.
    pub(super) fn until(&self) -> Monotonic {
        self.puts.lock().until()
    }

    /// Returns the next put that is due for a retry.
    pub(super) fn next_due(&self, now: Monotonic) -> Option<(PutTicket, ParkedCall)> {
        self.puts.lock().next_due(now)
    }

    /// Returns whether no put can be parked any more.
    pub(super) fn is_over(&self, now: Monotonic) -> bool {
        self.puts.lock().is_over(now)
    }

    /// Waits until some put may be due. A notification that came before is not lost: `Notify` stores it.
    pub(super) async fn due(&self) {
        self.due.notified().await;
    }

    /// Parks a put again that a retry left without memory. Returns it if it is to be answered.
    pub(super) fn put_back(
        &self,
        ticket: PutTicket,
        call: ParkedCall,
        now: Monotonic,
        are_closed: impl FnOnce() -> bool,
    ) -> Option<ParkedCall> {
        self.puts.lock().put_back(ticket, call, now, are_closed)
    }

    /// Gives up the position of a put that is about to be answered.
    pub(super) fn leave(&self, ticket: PutTicket) {
        self.puts.lock().leave(ticket);
    }

    /// Ends parking, and drops the puts that are left.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::Release);
        // Dropped outside the lock, because that wakes their connections.
        let left: Vec<ParkedCall> = self.puts.lock().close().collect();
        drop(left);
    }
}
