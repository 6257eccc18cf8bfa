//! The handlers as the server calls them: admission and turns before a call, counting after it, waiting for durability.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::engine::types::SequenceId;
use crate::master::admission::LEADERSHIP_CHECK;
use crate::master::effects;
use crate::master::handlers::{Handled, Handlers};
use crate::master::metrics::{Counters, Metrics};
use crate::master::parking::Parking;
use crate::master::rpc_failures::{NOT_LEADING, UNKNOWN, refused};
use crate::master::settings::ha::Durability;
use crate::replication::admission::Admission;
use crate::replication::incarnation::Incarnation;
use crate::replication::queue_space::Ticket;
use crate::replication::time::{Monotonic, MonotonicClock};
use crate::wire::functions::Function;
use crate::wire::server::{BoxFuture, GiveUp, Outcome, SequencerPermit, Service, Waited};

/// Most bytes that a call adds to the log for each byte of its request. A key is in both; the range of each replica is
/// only in the record.
const RECORD_BYTES_PER_BYTE: usize = 4;

/// Most bytes that a call adds to the log whatever the length of its request.
const RECORD_BYTES: usize = 1024;

/// Lengths of the requests that take turns. All changes pass the sequencer, and a batch holds it for so long that a
/// thread which waits for it is put to sleep; waking that thread costs as much as dozens of items. So batches queue for
/// a turn first, which is a future and puts no thread to sleep: the thread that ends one batch continues with the next.
/// One turn covers everything that one read of a connection brought, which is answered with one write. Short requests
/// hold the sequencer for less time than the queue costs; very long ones let other calls in between, and would block
/// the queue.
const TAKES_TURNS: Range<usize> = 2 << 10..256 << 10;

/// Returns the most bytes that a call with this request adds to the log.
pub(super) fn record_bytes(body: &[u8]) -> usize {
    RECORD_BYTES + body.len().saturating_mul(RECORD_BYTES_PER_BYTE)
}

/// Answers calls from the engine.
#[derive(Debug)]
pub struct MasterService {
    pub(super) handlers: Handlers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) replication: Option<LogContext>,
    turns: Arc<Semaphore>,
    /// Puts that wait for clients to rejoin; `None` without a log, where no takeover happens.
    pub(super) parking: Option<Parking>,
}

/// What a master that replicates needs to answer calls.
#[derive(Debug)]
pub struct LogContext {
    /// The log and the gate.
    pub incarnation: Arc<Incarnation>,
    /// The clock of the gate.
    pub clock: MonotonicClock,
    /// Which calls are answered before they are durable.
    pub durability: Durability,
}

impl MasterService {
    /// Creates a service that answers with these handlers.
    #[must_use]
    pub fn new(handlers: Handlers, replication: Option<LogContext>) -> Self {
        let turns = Arc::new(Semaphore::new(1));
        let parking = replication.as_ref().map(|replication| Parking::new(replication.clock.now()));
        Self { metrics: Arc::clone(&handlers.metrics), handlers, replication, turns, parking }
    }

    /// Resolves when it is this call's turn, first come, first served.
    fn next_turn(&self) -> BoxFuture<Option<SequencerPermit>> {
        let turns = Arc::clone(&self.turns);
        // The semaphore is never closed.
        Box::pin(async move { turns.acquire_owned().await.ok() })
    }

    fn answer(&self, function: Function, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        self.count(function, self.handlers.handle(function, body, out))
    }

    /// Answers a Start, or parks it if it found no memory and clients have yet to rejoin.
    fn answer_start(
        &self,
        parking: &Parking,
        function: Function,
        body: &[u8],
        out: &mut Vec<u8>,
        now: impl FnOnce() -> Monotonic,
    ) -> Outcome {
        let tried = parking.openings();
        let handled = self.handlers.handle(function, body, out);
        if handled.starved > 0
            && let Some(tried) = tried
            && let Some(deferred) = parking.park(&self.handlers, now(), tried, function, body)
        {
            return Outcome::Deferred(Box::new(deferred));
        }
        self.count(function, handled)
    }

    /// Counts an answered call in the metrics.
    pub(super) fn count(&self, function: Function, handled: Handled) -> Outcome {
        let Handled { outcome, batch, items, failed, starved } = handled;
        if starved > 0 {
            Counters::add(&self.metrics.counters.put_start_alloc_failures, starved.into());
        }
        if batch {
            self.metrics.rpc.batch(function, items as usize, failed as usize);
        } else {
            self.metrics.rpc.call(function, failed == 0);
        }
        if matches!(outcome, Outcome::Refused(_)) {
            Counters::add(&self.metrics.counters.malformed_requests, 1);
        }
        outcome
    }
}

impl Service for MasterService {
    fn call(&self, function: Function, body: &[u8], waited: &mut Waited, out: &mut Vec<u8>) -> Outcome {
        let changes = effects::may_change(function);
        if !changes || !TAKES_TURNS.contains(&body.len()) {
            // Other calls wait for the turn, and this one does not need it.
            waited.turn = None;
        }
        if !changes {
            // Only reads are checked here; changes are admitted below.
            if self.replication.is_some() && !self.may_write() {
                return Outcome::Error(NOT_LEADING);
            }
            return self.answer(function, body, out);
        }
        if TAKES_TURNS.contains(&body.len()) && waited.turn.is_none() {
            waited.turn = Arc::clone(&self.turns).try_acquire_owned().ok();
            if waited.turn.is_none() {
                return Outcome::Busy(self.next_turn());
            }
        }
        let Some(replication) = &self.replication else {
            return self.answer(function, body, out);
        };
        // Admission comes first: an admitted call never waits for log space while it holds the sequencer (R2).
        let bytes = record_bytes(body);
        let mut ticket = waited.ticket.take().and_then(|ticket| ticket.downcast().ok()).map(|ticket| *ticket);
        let waited_for = waited.since.map_or(Duration::ZERO, |since| since.elapsed());
        let now = replication.clock.now();
        let _permit = match replication.incarnation.admit(now, bytes, &mut ticket, waited_for) {
            Admission::Admitted(permit) => permit,
            Admission::Waiting => return wait_in_line(ticket, waited),
            Admission::Refused(refusal) => {
                Counters::add(&self.metrics.counters.refused_changes, 1);
                self.metrics.rpc.call(function, false);
                return Outcome::Error(refused(refusal));
            }
        };
        // Work on a blocking thread is admitted again, chunk by chunk.
        let answered = match &self.parking {
            Some(parking) if effects::may_be_parked(function) => {
                self.answer_start(parking, function, body, out, || replication.clock.now())
            }
            Some(parking) if effects::may_open_segments(function) => {
                parking.opening(|| self.answer(function, body, out))
            }
            _ => self.answer(function, body, out),
        };
        match answered {
            // The call waits, and other calls need the turn.
            Outcome::Deferred(deferred) => {
                waited.turn = None;
                Outcome::Deferred(deferred)
            }
            Outcome::Ready { depends_on } if effects::may_be_answered_early(function) => {
                Outcome::Ready { depends_on: replication.depends_on(depends_on) }
            }
            other => other,
        }
    }

    /// Returns the durable prefix. Without a log, everything that is applied counts as durable.
    fn durable(&self) -> SequenceId {
        match &self.replication {
            None => self.handlers.engine.applied(),
            Some(replication) => replication.incarnation.gate.durable(),
        }
    }

    fn wait_durable(&self, id: SequenceId) -> BoxFuture<()> {
        let Some(replication) = &self.replication else { return Box::pin(std::future::ready(())) };
        let incarnation = Arc::clone(&replication.incarnation);
        Box::pin(async move {
            let (mut durable, refuses) = (incarnation.gate.watch(), incarnation.gate.is_log_full());
            let changed =
                durable.wait_for(|durable| *durable >= id || incarnation.gate.is_log_full() != refuses);
            // An error means that this state is gone, and the connection with it. A timer runs only while the log is
            // full.
            if refuses {
                let _ = tokio::time::timeout(REFUSED_LOOK, changed).await;
            } else {
                let _ = changed.await;
            }
        })
    }

    fn gives_up(&self) -> Option<GiveUp> {
        let replication = self.replication.as_ref()?;
        let refusing = replication.incarnation.gate.refusing(|| replication.clock.now())?;
        Some(GiveUp { refusing, failure: UNKNOWN })
    }

    fn may_write(&self) -> bool {
        match &self.replication {
            None => true,
            Some(replication) => replication.incarnation.gate.may_answer(replication.clock.now()),
        }
    }

    fn connected(&self) {
        Counters::add(&self.metrics.counters.accepted_connections, 1);
    }

    fn unknown_function(&self) {
        Counters::add(&self.metrics.counters.malformed_requests, 1);
    }
}

/// How often parked replies check a log that takes no writes.
const REFUSED_LOOK: Duration = Duration::from_secs(1);

/// Makes a call wait until its ticket is granted. It wakes now and then to check whether that can still happen.
fn wait_in_line(ticket: Option<Ticket>, waited: &mut Waited) -> Outcome {
    let granted = ticket.as_ref().map(Ticket::granted);
    waited.ticket = ticket.map(|ticket| Box::new(ticket) as Box<_>);
    Outcome::Busy(Box::pin(async move {
        if let Some(granted) = granted {
            let _ = tokio::time::timeout(LEADERSHIP_CHECK, granted).await;
        }
        None
    }))
}

impl LogContext {
    /// Returns the record that an early answer waits for. It is not the call's own, but it bounds the tail that a crash
    /// can lose.
    fn depends_on(&self, depends_on: SequenceId) -> SequenceId {
        match self.durability {
            Durability::Strict => depends_on,
            Durability::Relaxed { records, time } => {
                self.incarnation.gate.relaxed(depends_on, records, time, self.clock.now())
            }
        }
    }
}
