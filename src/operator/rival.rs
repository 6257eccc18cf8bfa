//! Two resources that name one log would be one cluster of masters that two steps of the operator pull at, and deleting
//! one would delete the keys of the other. The older one has the log; the younger one is told so and gets nothing.

use std::sync::Arc;

use kube::ResourceExt;

use super::observed::EtcdSight;
use crate::api::MasterCluster;

/// Why a cluster has no log of its own, if another one in `all` has it.
#[must_use]
pub fn rival(cluster: &MasterCluster, all: &[Arc<MasterCluster>]) -> Option<EtcdSight> {
    let id = cluster.cluster_id();
    let endpoints = &cluster.spec.etcd.endpoints;
    let older = all.iter().find(|other| {
        age(other) < age(cluster)
            && other.cluster_id() == id
            && other.spec.etcd.endpoints.iter().any(|endpoint| endpoints.contains(endpoint))
    })?;
    let (namespace, name) = (older.namespace().unwrap_or_default(), older.name_any());
    let message = format!(
        "the log {id} in this etcd belongs to MasterCluster {name} in namespace {namespace}: make this one again with \
         another spec.clusterId"
    );
    Some(EtcdSight::Unusable { reason: "ClusterIdTaken", message })
}

/// Orders resources: by when they were made, and those of one second by their names.
fn age(cluster: &MasterCluster) -> impl Ord {
    let created = cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, cluster.namespace(), cluster.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let old = cluster("c", "a-b", "http://e:1", 1);
        let young = cluster("c-a", "b", "http://e:1", 2);
        let elsewhere = cluster("c-a", "b", "http://f:1", 2);
        let all = [Arc::clone(&old), Arc::clone(&young), Arc::clone(&elsewhere)];
        let Some(EtcdSight::Unusable { message, .. }) = rival(&young, &all) else { panic!("both have it") };
        assert!(message.contains("c-a-b") && message.contains("a-b in namespace c"), "{message}");
        assert!(rival(&old, &all).is_none());
        assert!(rival(&elsewhere, &all).is_none());
        // Of two that were made in one second one has it, and always the same.
        let twin = cluster("c-a", "b", "http://e:1", 1);
        assert!(rival(&twin, &all).is_some() && rival(&old, &[twin]).is_none());
    }
}
