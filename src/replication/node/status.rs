//! What a node is at, for people and their tools.

use std::time::Duration;

use super::trust::DigestAt;
use super::{Campaign, Node, Phase, Stage};
use crate::engine::doubts::Doubts;
use crate::engine::types::{SequenceId, Term};
use crate::replication::history::History;
use crate::replication::time::Monotonic;

/// The role of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leads, whether it serves already or not.
    Primary,
    /// Does not.
    Standby,
}

/// What a node is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Reads the log, or cannot.
    CatchingUp,
    /// Follows the log as it is written.
    Following,
    /// Stands for election.
    Standing,
    /// Won, and does not serve yet.
    Promoting,
    /// Serves clients.
    Serving,
    /// Hands over.
    HandingOver,
    /// Sends clients away.
    Leaving,
    /// Is done.
    Stopped,
}

/// Why there was a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There never was a primary.
    FirstStart,
    /// The primary handed over.
    Switchover,
    /// The process of the primary was found dead.
    Died,
    /// The lease of the primary ran out, or was taken away.
    LeaseEnded,
}

impl Reason {
    /// The words for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::FirstStart => "first start",
            Reason::Switchover => "switchover",
            Reason::Died => "the primary died",
            Reason::LeaseEnded => "the lease ran out",
        }
    }
}

/// How a promotion went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The term that began.
    pub term: Term,
    /// When clients were told.
    pub at: Monotonic,
    /// Why.
    pub reason: Reason,
    /// From seeing that nobody leads until clients were told.
    pub total: Duration,
    /// From the won election until clients were told.
    pub took: Duration,
}

/// What a node is at, with numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its role.
    pub role: Role,
    /// What it is at.
    pub activity: Activity,
    /// The term that it leads in, or follows.
    pub term: Term,
    /// The last record applied.
    pub applied: SequenceId,
    /// The durable prefix as far as it knows.
    pub durable: SequenceId,
    /// Whether it serves or has applied what it lately heard to be the end of the log.
    pub caught_up: bool,
    /// Records that it is behind; `None` if it does not know.
    pub lag: Option<u64>,
    /// Why it can neither follow nor stand.
    pub trouble: Option<String>,
    /// Why etcd refuses to write the log.
    pub refused: Option<String>,
    /// What it knows to be durable.
    pub history: Option<History>,
    /// Signs that its state was not what the log says.
    pub doubts: Doubts,
    /// The digest of the primary of the present term that its own, built anew from the log, contradicts.
    pub against: Option<DigestAt>,
    /// How often etcd's revision has gone back.
    pub revision_went_back: u32,
    /// How often it threw its state away.
    pub rebuilds: u32,
    /// How long the lease that it leads with still holds.
    pub lease_left: Option<Duration>,
    /// How the last promotion went.
    pub promotion: Option<Promotion>,
}

impl Node {
    /// What it is at, and in which term: what is worth telling at once.
    #[must_use]
    pub fn brief(&self) -> (Activity, Term) {
        (self.role().1, self.term())
    }

    fn term(&self) -> Term {
        match &self.phase {
            Phase::Leading(reign) => reign.term,
            _ => self.view.leader().map_or(self.following.position.term, |leader| leader.term),
        }
    }

    fn role(&self) -> (Role, Activity) {
        match &self.phase {
            Phase::Standby if self.following.is_live() => (Role::Standby, Activity::Following),
            Phase::Standby => (Role::Standby, Activity::CatchingUp),
            Phase::Campaigning(Campaign::Granting { .. } | Campaign::Creating { .. }) => {
                (Role::Standby, Activity::Standing)
            }
            Phase::Leading(reign) if reign.handover.is_some() => (Role::Primary, Activity::HandingOver),
            Phase::Leading(reign) if reign.stage == Stage::Serving => (Role::Primary, Activity::Serving),
            Phase::Leading(_) => (Role::Primary, Activity::Promoting),
            Phase::Leaving(_) => (Role::Standby, Activity::Leaving),
            Phase::Stopped => (Role::Standby, Activity::Stopped),
        }
    }

    /// Why a standby can neither follow nor stand.
    fn trouble(&self) -> Option<String> {
        let following = &self.following;
        let doubt =
            || following.trust.doubt().map(|reason| format!("{reason}: the state has to be built anew"));
        let bar = || self.view.gone_at().and_then(|_| self.bar());
        following.trouble.clone().or_else(doubt).or_else(bar)
    }

    /// What it is at.
    #[must_use]
    pub fn status(&self, now: Monotonic) -> NodeStatus {
        let (role, activity) = self.role();
        let lease = match &self.phase {
            Phase::Leading(reign) => Some(reign.lease.deadline()),
            _ => None,
        };
        let (following, applied) = (&self.following, self.replica.engine.applied());
        let primary = role == Role::Primary;
        let lag = following.heard.lag(now, following.position.log, applied);
        NodeStatus {
            role,
            activity,
            term: self.term(),
            applied,
            durable: if primary { self.replica.gate.durable() } else { following.heard.last().max(applied) },
            caught_up: primary || following.is_caught_up(now),
            lag: if primary { Some(0) } else { lag },
            trouble: if primary { None } else { self.trouble() },
            refused: self.refused.clone(),
            history: self.history,
            doubts: following.trust.seen,
            against: following.trust.against(following.position.term).cloned(),
            revision_went_back: self.view.went_back(),
            rebuilds: self.following.rebuilds,
            lease_left: lease.map(|deadline| Monotonic(deadline.0).since(now)),
            promotion: self.report,
        }
    }
}
