//! The masters as a StatefulSet. Kubernetes must not decide when pods are restarted: `OnDelete`, because a rolling
//! update in the order of ordinals would move the primary several times; `Parallel`, because a master must not wait for
//! another one to be ready.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};

use super::identity::Identity;
use super::{BuildError, Facts, pod, storage};
use crate::api::MasterCluster;
use crate::api::names::headless_service;

/// Number of old templates that Kubernetes keeps for inspection.
const HISTORY: i32 = 5;

/// Builds the StatefulSet of the masters.
pub(super) fn stateful_set(
    identity: &Identity,
    cluster: &MasterCluster,
    facts: &Facts,
    settings: &str,
) -> Result<StatefulSet, BuildError> {
    Ok(StatefulSet {
        metadata: identity.metadata(identity.name.clone()),
        spec: Some(StatefulSetSpec {
            replicas: Some(cluster.spec.replicas),
            service_name: Some(headless_service(&identity.name)),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            revision_history_limit: Some(HISTORY),
            selector: identity.selector(),
            template: pod::template(identity, cluster, facts, settings)?,
            volume_claim_templates: storage::claim_templates(identity, &cluster.spec),
            persistent_volume_claim_retention_policy: Some(storage::retention()),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    })
}
