//! The members in the status: the existing pods, with what their masters have written to etcd.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::MemberStatus;
use crate::api::names::ROLE_UNKNOWN;
use crate::operator::observation::Observation;
use crate::operator::plan::leadership;

/// Returns the members, sorted by name.
pub(super) fn members(observed: &Observation, durable: Option<u64>) -> Vec<MemberStatus> {
    let before = |name: &str| observed.status.members.iter().find(|member| member.name == name).cloned();
    let Some(view) = observed.etcd.view() else {
        // Without etcd only their nodes are known; the rest stays as it was.
        return observed
            .pods
            .iter()
            .map(|pod| {
                let blank = || MemberStatus {
                    name: pod.name.clone(),
                    role: ROLE_UNKNOWN.into(),
                    ..Default::default()
                };
                MemberStatus { node: pod.node.clone(), ..before(&pod.name).unwrap_or_else(blank) }
            })
            .collect();
    };
    let number = |number: u64| i64::try_from(number).ok();
    observed
        .pods
        .iter()
        .map(|pod| {
            let said = view.members.get(&pod.name).and_then(|member| member.value.as_ref());
            let said = said.filter(|said| observed.pod_of(&said.name, &said.addresses.rpc).is_some());
            let role = leadership::role(observed, view, pod);
            let lag = said.and_then(|said| {
                // The member key is up to two seconds old, so its `applied` is behind even for a master that has caught
                // up.
                if said.caught_up {
                    Some(0)
                } else {
                    said.lag.or_else(|| durable.map(|durable| durable.saturating_sub(said.applied)))
                }
            });
            MemberStatus {
                name: pod.name.clone(),
                node: pod.node.clone(),
                role: role.to_owned(),
                applied: said.and_then(|said| number(said.applied)),
                lag: lag.and_then(number),
                version: said.map(|said| said.version.clone()),
                last_seen: match said {
                    Some(_) => Some(Time(observed.now)),
                    None => before(&pod.name).and_then(|before| before.last_seen),
                },
            }
        })
        .collect()
}
