//! What Kubernetes and Prometheus ask of the operator itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::metrics::Metrics;

/// Whether the operator could do its work: it has heard from the API server, and if it holds the Lease it has seen all
/// that there is.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// Says whether it is.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A pass that has been under way for so long is stuck: its own deadline is far shorter.
const STUCK: Duration = Duration::from_secs(120);

/// `/healthz` and `/readyz`. Health is that the process answers and that no pass is stuck. Neither the API server nor etcd
/// has a part in it: they are not restarted by restarting the operator.
pub fn health(ready: &Ready, metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let liveness = move || async move {
        match metrics.oldest_pass() {
            Some(age) if age >= STUCK => (StatusCode::SERVICE_UNAVAILABLE, "a pass is stuck\n"),
            _ => (StatusCode::OK, "ok\n"),
        }
    };
    let ready = ready.clone();
    let readiness = move || async move {
        if ready.is() {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    };
    Router::new().route("/healthz", get(liveness)).route("/readyz", get(readiness))
}

/// `/metrics`.
pub fn metrics(metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let text = move || async move {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
    };
    Router::new().route("/metrics", get(text))
}
