//! An operator at an API server and an etcd of the test's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request as HttpRequest;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::{Json, Router};
use kube::runtime::events::{Recorder, Reporter};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::apply::Writer;
use super::caches::Caches;
use super::etcd_access::Access;
use super::etcd_session::{Calls, EtcdSession};
use super::lease::WriteRight;
use super::metrics::Metrics;
use super::observation::Call;
use super::reconcile::Context;
use super::scope::Others;
use crate::api::MasterCluster;
use crate::cluster::keys::Keys;
use crate::coordination::embedded::{Store, serve};
use crate::coordination::etcd::EtcdSettings;

/// Only a failing test waits this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A Secret that the API server never answers about.
pub(super) const SILENT: &str = "silent";

/// A Secret that the API server fails to read.
pub(super) const UNREADABLE: &str = "unreadable";

/// The namespace that has an operator of its own.
pub(super) const TAKEN: &str = "taken";

/// Upper bound of what one write may send.
const MAX_BODY: usize = 1 << 20;

/// A write that the API server received.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// Method and path.
    pub(super) call: String,
    pub(super) body: Value,
    /// Whether the pass had asked the primary to hand over by then.
    pub(super) has_acted: bool,
}

/// An API server that has MasterClusters, pods and Leases, and nothing else.
#[derive(Default)]
pub(super) struct ApiServer {
    pub(super) clusters: Value,
    pub(super) pods: Value,
    /// Whether a write to this path is accepted; refused as if the object were gone otherwise.
    pub(super) accepts: Option<fn(&str) -> bool>,
    pub(super) writes: Mutex<Vec<Received>>,
    /// The calls of the cluster's session with etcd.
    pub(super) calls: Mutex<Option<Arc<Mutex<Calls>>>>,
}

fn refused() -> HttpResponse {
    let said =
        json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "none"});
    (StatusCode::NOT_FOUND, Json(said)).into_response()
}

impl ApiServer {
    async fn answer(self: Arc<Self>, request: HttpRequest) -> HttpResponse {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if parts.method != Method::GET {
            let body = axum::body::to_bytes(body, MAX_BODY).await.unwrap();
            return self.write(
                format!("{} {path}", parts.method),
                path,
                serde_json::from_slice(&body).unwrap(),
            );
        }
        let watched = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let list = |items: Value| {
            Json(json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items}))
        };
        match path {
            _ if watched || path.ends_with(&format!("/secrets/{SILENT}")) => std::future::pending().await,
            _ if path.ends_with(&format!("/secrets/{UNREADABLE}")) => {
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            "/apis/moonkeeper.dev/v1alpha1/masterclusters" => list(self.clusters.clone()).into_response(),
            "/api/v1/pods" if self.pods.is_array() => list(self.pods.clone()).into_response(),
            "/apis/coordination.k8s.io/v1/leases" => {
                let labels = json!({"moonkeeper.dev/scope": "namespace"});
                let metadata = json!({"name": "moonkeeper-operator", "namespace": TAKEN, "labels": labels});
                let spec = json!({"holderIdentity": "another", "leaseDurationSeconds": 3600});
                list(json!([{"metadata": metadata, "spec": spec}])).into_response()
            }
            _ => refused(),
        }
    }

    /// Records a write. An accepted object is what was sent, a MasterCluster what it was with what was sent.
    fn write(&self, call: String, path: &str, body: Value) -> HttpResponse {
        let has_acted =
            self.calls.lock().as_ref().is_some_and(|calls| !matches!(calls.lock().switchover, Call::Idle));
        self.writes.lock().push(Received { call, body: body.clone(), has_acted });
        if !self.accepts.is_some_and(|accepts| accepts(path)) {
            return refused();
        }
        if !path.contains("/masterclusters/") {
            return Json(body).into_response();
        }
        let mut written = self.clusters[0].clone();
        if let (Some(written), Value::Object(changes)) = (written.as_object_mut(), body) {
            written.extend(changes.into_iter().filter(|(name, _)| name != "metadata"));
        }
        Json(written).into_response()
    }
}

/// An operator, with the right to write.
pub(super) struct Fixture {
    pub(super) context: Arc<Context>,
    pub(super) lease: watch::Sender<Option<Instant>>,
    pub(super) api: Arc<ApiServer>,
    _watches: JoinSet<()>,
}

impl Fixture {
    pub(super) async fn new(clusters: &[&MasterCluster]) -> Self {
        Self::with_deadline(clusters, PATIENCE).await
    }

    pub(super) async fn with_deadline(clusters: &[&MasterCluster], deadline: Duration) -> Self {
        let clusters = serde_json::to_value(clusters).unwrap();
        Self::at(ApiServer { clusters, ..ApiServer::default() }, deadline).await
    }

    pub(super) async fn at(api: ApiServer, deadline: Duration) -> Self {
        let api = Arc::new(api);
        let answers = Arc::clone(&api);
        let routes = Router::new().fallback(move |request: HttpRequest| Arc::clone(&answers).answer(request));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
        let (wake, _) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        let caches = Caches::start(&client, None, &wake, &mut watches);
        let filled = async {
            caches.clusters.store().wait_until_ready().await.unwrap();
            if api.pods.is_array() {
                caches.pods.store().wait_until_ready().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, filled).await.unwrap();
        let others = Others::new("system");
        others.read(&client).await.unwrap();
        let (lease, right) = WriteRight::unconditional();
        let reporter = Reporter { controller: "test".to_owned(), instance: None };
        let context = Context {
            writer: Arc::new(Writer::new(client.clone(), right, Metrics::new().unwrap())),
            caches,
            wake,
            recorder: Recorder::new(client, reporter),
            namespace: "system".to_owned(),
            others: Arc::new(others),
            left: Mutex::default(),
            since: Instant::now().checked_sub(Duration::from_secs(300)).unwrap(),
            deadline,
            image: "m:1".to_owned(),
            platform_sets_group: false,
            etcd_sessions: Mutex::new(HashMap::new()),
            written: Mutex::new(HashMap::new()),
            failures: Mutex::new(HashMap::new()),
        };
        Self { context: Arc::new(context), lease, api, _watches: watches }
    }
}

pub(super) fn cluster(namespace: &str, name: &str, uid: &str, endpoint: &str) -> MasterCluster {
    let created = if uid == "first" { "2026-01-01T00:00:00Z" } else { "2026-01-02T00:00:00Z" };
    serde_json::from_value(json!({
        "apiVersion": "moonkeeper.dev/v1alpha1",
        "kind": "MasterCluster",
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "resourceVersion": "5", "creationTimestamp": created,
        },
        "spec": {"etcd": {"endpoints": [endpoint]}, "clusterId": "shared"},
    }))
    .unwrap()
}

pub(super) async fn embedded_etcd() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, Store::open(None).unwrap(), std::future::pending()));
    endpoint
}

pub(super) fn etcd_session(endpoint: &str) -> Arc<EtcdSession> {
    let settings = EtcdSettings::new([endpoint]);
    let access = Access { settings, keys: Keys::new("shared"), client_certificate: false, fingerprint: 0 };
    Arc::new(EtcdSession::start(access, Arc::new(|| ())).unwrap())
}
