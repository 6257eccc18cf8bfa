//! Who carries which role label. The labels follow the election key in etcd and nothing else.

use crate::api::names::{ROLE_PRIMARY, ROLE_STANDBY, ROLE_UNKNOWN};
use crate::operator::observed::{Observed, PodFacts};
use crate::operator::view::View;

/// A pod gets a role label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabel {
    /// The pod.
    pub pod: String,
    /// Which one of that name.
    pub uid: String,
    /// The role.
    pub role: &'static str,
}

/// What has to be relabelled, in order: whoever is primary no longer goes first, so that at no time two are.
///
/// While etcd does not answer, nothing is: who led before most likely still does, and a guess would send clients of the
/// leader Service away from a primary that serves.
#[must_use]
pub fn relabel(observed: &Observed) -> Vec<Relabel> {
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

/// The role of a pod, as the keys say.
#[must_use]
pub fn role(observed: &Observed, view: &View, pod: &PodFacts) -> &'static str {
    let is = |name: &str, address: &str| {
        name == pod.name && observed.pod_of(name, address).is_some_and(|found| found.uid == pod.uid)
    };
    if let Some(leader) = &view.leader
        && is(&leader.value.name, &leader.value.addresses.rpc)
    {
        return ROLE_PRIMARY;
    }
    match view.members.get(&pod.name).and_then(|member| member.value.as_ref()) {
        // One that led and has not said otherwise since may be dead: its key outlives it for some seconds.
        Some(said) if said.role == ROLE_PRIMARY => ROLE_UNKNOWN,
        Some(said) if is(&said.name, &said.addresses.rpc) => ROLE_STANDBY,
        _ => ROLE_UNKNOWN,
    }
}
