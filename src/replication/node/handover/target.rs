//! Which standby takes over.

use std::time::Duration;

use crate::cluster::role::Role;
use crate::replication::node::{HandoverError, Node, Phase, Stage};
use crate::replication::time::Monotonic;

/// A standby whose last report is older is not a target.
const REPORTED_WITHIN: Duration = Duration::from_secs(2);

/// A standby that is more records behind the durable prefix is not a target: it would keep clients waiting.
const MAX_BEHIND: u64 = 10_000;

impl Node {
    pub(super) fn choose_target(&self, now: Monotonic, to: Option<String>) -> Result<String, HandoverError> {
        let Phase::Leading(leadership) = &self.phase else { return Err(HandoverError::NotPrimary) };
        if leadership.stage != Stage::Serving {
            return Err(HandoverError::NotPrimary);
        }
        if leadership.handover.is_some() {
            return Err(HandoverError::Busy);
        }
        if to.as_ref() == Some(&self.settings.name) {
            return Err(HandoverError::AlreadyPrimary(self.settings.name.clone()));
        }
        match to {
            Some(name) if self.is_target(now, &name) => Ok(name),
            Some(name) => Err(HandoverError::BadTarget(name)),
            None => self.best_target(now).ok_or(HandoverError::NoTarget),
        }
    }

    /// Returns whether a standby can take over: it is a connected peer that reported lately, is not far behind this
    /// primary's own durable prefix, and does not doubt its state.
    fn is_target(&self, now: Monotonic, name: &str) -> bool {
        let (Some(member), Some(told)) = (self.seen_keys.member(name), self.peers.get(name)) else {
            return false;
        };
        planted!(StaleTarget => return member.role == Role::Standby);
        let durable = self.incarnation.gate.durable().0;
        member.boot_id == told.boot_id
            && member.role == Role::Standby
            && !member.in_doubt
            && now.since(told.at) <= REPORTED_WITHIN
            && durable.saturating_sub(told.applied.0) <= MAX_BEHIND
    }

    /// Returns the target that has applied most; of several the first by name.
    pub(super) fn best_target(&self, now: Monotonic) -> Option<String> {
        let fitting = self.peers.iter().filter(|(name, _)| self.is_target(now, name));
        let best = fitting.max_by(|one, other| (one.1.applied, other.0).cmp(&(other.1.applied, one.0)));
        best.map(|(name, _)| name.clone())
    }

    /// Takes another standby if the target can no longer take over.
    pub(super) fn replace_target(&mut self, now: Monotonic) -> Replaced {
        let Phase::Leading(leadership) = &self.phase else { return Replaced::NoneLeft };
        let target = leadership.handover.as_ref().and_then(|handover| handover.to.clone());
        let Some(name) = target.filter(|name| !self.is_target(now, name)) else { return Replaced::StillFits };
        let other = self.best_target(now);
        let replaced = if other.is_some() { Replaced::By } else { Replaced::NoneLeft };
        tracing::warn!(
            from = name,
            to = other.as_deref().unwrap_or("no standby"),
            "the target of the hand-over is gone"
        );
        if let Some(handover) = self.handover() {
            handover.to = other;
        }
        replaced
    }
}

/// The outcome of looking at the target of a hand-over again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The target can take over, or the process ends and there was none.
    StillFits,
    /// Another standby is the target now.
    By,
    /// No standby can take over.
    NoneLeft,
}
