//! The number of masters. Scaling up happens at once. Scaling down waits until neither the primary nor the last standby
//! that could take over is among the pods that would end: a StatefulSet ends the highest ordinals, whatever their role.

use crate::api::MasterClusterSpec;
use crate::operator::observation::Observation;
use crate::operator::report::conditions::caught_up_standbys;

/// Returns how many masters the StatefulSet should have now. Adds what prevents fewer to `waits`.
#[must_use]
pub fn replicas(spec: &MasterClusterSpec, observed: &Observation, waits: &mut Vec<String>) -> i32 {
    let wanted = spec.replicas;
    let present = match &observed.stateful_set {
        Some(set) => set.replicas,
        None => orphans(observed),
    };
    if wanted >= present {
        return wanted;
    }
    match obstacle(wanted, observed) {
        None => wanted,
        Some(what) => {
            waits.push(what);
            present
        }
    }
}

/// Returns how many masters a StatefulSet that is created now has to have, so that it ends none of those that the one
/// before it has left behind.
fn orphans(observed: &Observation) -> i32 {
    let ordinals = observed.pods.iter().filter(|pod| !pod.deleted).filter_map(|pod| ordinal(&pod.name));
    ordinals.max().map_or(0, |highest| highest.saturating_add(1))
}

/// Returns the number behind the last dash of the name of a pod.
pub(crate) fn ordinal(pod: &str) -> Option<i32> {
    pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<i32>().ok())
}

/// Returns what has to happen before the cluster can shrink to `wanted` masters.
fn obstacle(wanted: i32, observed: &Observation) -> Option<String> {
    let Some(view) = observed.etcd.view() else {
        return Some(format!("etcd to answer, to know the primary before scaling down to {wanted}"));
    };
    let Some(leader) = &view.leader else {
        // Before the first primary no master serves, so any of them may end.
        let served = observed.status.term.is_some();
        return served.then(|| format!("a primary before scaling down to {wanted}"));
    };
    let primary = &leader.value.name;
    if !stays(primary, wanted) {
        // Pods are named after the resource, with their ordinal behind a dash.
        let cluster = primary.rsplit_once('-').map_or(primary.as_str(), |(cluster, _)| cluster);
        let staying = observed.pods.iter().find(|pod| !pod.deleted && stays(&pod.name, wanted));
        let to = staying.map_or_else(String::new, |pod| format!(" --to {}", pod.name));
        return Some(format!(
            "you to switch over to a master that stays (kubectl moonkeeper switchover {cluster}{to}): scaling down to \
             {wanted} would stop {primary}, the primary"
        ));
    }
    if wanted == 1 {
        // The user asked for a cluster without a standby.
        return None;
    }
    let caught_up = caught_up_standbys(observed);
    let leaves = caught_up.first().filter(|_| !caught_up.iter().any(|pod| stays(&pod.name, wanted)))?;
    let masters = observed.pods.iter().filter(|pod| !pod.deleted && pod.name != *primary);
    let behind: Vec<&str> =
        masters.filter(|pod| stays(&pod.name, wanted)).map(|pod| pod.name.as_str()).collect();
    let next = if behind.is_empty() { "a standby that stays".to_owned() } else { behind.join(" or ") };
    Some(format!(
        "{next} to catch up: scaling down to {wanted} would stop {}, the only standby that can take over",
        leaves.name
    ))
}

/// Returns whether a pod is among the first `wanted`.
fn stays(pod: &str, wanted: i32) -> bool {
    ordinal(pod).is_some_and(|ordinal| ordinal < wanted)
}
