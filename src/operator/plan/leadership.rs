//! Role labels of pods. They follow the election key in etcd and nothing else.

use crate::api::names::{ROLE_PRIMARY, ROLE_STANDBY, ROLE_UNKNOWN};
use crate::cluster::role::Role;
use crate::cluster::view::ClusterView;
use crate::operator::observation::{Observation, PodFacts};

/// A role label that has to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabel {
    pub pod: String,
    /// Tells it from an earlier pod of the same name.
    pub uid: String,
    pub role: &'static str,
}

/// Returns the labels to write, in order: the old primary loses its label first, so that never two pods have it.
///
/// While etcd does not answer, no label changes: the last primary most likely still leads, and a guess would send
/// clients of the leader Service away from it.
#[must_use]
pub fn relabel(observed: &Observation) -> Vec<Relabel> {
    let Some(view) = observed.etcd.view() else { return Vec::new() };
    let mut labels: Vec<Relabel> = observed
        .pods
        .iter()
        .map(|pod| (pod, role(observed, view, pod)))
        .filter(|(pod, role)| pod.role.as_deref() != Some(*role))
        .map(|(pod, role)| Relabel { pod: pod.name.clone(), uid: pod.uid.clone(), role })
        .collect();
    labels.sort_by_key(|label| label.role == ROLE_PRIMARY);
    labels
}

/// Returns the role of a pod according to the keys in etcd.
#[must_use]
pub fn role(observed: &Observation, view: &ClusterView, pod: &PodFacts) -> &'static str {
    let is = |name: &str, address: &str| {
        name == pod.name && observed.pod_of(name, address).is_some_and(|found| found.uid == pod.uid)
    };
    if let Some(leader) = &view.leader
        && is(&leader.value.name, &leader.value.addresses.rpc)
    {
        return ROLE_PRIMARY;
    }
    match view.members.get(&pod.name).and_then(|member| member.value.as_ref()) {
        // A member whose key still has the role primary may be dead: the key outlives the process for some seconds.
        Some(said) if said.role == Role::Primary => ROLE_UNKNOWN,
        Some(said) if is(&said.name, &said.addresses.rpc) => ROLE_STANDBY,
        _ => ROLE_UNKNOWN,
    }
}
