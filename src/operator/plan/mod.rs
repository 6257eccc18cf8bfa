//! The plan of a pass: a pure function of the spec and of what was observed. No client, no clock.
//!
//! At most one disruptive act in a pass ([`Plan::act`] is one, and a smaller StatefulSet is never applied together with
//! one). What was not observed leads to waiting, never to a guess. A failed call to a master changes the status, never
//! the leadership.
//!
//! Each concern has a file of its own: leadership, promotion clean-up, switchover, deletion, and the number of masters.
//! Further ones are added as further files and variants of [`Act`].

pub mod deletion;
pub mod leadership;
pub mod promotion;
pub mod scale;
pub mod snapshot;
pub mod switchover;
pub mod volumes;

use std::time::Duration;

use crate::api::{DeletionPolicy, FailoverReport, MasterClusterSpec, SnapshotReport, SwitchoverReport};
use crate::operator::observation::{EtcdKeys, Observation};
use crate::operator::same_etcd::is_etcd_in_doubt;

use deletion::Farewell;
use leadership::Relabel;
use snapshot::Candidate;

/// Requeue delay while a Secret is missing: Secrets are not watched, so that the operator needs no right to list them.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Requeue delay while waiting for progress that no watch reports.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(2);

/// What a pass has to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The finalizer of the resource.
    pub finalizer: Finalizer,
    pub objects: Objects,
    /// Role labels, in the order in which they are written.
    pub labels: Vec<Relabel>,
    /// The one act of the pass; clients may notice all but that of taking a snapshot.
    pub act: Option<Act>,
    /// Work that clients do not notice.
    pub chores: Vec<Chore>,
    /// The record of the last failover.
    pub last_failover: Option<FailoverReport>,
    /// The record of the last switchover.
    pub last_switchover: Option<SwitchoverReport>,
    /// The record of the last snapshot that was asked for.
    pub last_snapshot: Option<SnapshotReport>,
    /// What the operator waits for, as text for the status.
    pub waits: Vec<String>,
    /// Requeue delay in case no watch wakes the controller earlier.
    pub again: Option<Duration>,
}

/// What a pass does with the finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalizer {
    /// No change.
    Leave,
    Add,
    /// Removed from a resource that stays: a later deletion needs no work of the operator any more.
    Withdraw,
    /// Removed from a resource that is being deleted, after which it is gone.
    Remove(Farewell),
}

/// What a pass does with the objects of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// They stay as they are.
    Leave,
    /// They are built and applied, but for the settings file and the StatefulSet.
    KeepMasters,
    /// They are built and applied.
    Apply {
        /// Number of masters in the StatefulSet.
        replicas: i32,
    },
}

/// An act of which there is at most one in a pass, because clients may notice it, or it must not meet one that they
/// notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The primary is asked to hand over.
    Switchover {
        request_id: String,
        /// The target; `None` lets the primary choose the best placed standby.
        to: Option<String>,
        /// Address of the primary's admin API.
        address: String,
    },
    /// Masters are asked for a snapshot, one after the other until one takes it.
    TakeSnapshot { request_id: String, candidates: Vec<Candidate> },
    /// The StatefulSet is deleted without its pods, because its volume claims cannot be changed: the next pass creates it
    /// anew around them.
    ReplaceStatefulSet { uid: String },
    /// The StatefulSet is scaled to 0, before the keys of a deleted resource are deleted.
    EndMasters,
    /// The keys in etcd are deleted, unless a master uses them or the log is another one.
    DeleteKeys {
        /// The log that the masters of this cluster wrote, as the status names it.
        log: Option<String>,
    },
    /// The volume claims of a deleted resource are deleted, after its keys.
    DeleteClaims { claims: Vec<OldClaim> },
}

/// A volume claim that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldClaim {
    pub name: String,
    /// Tells it from a later one of the same name.
    pub uid: String,
}

/// Work beside the pass that clients do not notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chore {
    /// The primary is asked how it took over.
    AskPromotion {
        term: u64,
        /// Address of its HTTP port.
        address: String,
    },
    /// The key of a member that is gone is deleted, if it is unchanged.
    DeleteMemberKey { name: String, mod_revision: u64 },
    /// The key with the preferred successor is deleted after the election, if it is unchanged.
    DeleteSwitchoverKey { mod_revision: u64 },
}

/// Plans a pass over the cluster called `name`.
#[must_use]
pub fn plan(name: &str, spec: &MasterClusterSpec, observed: &Observation) -> Plan {
    let mut plan = Plan {
        finalizer: Finalizer::Leave,
        objects: Objects::Leave,
        // Also for a cluster that is suspended or being deleted: labels only show the role.
        labels: leadership::relabel(observed),
        act: None,
        chores: Vec::new(),
        last_failover: observed.status.last_failover.clone(),
        last_switchover: observed.status.last_switchover.clone(),
        last_snapshot: observed.status.last_snapshot.clone(),
        waits: Vec::new(),
        again: None,
    };
    if let Some(since) = observed.deleted_at {
        plan.leave(spec, observed, since);
        return plan;
    }
    // Only a resource whose keys have to be deleted has a finalizer. With Retain the resource, its namespace and the
    // definition can be deleted while there is no operator.
    plan.finalizer = match (spec.deletion_policy, observed.finalizer) {
        (DeletionPolicy::Delete, false) => Finalizer::Add,
        (DeletionPolicy::Retain, true) => Finalizer::Withdraw,
        (DeletionPolicy::Delete, true) | (DeletionPolicy::Retain, false) => Finalizer::Leave,
    };
    let (failover, question) = promotion::failover(observed);
    plan.last_failover = failover;
    if let Some(question) = question {
        plan.chores.push(question);
        plan.requeue_after(UNWATCHED_INTERVAL);
    }
    if spec.suspend {
        plan.waits.push("spec.suspend to be set to false".to_owned());
        // A request that is under way is withdrawn; a new one is ignored.
        plan.requests(spec, observed);
        return plan;
    }
    if matches!(observed.etcd, EtcdKeys::Unusable { .. }) {
        // Pods that are created from incomplete settings would be out of date as soon as the rest is known.
        plan.requeue_after(RETRY_INTERVAL);
        return plan;
    }
    plan.objects = if is_etcd_in_doubt(&spec.etcd.endpoints, observed) {
        plan.waits
            .push("etcd to answer at spec.etcd.endpoints: masters keep their settings until then".to_owned());
        plan.requeue_after(RETRY_INTERVAL);
        Objects::KeepMasters
    } else {
        plan.stateful_set(spec, observed)
    };
    if volumes::waits(observed) {
        // A claim that waits for too long stalls the cluster, and no watch tells of the time.
        plan.requeue_after(RETRY_INTERVAL);
    }
    if let Some(view) = observed.etcd.view() {
        plan.chores.extend(promotion::stale_keys(observed, name, view));
    }
    plan.requests(spec, observed);
    plan
}

impl Plan {
    /// Counts the parts of the plan that clients may notice.
    #[must_use]
    pub fn disruptions(&self, observed: &Observation) -> usize {
        let smaller = match (self.objects, &observed.stateful_set) {
            (Objects::Apply { replicas }, Some(set)) => replicas < set.replicas,
            _ => false,
        };
        usize::from(self.act.is_some()) + usize::from(smaller)
    }

    fn requeue_after(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }

    fn leave(
        &mut self,
        spec: &MasterClusterSpec,
        observed: &Observation,
        since: k8s_openapi::jiff::Timestamp,
    ) {
        if !observed.finalizer {
            // Finalizers of other controllers may keep it; for us it is gone.
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
        self.requeue_after(UNWATCHED_INTERVAL);
    }

    /// Plans the StatefulSet, which has to go first if it has other volumes than the spec.
    fn stateful_set(&mut self, spec: &MasterClusterSpec, observed: &Observation) -> Objects {
        match volumes::step(spec, observed) {
            volumes::Step::Fits => {
                Objects::Apply { replicas: scale::replicas(spec, observed, &mut self.waits) }
            }
            volumes::Step::Replace(act) => {
                self.act = Some(act);
                self.waits.push(volumes::REPLACED.to_owned());
                Objects::KeepMasters
            }
            volumes::Step::Wait => {
                self.waits.push(volumes::REPLACED.to_owned());
                Objects::KeepMasters
            }
        }
    }

    fn requests(&mut self, spec: &MasterClusterSpec, observed: &Observation) {
        self.switch(spec, observed);
        self.take_snapshot(spec, observed);
    }

    /// Plans a requested snapshot, after everything that it has to wait for.
    fn take_snapshot(&mut self, spec: &MasterClusterSpec, observed: &Observation) {
        match snapshot::step(spec, observed) {
            snapshot::Step::Nothing => {}
            snapshot::Step::Record(report) => {
                self.last_snapshot = Some(report);
                self.requeue_after(Duration::ZERO);
            }
            snapshot::Step::End(report) => {
                if observed.snapshot_request.as_ref() != Some(&report.request_id) {
                    self.requeue_after(Duration::ZERO);
                }
                self.last_snapshot = Some(report);
            }
            snapshot::Step::Wait(what) => {
                self.waits.push(what);
                self.requeue_after(UNWATCHED_INTERVAL);
            }
            snapshot::Step::Ask(act) => {
                self.requeue_after(UNWATCHED_INTERVAL);
                let switching = self.last_switchover != observed.status.last_switchover;
                if self.disruptions(observed) == 0 && !switching {
                    self.waits.push("a master to take a snapshot".to_owned());
                    self.act = Some(act);
                } else {
                    self.waits.push("an earlier step to end before a snapshot is taken".to_owned());
                }
            }
        }
    }

    fn switch(&mut self, spec: &MasterClusterSpec, observed: &Observation) {
        match switchover::step(spec, observed) {
            switchover::Step::Nothing => {}
            switchover::Step::Record(report) => {
                self.last_switchover = Some(report);
                self.requeue_after(Duration::ZERO);
            }
            switchover::Step::End(report) => {
                if report.request_id != spec.switchover.request_id {
                    // The request that replaced it is next, at once.
                    self.requeue_after(Duration::ZERO);
                }
                self.last_switchover = Some(report);
            }
            switchover::Step::Wait(what) => {
                self.waits.push(what);
                self.requeue_after(UNWATCHED_INTERVAL);
            }
            switchover::Step::Ask(act) => {
                self.requeue_after(UNWATCHED_INTERVAL);
                // One disruption at a time.
                if self.disruptions(observed) == 0 {
                    self.waits.push("the primary to hand over".to_owned());
                    self.act = Some(act);
                } else {
                    self.waits.push("the StatefulSet to change before the switchover".to_owned());
                }
            }
        }
    }
}
