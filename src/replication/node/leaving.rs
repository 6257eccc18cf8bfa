//! Ceasing to lead: first the port is closed and clients are disconnected; then the state is kept only if all of it is
//! known to be durable.

use std::time::Duration;

use super::{Command, Leadership, Node, Phase, Purpose, Stage};
use crate::coordination::types::Request;
use crate::replication::log_position::Position;
use crate::replication::time::Monotonic;

/// Longest back-off before a node that led stands for election again.
const BACKOFF_MS: u64 = 300;

/// A former primary whose port is being closed.
#[derive(Debug)]
pub(super) struct Leaving {
    leadership: Box<Leadership>,
}

impl Node {
    /// Ceases to lead: closes the gate, seals the engine, revokes the lease and closes the port.
    pub(super) fn leave(&mut self, now: Monotonic, reason: String) {
        if !matches!(self.phase, Phase::Leading(_)) {
            return;
        }
        // First of all: no more answers and no more changes. A search or a flush that outlives the term finds an engine
        // that refuses to commit.
        self.close_gate();
        self.seal();
        tracing::warn!(%reason, "no longer primary");
        let closing = match &self.phase {
            Phase::Leading(leadership) => {
                leadership.handover.as_ref().is_some_and(|handover| handover.is_closing())
            }
            _ => false,
        };
        self.fail_handover(&reason);
        let Phase::Leading(leadership) = std::mem::replace(&mut self.phase, Phase::Standby) else { return };
        self.call(Purpose::Nobody, Request::LeaseRevoke { lease: leadership.lease.id });
        let stage = leadership.stage;
        self.phase = Phase::Leaving(Leaving { leadership });
        match stage {
            Stage::Beginning(_) => self.left(now, true),
            Stage::Closed if !closing => self.left(now, true),
            // A hand-over has sent `Close` already; its `Closed` will come.
            Stage::Closed => {}
            Stage::Opening | Stage::Publishing { .. } | Stage::Serving => self.commands.push(Command::Close),
        }
    }

    /// Makes the engine refuse every further change.
    fn seal(&self) {
        planted!(QuietLie => return);
        self.incarnation.engine.seal();
    }

    /// Forbids every further answer from this state.
    pub(super) fn close_gate(&self) {
        planted!(KeepGateOpen => return);
        self.incarnation.gate.close();
    }

    /// Handles that the port is closed and clients are no longer served.
    pub(super) fn closed(&mut self, now: Monotonic, quiet: bool) {
        match &self.phase {
            Phase::Leading(_) => self.closed_for_handover(now, quiet),
            Phase::Leaving(_) => self.left(now, quiet),
            Phase::Standby | Phase::Campaigning(_) | Phase::Stopped => {}
        }
    }

    fn left(&mut self, now: Monotonic, quiet: bool) {
        let Phase::Leaving(Leaving { leadership }) = std::mem::replace(&mut self.phase, Phase::Standby)
        else {
            return;
        };
        let keeps_state = quiet && !leadership.writer.is_busy() && self.incarnation.queue.is_empty();
        let keeps_state = keeps_state && self.incarnation.is_durable();
        // A primary whose state two standbys found to be wrong rebuilds it.
        let keeps_state = keeps_state && self.following.trust.doubt().is_none();
        let keeps_state = keeps_state || planted!(KeepTail);
        if keeps_state {
            self.following.reset(Position::behind(leadership.writer.end(), leadership.term));
        } else {
            // A record that was applied may not be in the log: no client may see this state (INV-3).
            self.start_over();
        }
        let wait = self.random_below(BACKOFF_MS);
        self.stand_after = self.stand_after.max(now.plus(Duration::from_millis(wait)));
        self.peers.clear();
        if self.stopping {
            self.stopped(now);
        }
    }

    /// Ends the node: the process may end. Revokes the lease of the member key, so that it is removed at once.
    pub(super) fn stopped(&mut self, _now: Monotonic) {
        self.unfollow();
        if let Some(lease) = self.member.lease() {
            self.call(Purpose::Nobody, Request::LeaseRevoke { lease });
        }
        self.phase = Phase::Stopped;
        self.commands.push(Command::Stopped);
    }
}
