//! Handing over on purpose: to a standby that has everything, with nothing for the next primary to wait for.
//!
//! Serve no longer; write down every promise to readers, and then that this primary resigns; wait until the target has
//! all of it; delete the election key and name the successor in one transaction. Before that transaction every failure
//! goes back to serving.

use std::time::Duration;

use bytes::Bytes;

use super::{CallId, Command, Node, Phase, Purpose, Stage};
use crate::coordination::types::{Compare, Failure, KeyRange, LeaseId, Op, Request, Response, Txn};
use crate::engine::types::SequenceId;
use crate::replication::time::Monotonic;

/// How long the name of the successor stays. Others wait two seconds for it.
const SUCCESSOR_TTL_SECONDS: i64 = 5;

/// How soon a transaction without an answer is sent again.
const RETRY: Duration = Duration::from_millis(20);

/// Which hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandoverId(pub u64);

/// Why there was no hand-over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// This master does not lead.
    #[error("this master is not the primary")]
    NotPrimary,
    /// One is under way.
    #[error("another hand-over is under way")]
    Busy,
    /// It leads already.
    #[error("{0} is the primary already")]
    AlreadyPrimary(String),
    /// Nobody could take over.
    #[error("no standby is caught up and connected")]
    NoTarget,
    /// The one that was named could not take over.
    #[error("{0} is not a connected standby that is caught up")]
    BadTarget(String),
    /// It was tried and given up; the old primary goes on.
    #[error("{0}; the primary goes on")]
    Failed(String),
    /// The primary lost its role meanwhile.
    #[error("the primary was deposed meanwhile: {0}")]
    Deposed(String),
}

/// A hand-over under way.
#[derive(Debug)]
pub(super) struct Handover {
    /// Who asked; `None` if the process is to end.
    id: Option<HandoverId>,
    /// Who is to lead; `None` if nobody could.
    to: Option<String>,
    step: Step,
    deadline: Monotonic,
}

#[derive(Debug)]
enum Step {
    /// A lease for the name of the successor was asked for.
    Granting(CallId),
    /// Clients are being sent away.
    Closing { lease: LeaseId },
    /// The last record is being written.
    Resigning { lease: LeaseId, resign: SequenceId },
    /// The election key is being deleted.
    Deleting { txn: Txn, call: Option<CallId>, retry_at: Monotonic },
}

impl Handover {
    /// Whether the last record of the term is written.
    pub(super) fn is_resigned(&self) -> bool {
        matches!(self.step, Step::Resigning { .. } | Step::Deleting { .. })
    }

    /// Whether the election key is being deleted.
    pub(super) fn is_deleting(&self) -> bool {
        matches!(self.step, Step::Deleting { .. })
    }

    /// Whether clients were told to go.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.step, Step::Closing { .. })
    }
}

impl Node {
    /// Somebody wants another primary.
    pub(super) fn switchover(&mut self, now: Monotonic, id: HandoverId, to: Option<String>) {
        match self.choose_target(to) {
            Ok(target) => self.begin_handover(now, Some(id), Some(target)),
            Err(error) => self.commands.push(Command::HandedOver { id, result: Err(error) }),
        }
    }

    /// The process is to end.
    pub(super) fn stop(&mut self, now: Monotonic) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        match &self.phase {
            Phase::Leading(reign) if reign.stage == Stage::Serving && reign.handover.is_none() => {
                let target = self.choose_target(None).ok();
                self.begin_handover(now, None, target);
            }
            Phase::Leading(_) => self.leave(now, "stopping".to_owned()),
            Phase::Leaving(_) | Phase::Stopped => {}
            Phase::Standby | Phase::Campaigning(_) => self.stopped(now),
        }
    }

    fn choose_target(&self, to: Option<String>) -> Result<String, HandoverError> {
        let Phase::Leading(reign) = &self.phase else { return Err(HandoverError::NotPrimary) };
        if reign.stage != Stage::Serving {
            return Err(HandoverError::NotPrimary);
        }
        if reign.handover.is_some() {
            return Err(HandoverError::Busy);
        }
        if to.as_ref() == Some(&self.settings.name) {
            return Err(HandoverError::AlreadyPrimary(self.settings.name.clone()));
        }
        let fits = |name: &str| {
            let member = self.view.members().get(name);
            let told = self.peers.get(name);
            let same = member.zip(told).is_some_and(|(member, told)| member.boot_id == told.0);
            same && member.is_some_and(|member| member.caught_up && member.role == "standby")
        };
        match to {
            Some(name) if fits(&name) => Ok(name),
            Some(name) => Err(HandoverError::BadTarget(name)),
            None => {
                let ready = self.peers.iter().filter(|(name, _)| fits(name));
                // The furthest one; of several the first by name.
                let best = ready.max_by(|one, other| (one.1.1, other.0).cmp(&(other.1.1, one.0)));
                best.map(|(name, _)| name.clone()).ok_or(HandoverError::NoTarget)
            }
        }
    }

    fn begin_handover(&mut self, now: Monotonic, id: Option<HandoverId>, to: Option<String>) {
        tracing::info!(to = to.as_deref().unwrap_or("nobody"), "handing over");
        let request = Request::LeaseGrant { ttl_seconds: SUCCESSOR_TTL_SECONDS };
        let call = self.call(Purpose::HandoverLease, request);
        let deadline = now.plus(self.settings.handover_timeout);
        if let Phase::Leading(reign) = &mut self.phase {
            reign.handover = Some(Handover { id, to, step: Step::Granting(call), deadline });
        }
    }

    fn handover(&mut self) -> Option<&mut Handover> {
        match &mut self.phase {
            Phase::Leading(reign) => reign.handover.as_mut(),
            _ => None,
        }
    }

    pub(super) fn handover_lease_granted(
        &mut self,
        now: Monotonic,
        answer: CallId,
        result: Result<Response, Failure>,
    ) {
        let Some(handover) = self.handover() else { return };
        if !matches!(handover.step, Step::Granting(call) if call == answer) {
            return;
        }
        let Ok(Response::LeaseGranted { lease, .. }) = result else {
            return self.abort_handover(now, "etcd did not answer");
        };
        handover.step = Step::Closing { lease };
        if let Phase::Leading(reign) = &mut self.phase {
            reign.stage = Stage::Closed;
            // Most promises are written down while reads are still answered, so that little is left to do when nobody
            // is.
            self.replica.engine.flush_leases(reign.clock.at(now));
        }
        self.close_gate();
        self.commands.push(Command::Close);
    }

    /// Clients are gone. Nobody makes promises any more: all of them are written down, and then that this is the end.
    pub(super) fn closed_for_handover(&mut self, now: Monotonic, quiet: bool) {
        if !quiet {
            return self.abort_handover(now, "somebody is still changing the state");
        }
        let Phase::Leading(reign) = &mut self.phase else { return };
        let Some(Handover { step, .. }) = &mut reign.handover else { return };
        let Step::Closing { lease } = *step else { return };
        let at = reign.clock.at(now);
        *step = Step::Resigning { lease, resign: self.replica.engine.resign(at) };
    }

    pub(super) fn advance_handover(&mut self, now: Monotonic) {
        let durable = self.replica.gate.durable();
        let keys = self.settings.keys.clone();
        let Phase::Leading(reign) = &mut self.phase else { return };
        let term = reign.term;
        let Some(handover) = &mut reign.handover else { return };
        match &mut handover.step {
            Step::Granting(_) | Step::Resigning { .. } if now >= handover.deadline => {
                self.abort_handover(now, "it took too long");
            }
            Step::Granting(_) | Step::Closing { .. } => {}
            Step::Resigning { lease, resign } => {
                let told = handover.to.as_ref().map(|name| self.peers.get(name));
                let has_all = told.is_none_or(|told| told.is_some_and(|(_, applied)| applied >= resign));
                if durable < *resign || !has_all {
                    return;
                }
                let mut success = vec![
                    Op::Delete(KeyRange::key(keys.election())),
                    Op::Delete(KeyRange::key(keys.master_view())),
                ];
                if let Some(name) = &handover.to {
                    let value = Bytes::from(name.clone());
                    success.push(Op::Put { key: keys.switchover(), value, lease: *lease });
                }
                let txn = Txn {
                    compare: vec![Compare::CreateRevision { key: keys.election(), equals: term.0 }],
                    success,
                    failure: Vec::new(),
                };
                handover.step = Step::Deleting { txn, call: None, retry_at: now };
                self.delete_election(now);
            }
            Step::Deleting { .. } => self.delete_election(now),
        }
    }

    fn delete_election(&mut self, now: Monotonic) {
        let Some(Handover { step: Step::Deleting { txn, call: None, retry_at }, .. }) = self.handover()
        else {
            return;
        };
        if now < *retry_at {
            return;
        }
        let txn = txn.clone();
        let asked = self.call(Purpose::Handover, Request::Txn(txn));
        if let Some(Handover { step: Step::Deleting { call, .. }, .. }) = self.handover() {
            *call = Some(asked);
        }
    }

    pub(super) fn handed_over(&mut self, now: Monotonic, answer: CallId, result: Result<Response, Failure>) {
        let Some(handover) = self.handover() else { return };
        let Step::Deleting { call, retry_at, .. } = &mut handover.step else { return };
        if *call != Some(answer) {
            return;
        }
        *call = None;
        match result {
            // If the comparison failed, an attempt without an answer had succeeded, or the lease ran out: this node
            // does not lead either way, and everything it wrote is durable.
            Ok(Response::Txn { .. }) => self.finish_handover(now),
            Ok(_) | Err(_) => *retry_at = now.plus(RETRY),
        }
    }

    /// The election key is gone as it should be: another one may lead.
    pub(super) fn finish_handover(&mut self, now: Monotonic) {
        let Phase::Leading(reign) = &mut self.phase else { return };
        if let Some(Handover { id: Some(id), to: Some(to), .. }) = reign.handover.take() {
            self.commands.push(Command::HandedOver { id, result: Ok(to) });
        }
        self.leave(now, "handed over".to_owned());
    }

    /// Back to serving, unless the process is to end.
    fn abort_handover(&mut self, now: Monotonic, reason: &str) {
        let Phase::Leading(reign) = &mut self.phase else { return };
        let Some(handover) = reign.handover.take() else { return };
        tracing::warn!(reason, "gave the hand-over up");
        let Some(id) = handover.id else { return self.leave(now, format!("stopping: {reason}")) };
        let result = Err(HandoverError::Failed(reason.to_owned()));
        self.commands.push(Command::HandedOver { id, result });
        match handover.step {
            Step::Granting(_) => {}
            Step::Closing { .. } => self.open(),
            Step::Resigning { .. } | Step::Deleting { .. } => {
                // A successor takes a `Resign` that is the last record at its word: another one has to be durable
                // before a read is answered.
                let at = reign.clock.at(now);
                reign.stage = Stage::Beginning(self.replica.engine.sequencer(at).commit_digest());
            }
        }
    }

    /// Says that a hand-over came to nothing because this node was deposed.
    pub(super) fn fail_handover(&mut self, reason: &str) {
        let Phase::Leading(reign) = &mut self.phase else { return };
        if let Some(Handover { id: Some(id), .. }) = reign.handover.take() {
            let result = Err(HandoverError::Deposed(reason.to_owned()));
            self.commands.push(Command::HandedOver { id, result });
        }
    }
}
