//! Calls on their way through a master: they wait in line for space in the queue, with a ticket and for as long as the
//! master's own patience, puts that find no memory wait for clients to rejoin, and answers wait for the log. Who may enter,
//! which put waits and which answer may leave is decided by the code of the master (`admission`, `queue_space`,
//! `parked_puts`, `parked_answers`, `gate`).

use moonkeeper::engine::types::{ErrorCode, SequenceId};
use moonkeeper::replication::parked_answers::Fate;
use moonkeeper::replication::parked_puts::{PARKED_FOR, PutTicket};
use moonkeeper::replication::queue_space::Ticket;
use moonkeeper::replication::time::Monotonic;

use super::clients::{Op, Reply};
use super::plan::{MS, SECOND};
use super::serving::{Executed, Facts};
use super::{Event, Sim};

/// How often a call that waits looks whether this master still leads.
const RETRY_INTERVAL: u64 = 20 * MS;

/// A call that a master works on.
pub struct Call {
    pub client: usize,
    pub number: u64,
    pub op: Op,
    /// Its place in the line for space in the queue.
    pub ticket: Option<Ticket>,
    /// When it came.
    pub since: Monotonic,
    /// It has changed something already.
    pub begun: bool,
    /// Its position among the parked puts, while it is tried again.
    pub parked: Option<PutTicket>,
}

/// An answer that waits at the gate.
pub struct Parked {
    pub client: usize,
    pub number: u64,
    pub reply: Reply,
    pub depends_on: SequenceId,
    pub facts: Facts,
}

impl Sim {
    /// A client's call arrives.
    pub fn called(&mut self, index: usize, client: usize, number: u64, op: Op) {
        let (uuid, since) = (self.clients[client].uuid, self.clock(index));
        let server = self.masters[index].server.as_ref().filter(|server| server.open);
        let Some(term) = server.map(|server| server.term) else {
            return self.after(MS, Event::Reply { client, number, reply: Reply::Closed });
        };
        if matches!(op, Op::Ping | Op::Remount(_)) {
            self.watchdog.heard(uuid, term);
        }
        self.attempt(index, Call { client, number, op, ticket: None, since, begun: false, parked: None });
    }

    /// Carries a call out, or has it wait on.
    fn attempt(&mut self, index: usize, mut call: Call) {
        let uuid = self.clients[call.client].uuid;
        let Some(server) = &self.masters[index].server else { return };
        let incarnation = std::sync::Arc::clone(&server.incarnation);
        let (before, waited) = (incarnation.engine.applied(), call.ticket.is_some());
        let executed = self.execute(index, &mut call);
        let after = incarnation.engine.applied();
        let (mut call, executed) = match executed {
            Executed::Answered { reply: Reply::Refused(ErrorCode::NO_AVAILABLE_HANDLE), .. }
                if after == before && matches!(call.op, Op::Start { .. }) =>
            {
                match self.park(index, call) {
                    None => return,
                    Some(call) => (call, executed),
                }
            }
            executed => (call, executed),
        };
        if after > before || matches!(executed, Executed::Answered { .. }) {
            self.model.called(uuid, call.number, &call.op, (before, after));
        }
        let (client, number) = (call.client, call.number);
        match executed {
            Executed::Waits => {
                call.begun |= after > before;
                if !waited {
                    self.counts.waited += 1;
                    note!(self, "m{index} c{client} #{number} {:?} waits for space", call.op);
                }
                if let Some(server) = &mut self.masters[index].server {
                    server.line.push(call);
                }
                self.look_in(index, RETRY_INTERVAL);
                if after == before {
                    return;
                }
            }
            Executed::Answered { reply, depends_on, facts } => {
                if let Some(ticket) = call.parked
                    && let Some(server) = &mut self.masters[index].server
                {
                    server.parked_puts.leave(ticket);
                    self.counts.resumed += u64::from(matches!(reply, Reply::Started));
                }
                let op = &call.op;
                note!(self, "m{index} c{client} #{number} {op:?} -> {reply:?} on {}", depends_on.0);
                if matches!(reply, Reply::Closed) {
                    return self.after(MS, Event::Reply { client, number, reply });
                }
                let opens = after > before && matches!(op, Op::Remount(_) | Op::Mount(_));
                if let Some(server) = &mut self.masters[index].server {
                    let parked = Parked { client, number, reply, depends_on, facts };
                    server.parked.park(depends_on, parked);
                    if opens {
                        server.parked_puts.rejoined();
                    }
                }
            }
        }
        self.wake_writer(index);
        self.try_parked_puts(index);
    }

    /// Parks a put that found no memory, or gives it back to be answered so.
    fn park(&mut self, index: usize, mut call: Call) -> Option<Call> {
        let now = self.clock(index);
        let server = self.masters[index].server.as_mut()?;
        let (engine, puts) = (&server.incarnation.engine, &mut server.parked_puts);
        let (client, number, ticket) = (call.client, call.number, call.parked.take());
        let are_closed = || engine.has_closed_segments();
        if let Some(ticket) = ticket {
            return puts.put_back(ticket, call, now, are_closed);
        }
        let mut left = Some(call);
        let tried = puts.openings();
        // The closure is called only if it is parked.
        puts.park(now, tried, 1, are_closed, || left.take().unwrap());
        if left.is_none() {
            self.counts.parked_puts += 1;
            note!(self, "m{index} c{client} #{number} waits for clients to rejoin");
        }
        left
    }

    /// Parked puts that are due are tried again, in order.
    pub fn try_parked_puts(&mut self, index: usize) {
        loop {
            let now = self.clock(index);
            let Some(server) = &mut self.masters[index].server else { return };
            let Some((ticket, call)) = server.parked_puts.next_due(now) else { return };
            self.attempt(index, Call { parked: Some(ticket), ..call });
        }
    }

    /// No put is parked past its time.
    pub fn check_parked_puts(&mut self, index: usize) {
        let now = self.clock(index);
        let Some(server) = &self.masters[index].server else { return };
        let parked =
            server.parked_puts.len() - server.line.iter().filter(|call| call.parked.is_some()).count();
        if parked > 0 && now.since(server.opened_at) >= PARKED_FOR {
            let what = format!(
                "m{index} has {parked} parked puts {:?} after its port opened",
                now.since(server.opened_at)
            );
            self.fail(("parked put", what));
        }
    }

    /// The line is looked at in a while.
    fn look_in(&mut self, index: usize, delay: u64) {
        let (at, of) = (self.now + delay, self.process(index));
        let Some(server) = &mut self.masters[index].server else { return };
        if server.look_at.is_none_or(|look_at| at < look_at) {
            server.look_at = Some(at);
            let serial = server.serial;
            self.after(delay, Event::LookAgain { of, serial });
        }
    }

    /// Those whose turn has come, or who have waited for too long, try again.
    pub fn look_again(&mut self, index: usize, serial: u64) {
        let now = self.now;
        let Some(server) = &mut self.masters[index].server else { return };
        if server.serial != serial || server.look_at.is_none_or(|at| at > now) {
            return;
        }
        server.look_at = None;
        for call in std::mem::take(&mut server.line) {
            self.attempt(index, call);
        }
    }

    /// The writer is told that records wait.
    pub fn wake_writer(&mut self, index: usize) {
        self.compare(index);
        if self.masters[index].server.as_ref().is_some_and(|server| !server.incarnation.queue.is_empty()) {
            self.input(index, moonkeeper::replication::node::Input::Queued);
        } else {
            self.let_go(index);
        }
    }

    /// Sends the answers that may be sent, and wakes the calls whose turn has come.
    pub fn let_go(&mut self, index: usize) {
        let now = self.clock(index);
        let Some(server) = &mut self.masters[index].server else { return };
        let granted = server.line.iter().any(|call| call.ticket.as_ref().is_some_and(Ticket::is_granted));
        // In the moment of sending: this master still leads.
        let (mut leaving, gate) = (Vec::new(), &server.incarnation.gate);
        if !server.parked.is_empty() && gate.may_answer(now) {
            server.parked.release(gate.log_state(now), |fate| match fate {
                Fate::Leaves(parked) => leaving.push((parked, true)),
                Fate::Unknown(parked) => leaving.push((parked, false)),
                Fate::Waits(_) => {}
            });
        }
        let term = server.term;
        if granted {
            self.look_in(index, 0);
        }
        for (parked, known) in leaving {
            let lost = !self.calm && self.rng.below(200) == 0;
            let delay = self.plan.delay + if lost { 10 * SECOND } else { self.rng.below(self.plan.delay) };
            let (client, number) = (parked.client, parked.number);
            if known {
                self.check_role(index);
                self.check_answer(term, &parked);
                self.counts.answers += 1;
                self.after(delay, Event::Reply { client, number, reply: parked.reply });
            } else {
                note!(self, "m{index} c{client} #{number} is given up");
                self.counts.given_up_answers += 1;
                self.after(delay, Event::Reply { client, number, reply: Reply::Unknown });
            }
        }
    }

    /// Connections break: clients do not know what became of their calls.
    pub fn hang_up(&mut self, index: usize) {
        let Some(server) = &mut self.masters[index].server else { return };
        let parked = server.parked.drain().map(|parked| (parked.client, parked.number));
        let waiting = server.line.drain(..).chain(server.parked_puts.close());
        let calls: Vec<(usize, u64)> = parked.chain(waiting.map(|call| (call.client, call.number))).collect();
        for (client, number) in calls {
            self.after(MS, Event::Reply { client, number, reply: Reply::Unknown });
        }
    }
}
