//! Volumes of masters. The volume claims of a StatefulSet can never be changed, so adding or removing them takes another
//! StatefulSet: the old one is deleted without its pods, which go on, and the new one adopts them. Each pod gets its
//! volume when it is recreated for whatever reason.

use super::Act;
use crate::api::{MasterClusterSpec, quantity};
use crate::operator::claim_trouble::CLAIM_PENDING;
use crate::operator::observation::{ClaimFacts, ClaimShape, Observation, PodFacts};

/// What the operator waits for while the StatefulSet is replaced.
pub const REPLACED: &str =
    "Kubernetes to delete the StatefulSet without its pods: one with other volumes takes its place";

/// The next step for the volumes of the StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has the volumes of the spec, or there is none.
    Fits,
    /// It is deleted without its pods.
    Replace(Act),
    /// It is being deleted.
    Wait,
}

/// Decides the next step for the volumes of the StatefulSet.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observation) -> Step {
    match &observed.stateful_set {
        Some(set) if set.deleted => Step::Wait,
        Some(set) if !fits(set.claim.as_ref(), spec) => {
            Step::Replace(Act::ReplaceStatefulSet { uid: set.uid.clone() })
        }
        Some(_) | None => Step::Fits,
    }
}

/// Returns whether the StatefulSet's template of claims is what the spec asks for.
fn fits(template: Option<&ClaimShape>, spec: &MasterClusterSpec) -> bool {
    match (template, &spec.snapshots.store.volume_claim) {
        (None, None) => true,
        (Some(template), Some(wanted)) => {
            let class = template.storage_class.as_deref().unwrap_or_default();
            quantity::same(&template.size, &wanted.size) && class == wanted.storage_class_name
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Returns the claims of pods that are not what the spec asks for, each with what it is. A claim keeps its size and its
/// StorageClass, whatever the template of the StatefulSet has become.
#[must_use]
pub fn other_claims(spec: &MasterClusterSpec, observed: &Observation) -> Vec<String> {
    let Some(wanted) = &spec.snapshots.store.volume_claim else { return Vec::new() };
    let used = |claim: &&ClaimFacts| observed.pods.iter().any(|pod| pod.claim.as_ref() == Some(&claim.name));
    let other = |claim: &&ClaimFacts| {
        // The API server fills in the default StorageClass.
        let class = claim.shape.storage_class.as_deref().unwrap_or_default();
        let other_class = !wanted.storage_class_name.is_empty() && class != wanted.storage_class_name;
        other_class || !quantity::same(&claim.shape.size, &wanted.size)
    };
    let named = |claim: &ClaimFacts| {
        let class = claim.shape.storage_class.as_deref().unwrap_or("no StorageClass");
        format!("{} ({}, {class})", claim.name, claim.shape.size)
    };
    observed.claims.iter().filter(used).filter(other).map(named).collect()
}

/// Returns the pods that were created before the StatefulSet had claims, by ordinal. Kubernetes tries in vain to add the
/// volume to the first of them, and meanwhile creates no pod with a higher ordinal.
#[must_use]
pub fn without_volume<'o>(spec: &MasterClusterSpec, observed: &'o Observation) -> Vec<&'o PodFacts> {
    if spec.snapshots.store.volume_claim.is_none() {
        return Vec::new();
    }
    let mut pods: Vec<&PodFacts> = observed.pods.iter().filter(|pod| pod.claim.is_none()).collect();
    pods.sort_by_key(|pod| super::scale::ordinal(&pod.name));
    pods
}

/// Returns whether a pod waits for the volume of its claim.
#[must_use]
pub fn waits(observed: &Observation) -> bool {
    observed.pods.iter().any(|pod| pod.trouble.as_ref().is_some_and(|it| it.reason == CLAIM_PENDING))
}
