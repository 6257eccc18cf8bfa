//! How many masters there are. More can be had at once. Fewer only if neither the primary nor the last standby that could
//! take over is among those that would end: a StatefulSet ends the highest ordinals, whatever their role.

use crate::api::MasterClusterSpec;
use crate::operator::observed::Observed;
use crate::operator::report::conditions::caught_up_standbys;

/// How many masters the StatefulSet shall have now; what it waits for is added to `waits`.
#[must_use]
pub fn replicas(spec: &MasterClusterSpec, observed: &Observed, waits: &mut Vec<String>) -> i32 {
    let wanted = spec.replicas;
    let Some(set) = &observed.stateful_set else { return wanted };
    if wanted >= set.replicas {
        return wanted;
    }
    match obstacle(wanted, observed) {
        None => wanted,
        Some(what) => {
            waits.push(what);
            set.replicas
        }
    }
}

/// What has to happen before there are only `wanted` masters.
fn obstacle(wanted: i32, observed: &Observed) -> Option<String> {
    let Some(view) = observed.etcd.view() else {
        return Some(format!("etcd to say which master leads, before there are {wanted} masters only"));
    };
    let Some(leader) = &view.leader else {
        // Before the first primary no master serves, so any of them may end.
        let served = observed.status.term.is_some();
        return served.then(|| format!("a primary, before there are {wanted} masters only"));
    };
    let primary = &leader.value.name;
    if !stays(primary, wanted) {
        return Some(format!(
            "a switchover to a master that stays: {primary} serves and would go with {wanted} masters"
        ));
    }
    if wanted == 1 {
        // Without a standby is what was asked for.
        return None;
    }
    let caught_up = caught_up_standbys(observed);
    let leaves = caught_up.first().filter(|_| !caught_up.iter().any(|pod| stays(&pod.name, wanted)))?;
    let masters = observed.pods.iter().filter(|pod| !pod.deleted && pod.name != *primary);
    let behind: Vec<&str> =
        masters.filter(|pod| stays(&pod.name, wanted)).map(|pod| pod.name.as_str()).collect();
    let next = if behind.is_empty() { "a standby that stays".to_owned() } else { behind.join(" or ") };
    Some(format!(
        "{next} to catch up: {} is the only standby that could take over, and would go with {wanted} masters",
        leaves.name
    ))
}

/// Whether a pod is among the first `wanted`.
fn stays(pod: &str, wanted: i32) -> bool {
    let ordinal = pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<i32>().ok());
    ordinal.is_some_and(|ordinal| ordinal < wanted)
}
