//! Detects two resources that name one log. Their masters would form one cluster that two reconcilers fight over, and
//! deleting one resource would delete the keys of the other. The older one owns the log; the younger one gets no
//! masters, and a condition names the older one.

use std::sync::Arc;

use kube::ResourceExt;

use super::endpoints::qualified;
use super::observation::EtcdKeys;
use crate::api::MasterCluster;

/// Returns why a cluster must not use its log, if an older cluster in `all` owns it. `store` is the cluster id of etcd,
/// once it is known: one etcd may have several host names.
#[must_use]
pub fn conflict(
    cluster: &MasterCluster,
    all: &[Arc<MasterCluster>],
    store: Option<&str>,
) -> Option<EtcdKeys> {
    let id = cluster.cluster_id();
    let own = endpoints(cluster);
    let older = all.iter().find(|other| {
        let same_store = || store.is_some() && store_of(other) == store;
        age(other) < age(cluster)
            && other.cluster_id() == id
            && (same_store() || endpoints(other).iter().any(|endpoint| own.contains(endpoint)))
    })?;
    let (namespace, name) = (older.namespace().unwrap_or_default(), older.name_any());
    let message = format!(
        "the log {id} in this etcd belongs to MasterCluster {name} in namespace {namespace}: delete this resource \
         and create it again with another spec.clusterId"
    );
    Some(EtcdKeys::Unusable { reason: "ClusterIdTaken", message })
}

/// Returns the cluster id of a cluster's etcd, as in its status.
#[must_use]
pub fn store_of(cluster: &MasterCluster) -> Option<&str> {
    cluster.status.as_ref()?.etcd.as_ref()?.cluster_id.as_deref()
}

/// Returns the qualified endpoints of a cluster: equal short names in two namespaces are two hosts.
fn endpoints(cluster: &MasterCluster) -> Vec<String> {
    let namespace = cluster.namespace().unwrap_or_default();
    cluster.spec.etcd.endpoints.iter().map(|endpoint| qualified(endpoint, &namespace)).collect()
}

/// Orders resources by creation time, and those of one second by namespace and name.
fn age(cluster: &MasterCluster) -> impl Ord {
    let created = cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, cluster.namespace(), cluster.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{EtcdStatus, MasterClusterStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    fn cluster(namespace: &str, name: &str, endpoint: &str, second: i64) -> Arc<MasterCluster> {
        let text = format!(r#"{{"etcd": {{"endpoints": ["{endpoint}", "http://{name}:1"]}}}}"#);
        let mut made = MasterCluster::new(name, serde_json::from_str(&text).unwrap());
        made.metadata.namespace = Some(namespace.to_owned());
        made.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        Arc::new(made)
    }

    #[test]
    fn the_older_one_has_the_log() {
        let old = cluster("c", "a-b", "http://e.x.y:1", 1);
        let young = cluster("c-a", "b", "http://e.x.y:1", 2);
        let elsewhere = cluster("c-a", "b", "http://f.x.y:1", 2);
        let all = [Arc::clone(&old), Arc::clone(&young), Arc::clone(&elsewhere)];
        let Some(EtcdKeys::Unusable { message, .. }) = conflict(&young, &all, None) else {
            panic!("both have it")
        };
        assert!(message.contains("c-a-b") && message.contains("a-b in namespace c"), "{message}");
        assert!(conflict(&old, &all, None).is_none());
        assert!(conflict(&elsewhere, &all, None).is_none());
        // Of two that were created in one second the same one always owns it.
        let twin = cluster("c-a", "b", "http://e.x.y:1", 1);
        assert!(conflict(&twin, &all, None).is_some() && conflict(&old, &[twin], None).is_none());
    }

    #[test]
    fn names_of_one_namespace_are_not_those_of_another_and_one_etcd_has_many() {
        let mut old = MasterCluster::clone(&cluster("c", "a-b", "http://etcd:1", 1));
        let young = cluster("c-a", "b", "http://etcd:1", 2);
        assert!(conflict(&young, &[Arc::new(old.clone())], None).is_none());
        let alias = cluster("c-a", "b", "http://etcd.c.svc:1", 2);
        assert!(conflict(&alias, &[Arc::new(old.clone())], None).is_some());
        let unlike = cluster("c-a", "b", "http://10.1.2.3:1", 2);
        let store = EtcdStatus { cluster_id: Some("7".to_owned()), ..EtcdStatus::default() };
        old.status = Some(MasterClusterStatus { etcd: Some(store), ..MasterClusterStatus::default() });
        let all = [Arc::new(old)];
        assert!(conflict(&unlike, &all, None).is_none());
        assert!(conflict(&unlike, &all, Some("7")).is_some());
        assert!(conflict(&unlike, &all, Some("8")).is_none());
    }
}
