//! The handlers as the server calls them: counting calls, and waiting until an answer may be sent.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::engine::types::SequenceId;
use crate::master::admission::LOOK_AGAIN;
use crate::master::effects;
use crate::master::handlers::{Handled, Handlers};
use crate::master::metrics::{Counters, Metrics};
use crate::master::parked_puts::Parking;
use crate::master::settings::ha::Durability;
use crate::replication::admission::{Admission, Refusal};
use crate::replication::queue_space::Ticket;
use crate::replication::replica::Replica;
use crate::replication::time::{Monotonic, MonotonicClock};
use crate::wire::frame;
use crate::wire::functions::Function;
use crate::wire::server::{BoxFuture, Failure, GiveUp, Outcome, Service, Turn, Waited};

/// What a call may add to the log, for each byte of its request: a key is in both, and a place for each replica only in
/// the record.
const RECORD_BYTES_PER_BYTE: usize = 4;

/// What a call may add to the log whatever its request.
const RECORD_BYTES: usize = 1024;

/// How long the requests are that take turns. All changes pass the sequencer, and a batch keeps it for long enough that
/// a thread which waits for it is put to sleep; waking that one costs as much as dozens of items. So batches wait in
/// line before, where no thread sleeps: whoever ends one goes on with the next. A turn is for all that one read brought,
/// which is answered with one write. Short requests keep the sequencer for less time than the line costs; very long ones
/// let others in between, and would keep the line standing.
const TAKES_TURNS: Range<usize> = 2 << 10..256 << 10;

/// What a call is told that was not admitted. Clients take an RPC error for a call that failed, and may repeat it.
pub(super) fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotLeading => NOT_LEADING,
        Refusal::OutOfSpace => OUT_OF_SPACE,
        Refusal::QueueFull => QUEUE_FULL,
    }
}

/// What a call with this request may add to the log.
pub(super) fn record_bytes(body: &[u8]) -> usize {
    RECORD_BYTES + body.len().saturating_mul(RECORD_BYTES_PER_BYTE)
}

const QUEUE_FULL: Failure =
    Failure { code: frame::TIMED_OUT, message: "the log is full, nothing was changed" };

const OUT_OF_SPACE: Failure =
    Failure { code: frame::TIMED_OUT, message: "the log is full (etcd: out of space), nothing was changed" };

/// What an RPC error says that is answered after the lease has run out. No client ever gets it: the connection is closed
/// instead.
pub(super) const NOT_LEADING: Failure = Failure { code: 255, message: "this master no longer leads" };

/// What becomes of calls whose records etcd refuses: the writer goes on with the same bytes, so they may yet be written
/// (R5).
const UNKNOWN: Failure = Failure {
    code: frame::TIMED_OUT,
    message: "the log is full (etcd: out of space), whether this was done is unknown",
};

/// Answers calls from the engine.
#[derive(Debug)]
pub struct MasterService {
    pub(super) handlers: Handlers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) replication: Option<Replication>,
    turns: Arc<Semaphore>,
    /// Puts that wait for clients to rejoin. Without a log there is no takeover.
    pub(super) parking: Option<Parking>,
}

/// What a master that replicates answers by.
#[derive(Debug)]
pub struct Replication {
    /// The log and the gate.
    pub replica: Arc<Replica>,
    /// The clock of the gate.
    pub clock: MonotonicClock,
    /// What is durable before it is answered.
    pub durability: Durability,
}

impl MasterService {
    /// Answers with these handlers.
    #[must_use]
    pub fn new(handlers: Handlers, replication: Option<Replication>) -> Self {
        let turns = Arc::new(Semaphore::new(1));
        let parking = replication.as_ref().map(|replication| Parking::new(replication.clock.now()));
        Self { metrics: Arc::clone(&handlers.metrics), handlers, replication, turns, parking }
    }

    /// Resolves when it is this call's turn, first come, first served.
    fn next_turn(&self) -> BoxFuture<Option<Turn>> {
        let turns = Arc::clone(&self.turns);
        // It is never closed.
        Box::pin(async move { turns.acquire_owned().await.ok() })
    }

    fn answer(&self, function: Function, body: &[u8], out: &mut Vec<u8>) -> Outcome {
        self.count(function, self.handlers.handle(function, body, out))
    }

    /// Answers a Start, or parks it if it found no memory and clients are yet to rejoin.
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
            && let Some(deferred) = parking.park(self, now(), tried, function, body)
        {
            return Outcome::Deferred(Box::new(deferred));
        }
        self.count(function, handled)
    }

    /// Counts a call that is answered.
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
            // Others wait for it, and this call does not need it.
            waited.turn = None;
        }
        if !changes {
            // Changes are admitted below.
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
        // Admission first: a call that has it never waits for the log while it holds the sequencer (R2).
        let bytes = record_bytes(body);
        let mut ticket = waited.ticket.take().and_then(|ticket| ticket.downcast().ok()).map(|ticket| *ticket);
        let waited_for = waited.since.map_or(Duration::ZERO, |since| since.elapsed());
        let now = replication.clock.now();
        let _permit = match replication.replica.admit(now, bytes, &mut ticket, waited_for) {
            Admission::Admitted(permit) => permit,
            Admission::Waiting => return wait_in_line(ticket, waited),
            Admission::Refused(refusal) => {
                Counters::add(&self.metrics.counters.refused_changes, 1);
                self.metrics.rpc.call(function, false);
                return Outcome::Error(refused(refusal));
            }
        };
        // Work that is done aside is admitted again, chunk by chunk.
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
            // It has not begun, and others wait for the turn.
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

    /// Without a log, what is applied is as durable as it gets.
    fn durable(&self) -> u64 {
        match &self.replication {
            None => self.handlers.engine.applied().0,
            Some(replication) => replication.replica.gate.durable().0,
        }
    }

    fn wait_durable(&self, id: u64) -> BoxFuture<()> {
        let Some(replication) = &self.replication else { return Box::pin(std::future::ready(())) };
        let replica = Arc::clone(&replication.replica);
        Box::pin(async move {
            let (mut durable, refuses) = (replica.gate.watch(), replica.gate.is_log_full());
            let changed = durable.wait_for(|durable| *durable >= id || replica.gate.is_log_full() != refuses);
            // An error means that this state is gone, and with it the connection. Timers are for the rare case only.
            if refuses {
                let _ = tokio::time::timeout(REFUSED_LOOK, changed).await;
            } else {
                let _ = changed.await;
            }
        })
    }

    fn gives_up(&self) -> Option<GiveUp> {
        let replication = self.replication.as_ref()?;
        let refusing = replication.replica.gate.refusing(|| replication.clock.now())?;
        Some(GiveUp { refusing, failure: UNKNOWN })
    }

    fn may_write(&self) -> bool {
        match &self.replication {
            None => true,
            Some(replication) => replication.replica.gate.may_answer(replication.clock.now()),
        }
    }

    fn connected(&self) {
        Counters::add(&self.metrics.counters.accepted_connections, 1);
    }

    fn unknown_function(&self) {
        Counters::add(&self.metrics.counters.malformed_requests, 1);
    }
}

/// How often replies look at a log that takes no writes.
const REFUSED_LOOK: Duration = Duration::from_secs(1);

/// Has a call wait until its ticket is granted. It looks now and then whether it may still be.
fn wait_in_line(ticket: Option<Ticket>, waited: &mut Waited) -> Outcome {
    let granted = ticket.as_ref().map(Ticket::granted);
    waited.ticket = ticket.map(|ticket| Box::new(ticket) as Box<_>);
    Outcome::Busy(Box::pin(async move {
        if let Some(granted) = granted {
            let _ = tokio::time::timeout(LOOK_AGAIN, granted).await;
        }
        None
    }))
}

impl Replication {
    /// What an answer waits for that may be sent before its own record is durable: the tail that a crash can lose is
    /// bounded.
    fn depends_on(&self, depends_on: u64) -> u64 {
        match self.durability {
            Durability::Strict => depends_on,
            Durability::Relaxed { records, time } => {
                self.replica.gate.relaxed(SequenceId(depends_on), records, time, self.clock.now()).0
            }
        }
    }
}
