//! Puts that wait for clients to rejoin after a takeover: keeps their requests, retries them, and passes their answers
//! to their connections. [`ParkedPuts`] decides which of them wait, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::master::admission::LEADERSHIP_CHECK;
use crate::master::metrics::{Counters, Metrics};
use crate::master::rpc_service::{LogContext, MasterService, NOT_LEADING, record_bytes, refused};
use crate::replication::admission::Admission;
use crate::replication::parked_puts::{Openings, ParkedPuts, PutTicket};
use crate::replication::queue_space::Ticket;
use crate::replication::time::Monotonic;
use crate::wire::functions::Function;
use crate::wire::server::{Deferred, DeferredReply, Failure, Outcome};

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
struct ParkedCall {
    function: Function,
    body: Vec<u8>,
    reply: oneshot::Sender<Result<DeferredReply, Failure>>,
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
        service: &MasterService,
        now: Monotonic,
        tried: Openings,
        function: Function,
        body: &[u8],
    ) -> Option<Deferred> {
        let (reply, answer) = oneshot::channel();
        let are_closed = || service.handlers.engine.has_closed_segments();
        let call =
            || ParkedCall { function, body: body.to_vec(), reply, _counted: Counted::new(&service.metrics) };
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
}

impl MasterService {
    /// Retries parked puts in order, whenever segments have opened, until parking is over or `stop` turns true. No put
    /// is parked after that. No guard of the term is held between tries.
    pub async fn try_parked_puts<T>(self: Arc<Self>, mut stop: watch::Receiver<bool>) -> Option<T> {
        let (replication, parking) = (self.replication.as_ref()?, self.parking.as_ref()?);
        tokio::select! {
            biased;
            // A dropped sender also means stop.
            _ = stop.wait_for(|stop| *stop) => {}
            () = self.try_until_over(replication, parking) => {}
        }
        parking.over.store(true, Ordering::Release);
        // Dropped outside the lock, because that wakes their connections.
        let left: Vec<ParkedCall> = parking.puts.lock().close().collect();
        drop(left);
        None
    }

    async fn try_until_over(&self, replication: &LogContext, parking: &Parking) {
        let until = parking.puts.lock().until();
        loop {
            loop {
                let due = parking.puts.lock().next_due(replication.clock.now());
                let Some((ticket, call)) = due else { break };
                self.try_again(replication, parking, ticket, call).await;
            }
            let now = replication.clock.now();
            if parking.puts.lock().is_over(now) {
                return;
            }
            // A notification that came meanwhile is not lost: `Notify` stores it.
            let _ = tokio::time::timeout(until.since(now), parking.due.notified()).await;
        }
    }

    /// Waits until a parked put is admitted, as any change (R2), and retries it.
    async fn try_again(
        &self,
        replication: &LogContext,
        parking: &Parking,
        ticket: PutTicket,
        call: ParkedCall,
    ) {
        let (incarnation, clock) = (&replication.incarnation, replication.clock);
        let (mut place, since): (Option<Ticket>, _) = (None, Instant::now());
        let refusal = loop {
            if call.reply.is_closed() {
                break NOT_LEADING;
            }
            let granted = {
                let Some(_guard) = incarnation.guards.guard() else { break NOT_LEADING };
                match incarnation.admit(clock.now(), record_bytes(&call.body), &mut place, since.elapsed()) {
                    Admission::Admitted(_permit) => return self.try_now(clock.now(), parking, ticket, call),
                    Admission::Refused(refusal) => {
                        Counters::add(&self.metrics.counters.refused_changes, 1);
                        self.metrics.rpc.call(call.function, false);
                        break refused(refusal);
                    }
                    Admission::Waiting => place.as_ref().map(Ticket::granted),
                }
            };
            if let Some(granted) = granted {
                let _ = tokio::time::timeout(LEADERSHIP_CHECK, granted).await;
            }
        };
        parking.puts.lock().leave(ticket);
        let _ = call.reply.send(Err(refusal));
    }

    /// Retries an admitted put, and sends its reply or parks it again.
    fn try_now(&self, now: Monotonic, parking: &Parking, ticket: PutTicket, call: ParkedCall) {
        let mut body = Vec::new();
        let handled = self.handlers.handle(call.function, &call.body, &mut body);
        let counters = &self.metrics.counters;
        let (call, counter) = if handled.starved > 0 {
            let are_closed = || self.handlers.engine.has_closed_segments();
            let answered = parking.puts.lock().put_back(ticket, call, now, are_closed);
            let Some(call) = answered else { return };
            (call, &counters.parked_puts_starved)
        } else {
            parking.puts.lock().leave(ticket);
            (call, &counters.parked_puts_resumed)
        };
        Counters::add(counter, 1);
        let reply = match self.count(call.function, handled) {
            Outcome::Ready { depends_on } => Ok(DeferredReply { body, depends_on }),
            Outcome::Error(failure) => Err(failure),
            // A Start that was decoded once is always answered at once.
            Outcome::Busy(_) | Outcome::Offload(_) | Outcome::Deferred(_) | Outcome::Refused(_) => {
                Err(FAILED)
            }
        };
        // The connection may be closed by now.
        let _ = call.reply.send(reply);
    }
}

/// The error of a call that could not be answered because of a bug.
const FAILED: Failure = Failure { code: crate::wire::frame::HANDLER_FAILED, message: "the call failed" };
