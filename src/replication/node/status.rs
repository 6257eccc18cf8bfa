//! The status of a node, for people and their tools.

use std::time::Duration;

pub use super::snapshots::SnapshotReport;
use super::{Campaign, Node, Phase, Snapshots, Stage};
use crate::cluster::log_end::History;
use crate::cluster::log_floor::FloorState;
use crate::cluster::member::DigestAt;
use crate::cluster::promotion::PromotionReason;
use crate::cluster::role::Role;
use crate::engine::divergence::Divergence;
use crate::engine::types::{SequenceId, Term};
use crate::replication::time::Monotonic;

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Reads the log to its end, or cannot.
    CatchingUp,
    /// Follows the log as it is written.
    Following,
    /// Stands for election.
    Standing,
    /// Has won the election, and does not serve yet.
    Promoting,
    Serving,
    HandingOver,
    /// No longer leads, and closes the port.
    Leaving,
    Stopped,
}

/// Times and reason of a promotion to primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The term that began.
    pub term: Term,
    /// When the address was published for clients.
    pub at: Monotonic,
    pub reason: PromotionReason,
    /// From when the election key was seen absent until the address was published.
    pub total: Duration,
    /// From the won election until the address was published.
    pub took: Duration,
}

/// The status of a node in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub role: Role,
    pub activity: Activity,
    /// The term that it leads in or follows.
    pub term: Term,
    /// The last record that this node has applied.
    pub applied: SequenceId,
    /// The durable prefix; of a standby, the newest one that it heard of.
    pub durable: SequenceId,
    /// Whether it is the primary, or has applied an end of the log that it heard lately.
    pub caught_up: bool,
    /// Records that it is behind; `None` if that is unknown.
    pub lag: Option<u64>,
    /// Why a standby can neither follow nor stand.
    pub trouble: Option<String>,
    /// Why etcd refuses to write the log.
    pub refused: Option<String>,
    /// The last batch that it knows to be durable.
    pub history: Option<History>,
    /// Signs that its state was not what the log says.
    pub divergence: Divergence,
    /// The digest by the primary of the present term that its own, rebuilt from the log, contradicts.
    pub against: Option<DigestAt>,
    /// How often etcd's revision has gone back.
    pub revision_went_back: u32,
    /// How often it discarded its state.
    pub rebuilds: u32,
    /// Until the leader lease ends, as this primary counts it; `None` if it does not lead.
    pub lease_left: Option<Duration>,
    /// The last promotion of this process; `None` if there was none.
    pub promotion: Option<Promotion>,
    /// Its snapshots; `None` without a directory for them.
    pub snapshots: Option<SnapshotReport>,
    /// The floor of the log; `None` of a standby.
    pub floor: Option<FloorState>,
    /// Batches that it has deleted in this term.
    pub batches_deleted: u64,
}

impl Node {
    /// Returns the activity and the term. A change of these is reported at once.
    #[must_use]
    pub fn brief(&self) -> (Activity, Term) {
        (self.role().1, self.term())
    }

    fn term(&self) -> Term {
        match &self.phase {
            Phase::Leading(leadership) => leadership.term,
            _ => self.seen_keys.leader().map_or(self.following.position.term, |leader| leader.term),
        }
    }

    fn role(&self) -> (Role, Activity) {
        match &self.phase {
            Phase::Standby if self.following.is_live() => (Role::Standby, Activity::Following),
            Phase::Standby => (Role::Standby, Activity::CatchingUp),
            Phase::Campaigning(Campaign::Granting { .. } | Campaign::Creating { .. }) => {
                (Role::Standby, Activity::Standing)
            }
            Phase::Leading(leadership) if leadership.handover.is_some() => {
                (Role::Primary, Activity::HandingOver)
            }
            Phase::Leading(leadership) if leadership.stage == Stage::Serving => {
                (Role::Primary, Activity::Serving)
            }
            Phase::Leading(_) => (Role::Primary, Activity::Promoting),
            Phase::Leaving(_) => (Role::Standby, Activity::Leaving),
            Phase::Stopped => (Role::Standby, Activity::Stopped),
        }
    }

    /// Returns why a standby can neither follow nor stand.
    pub(super) fn trouble(&self) -> Option<String> {
        let doubt = || {
            let doubt = self.following.trust.doubt();
            doubt.map(|reason| format!("it rebuilds its state from the log: {reason} (no manual action)"))
        };
        self.following.trouble.clone().or_else(doubt).or_else(|| self.log_trouble())
    }

    /// Returns why a standby can neither follow nor stand because of the log in etcd. A doubt about its own state is not
    /// such a reason: it ends with the rebuild.
    pub(super) fn log_trouble(&self) -> Option<String> {
        let bar = || self.seen_keys.gone_at().and_then(|_| self.bar());
        self.following.trouble.clone().or_else(bar)
    }

    /// Returns the status at this moment.
    #[must_use]
    pub fn status(&self, now: Monotonic) -> NodeStatus {
        let (role, activity) = self.role();
        let lease = match &self.phase {
            Phase::Leading(leadership) => Some(leadership.lease.deadline()),
            _ => None,
        };
        let (following, applied) = (&self.following, self.incarnation.engine.applied());
        let primary = role == Role::Primary;
        let lag = following.heard.lag(now, following.position.log, applied);
        NodeStatus {
            role,
            activity,
            term: self.term(),
            applied,
            durable: if primary {
                self.incarnation.gate.durable()
            } else {
                following.heard.last().max(applied)
            },
            caught_up: primary || following.is_caught_up(now),
            lag: if primary { Some(0) } else { lag },
            trouble: if primary { None } else { self.trouble() },
            refused: self.refused.clone(),
            history: self.history,
            divergence: following.trust.seen,
            against: following.trust.against(following.position.term).cloned(),
            revision_went_back: self.seen_keys.went_back(),
            rebuilds: self.following.rebuilds,
            lease_left: lease.map(|deadline| Monotonic(deadline.0).since(now)),
            promotion: self.report.clone(),
            snapshots: self.snapshots.as_ref().map(Snapshots::report),
            floor: self.floor_state(),
            batches_deleted: self.batches_deleted(),
        }
    }
}
