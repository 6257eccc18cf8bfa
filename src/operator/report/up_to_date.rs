//! The condition `UpToDate`: which pods run with older settings or without their volume, and which claims are not as the
//! spec has them.

use super::condition::{ConditionValue, FALSE, TRUE, UNKNOWN, UP_TO_DATE};
use super::conditions::list;
use crate::api::MasterClusterSpec;
use crate::operator::observation::{Observation, PodFacts};
use crate::operator::plan::volumes;

/// Reason while pods run without the volume that the spec asks for.
pub const NO_VOLUME_YET: &str = "NoVolumeYet";

/// Computes the condition.
pub(super) fn condition(spec: &MasterClusterSpec, observed: &Observation) -> ConditionValue {
    let Some(revision) = observed.stateful_set.as_ref().and_then(|set| set.update_revision.as_ref()) else {
        return ConditionValue::new(
            UP_TO_DATE,
            UNKNOWN,
            "NoRevisionYet",
            "the StatefulSet has not reported the revision of its pods yet",
        );
    };
    let without = volumes::without_volume(spec, observed);
    if let Some(first) = without.first() {
        let message = format!(
            "pods without a volume: {}; delete them one at a time in this order, each when the one before is ready again. \
             Until {} has its volume, Kubernetes creates no other pod of this cluster again",
            list(&names(&without)),
            first.name
        );
        return ConditionValue::new(UP_TO_DATE, FALSE, NO_VOLUME_YET, message);
    }
    let leads = |pod: &PodFacts| {
        observed.etcd.view().and_then(|view| view.leader.as_ref()).is_some_and(|it| it.value.name == pod.name)
    };
    let mut old: Vec<&PodFacts> =
        observed.pods.iter().filter(|pod| pod.revision.as_ref() != Some(revision)).collect();
    old.sort_by_key(|pod| leads(pod));
    if !old.is_empty() {
        let message = format!(
            "pods with older settings: {}; delete them one at a time in this order, each when the one before is ready \
             again",
            list(&names(&old))
        );
        return ConditionValue::new(UP_TO_DATE, FALSE, "OlderPods", message);
    }
    let others = volumes::other_claims(spec, observed);
    if !others.is_empty() {
        let message = format!(
            "claims that differ from spec.snapshots.store.volumeClaim: {}; enlarge a claim itself if its StorageClass \
             allows that, or delete one at a time together with its pod, each when the one before is ready again",
            list(&others.iter().map(String::as_str).collect::<Vec<_>>())
        );
        return ConditionValue::new(UP_TO_DATE, FALSE, "OtherClaims", message);
    }
    ConditionValue::new(UP_TO_DATE, TRUE, "AllCurrent", "all pods run with the present settings")
}

fn names<'p>(pods: &[&'p PodFacts]) -> Vec<&'p str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}
