//! How a hand-over ends: another master may lead, this one goes back to serving, or it leaves.

use super::{Handover, Step};
use crate::replication::node::{Command, HandedOver, HandoverError, Node, Phase, Stage};
use crate::replication::time::Monotonic;

/// What the caller of a hand-over is told if the process was told to end meanwhile, and no standby was left to name.
const NO_SUCCESSOR: &str = "it was stopped, and no standby that has the whole log was left";

impl Node {
    /// Ends a hand-over after the election key was deleted: another master may lead.
    pub(in crate::replication::node) fn finish_handover(&mut self, now: Monotonic) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let handover = leadership.handover.take();
        if let Some(Handover { to: Some(to), closed_at: Some(closed_at), times, .. }) = &handover {
            times.log(to, *closed_at, now);
        }
        if let Some(Handover { id: Some(id), to, closed_at, .. }) = handover {
            let result = match to {
                Some(to) => Ok(HandedOver { to, closed_at: closed_at.unwrap_or(now) }),
                None => Err(HandoverError::Deposed(NO_SUCCESSOR.to_owned())),
            };
            self.commands.push(Command::HandedOver { id, result });
        }
        self.leave(now, "handed over".to_owned());
    }

    /// Gives up a hand-over and goes back to serving, or leaves if the process is to end.
    pub(super) fn abort_handover(&mut self, now: Monotonic, reason: &str) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let Some(handover) = leadership.handover.take() else { return };
        tracing::warn!(reason, "gave the hand-over up");
        if let Some(id) = handover.id {
            let result = Err(HandoverError::Failed(reason.to_owned()));
            self.commands.push(Command::HandedOver { id, result });
        }
        if self.stopping {
            return self.leave(now, format!("stopping: {reason}"));
        }
        match handover.step {
            Step::Granting(_) | Step::Flushing { .. } | Step::AwaitingLeases { .. } => {}
            Step::Closing { .. } | Step::FlushingRest { .. } => self.open(),
            Step::Resigning { .. } | Step::Deleting { .. } => {
                // While `Resign` is the last record, a successor relies on it and does not hold: another record has to
                // be durable before a read is answered (R6).
                let at = leadership.clock.at(now);
                let record = self.incarnation.engine.sequencer(at).commit_digest();
                leadership.stage = Stage::Beginning(record);
                planted!(AbortWithoutRecord => self.open());
            }
        }
    }

    /// Reports a hand-over as failed because this node was deposed.
    pub(in crate::replication::node) fn fail_handover(&mut self, reason: &str) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        if let Some(Handover { id: Some(id), .. }) = leadership.handover.take() {
            let result = Err(HandoverError::Deposed(reason.to_owned()));
            self.commands.push(Command::HandedOver { id, result });
        }
    }
}
