//! Checks whether the operator can be removed. A cluster with `deletionPolicy: Delete` has a finalizer that only an
//! operator removes: without one the resource would stay `Terminating` when it is deleted.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, Config, ResourceExt};

use crate::api::names::FINALIZER;
use crate::api::{DeletionPolicy, MasterCluster};

/// Timeout of a call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Page size of the list of clusters.
const PAGE: u32 = 500;

/// Why the operator cannot be removed, or why that is unknown.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// There is neither a kubeconfig nor an in-cluster configuration.
    #[error("cannot find the API server: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// The API server does not answer, or refuses.
    #[error("cannot list MasterClusters: {0}")]
    Kubernetes(#[from] kube::Error),
    /// These clusters, as namespace/name, need an operator.
    #[error("{}", explain(.0))]
    Needed(Vec<String>),
}

fn explain(clusters: &[String]) -> String {
    format!(
        "these MasterClusters have deletionPolicy Delete, which needs the operator: {}. Delete them first (kubectl delete \
         mcl), or set deletionPolicy to Retain, and their keys stay in etcd",
        clusters.join(", ")
    )
}

/// Checks that no cluster needs an operator, in one namespace or in all of them.
///
/// # Errors
///
/// If a cluster does, or if the clusters cannot be listed.
pub async fn check(namespace: Option<&str>) -> Result<(), RemovalError> {
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(CALL_TIMEOUT);
    config.read_timeout = Some(CALL_TIMEOUT);
    config.write_timeout = Some(CALL_TIMEOUT);
    let client = Client::try_from(config)?;
    let api: Api<MasterCluster> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let mut needed = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = match api.list(&page).await {
            Ok(list) => list,
            // Without the definition there are no clusters.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(why) => return Err(why.into()),
        };
        needed.extend(list.items.iter().filter(|cluster| needs_operator(cluster)).map(name));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => break,
        }
    }
    if needed.is_empty() { Ok(()) } else { Err(RemovalError::Needed(needed)) }
}

/// Returns whether a cluster could not be deleted without an operator.
fn needs_operator(cluster: &MasterCluster) -> bool {
    // The operator sets and removes the finalizer in its next pass, which may come between this check and the removal.
    cluster.spec.deletion_policy == DeletionPolicy::Delete
        || cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

fn name(cluster: &MasterCluster) -> String {
    format!("{}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operator_is_needed_by_the_policy_and_by_the_finalizer() {
        // With Delete the finalizer is about to be set, with Retain it is about to be removed.
        for (policy, finalizers, needed) in [
            ("Retain", vec![], false),
            ("Retain", vec!["example.com/other"], false),
            ("Retain", vec![FINALIZER], true),
            ("Delete", vec![], true),
            ("Delete", vec![FINALIZER], true),
        ] {
            let cluster: MasterCluster = serde_json::from_value(json!({
                "apiVersion": "moonkeeper.dev/v1alpha1",
                "kind": "MasterCluster",
                "metadata": {"name": "demo", "finalizers": finalizers},
                "spec": {"etcd": {"endpoints": ["http://etcd:2379"]}, "deletionPolicy": policy},
            }))
            .unwrap();
            assert_eq!(needs_operator(&cluster), needed, "{policy} {finalizers:?}");
        }
    }
}
