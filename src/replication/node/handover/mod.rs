//! Planned hand-over: to a standby that has the whole log, with nothing for the next primary to wait for.
//!
//! The steps: write most live leases to the log, and wait until the target has applied them; stop serving; write the
//! rest, and then `Resign`; wait until the target has applied all of it; delete the election key and name the successor
//! in one transaction. Every step has a deadline, and none does work on the node's task that grows with the number of
//! objects. Before the transaction every failure goes back to serving.

mod deletion;
mod ending;
mod target;

use std::time::Duration;

use super::{CallId, Command, FlushId, HandoverId, Node, Phase, Purpose, Stage};
use crate::coordination::types::{Failure, LeaseId, Request, Response, Txn};
use crate::engine::types::SequenceId;
use crate::replication::time::Monotonic;
use target::Replaced;

/// How long the target may take to apply the last record once that is durable.
const CATCH_UP: Duration = Duration::from_secs(2);

/// Upper bound of rounds in which live leases are written before the port closes: each leaves only those that were
/// granted while the one before ran.
const WARM_ROUNDS: u32 = 4;

/// A round that writes fewer live leases leaves few enough for the time in which the port is closed.
const FEW_PROMISES: usize = 4096;

/// Time limit of writing live leases, over all rounds before the port closes.
const WARM_BUDGET: Duration = Duration::from_secs(3);

/// How long the leases of a round may take to become durable and to be applied by the target.
const AWAIT_BUDGET: Duration = Duration::from_secs(3);

/// Time limit of writing live leases while the port is closed. The rest is covered by a bound in `Resign`: the
/// successor neither evicts nor removes until the last of these leases has ended (R6).
const COLD_BUDGET: Duration = Duration::from_millis(15);

/// State of a hand-over under way.
#[derive(Debug)]
pub(super) struct Handover {
    /// The request; `None` if the hand-over is because the process is to end.
    id: Option<HandoverId>,
    /// The standby that is to lead; `None` if there is none and the process ends nevertheless.
    to: Option<String>,
    step: Step,
    /// The last request to write live leases.
    flush: FlushId,
    deadline: Monotonic,
    closed_at: Option<Monotonic>,
    times: Times,
}

/// When the steps in which clients get no answer ended, for the log.
#[derive(Debug, Default)]
struct Times {
    /// The port and the connections of clients were closed.
    closed: Option<Monotonic>,
    /// The remaining live leases were in the queue.
    flushed: Option<Monotonic>,
    /// The last record was durable.
    durable: Option<Monotonic>,
    /// The target had applied it.
    applied: Option<Monotonic>,
}

impl Times {
    /// Logs how long each step took, in milliseconds.
    fn log(&self, to: &str, closed_at: Monotonic, now: Monotonic) {
        let ends = [self.closed, self.flushed, self.durable, self.applied, Some(now)];
        let mut from = closed_at;
        let took = ends.map(|end| {
            let end = end.unwrap_or(from);
            let took = end.since(from).as_millis() as u64;
            from = end;
            took
        });
        let [closing_ms, leases_ms, resign_ms, target_ms, election_ms] = took;
        tracing::info!(
            to,
            closing_ms,
            leases_ms,
            resign_ms,
            target_ms,
            election_ms,
            "handed over, and the port was closed for the sum of these"
        );
    }
}

#[derive(Debug)]
enum Step {
    /// A lease for the name of the successor was requested.
    Granting(CallId),
    /// Live leases are being written to the log while clients are still served.
    Flushing { lease: LeaseId, round: u32, until: Monotonic },
    /// These leases become durable, and the target applies them, while clients are still served: what is left of both
    /// when the port closes keeps clients waiting.
    AwaitingLeases { lease: LeaseId, flushed: Flushed, round: u32, flush_until: Monotonic, until: Monotonic },
    /// The port and the connections of clients are being closed.
    Closing { lease: LeaseId },
    /// The remaining live leases are being written to the log.
    FlushingRest { lease: LeaseId },
    /// `Resign` is being written, and the target applies it.
    Resigning { lease: LeaseId, resign: SequenceId, target_until: Option<Monotonic> },
    /// The election key is being deleted.
    Deleting { txn: Txn, call: Option<CallId>, retry_at: Monotonic, until: Monotonic },
}

/// Outcome of a round that wrote live leases while clients were served.
#[derive(Clone, Copy, Debug)]
struct Flushed {
    /// The last record at its end.
    last: SequenceId,
    /// Whether another round is worth while: it wrote many leases, and no limit was reached.
    again: bool,
}

impl Handover {
    /// Returns whether only the hand-over itself may write records: clients are gone, and `Resign` is to be the last
    /// record.
    pub(in crate::replication::node) fn is_resigned(&self) -> bool {
        matches!(self.step, Step::FlushingRest { .. } | Step::Resigning { .. } | Step::Deleting { .. })
    }

    /// Returns whether the election key is being deleted.
    pub(in crate::replication::node) fn is_deleting(&self) -> bool {
        matches!(self.step, Step::Deleting { .. })
    }

    /// Returns whether the port and the connections of clients are being closed.
    pub(in crate::replication::node) fn is_closing(&self) -> bool {
        matches!(self.step, Step::Closing { .. })
    }
}

impl Node {
    /// Begins a hand-over that an administrator or the operator requested.
    pub(in crate::replication::node) fn switchover(
        &mut self,
        now: Monotonic,
        id: HandoverId,
        to: Option<String>,
    ) {
        match self.choose_target(now, to) {
            Ok(target) => self.begin_handover(now, Some(id), Some(target)),
            Err(error) => self.commands.push(Command::HandedOver { id, result: Err(error) }),
        }
    }

    /// Prepares for the end of the process: hands over if this node serves.
    pub(in crate::replication::node) fn stop(&mut self, now: Monotonic) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        match &self.phase {
            // A hand-over under way continues; if it is given up, this node leaves.
            Phase::Leading(leadership) if leadership.handover.is_some() => {}
            Phase::Leading(leadership) if leadership.stage == Stage::Serving => {
                let target = self.choose_target(now, None).ok();
                self.begin_handover(now, None, target);
            }
            Phase::Leading(_) => self.leave(now, "stopping".to_owned()),
            Phase::Leaving(_) | Phase::Stopped => {}
            // The transaction that creates the election key may be under way: under a revoked lease it has no effect, and
            // a key that it has created goes at once.
            Phase::Campaigning(_) => {
                self.stand_back(now);
                self.stopped(now);
            }
            Phase::Standby => self.stopped(now),
        }
    }

    fn begin_handover(&mut self, now: Monotonic, id: Option<HandoverId>, to: Option<String>) {
        tracing::info!(to = to.as_deref().unwrap_or("no standby"), "handing over");
        // The name of the successor has to outlive every step of the hand-over; the successor deletes it when it
        // serves.
        let longest = self.settings.handover_timeout + CATCH_UP + 2 * self.settings.call_timeout;
        let ttl_seconds = i64::try_from(longest.as_secs() + 1).unwrap_or(i64::MAX);
        let ttl_seconds = if planted!(SuccessorExpired) { 1 } else { ttl_seconds };
        let call = self.call(Purpose::HandoverLease, Request::LeaseGrant { ttl_seconds });
        let deadline = now.plus(self.settings.handover_timeout);
        if let Phase::Leading(leadership) = &mut self.phase {
            let step = Step::Granting(call);
            let flush = FlushId::default();
            leadership.handover =
                Some(Handover { id, to, step, flush, deadline, closed_at: None, times: Times::default() });
        }
    }

    fn handover(&mut self) -> Option<&mut Handover> {
        match &mut self.phase {
            Phase::Leading(leadership) => leadership.handover.as_mut(),
            _ => None,
        }
    }

    pub(in crate::replication::node) fn handover_lease_granted(
        &mut self,
        now: Monotonic,
        answer: CallId,
        result: Result<Response, Failure>,
    ) {
        let Some(handover) = self.handover() else { return };
        if !matches!(handover.step, Step::Granting(call) if call == answer) {
            return;
        }
        let lease = match result {
            Ok(Response::LeaseGranted { lease, .. }) => lease,
            Err(Failure::Refused(why)) => {
                let reason = format!("etcd refused a lease for the name of the successor: {why}");
                return self.abort_handover(now, &reason);
            }
            Ok(_) | Err(_) => return self.abort_handover(now, "etcd did not answer"),
        };
        // Most live leases are written while reads are still answered.
        handover.step = Step::Flushing { lease, round: 1, until: now.plus(WARM_BUDGET) };
        self.flush(WARM_BUDGET);
    }

    fn flush(&mut self, budget: Duration) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let Some(handover) = &mut leadership.handover else { return };
        self.last_flush.0 += 1;
        handover.flush = self.last_flush;
        let (flush, incarnation, clock) =
            (handover.flush, std::sync::Arc::clone(&self.incarnation), leadership.clock);
        self.commands.push(Command::FlushLeases { flush, incarnation, clock, budget });
    }

    /// Continues after live leases were written to the log.
    pub(in crate::replication::node) fn leases_flushed(
        &mut self,
        now: Monotonic,
        flush: FlushId,
        written: usize,
        complete: bool,
    ) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let at = leadership.clock.at(now);
        let Some(handover) = leadership.handover.as_mut().filter(|handover| handover.flush == flush) else {
            return;
        };
        match handover.step {
            Step::Flushing { lease, round, until } => {
                let again = written > FEW_PROMISES && round < WARM_ROUNDS && complete;
                let flushed = Flushed { last: self.incarnation.engine.applied(), again };
                let (flush_until, until) = (until, now.plus(AWAIT_BUDGET));
                handover.step = Step::AwaitingLeases { lease, flushed, round, flush_until, until };
            }
            Step::FlushingRest { lease } => {
                handover.times.flushed = Some(now);
                let resign = self.incarnation.engine.resign(at, complete);
                handover.step = Step::Resigning { lease, resign, target_until: None };
            }
            _ => {}
        }
    }

    /// Waits until the leases that were written are durable and applied by the target; then writes those that were
    /// granted meanwhile, or closes the port. A target that does not get that far while clients are served would keep
    /// them waiting, so the hand-over is given up, unless this process ends anyway.
    fn await_leases(&mut self, now: Monotonic) {
        let durable = self.incarnation.gate.durable();
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let Some(handover) = &mut leadership.handover else { return };
        let Step::AwaitingLeases { lease, flushed, round, flush_until, until } = handover.step else {
            return;
        };
        let has_all = |name: &String| self.peers.get(name).is_some_and(|told| told.applied >= flushed.last);
        let gone = handover.to.as_ref().is_some_and(|name| !self.peers.contains_key(name));
        let arrived = durable >= flushed.last && handover.to.as_ref().is_none_or(has_all);
        if !gone && !arrived {
            if now < until {
                return;
            }
            if !self.stopping {
                return self.abort_handover(now, "the target did not catch up in time");
            }
        }
        if !gone && flushed.again && now < flush_until {
            handover.step = Step::Flushing { lease, round: round + 1, until: flush_until };
            return self.flush(flush_until.since(now));
        }
        match self.replace_target(now) {
            Replaced::StillFits => self.close_for_handover(now, lease),
            // It may have to catch up first.
            Replaced::By => {
                let until = now.plus(AWAIT_BUDGET);
                if let Some(handover) = self.handover() {
                    handover.step = Step::AwaitingLeases { lease, flushed, round, flush_until, until };
                }
            }
            Replaced::NoneLeft if self.stopping => self.close_for_handover(now, lease),
            Replaced::NoneLeft => {
                self.abort_handover(now, "the target is gone, and no other standby can take over")
            }
        }
    }

    /// Closes the port and the connections of clients.
    fn close_for_handover(&mut self, now: Monotonic, lease: LeaseId) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let Some(handover) = &mut leadership.handover else { return };
        handover.step = Step::Closing { lease };
        handover.closed_at = Some(now);
        leadership.stage = Stage::Closed;
        self.close_gate();
        self.commands.push(Command::Close);
    }

    /// Continues after the port was closed. If `quiet`, no client's call is left that could grant a lease.
    pub(in crate::replication::node) fn closed_for_handover(&mut self, now: Monotonic, quiet: bool) {
        if !quiet {
            return self.abort_handover(now, "a client's call is still changing the state");
        }
        let Some(handover) = self.handover() else { return };
        let Step::Closing { lease } = handover.step else { return };
        handover.step = Step::FlushingRest { lease };
        handover.times.closed = Some(now);
        self.flush(COLD_BUDGET);
    }

    pub(in crate::replication::node) fn advance_handover(&mut self, now: Monotonic) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let Some(handover) = &mut leadership.handover else { return };
        let late = now >= handover.deadline;
        match &mut handover.step {
            Step::Granting(_) if late => {
                self.abort_handover(now, "preparing it took too long: etcd granted no lease");
            }
            Step::Flushing { .. } if late => {
                self.abort_handover(now, "preparing it took too long: leases were still being written");
            }
            Step::AwaitingLeases { .. } if late => {
                self.abort_handover(now, "preparing it took too long: the target had not applied the leases");
            }
            // Clients' calls do not end, or the leases cannot be written: another master takes over as after a crash.
            Step::Closing { .. } | Step::FlushingRest { .. } if late => {
                self.leave(now, "closing the port for a hand-over took too long".to_owned());
            }
            Step::Granting(_) | Step::Flushing { .. } | Step::Closing { .. } | Step::FlushingRest { .. } => {}
            Step::AwaitingLeases { .. } => self.await_leases(now),
            Step::Resigning { .. } => self.await_target(now),
            Step::Deleting { .. } if planted!(SuccessorExpired) => self.delete_election(now),
            Step::Deleting { until, .. } if now >= *until => {
                // The deletion may have been carried out, so this primary must not go back to serving. Its own lease is
                // revoked, and everything it wrote is durable.
                self.leave(now, "etcd did not answer the last step of a hand-over".to_owned());
            }
            Step::Deleting { .. } => self.delete_election(now),
        }
    }

    /// Waits until the last record is durable and the target has applied it.
    fn await_target(&mut self, now: Monotonic) {
        let durable = self.incarnation.gate.durable();
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let Some(handover) = &mut leadership.handover else { return };
        let Step::Resigning { lease, resign, target_until } = &mut handover.step else { return };
        if durable < *resign {
            if now >= handover.deadline {
                self.abort_handover(now, "the last record could not be written in time");
            }
            return;
        }
        let until = *target_until.get_or_insert(now.plus(CATCH_UP));
        handover.times.durable.get_or_insert(now);
        let (lease, resign, to) = (*lease, *resign, handover.to.clone());
        let has_all = |name: &String| self.peers.get(name).is_some_and(|told| told.applied >= resign);
        match to {
            None => self.begin_deleting(now, lease, None),
            Some(name) if has_all(&name) => self.begin_deleting(now, lease, Some(name)),
            Some(name) if now < until && self.peers.contains_key(&name) => {}
            Some(name) => {
                // The target is slow or gone. Another standby may have the whole log.
                let other = self.best_target(now).filter(has_all);
                match (other, self.stopping) {
                    (Some(other), _) => {
                        tracing::warn!(
                            from = name,
                            to = other,
                            "the target of the hand-over is gone, taking another"
                        );
                        self.begin_deleting(now, lease, Some(other));
                    }
                    // Everything is durable: the first standby to win the election takes over.
                    (None, true) => self.begin_deleting(now, lease, None),
                    (None, false) => self.abort_handover(now, "the target did not catch up in time"),
                }
            }
        }
    }
}
