//! The order in which a pass writes, and that its status names what was applied and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::etcd_access;
use super::etcd_session::EtcdSession;
use super::fixture::{ApiServer, Fixture, PATIENCE, Received, cluster, embedded_etcd};
use super::reconcile::{Resource, reconcile};
use crate::api::MasterCluster;
use crate::api::names::{CLUSTER_LABEL, FINALIZER, MANAGED_BY, MANAGED_BY_LABEL};
use crate::cluster::keys::Keys;
use crate::cluster::member::{Addresses, ElectionValue};
use crate::coordination::etcd::{Etcd, EtcdSettings};
use crate::coordination::types::{LeaseId, Op, Request, Txn};

/// What a write is, by its path.
fn step(call: &str) -> &str {
    let of = |end: &str| call.ends_with(end);
    match call {
        _ if of("/pods/demo-0") => "label",
        _ if of("/statefulsets/demo") => "StatefulSet",
        _ if of("/masterclusters/demo/status") => "status",
        _ if of("/masterclusters/demo") => "finalizer",
        _ if of("/events") => "event",
        _ => "object",
    }
}

/// The steps of a pass in the order of their first write, and the call to the primary before the write that follows.
fn steps(writes: &[Received]) -> Vec<&str> {
    let mut steps = Vec::new();
    for Received { call, has_acted, .. } in writes {
        for step in has_acted.then_some("switchover").into_iter().chain([step(call)]) {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    steps
}

/// Makes `demo-0` the primary.
async fn elect(endpoint: &str) {
    let addresses = Addresses {
        rpc: "10.0.0.1:50051".to_owned(),
        admin: "127.0.0.1:1".to_owned(),
        ..Addresses::default()
    };
    let value = ElectionValue { name: "demo-0".to_owned(), addresses, ..ElectionValue::default() };
    let value = Bytes::from(serde_json::to_vec(&value).unwrap());
    let put = Op::Put { key: Keys::new("shared").election(), value, lease: LeaseId(0) };
    let etcd = Etcd::connect(EtcdSettings::new([endpoint])).unwrap();
    let txn = Txn { success: vec![put], ..Txn::default() };
    etcd.call(Request::Txn(txn), PATIENCE).await.unwrap();
}

/// An operator with the pod of a primary that has no label yet, and the session with etcd that its passes use.
async fn operator(cluster: &MasterCluster, accepts: fn(&str) -> bool) -> Fixture {
    let labels = json!({MANAGED_BY_LABEL: MANAGED_BY, CLUSTER_LABEL: "demo"});
    let metadata = json!({"name": "demo-0", "namespace": "team", "uid": "pod", "labels": labels});
    let pods = json!([{"metadata": metadata, "status": {"podIP": "10.0.0.1"}}]);
    let clusters = serde_json::to_value([cluster]).unwrap();
    let api = ApiServer { clusters, pods, accepts: Some(accepts), ..ApiServer::default() };
    let it = Fixture::at(api, PATIENCE).await;
    let access = etcd_access::resolve(&it.context.writer.client, cluster).await.unwrap();
    let session = Arc::new(EtcdSession::start(access, Arc::new(|| ())).unwrap());
    session.first_read(PATIENCE).await;
    *it.api.calls.lock() = Some(Arc::clone(&session.calls));
    it.context.etcd_sessions.lock().insert(Resource::of(cluster), session);
    it
}

/// A cluster that has no objects yet, whose primary is to hand over.
async fn new_cluster() -> MasterCluster {
    let endpoint = embedded_etcd().await;
    elect(&endpoint).await;
    let mut cluster = cluster("team", "demo", "first", &endpoint);
    cluster.spec.deletion_policy = serde_json::from_value(json!("Delete")).unwrap();
    cluster.spec.switchover.request_id = "one".to_owned();
    let report =
        json!({"requestId": "one", "from": "demo-0", "result": "Pending", "at": Time(Timestamp::now())});
    cluster.status = serde_json::from_value(json!({"lastSwitchover": report})).unwrap();
    cluster
}

#[tokio::test]
async fn labels_come_first_then_the_objects_then_the_primary_is_asked_then_comes_the_status() {
    let cluster = new_cluster().await;
    let it = operator(&cluster, |_| true).await;
    reconcile(Arc::new(cluster), Arc::clone(&it.context)).await.unwrap();
    let order = ["label", "finalizer", "object", "StatefulSet", "switchover", "status", "event"];
    let writes = it.api.writes.lock().clone();
    assert_eq!(steps(&writes), order, "{:?}", writes.iter().map(|write| &write.call).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_deleted_resource_is_let_go_after_its_last_status() {
    let endpoint = embedded_etcd().await;
    elect(&endpoint).await;
    let mut cluster = cluster("team", "demo", "first", &endpoint);
    cluster.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    cluster.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
    let it = operator(&cluster, |_| true).await;
    reconcile(Arc::new(cluster), Arc::clone(&it.context)).await.unwrap();
    let writes = it.api.writes.lock().clone();
    assert_eq!(steps(&writes), ["label", "status", "event", "finalizer"]);
}

#[tokio::test]
async fn the_status_names_the_image_of_objects_that_the_api_server_has_taken() {
    let image = async |accepts: fn(&str) -> bool| -> Value {
        let cluster = new_cluster().await;
        let it = operator(&cluster, accepts).await;
        let _ = reconcile(Arc::new(cluster), Arc::clone(&it.context)).await;
        let writes = it.api.writes.lock();
        let status = writes.iter().find(|write| step(&write.call) == "status").unwrap();
        status.body["status"]["image"].clone()
    };
    assert_eq!(image(|_| true).await, json!("m:1"));
    // The last object is refused.
    assert_eq!(image(|path| !path.ends_with("/statefulsets/demo")).await, Value::Null);
}
