//! The conditions of a cluster, as kstatus and `kubectl wait` read them. Each says why in a word and in a sentence.
//! Unknown is said where nothing was observed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Failure, Outcome};
use crate::api::names::ROLE_PRIMARY;
use crate::api::{MasterClusterSpec, SwitchoverResult};
use crate::operator::observed::{EtcdSight, Observed, PodFacts};
use crate::operator::plan::Plan;

/// It serves, and could go on serving if the primary died. Nothing else counts: tools that wait for it would else take
/// a cluster for failed because of one standby more than it needs.
pub const READY: &str = "Ready";
/// Somebody serves.
pub const AVAILABLE: &str = "Available";
/// Somebody could take over without losing anything.
pub const REDUNDANT: &str = "Redundant";
/// Something is under way that ends by itself.
pub const PROGRESSING: &str = "Progressing";
/// It will not become ready without a manual action.
pub const STALLED: &str = "Stalled";
/// etcd answers.
pub const ETCD_HEALTHY: &str = "EtcdHealthy";
/// Its reason while etcd has raised the alarm NOSPACE.
pub const OUT_OF_SPACE: &str = "OutOfSpace";
/// All pods run with the present template.
pub const UP_TO_DATE: &str = "UpToDate";

/// A condition holds.
pub const TRUE: &str = "True";
/// It does not.
pub const FALSE: &str = "False";
/// Nobody knows.
pub const UNKNOWN: &str = "Unknown";

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which.
    pub kind: &'static str,
    /// True, False or Unknown.
    pub value: &'static str,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

fn said(kind: &'static str, value: &'static str, reason: &str, message: impl Into<String>) -> Said {
    Said { kind, value, reason: reason.to_owned(), message: message.into() }
}

/// All conditions after a pass.
#[must_use]
pub fn conditions(
    spec: &MasterClusterSpec,
    observed: &Observed,
    plan: &Plan,
    outcome: &Outcome,
) -> Vec<Said> {
    let etcd = etcd(observed);
    let available = available(observed);
    let redundant = redundant(spec, observed);
    // A cluster that serves and could fail over is ready, whatever keeps one more standby from running.
    let served = available.value == TRUE && (redundant.value == TRUE || spec.replicas == 1);
    let stalled = stalled(observed, outcome, served);
    let progressing = progressing(spec, observed, plan, &stalled, outcome);
    let ready = ready(observed, &available, &redundant, &stalled, &progressing);
    vec![ready, available, redundant, progressing, stalled, etcd, up_to_date(observed)]
}

/// The conditions with the times of those that were said before.
#[must_use]
pub fn merged(before: &[Condition], now: Vec<Said>, observed: &Observed) -> Vec<Condition> {
    now.into_iter()
        .map(|said| {
            let old = before.iter().find(|old| old.type_ == said.kind && old.status == said.value);
            Condition {
                type_: said.kind.to_owned(),
                status: said.value.to_owned(),
                reason: said.reason,
                message: said.message,
                observed_generation: observed.generation,
                last_transition_time: old.map_or(Time(observed.now), |old| old.last_transition_time.clone()),
            }
        })
        .collect()
}

/// The standbys that could take over without losing anything: they say so, and they run.
#[must_use]
pub fn caught_up_standbys(observed: &Observed) -> Vec<&PodFacts> {
    let Some(view) = observed.etcd.view() else { return Vec::new() };
    let leads = |name: &str| view.leader.as_ref().is_some_and(|leader| leader.value.name == name);
    let caught_up = view.members.values().filter_map(|member| member.value.as_ref());
    caught_up
        // One that led and has not said otherwise since may be dead: its key outlives it for some seconds.
        .filter(|said| said.caught_up && !leads(&said.name) && said.role != ROLE_PRIMARY)
        .filter_map(|said| observed.pod_of(&said.name, &said.addresses.rpc))
        .filter(|pod| !pod.deleted)
        .collect()
}

fn etcd(observed: &Observed) -> Said {
    match &observed.etcd {
        EtcdSight::Current(view) if view.no_space => said(
            ETCD_HEALTHY,
            FALSE,
            OUT_OF_SPACE,
            "etcd is out of space (alarm NOSPACE): changes are refused, reads go on, and no other master can be elected \
             until etcd is compacted and defragmented or its quota is raised, and the alarm is disarmed",
        ),
        EtcdSight::Current(_) => said(ETCD_HEALTHY, TRUE, "Answers", "etcd answers"),
        EtcdSight::NotYet => said(ETCD_HEALTHY, UNKNOWN, "NotAskedYet", "etcd was not heard from yet"),
        EtcdSight::Lost { why } => said(ETCD_HEALTHY, FALSE, "Unreachable", why.clone()),
        EtcdSight::Unusable { reason, message } => said(ETCD_HEALTHY, FALSE, reason, message.clone()),
    }
}

fn available(observed: &Observed) -> Said {
    let Some(view) = observed.etcd.view() else {
        return said(AVAILABLE, UNKNOWN, "EtcdUnknown", "only etcd knows who serves, and it has not said so");
    };
    match (&view.leader, &view.serving) {
        (Some(leader), Some(address)) => {
            said(AVAILABLE, TRUE, "Serving", format!("{} serves at {address}", leader.value.name))
        }
        (Some(leader), None) => {
            said(AVAILABLE, FALSE, "Promoting", format!("{} takes over", leader.value.name))
        }
        (None, _) => said(AVAILABLE, FALSE, "NoPrimary", "nobody leads"),
    }
}

fn redundant(spec: &MasterClusterSpec, observed: &Observed) -> Said {
    if observed.etcd.view().is_none() {
        return said(
            REDUNDANT,
            UNKNOWN,
            "EtcdUnknown",
            "how far standbys are is not known while etcd is silent",
        );
    }
    let standbys: Vec<&str> = caught_up_standbys(observed).iter().map(|pod| pod.name.as_str()).collect();
    match standbys.len() {
        0 if spec.replicas == 1 => {
            said(REDUNDANT, FALSE, "OneMasterOnly", "spec.replicas is 1, so there is nobody to take over")
        }
        0 => {
            said(REDUNDANT, FALSE, "NoCaughtUpStandby", "no standby could take over without losing anything")
        }
        _ => said(REDUNDANT, TRUE, "CaughtUp", format!("{} could take over at once", list(&standbys))),
    }
}

fn stalled(observed: &Observed, outcome: &Outcome, served: bool) -> Said {
    if let Some(Failure { reason, message, stalled: true }) = &outcome.failure {
        return said(STALLED, TRUE, reason, message.clone());
    }
    if let EtcdSight::Unusable { reason, message } = &observed.etcd {
        return said(STALLED, TRUE, reason, message.clone());
    }
    let stuck =
        observed.pods.iter().find_map(|pod| pod.trouble.as_ref().filter(|it| it.stalled).map(|it| (pod, it)));
    if let Some((pod, trouble)) = stuck
        && !served
    {
        return said(STALLED, TRUE, &trouble.reason, format!("{}: {}", pod.name, trouble.message));
    }
    // Masters that have never run cannot: one that serves keeps its lease through a short outage.
    if let EtcdSight::Lost { why } = &observed.etcd
        && observed.status.term.is_none()
    {
        return said(STALLED, TRUE, "EtcdUnreachable", why.clone());
    }
    said(STALLED, FALSE, "NothingStuck", "no manual action is needed")
}

fn progressing(
    spec: &MasterClusterSpec,
    observed: &Observed,
    plan: &Plan,
    stalled: &Said,
    outcome: &Outcome,
) -> Said {
    if stalled.value == TRUE {
        return said(PROGRESSING, FALSE, "Stalled", stalled.message.clone());
    }
    if let Some(failure) = &outcome.failure {
        return said(PROGRESSING, TRUE, failure.reason, failure.message.clone());
    }
    if let Some(what) = plan.waits.first() {
        let reason = match &plan.last_switchover {
            Some(report) if report.result == SwitchoverResult::Pending => "SwitchingOver",
            _ if observed.deleted_at.is_some() => "Deleting",
            _ if spec.suspend => "Suspended",
            _ => "Waiting",
        };
        let value = if spec.suspend && observed.deleted_at.is_none() { FALSE } else { TRUE };
        return said(PROGRESSING, value, reason, format!("waits for {what}"));
    }
    if observed.etcd.view().is_none() {
        return said(PROGRESSING, TRUE, "WaitingForEtcd", "waits for etcd to answer");
    }
    let masters = observed.pods.iter().filter(|pod| !pod.deleted).count();
    if i32::try_from(masters).is_ok_and(|masters| masters < spec.replicas) {
        let message = format!("waits for {} masters, of which {masters} are there", spec.replicas);
        return said(PROGRESSING, TRUE, "Creating", message);
    }
    let behind = behind(observed);
    if let Some((pod, why)) = behind.first() {
        return said(PROGRESSING, TRUE, "CatchingUp", format!("waits for {pod}: {why}"));
    }
    if observed.etcd.view().is_some_and(|view| view.leader.is_none() || view.serving.is_none()) {
        return said(PROGRESSING, TRUE, "Electing", "waits for a primary");
    }
    said(PROGRESSING, FALSE, "Settled", "nothing is under way")
}

/// The pods that neither lead nor could, and why.
fn behind(observed: &Observed) -> Vec<(&str, String)> {
    let Some(view) = observed.etcd.view() else { return Vec::new() };
    let ready = caught_up_standbys(observed);
    observed
        .pods
        .iter()
        .filter(|pod| !ready.iter().any(|it| it.uid == pod.uid))
        .filter(|pod| view.leader.as_ref().is_none_or(|leader| leader.value.name != pod.name))
        .map(|pod| {
            let member = view.members.get(&pod.name).and_then(|member| member.value.as_ref());
            let why = match (&pod.trouble, member) {
                (Some(trouble), _) => trouble.message.clone(),
                (None, _) if pod.deleted => "it ends".to_owned(),
                (None, None) => "it has not joined yet".to_owned(),
                (None, Some(_)) => "it catches up".to_owned(),
            };
            (pod.name.as_str(), why)
        })
        .collect()
}

fn ready(
    observed: &Observed,
    available: &Said,
    redundant: &Said,
    stalled: &Said,
    progressing: &Said,
) -> Said {
    if observed.deleted_at.is_some() {
        return said(READY, FALSE, "Deleting", "the resource is being deleted");
    }
    if stalled.value == TRUE {
        return said(READY, FALSE, &stalled.reason, stalled.message.clone());
    }
    if available.value != TRUE {
        return said(READY, available.value, &available.reason, available.message.clone());
    }
    if redundant.value != TRUE && redundant.reason != "OneMasterOnly" {
        let message = match progressing.value {
            TRUE => format!("{}; {}", redundant.message, progressing.message),
            _ => redundant.message.clone(),
        };
        return said(READY, redundant.value, &redundant.reason, message);
    }
    said(READY, TRUE, "Serving", available.message.clone())
}

fn up_to_date(observed: &Observed) -> Said {
    let Some(revision) = observed.stateful_set.as_ref().and_then(|set| set.update_revision.as_ref()) else {
        return said(
            UP_TO_DATE,
            UNKNOWN,
            "NoRevisionYet",
            "the StatefulSet has not said what its pods should be",
        );
    };
    let leads = |pod: &PodFacts| {
        observed.etcd.view().and_then(|view| view.leader.as_ref()).is_some_and(|it| it.value.name == pod.name)
    };
    let mut old: Vec<&PodFacts> =
        observed.pods.iter().filter(|pod| pod.revision.as_ref() != Some(revision)).collect();
    old.sort_by_key(|pod| leads(pod));
    let names: Vec<&str> = old.iter().map(|pod| pod.name.as_str()).collect();
    if names.is_empty() {
        return said(UP_TO_DATE, TRUE, "AllCurrent", "all pods run with the present settings");
    }
    let message = format!(
        "older settings in {}: delete these pods one after the other in this order, each when the one before is ready",
        list(&names)
    );
    said(UP_TO_DATE, FALSE, "OlderPods", message)
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "nobody".to_owned(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}
