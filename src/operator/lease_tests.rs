//! A holder of the Lease behind an API server that is slow, or does not answer a call at all.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::lease::{Candidate, Timing, WriteRight};
use super::metrics::Metrics;
use super::scope::Scope;

/// Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server that has one Lease and nothing else.
#[derive(Default)]
struct Server {
    /// The Lease, and how often it was written.
    lease: Mutex<(Option<Value>, u64)>,
    /// How long each answer takes.
    delay: Duration,
    /// The number of the write that is executed and not answered.
    silent_write: Option<u64>,
}

impl Server {
    async fn answer(&self, request: Request) -> Response {
        sleep(self.delay).await;
        if request.method() == Method::GET {
            let lease = self.lease.lock().0.clone();
            return lease.map_or_else(not_found, |lease| Json(lease).into_response());
        }
        let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let lease: Value = serde_json::from_slice(&body).unwrap();
        let writes = {
            let mut kept = self.lease.lock();
            *kept = (Some(lease.clone()), kept.1 + 1);
            kept.1
        };
        if self.silent_write == Some(writes) {
            std::future::pending::<()>().await;
        }
        Json(lease).into_response()
    }

    fn writes(&self) -> u64 {
        self.lease.lock().1
    }

    async fn wait_for_writes(&self, count: u64) {
        let written = async {
            while self.writes() < count {
                sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(timeout(PATIENCE, written).await.is_ok(), "{} writes of the Lease", self.writes());
    }
}

fn not_found() -> Response {
    let said =
        json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "none"});
    (StatusCode::NOT_FOUND, Json(said)).into_response()
}

/// An operator that competes for the Lease until the sender is dropped.
async fn candidate(server: &Arc<Server>, timing: Timing) -> (WriteRight, watch::Sender<bool>) {
    let seen = Arc::clone(server);
    let routes = Router::new().fallback(move |request: Request| {
        let server = Arc::clone(&seen);
        async move { server.answer(request).await }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
    let (stop, stopped) = watch::channel(false);
    let metrics = Metrics::new().unwrap();
    let (right, keeping) = Candidate::new(client, "system", &Scope::All, "a", timing, metrics).start(stopped);
    tokio::spawn(keeping);
    (right, stop)
}

/// With a limit for read and write together it would write the record again and again, so that no other operator takes
/// over, and never lead.
#[tokio::test]
async fn one_behind_a_slow_api_server_leads() {
    let server = Arc::new(Server { delay: Duration::from_millis(200), ..Server::default() });
    let timing = Timing {
        lasts: Duration::from_secs(60),
        writable: Duration::from_secs(40),
        interval: Duration::from_millis(100),
        call: Duration::from_secs(10),
    };
    let (mut right, _stop) = candidate(&server, timing).await;
    assert!(timeout(PATIENCE, right.gained()).await.is_ok(), "it writes the Lease and does not lead");
    server.wait_for_writes(3).await;
    assert!(right.holds());
}

#[tokio::test]
async fn a_call_without_an_answer_is_given_up_and_the_lease_kept() {
    let server = Arc::new(Server { silent_write: Some(2), ..Server::default() });
    let timing = Timing {
        lasts: Duration::from_secs(60),
        writable: Duration::from_secs(40),
        interval: Duration::from_millis(10),
        call: Duration::from_millis(500),
    };
    let (mut right, _stop) = candidate(&server, timing).await;
    timeout(PATIENCE, right.gained()).await.unwrap();
    server.wait_for_writes(4).await;
    assert!(right.holds());
}
