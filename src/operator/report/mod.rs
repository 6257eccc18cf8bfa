//! The status after a pass: a pure function of what was observed, planned and done. It is written even if a step of the
//! pass failed, and only if it contains something new. The progress of members changes all the time, and is written
//! only together with other changes.

pub mod condition;
pub mod conditions;
mod etcd;
pub mod events;
mod members;
mod snapshots;
mod status_diff;
mod up_to_date;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::pod_selector;
use crate::api::{
    LeaderStatus, MasterClusterSpec, MasterClusterStatus, OplogStatus, Phase, SwitchoverResult,
};
use crate::cluster::log_end::LogId;
use crate::cluster::view::ClusterView;
use crate::operator::apply::AppliedObjects;
use crate::operator::observation::Observation;
use crate::operator::plan::Plan;

use condition::ConditionValue;
pub use status_diff::{is_news, is_stale};

/// What a pass has applied and done. A status is made from it, so that it reports no plan as a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The first thing that went wrong.
    pub failure: Option<Failure>,
    /// The last durable record, if etcd was asked and answered.
    pub durable_prefix: Option<u64>,
    /// The log that this record is in.
    pub log: Option<LogId>,
    /// The objects that the API server has taken, if it has taken them all.
    pub objects: Option<AppliedObjects>,
}

impl Applied {
    fn image(&self) -> Option<&str> {
        self.objects.as_ref()?.image()
    }
}

/// What went wrong in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason, in one CamelCase word.
    pub reason: &'static str,
    pub message: String,
    /// Whether it needs a manual action, such as another spec or another right.
    pub stalled: bool,
}

/// Computes the status after a pass.
#[must_use]
pub fn status(
    name: &str,
    spec: &MasterClusterSpec,
    observed: &Observation,
    plan: &Plan,
    applied: &Applied,
) -> MasterClusterStatus {
    let before = &observed.status;
    let members = members::members(observed, applied.durable_prefix);
    let view = observed.etcd.view();
    let leader = leader(observed, view);
    let count = |count: usize| i32::try_from(count).ok();
    let set = observed.stateful_set.as_ref();
    let updated =
        observed.pods.iter().filter(|pod| set.is_some_and(|set| pod.revision == set.update_revision));
    let standbys = members.iter().filter(|member| member.role == "standby");
    // If the lag of one standby is unknown, so is the largest lag.
    let lags: Option<Vec<i64>> = standbys.map(|member| member.lag).collect();
    let serving = leader.as_ref().and_then(|leader| members.iter().find(|member| member.name == leader.name));
    let conditions = conditions::conditions(spec, observed, plan, applied);
    MasterClusterStatus {
        observed_generation: observed.generation,
        phase: Some(phase(spec, observed, plan, applied, &conditions)),
        // The last known term stays while etcd does not answer; the condition shows that it is old.
        term: match view {
            Some(view) => view.leader.as_ref().and_then(|it| i64::try_from(it.term.0).ok()).or(before.term),
            None => before.term,
        },
        version: serving.and_then(|member| member.version.clone()).or_else(|| before.version.clone()),
        image: applied.image().or(before.image.as_deref()).map(str::to_owned),
        leader,
        replicas: count(observed.pods.len()),
        ready_replicas: count(observed.pods.iter().filter(|pod| pod.ready).count()),
        caught_up_replicas: view.and_then(|_| count(conditions::caught_up_standbys(observed).len())),
        updated_replicas: set.and_then(|_| count(updated.count())),
        selector: Some(pod_selector(name)),
        lag: view.and(lags).and_then(|lags| lags.into_iter().max()),
        oplog: match applied.durable_prefix {
            Some(last) => Some(OplogStatus {
                durable_prefix: i64::try_from(last).ok(),
                log_id: log_id(observed, view, applied),
            }),
            None => before.oplog.clone(),
        },
        etcd: match view.and_then(|view| view.store) {
            Some(store) => Some(etcd::status(&spec.etcd.endpoints, observed, store)),
            None => before.etcd.clone(),
        },
        members,
        snapshots: snapshots::entries(observed, applied),
        last_snapshot: plan.last_snapshot.clone(),
        last_failover: plan.last_failover.clone(),
        last_switchover: plan.last_switchover.clone(),
        conditions: conditions::merged(&before.conditions, conditions, observed),
    }
}

/// Returns the log that masters of this cluster write. A log is known to be theirs only while one of them leads: a
/// master that was started elsewhere with the same cluster id may have created another one.
fn log_id(observed: &Observation, view: Option<&ClusterView>, applied: &Applied) -> Option<String> {
    let leader = view.and_then(|view| view.leader.as_ref());
    let ours = leader.and_then(|it| observed.pod_of(&it.value.name, &it.value.addresses.rpc)).is_some();
    let now = applied.log.filter(|_| ours).map(|log| log.to_string());
    now.or_else(|| observed.status.oplog.as_ref().and_then(|oplog| oplog.log_id.clone()))
}

fn leader(observed: &Observation, view: Option<&ClusterView>) -> Option<LeaderStatus> {
    let before = observed.status.leader.clone();
    let Some(view) = view else { return before };
    let leader = view.leader.as_ref()?;
    let now = LeaderStatus {
        name: leader.value.name.clone(),
        address: view
            .serving
            .as_ref()
            .map_or(&leader.value.addresses.rpc, |serving| &serving.address)
            .clone(),
        since: Some(Time(observed.now)),
    };
    let same_term = observed.status.term.and_then(|term| u64::try_from(term).ok()) == Some(leader.term.0);
    match before {
        Some(before) if same_term && before.name == now.name => {
            Some(LeaderStatus { since: before.since, ..now })
        }
        _ => Some(now),
    }
}

fn phase(
    spec: &MasterClusterSpec,
    observed: &Observation,
    plan: &Plan,
    applied: &Applied,
    conditions: &[ConditionValue],
) -> Phase {
    let is = |kind: &str, value: &str| conditions.iter().any(|it| it.kind == kind && it.value == value);
    let switching = plan.last_switchover.as_ref().is_some_and(|it| it.result == SwitchoverResult::Pending);
    if observed.deleted_at.is_some() {
        Phase::Deleting
    } else if spec.suspend {
        Phase::Suspended
    } else if is(condition::STALLED, condition::TRUE) {
        Phase::Stalled
    } else if switching {
        Phase::SwitchingOver
    } else if is(condition::AVAILABLE, condition::TRUE) {
        if is(condition::READY, condition::TRUE) && all_caught_up(spec, observed) {
            Phase::Serving
        } else {
            Phase::Degraded
        }
    } else if applied.failure.is_some() {
        Phase::Pending
    } else if observed.etcd.view().is_none() {
        // It is unknown whether a primary serves: the last known phase stays.
        observed.status.phase.unwrap_or(Phase::Pending)
    } else {
        // Until the first primary is elected, a missing primary means that the cluster is starting.
        match observed.status.phase {
            None | Some(Phase::Pending | Phase::Starting) => Phase::Starting,
            Some(_) if observed.status.term.is_none() => Phase::Starting,
            Some(_) => Phase::NoPrimary,
        }
    }
}

fn all_caught_up(spec: &MasterClusterSpec, observed: &Observation) -> bool {
    let standbys = conditions::caught_up_standbys(observed).len();
    i32::try_from(standbys).is_ok_and(|standbys| standbys + 1 >= spec.replicas)
}
