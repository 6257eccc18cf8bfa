//! The conditions of a cluster, as kstatus and `kubectl wait` read them. Each has a reason in one word and a message.
//! The value is Unknown where nothing was observed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::condition::{
    AVAILABLE, ConditionValue, FALSE, LOG_UNUSABLE, PROGRESSING, READY, REDUNDANT, STALLED, TRUE, UNKNOWN,
};
use super::{Applied, Failure, etcd, snapshots, up_to_date};
use crate::api::{MasterClusterSpec, SwitchoverResult};
use crate::cluster::member::MemberValue;
use crate::cluster::role::Role;
use crate::operator::claim_trouble::{CLAIM_LOST, CLAIM_PENDING};
use crate::operator::observation::{EtcdKeys, Observation, PodFacts};
use crate::operator::plan::Plan;

/// Computes all conditions after a pass.
#[must_use]
pub fn conditions(
    spec: &MasterClusterSpec,
    observed: &Observation,
    plan: &Plan,
    applied: &Applied,
) -> Vec<ConditionValue> {
    let etcd = etcd::condition(observed);
    let snapshots = snapshots::condition(spec, observed);
    let available = available(observed);
    let redundant = redundant(spec, observed);
    // A cluster that serves and could fail over is ready, whatever keeps one more standby from running.
    let served = available.value == TRUE && (redundant.value == TRUE || spec.replicas == 1);
    let stalled = stalled(observed, applied, served);
    let progressing = progressing(spec, observed, plan, &stalled, applied);
    let ready = ready(observed, &available, &redundant, &stalled, &progressing);
    vec![
        ready,
        available,
        redundant,
        progressing,
        stalled,
        etcd,
        snapshots,
        up_to_date::condition(spec, observed),
    ]
}

/// Adds times: a condition whose value is unchanged keeps its transition time.
#[must_use]
pub fn merged(before: &[Condition], now: Vec<ConditionValue>, observed: &Observation) -> Vec<Condition> {
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

/// Returns the standbys that could take over without losing anything: their member keys say so, and their pods are not
/// being deleted.
#[must_use]
pub fn caught_up_standbys(observed: &Observation) -> Vec<&PodFacts> {
    let Some(view) = observed.etcd.view() else { return Vec::new() };
    let leads = |name: &str| view.leader.as_ref().is_some_and(|leader| leader.value.name == name);
    let caught_up = view.members.values().filter_map(|member| member.value.as_ref());
    caught_up
        // A member whose key still has the role primary may be dead: the key outlives the process for some seconds.
        .filter(|said| said.caught_up && !leads(&said.name) && said.role != Role::Primary)
        .filter_map(|said| observed.pod_of(&said.name, &said.addresses.rpc))
        .filter(|pod| !pod.deleted)
        .collect()
}

fn available(observed: &Observation) -> ConditionValue {
    let Some(view) = observed.etcd.view() else {
        return ConditionValue::new(
            AVAILABLE,
            UNKNOWN,
            "EtcdUnknown",
            "the primary is unknown until etcd answers",
        );
    };
    match (&view.leader, &view.serving) {
        (Some(leader), Some(serving)) => ConditionValue::new(
            AVAILABLE,
            TRUE,
            "Serving",
            format!("{} serves at {}", leader.value.name, serving.address),
        ),
        (Some(leader), None) => {
            let message = format!("{} was elected and does not serve clients yet", leader.value.name);
            ConditionValue::new(AVAILABLE, FALSE, "Promoting", message)
        }
        (None, _) => {
            ConditionValue::new(AVAILABLE, FALSE, "NoPrimary", "there is no primary: clients are not served")
        }
    }
}

fn redundant(spec: &MasterClusterSpec, observed: &Observation) -> ConditionValue {
    if observed.etcd.view().is_none() {
        return ConditionValue::new(
            REDUNDANT,
            UNKNOWN,
            "EtcdUnknown",
            "until etcd answers, it is unknown whether a standby has caught up",
        );
    }
    let standbys: Vec<&str> = caught_up_standbys(observed).iter().map(|pod| pod.name.as_str()).collect();
    let mut redundant = match standbys.len() {
        0 if spec.replicas == 1 => ConditionValue::new(
            REDUNDANT,
            FALSE,
            "OneMasterOnly",
            "spec.replicas is 1, so no standby can take over",
        ),
        0 => ConditionValue::new(
            REDUNDANT,
            FALSE,
            "NoCaughtUpStandby",
            "no standby has caught up: none can take over",
        ),
        _ => ConditionValue::new(
            REDUNDANT,
            TRUE,
            "CaughtUp",
            format!("{} can take over at once", list(&standbys)),
        ),
    };
    if let Some(contradiction) = contradiction(observed) {
        redundant.message = format!("{}; {contradiction}", redundant.message);
    }
    redundant
}

/// Returns the values of the member keys that masters of this cluster have written, of pods that are not being deleted.
pub(super) fn registered(observed: &Observation) -> impl Iterator<Item = &MemberValue> {
    let members = observed.etcd.view().into_iter().flat_map(|view| view.members.values());
    members
        .filter_map(|member| member.value.as_ref())
        .filter(|said| observed.pod_of(&said.name, &said.addresses.rpc).is_some_and(|pod| !pod.deleted))
}

/// Returns which standby has found that the present primary's state is not what the log says.
fn contradiction(observed: &Observation) -> Option<String> {
    let term = observed.etcd.view()?.leader.as_ref()?.term.0;
    let found = |said: &MemberValue| said.digest_at.as_ref().filter(|at| at.term == term).map(|at| at.record);
    let (name, record) = registered(observed).find_map(|said| Some((&said.name, found(said)?)))?;
    Some(format!(
        "the primary's state does not match the log: {name} rebuilt its state from the log, and its digest differs from \
         the one that the primary wrote as record {record}. Switch over to {name}"
    ))
}

/// Returns why no master can lead, if all that have registered report that the log in etcd is of no use to them.
fn unusable_log(observed: &Observation) -> Option<String> {
    if observed.etcd.view()?.leader.is_some() || !registered(observed).all(|said| said.trouble.is_some()) {
        return None;
    }
    let (name, why) = registered(observed).find_map(|said| Some((&said.name, said.trouble.as_ref()?)))?;
    Some(format!(
        "no master can lead: {name} reports: {why}. If keys of the log were deleted or etcd was restored from a backup, \
         put the newest data of etcd back, and the masters continue by themselves; to begin with an empty index \
         instead, delete this resource and its keys and create it again"
    ))
}

fn stalled(observed: &Observation, applied: &Applied, served: bool) -> ConditionValue {
    if let Some(Failure { reason, message, stalled: true }) = &applied.failure {
        return ConditionValue::new(STALLED, TRUE, reason, message.clone());
    }
    if let EtcdKeys::Unusable { reason, message } = &observed.etcd {
        return ConditionValue::new(STALLED, TRUE, reason, message.clone());
    }
    let stuck =
        observed.pods.iter().find_map(|pod| pod.trouble.as_ref().filter(|it| it.stalled).map(|it| (pod, it)));
    if let Some((pod, trouble)) = stuck
        && !served
    {
        return ConditionValue::new(
            STALLED,
            TRUE,
            &trouble.reason,
            format!("{}: {}", pod.name, trouble.message),
        );
    }
    if let Some(why) = unusable_log(observed) {
        return ConditionValue::new(STALLED, TRUE, LOG_UNUSABLE, why);
    }
    // Only before the first primary: later, a primary keeps its lease through a short outage of etcd, and no manual
    // action is needed.
    if let EtcdKeys::Lost { why } = &observed.etcd
        && observed.status.term.is_none()
    {
        return ConditionValue::new(STALLED, TRUE, "EtcdUnreachable", why.clone());
    }
    ConditionValue::new(STALLED, FALSE, "NothingStuck", "no manual action is needed")
}

fn progressing(
    spec: &MasterClusterSpec,
    observed: &Observation,
    plan: &Plan,
    stalled: &ConditionValue,
    applied: &Applied,
) -> ConditionValue {
    if stalled.value == TRUE {
        return ConditionValue::new(PROGRESSING, FALSE, "Stalled", stalled.message.clone());
    }
    if let Some(failure) = &applied.failure {
        return ConditionValue::new(PROGRESSING, TRUE, failure.reason, failure.message.clone());
    }
    if let Some(what) = plan.waits.first() {
        let reason = match &plan.last_switchover {
            Some(report) if report.result == SwitchoverResult::Pending => "SwitchingOver",
            _ if observed.deleted_at.is_some() => "Deleting",
            _ if spec.suspend => "Suspended",
            _ => "Waiting",
        };
        let value = if spec.suspend && observed.deleted_at.is_none() { FALSE } else { TRUE };
        return ConditionValue::new(PROGRESSING, value, reason, format!("waits for {what}"));
    }
    if observed.etcd.view().is_none() {
        return ConditionValue::new(PROGRESSING, TRUE, "WaitingForEtcd", "waits for etcd to answer");
    }
    let masters = observed.pods.iter().filter(|pod| !pod.deleted).count();
    if i32::try_from(masters).is_ok_and(|masters| masters < spec.replicas) {
        let message = format!("waits for {} masters; {masters} exist so far", spec.replicas);
        return ConditionValue::new(PROGRESSING, TRUE, "Creating", message);
    }
    let behind = behind(observed);
    if let Some((pod, why)) = behind.first() {
        let reason = claim_reason(observed, pod).unwrap_or("CatchingUp");
        return ConditionValue::new(PROGRESSING, TRUE, reason, format!("waits for {pod}: {why}"));
    }
    if observed.etcd.view().is_some_and(|view| view.leader.is_none() || view.serving.is_none()) {
        return ConditionValue::new(PROGRESSING, TRUE, "Electing", "waits for a primary");
    }
    ConditionValue::new(PROGRESSING, FALSE, "Settled", "nothing is under way")
}

/// Returns the reason if the volume claim of this pod keeps it from running.
fn claim_reason<'o>(observed: &'o Observation, pod: &str) -> Option<&'o str> {
    let trouble = observed.pods.iter().find(|it| it.name == pod)?.trouble.as_ref()?;
    [CLAIM_PENDING, CLAIM_LOST].contains(&&*trouble.reason).then_some(&trouble.reason)
}

/// Returns the pods that neither lead nor could take over, and why.
fn behind(observed: &Observation) -> Vec<(&str, String)> {
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
                (None, _) if pod.deleted => "its pod is being deleted".to_owned(),
                (None, None) => "its master has not registered in etcd yet".to_owned(),
                (None, Some(MemberValue { trouble: Some(why), .. })) => why.clone(),
                (None, Some(_)) => "its master is catching up with the log".to_owned(),
            };
            (pod.name.as_str(), why)
        })
        .collect()
}

fn ready(
    observed: &Observation,
    available: &ConditionValue,
    redundant: &ConditionValue,
    stalled: &ConditionValue,
    progressing: &ConditionValue,
) -> ConditionValue {
    if observed.deleted_at.is_some() {
        return ConditionValue::new(READY, FALSE, "Deleting", "the resource is being deleted");
    }
    if stalled.value == TRUE {
        return ConditionValue::new(READY, FALSE, &stalled.reason, stalled.message.clone());
    }
    if available.value != TRUE {
        return ConditionValue::new(READY, available.value, &available.reason, available.message.clone());
    }
    if redundant.value != TRUE && redundant.reason != "OneMasterOnly" {
        let message = match progressing.value {
            TRUE => format!("{}; {}", redundant.message, progressing.message),
            _ => redundant.message.clone(),
        };
        return ConditionValue::new(READY, redundant.value, &redundant.reason, message);
    }
    ConditionValue::new(READY, TRUE, "Serving", available.message.clone())
}

pub(super) fn list(names: &[&str]) -> String {
    match names {
        [] => "no pod".to_owned(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}
