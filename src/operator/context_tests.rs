//! What passes share and write, at an API server that has MasterClusters and Leases and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::act;
use super::apply::WriteError;
use super::build::{AdminCredentials, Facts, objects};
use super::fixture::{Fixture, PATIENCE, SILENT, TAKEN, UNREADABLE, cluster, embedded_etcd, etcd_session};
use super::observation::{Call, EtcdKeys, Observation, PodFacts};
use super::plan::leadership::Relabel;
use super::plan::{Act, Chore, Finalizer, Objects, plan};
use super::reconcile::{PassError, Resource, after_failure, reconcile};
use super::report::events::Happening;
use super::report::{Applied, status};
use super::write_status::write_status;
use crate::api::MasterClusterStatus;
use crate::cluster::etcd_health::EtcdHealth;
use crate::cluster::member::{Addresses, MemberValue};
use crate::cluster::view::{ClusterView, Member, StoreId};
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Get, KeyRange, LeaseId, Op, Request, Response, Txn};

/// A member that was heard of at `now`, in an etcd with the id 7.
fn observed(now: i64) -> Observation {
    let name = "demo-0".to_owned();
    let rpc = "10.0.0.1:50051".to_owned();
    let said = MemberValue {
        name: name.clone(),
        addresses: Addresses { rpc, ..Addresses::default() },
        ..MemberValue::default()
    };
    let member = Member { value: Some(said), ..Member::default() };
    let view = ClusterView {
        members: [(name.clone(), member)].into(),
        store: Some(StoreId(7)),
        ..ClusterView::default()
    };
    Observation {
        now: Timestamp::from_second(now).unwrap(),
        generation: Some(1),
        deleted_at: None,
        finalizer: false,
        status: MasterClusterStatus::default(),
        etcd: EtcdKeys::Current(Arc::new(view)),
        endpoints_unverified: false,
        etcd_health: EtcdHealth::default(),
        stateful_set: None,
        pods: vec![PodFacts { name, ip: Some("10.0.0.1".to_owned()), ..PodFacts::default() }],
        claims: Vec::new(),
        switchover: Call::Idle,
        snapshot_request: None,
        snapshot: Call::Idle,
        promotion: None,
        deletion: Call::Idle,
        deletion_attempts: 0,
    }
}

#[tokio::test]
async fn failures_in_a_row_are_counted_until_a_pass_succeeds() {
    let cluster = Arc::new(cluster(TAKEN, "demo", "first", "http://e:1"));
    let it = Fixture::new(&[&cluster]).await;
    let failures = || it.context.failures.lock().get(&Resource::of(&cluster)).copied();
    let fail = || after_failure(Arc::clone(&cluster), &PassError::Deadline, Arc::clone(&it.context));
    assert_ne!(fail(), fail());
    assert_eq!(failures(), Some(2));
    // This one leaves the cluster to the operator of its namespace.
    reconcile(Arc::clone(&cluster), Arc::clone(&it.context)).await.unwrap();
    assert_eq!(failures(), None);
}

#[tokio::test]
async fn a_pass_that_waits_for_an_answer_ends_at_its_deadline() {
    let mut cluster = cluster("team", "demo", "first", "https://e:1");
    cluster.spec.etcd.tls_secret_name = SILENT.to_owned();
    let it = Fixture::with_deadline(&[&cluster], Duration::from_millis(300)).await;
    let pass = reconcile(Arc::new(cluster), Arc::clone(&it.context));
    let ended = tokio::time::timeout(PATIENCE, pass).await;
    assert!(matches!(ended, Ok(Err(PassError::Deadline))), "{ended:?}");
    assert_eq!(it.context.writer.metrics.oldest_pass(), None);
}

#[tokio::test]
async fn what_a_deleted_resource_leaves_behind_is_dropped_although_another_has_its_name() {
    let first = cluster("team", "demo", "first", "http://e:1");
    let second = cluster("team", "demo", "second", "http://e:1");
    let it = Fixture::new(&[&second]).await;
    let context = &it.context;
    for each in [&first, &second] {
        let resource = Resource::of(each);
        context.failures.lock().insert(resource.clone(), 1);
        context.left.lock().insert(resource.clone());
        context.written.lock().insert(resource.clone(), (1, MasterClusterStatus::default()));
        context.etcd_sessions.lock().insert(resource, etcd_session("http://127.0.0.1:1"));
    }
    context.forget_the_gone();
    let second = [Resource::of(&second)];
    assert!(context.etcd_sessions.lock().keys().eq(&second), "its calls to masters and etcd go on");
    assert!(context.written.lock().keys().eq(&second));
    assert!(context.failures.lock().keys().eq(&second));
    assert!(context.left.lock().iter().eq(&second));
}

#[tokio::test]
async fn a_status_with_old_numbers_is_written_again() {
    let cluster = cluster("team", "demo", "first", "http://e:1");
    let it = Fixture::new(&[&cluster]).await;
    let applied = Applied::default();
    let before = observed(0);
    let before = status("demo", &cluster.spec, &before, &plan("demo", &cluster.spec, &before), &applied);
    for (now, is_written) in [(200, false), (300, true)] {
        let observed = Observation { status: before.clone(), ..observed(now) };
        let plan = plan("demo", &cluster.spec, &observed);
        // It is gone from this API server, which is no failure.
        it.context.report(&cluster, &observed, &plan, &applied).await.unwrap();
        let wrote =
            it.api.writes.lock().iter().any(|write| write.call.ends_with("/masterclusters/demo/status"));
        assert_eq!(wrote, is_written, "after {now} s");
    }
}

#[tokio::test]
async fn an_older_cluster_in_the_same_etcd_has_the_log_whatever_the_host_is_called() {
    let mut older = cluster("c", "old", "first", "http://10.1.2.3:1");
    older.status = serde_json::from_value(json!({"etcd": {"clusterId": "7"}})).unwrap();
    let younger = cluster("d", "young", "second", "http://etcd:1");
    let it = Fixture::new(&[&older, &younger]).await;
    assert!(it.context.conflict(&younger, &observed(0)).is_some());
    assert!(it.context.conflict(&older, &observed(0)).is_none());
}

/// The etcd behind new endpoints does not answer, or their Secret cannot be read: it is unknown which etcd they lead to.
#[tokio::test]
async fn masters_keep_their_settings_until_new_endpoints_have_answered() {
    let before = etcd_session(&embedded_etcd().await);
    before.first_read(PATIENCE).await;
    for (endpoint, secret, complaint) in [
        ("http://127.0.0.1:1", "", Some("EndpointsUnverified")),
        ("https://127.0.0.1:1", UNREADABLE, None),
        ("https://127.0.0.1:1", "missing", Some("SecretNotFound")),
    ] {
        let mut cluster = cluster("team", "demo", "first", endpoint);
        cluster.spec.etcd.tls_secret_name = secret.to_owned();
        let it = Fixture::new(&[&cluster]).await;
        it.context.etcd_sessions.lock().insert(Resource::of(&cluster), Arc::clone(&before));
        let way = it.context.way_to_etcd(&cluster).await;
        assert!(way.etcd.as_ref().is_ok_and(|session| Arc::ptr_eq(session, &before)), "{secret}");
        assert_eq!(way.complaint.map(|complaint| complaint.reason), complaint);
        let observed = it.context.observed(&cluster, &way.etcd);
        assert!(observed.etcd.view().is_some(), "labels do not follow the primary");
        assert_eq!(plan("demo", &cluster.spec, &observed).objects, Objects::KeepMasters, "{secret}");
    }
}

#[tokio::test]
async fn nothing_is_written_without_the_lease() {
    let cluster = cluster("team", "demo", "first", "http://e:1");
    let it = Fixture::new(&[&cluster]).await;
    let writer = &it.context.writer;
    let labels = [Relabel { pod: "demo-0".to_owned(), uid: "u".to_owned(), role: "primary" }];
    let status = MasterClusterStatus::default();
    let admin = AdminCredentials { token: "t".to_owned(), certificate: None };
    let facts = Facts {
        platform_sets_group: false,
        image: "m:1".to_owned(),
        operator_namespace: "system".to_owned(),
        admin,
        etcd_client_certificate: false,
    };
    let built = || objects(&cluster, &facts).unwrap();
    let happening = || vec![Happening { reason: "Test", note: String::new(), warning: false }];
    for holds in [true, false] {
        it.lease.send_replace(holds.then(|| Instant::now() + PATIENCE));
        it.api.writes.lock().clear();
        let results: [Result<(), WriteError>; 6] = [
            act::relabel(writer, "team", &labels).await,
            act::finalize(writer, &cluster, &Finalizer::Add).await.map(|_| ()),
            act::act(writer, &cluster, None, None, Act::EndMasters).await,
            write_status(writer, &cluster, &status).await.map(|_| ()),
            writer.apply("team", built(), false, &it.context.caches).await.map(|_| ()),
            writer.delete("team", &built().service_account).await,
        ];
        it.context.tell(&cluster, happening()).await;
        let refusals = results.map(|result| matches!(result, Err(WriteError::NotHolder)));
        assert_eq!(refusals, [!holds; 6]);
        let writes = it.api.writes.lock().clone();
        assert_eq!(writes.len(), if holds { 7 } else { 0 }, "{writes:?}");
    }
}

#[tokio::test]
async fn no_key_is_deleted_without_the_lease() {
    let it = Fixture::new(&[]).await;
    let etcd_session = etcd_session(&embedded_etcd().await);
    let key = |name: &str| etcd_session.keys.member(name);
    let put = |name: &str| Op::Put { key: key(name), value: Bytes::new(), lease: LeaseId(0) };
    let txn = Txn { success: vec![put("a"), put("b")], ..Txn::default() };
    let Response::Txn { revision, .. } = etcd_session.etcd.call(Request::Txn(txn), PATIENCE).await.unwrap()
    else {
        panic!("another answer")
    };
    let remove = |name: &str| {
        let chore = Chore::DeleteMemberKey { name: name.to_owned(), mod_revision: revision };
        act::chores(&it.context.writer, &etcd_session, vec![chore]);
    };
    it.lease.send_replace(None);
    remove("a");
    // The removal runs, on this thread, up to the check of the Lease.
    tokio::task::yield_now().await;
    it.lease.send_replace(Some(Instant::now() + PATIENCE));
    remove("b");
    while is_there(&etcd_session.etcd, key("b")).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(is_there(&etcd_session.etcd, key("a")).await, "deleted without the Lease");
}

async fn is_there(etcd: &Etcd, key: Bytes) -> bool {
    match etcd.call(Request::Get(Get::all(KeyRange::key(key))), PATIENCE).await.unwrap() {
        Response::Got { page, .. } => !page.entries.is_empty(),
        other => panic!("{other:?}"),
    }
}
