//! Serving clients, as a master does that has an open port. Admission (R2), client deadlines, guards of the term and
//! upkeep are the code of the master; here is only what carries it out.

use std::sync::Arc;

use moonkeeper::engine::types::{ErrorCode, LogTime, SequenceId, Term};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::liveness::Liveness;
use moonkeeper::replication::node::Input;
use moonkeeper::replication::parked_answers::ParkedAnswers;
use moonkeeper::replication::parked_puts::ParkedPuts;
use moonkeeper::replication::queue_space::Ticket;
use moonkeeper::replication::time::{LogClock, Monotonic};
use moonkeeper::replication::upkeep::{Chores, Timetable};

use super::chunks::Chunks;
use super::claims::Told;
use super::clients::Reply;
use super::plan::MS;
use super::truth::Seen;
use super::waiting::{Call, Parked};
use super::{Event, Sim};

/// How often upkeep looks.
const UPKEEP: u64 = 40 * MS;

/// How often promises to readers are written down.
const LEASE_SYNC_MS: u64 = 1_000;

/// An open port, or one that is being opened.
pub struct Server {
    pub serial: u64,
    pub incarnation: Arc<Incarnation>,
    clock: LogClock,
    pub term: Term,
    pub open: bool,
    /// Answers that wait for the log.
    pub parked: ParkedAnswers<Parked>,
    /// Calls that wait for space in the queue.
    pub line: Vec<Call>,
    /// When the line is looked at next.
    pub look_at: Option<u64>,
    /// Puts that wait for clients to rejoin.
    pub parked_puts: ParkedPuts<Call>,
    /// When the port opened.
    pub opened_at: Monotonic,
    pub liveness: Arc<Liveness>,
    timetable: Timetable,
    /// The place of upkeep in the line for space in the queue.
    ticket: Option<Ticket>,
}

/// What became of an attempt to carry a call out.
pub enum Executed {
    /// It waits for space in the queue, with the ticket that it has now.
    Waits,
    /// It has an answer, which may leave when what it rests on is durable.
    Answered { reply: Reply, depends_on: SequenceId, facts: Facts },
}

impl Executed {
    pub fn refused(reply: Reply) -> Self {
        Self::Answered { reply, depends_on: SequenceId(0), facts: Facts::default() }
    }
}

/// What whoever checks knows of an answer.
#[derive(Default)]
pub struct Facts {
    /// When it was made.
    pub made: u64,
    /// The last record that was applied then.
    pub applied: SequenceId,
    /// Whether it made records and says that it succeeded.
    pub changed: bool,
    /// What was looked at, and what was found.
    pub reads: Vec<(String, Seen)>,
    /// What readers are promised.
    pub promises: Vec<String>,
    /// So many of the last records need not be durable when it leaves.
    pub may_be_lost: u64,
    /// What a writer is told, and the record that reserved it.
    pub told: Option<(Told, Option<SequenceId>)>,
}

impl Sim {
    /// The role of a master wants clients to be served.
    pub fn open(&mut self, index: usize, incarnation: Arc<Incarnation>, clock: LogClock, term: Term) {
        let again = self.masters[index].deadlines.as_ref().is_some_and(|(of, _)| *of == term);
        self.check_open(&incarnation, term, again);
        self.next += 1;
        let serial = self.next;
        // A hand-over that is given up opens the port again in the same term, and clients keep their deadlines.
        let liveness = match &self.masters[index].deadlines {
            Some((of, liveness)) if *of == term => Arc::clone(liveness),
            _ => Arc::new(Liveness::new(self.plan.client_ttl)),
        };
        self.masters[index].deadlines = Some((term, Arc::clone(&liveness)));
        let opened_at = self.clock(index);
        self.masters[index].server = Some(Server {
            serial,
            incarnation,
            clock,
            term,
            open: false,
            parked: ParkedAnswers::default(),
            line: Vec::new(),
            look_at: None,
            parked_puts: ParkedPuts::new(opened_at),
            opened_at,
            liveness,
            timetable: Timetable::new(LEASE_SYNC_MS),
            ticket: None,
        });
        let (to, delay) = (self.process(index), self.rng.below(5 * MS));
        self.after(delay, Event::Opened { to, serial });
    }

    /// The port is open.
    pub fn opened(&mut self, index: usize, serial: u64) {
        if self.masters[index].server.as_ref().is_none_or(|server| server.serial != serial) {
            return;
        }
        if !self.calm && self.rng.percent(2) {
            note!(self, "m{index} cannot open its port");
            return self.input(index, Input::OpenFailed("address in use".into()));
        }
        let (now, inherited_ttl, seed) = (self.log_time(index), self.plan.inherited_ttl, self.rng.next());
        let opened_at = self.clock(index);
        if let Some(server) = &mut self.masters[index].server {
            server.open = true;
            (server.parked_puts, server.opened_at) = (ParkedPuts::new(opened_at), opened_at);
            server.incarnation.engine.sequencer(now).seed_rng(seed);
            server.liveness.resume(server.incarnation.engine.known_clients(), now, inherited_ttl);
            server.incarnation.guards.open();
        }
        self.input(index, Input::Opened);
        let of = self.process(index);
        self.after(UPKEEP, Event::Upkeep { of, serial });
    }

    /// The port is closed; clients that waited do not know what became of their call.
    pub fn closing(&mut self, index: usize) {
        self.hang_up(index);
        let now = self.log_time(index);
        if let Some(server) = self.masters[index].server.take() {
            self.leave_straggler(index, &server.incarnation, server.clock);
            server.incarnation.guards.close();
            server.liveness.pause(now);
        }
        let (to, delay) = (self.process(index), self.rng.below(10 * MS));
        self.after(delay, Event::Closed { to, since: self.now });
    }

    pub fn log_time(&self, index: usize) -> LogTime {
        let now = self.clock(index);
        self.masters[index].server.as_ref().map_or(LogTime(0), |server| server.clock.at(now))
    }

    /// What time brings.
    pub fn upkeep(&mut self, index: usize, serial: u64) {
        let now = self.log_time(index);
        let clock = self.clock(index);
        let Some(server) = &mut self.masters[index].server else { return };
        if server.serial != serial || !server.open {
            return;
        }
        let incarnation = Arc::clone(&server.incarnation);
        let (engine, serves, mut stopped) = (&incarnation.engine, incarnation.gate.may_answer(clock), false);
        for chore in server.timetable.due(now, engine, &server.liveness, serves) {
            let mut chunks = Chunks::new(&incarnation, clock, None, &mut server.ticket);
            let done =
                Chores::default().perform(&chore, engine, &server.liveness, now, &mut chunks, &|| false);
            server.timetable.finished(&chore, &done);
            stopped |= done.stopped;
            self.counts.evicted += done.evicted;
        }
        if !stopped {
            // Nothing waits for what it may have reserved.
            server.ticket = None;
        }
        self.wake_writer(index);
        self.try_parked_puts(index);
        self.check_parked_puts(index);
        let of = self.process(index);
        self.after(UPKEEP, Event::Upkeep { of, serial });
    }
}

impl Reply {
    /// Whether the call was refused for a reason that clients know.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Reply::Refused(code) if *code != ErrorCode::OK)
    }
}
