//! What a pass does about a cluster: a pure function of what the user wants and what was observed. No client, no clock.
//!
//! At most one disruptive act in a pass ([`Plan::act`] is one, and a smaller StatefulSet is never applied together with
//! one). What was not observed leads to waiting, never to a guess. A failed call to a master changes what the status
//! says, never who leads.
//!
//! Each step has a file of its own: leadership, promotion clean-up, switchover, deletion, and how many masters there
//! are. Further steps of a cluster's life join here as further files and variants of [`Act`].

pub mod deletion;
pub mod leadership;
pub mod promotion;
pub mod scale;
pub mod switchover;

use std::time::Duration;

use crate::api::{DeletionPolicy, FailoverReport, MasterClusterSpec, SwitchoverReport};
use crate::operator::observed::{EtcdSight, Observed};

use deletion::Farewell;
use leadership::Relabel;

/// How soon a Secret that was missing is looked for again: Secrets are not watched, so that the operator need not be
/// allowed to list them.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How soon it is looked again at what goes on by itself without telling.
const GOES_ON: Duration = Duration::from_secs(2);

/// What a pass does.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The finalizer of the resource.
    pub finalizer: Finalizer,
    /// The objects of the cluster.
    pub objects: Objects,
    /// Role labels, in this order.
    pub labels: Vec<Relabel>,
    /// The one thing that somebody may notice.
    pub act: Option<Act>,
    /// Things that nobody notices.
    pub chores: Vec<Chore>,
    /// The record of the last failover.
    pub last_failover: Option<FailoverReport>,
    /// The record of the last switchover.
    pub last_switchover: Option<SwitchoverReport>,
    /// What it waits for, for people.
    pub waits: Vec<String>,
    /// How soon it has to be looked at again even if nothing is heard.
    pub again: Option<Duration>,
}

/// What becomes of the finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// It is as it should be.
    Leave,
    /// It is put on.
    Add,
    /// It is taken off a resource that stays: there is nothing any more that has to be done before it goes.
    Withdraw,
    /// It is taken off, and with it the resource goes.
    Remove(Farewell),
}

/// What becomes of the objects of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// They are left as they are.
    Leave,
    /// They are made what they should be.
    Apply {
        /// How many masters the StatefulSet shall have.
        replicas: i32,
    },
}

/// Something that somebody may notice. At most one in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The primary is asked to hand over.
    Switchover {
        /// Which request.
        request_id: String,
        /// To whom; to the best placed standby if to nobody in particular.
        to: Option<String>,
        /// The primary's admin API.
        address: String,
    },
    /// The masters are ended for good: the StatefulSet gets no replicas. It goes with the resource.
    EndMasters,
    /// The keys in etcd are deleted, unless a master leads or the log is another one.
    DeleteKeys {
        /// The log that the masters of this cluster wrote, as the status names it.
        log: Option<String>,
    },
}

/// Something that nobody notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chore {
    /// The primary is asked how it took over.
    AskPromotion {
        /// In which term.
        term: u64,
        /// Its HTTP port.
        address: String,
    },
    /// The key of a member that is gone is deleted, if it is still that one.
    DeleteMemberKey {
        /// The member.
        name: String,
        /// Which version of the key.
        mod_revision: u64,
    },
    /// The name of a successor who has succeeded is deleted, if it is still that one.
    DeleteSwitchoverKey {
        /// Which version of the key.
        mod_revision: u64,
    },
}

/// What is to be done about the cluster called `name`.
#[must_use]
pub fn plan(name: &str, spec: &MasterClusterSpec, observed: &Observed) -> Plan {
    let mut plan = Plan {
        finalizer: Finalizer::Leave,
        objects: Objects::Leave,
        // Also of one that is suspended or being deleted: the label says what is, it changes nothing.
        labels: leadership::relabel(observed),
        act: None,
        chores: Vec::new(),
        last_failover: observed.status.last_failover.clone(),
        last_switchover: observed.status.last_switchover.clone(),
        waits: Vec::new(),
        again: None,
    };
    if let Some(since) = observed.deleted_at {
        plan.leave(spec, observed, since);
        return plan;
    }
    // Only a resource whose deletion has something to do waits for the operator. One that keeps its keys can be deleted
    // while there is no operator, and its namespace and the definition with it.
    plan.finalizer = match (spec.deletion_policy, observed.finalizer) {
        (DeletionPolicy::Delete, false) => Finalizer::Add,
        (DeletionPolicy::Retain, true) => Finalizer::Withdraw,
        (DeletionPolicy::Delete, true) | (DeletionPolicy::Retain, false) => Finalizer::Leave,
    };
    let (failover, question) = promotion::failover(observed);
    plan.last_failover = failover;
    if let Some(question) = question {
        plan.chores.push(question);
        plan.look_again(GOES_ON);
    }
    if spec.suspend {
        plan.waits.push("spec.suspend to be taken back".to_owned());
        // A request that is under way ends; a new one is not looked at.
        plan.switch(spec, observed);
        return plan;
    }
    if matches!(observed.etcd, EtcdSight::Unusable { .. }) {
        // The pods would be made from half of what they need, and be out of date when the rest is there.
        plan.look_again(LOOK_AGAIN);
        return plan;
    }
    plan.objects = Objects::Apply { replicas: scale::replicas(spec, observed, &mut plan.waits) };
    if let Some(view) = observed.etcd.view() {
        plan.chores.extend(promotion::stale_keys(observed, name, view));
    }
    plan.switch(spec, observed);
    plan
}

impl Plan {
    /// Whether something in it may be noticed by somebody who uses the cluster.
    #[must_use]
    pub fn disruptions(&self, observed: &Observed) -> usize {
        let smaller = match (self.objects, &observed.stateful_set) {
            (Objects::Apply { replicas }, Some(set)) => replicas < set.replicas,
            _ => false,
        };
        usize::from(self.act.is_some()) + usize::from(smaller)
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }

    fn leave(&mut self, spec: &MasterClusterSpec, observed: &Observed, since: k8s_openapi::jiff::Timestamp) {
        if !observed.finalizer {
            // Others may hold it still; for us it is gone.
            return;
        }
        match deletion::step(spec, observed, since) {
            deletion::Step::Do(act) => self.act = Some(act),
            deletion::Step::Wait(what) => self.waits.push(what),
            deletion::Step::LetGo(farewell) => {
                self.finalizer = Finalizer::Remove(farewell);
                return;
            }
        }
        self.look_again(GOES_ON);
    }

    fn switch(&mut self, spec: &MasterClusterSpec, observed: &Observed) {
        match switchover::step(spec, observed) {
            switchover::Step::Nothing => {}
            switchover::Step::Record(report) => {
                self.last_switchover = Some(report);
                self.look_again(Duration::ZERO);
            }
            switchover::Step::End(report) => {
                if report.request_id != spec.switchover.request_id {
                    // The request that replaced it has its turn.
                    self.look_again(Duration::ZERO);
                }
                self.last_switchover = Some(report);
            }
            switchover::Step::Wait(what) => {
                self.waits.push(what);
                self.look_again(GOES_ON);
            }
            switchover::Step::Ask(act) => {
                self.look_again(GOES_ON);
                // One disruption at a time.
                if self.disruptions(observed) == 0 {
                    self.waits.push("the primary to hand over".to_owned());
                    self.act = Some(act);
                } else {
                    self.waits.push("the StatefulSet to become smaller before the switchover".to_owned());
                }
            }
        }
    }
}
