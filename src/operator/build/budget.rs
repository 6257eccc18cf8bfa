//! The PodDisruptionBudget: how many masters may be evicted at a time.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::identity::Identity;

/// Builds a budget of one master at a time. A master that is not ready may always be evicted: it adds no redundancy,
/// and would block the drain of its node until an administrator deletes it.
pub(super) fn pod_disruption_budget(identity: &Identity) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: identity.metadata(identity.name.clone()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(identity.selector()),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
