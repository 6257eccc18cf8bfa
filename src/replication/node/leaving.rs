//! Leading no longer: whoever served is sent away first, and the state is kept only if all of it is known to be
//! durable.

use std::time::Duration;

use super::{Command, Node, Phase, Purpose, Reign, Stage};
use crate::coordination::types::Request;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::replication::follower::Position;
use crate::replication::time::Monotonic;

/// How long a node that led waits before it stands again, at most.
const BACKOFF_MS: u64 = 300;

/// A primary that leads no longer.
#[derive(Debug)]
pub(super) struct Leaving {
    reign: Box<Reign>,
}

impl Node {
    /// This node leads no longer.
    pub(super) fn leave(&mut self, now: Monotonic, reason: String) {
        if !matches!(self.phase, Phase::Leading(_)) {
            return;
        }
        // First of all: nothing more is said, and nothing more is changed. A search or a flush that outlives the term
        // finds an engine that refuses to commit.
        self.close_gate();
        self.seal();
        tracing::warn!(%reason, "no longer primary");
        let closing = match &self.phase {
            Phase::Leading(reign) => reign.handover.as_ref().is_some_and(|handover| handover.is_closing()),
            _ => false,
        };
        self.fail_handover(&reason);
        let Phase::Leading(reign) = std::mem::replace(&mut self.phase, Phase::Standby) else { return };
        self.call(Purpose::Nobody, Request::LeaseRevoke { lease: reign.lease.id });
        let stage = reign.stage;
        self.phase = Phase::Leaving(Leaving { reign });
        match stage {
            Stage::Beginning(_) => self.left(now, true),
            Stage::Closed if !closing => self.left(now, true),
            Stage::Closed => {}
            Stage::Opening | Stage::Publishing { .. } | Stage::Serving => self.commands.push(Command::Close),
        }
    }

    /// From here on nothing is changed.
    fn seal(&self) {
        #[cfg(feature = "planted")]
        if planted::active(Bug::QuietLie) {
            return;
        }
        self.replica.engine.seal();
    }

    /// From here on nothing is said.
    pub(super) fn close_gate(&self) {
        #[cfg(feature = "planted")]
        if planted::active(Bug::KeepGateOpen) {
            return;
        }
        self.replica.gate.close();
    }

    /// Clients are no longer served.
    pub(super) fn closed(&mut self, now: Monotonic, quiet: bool) {
        match &self.phase {
            Phase::Leading(_) => self.closed_for_handover(now, quiet),
            Phase::Leaving(_) => self.left(now, quiet),
            Phase::Standby | Phase::Campaigning(_) | Phase::Stopped => {}
        }
    }

    fn left(&mut self, now: Monotonic, quiet: bool) {
        let Phase::Leaving(Leaving { reign }) = std::mem::replace(&mut self.phase, Phase::Standby) else {
            return;
        };
        let settled = quiet && !reign.writer.is_busy() && self.replica.queue.is_empty();
        let settled = settled && self.replica.is_settled();
        // A primary that was told by standbys that its state is wrong builds it anew.
        let settled = settled && self.following.trust.doubt().is_none();
        #[cfg(feature = "planted")]
        let settled = settled || planted::active(Bug::KeepTail);
        if settled {
            self.following.reset(Position::behind(reign.writer.end(), reign.term));
        } else {
            #[cfg(feature = "planted")]
            let kept = planted::active(Bug::KeepQueue).then(|| self.replica.queue.take()).flatten();
            // A record that was applied may not be in the log: no client may see this state (INV-3).
            self.replica.queue.clear();
            self.start_over();
            #[cfg(feature = "planted")]
            if let Some(chunk) = kept {
                self.replica.queue.put_back(chunk);
            }
        }
        let wait = self.chance(BACKOFF_MS);
        self.stand_after = self.stand_after.max(now.plus(Duration::from_millis(wait)));
        self.peers.clear();
        if self.stopping {
            self.stopped(now);
        }
    }

    /// The process may end. Its keys go with it.
    pub(super) fn stopped(&mut self, _now: Monotonic) {
        self.unfollow();
        if let Some(lease) = self.member.lease() {
            self.call(Purpose::Nobody, Request::LeaseRevoke { lease });
        }
        self.phase = Phase::Stopped;
        self.commands.push(Command::Stopped);
    }
}
