//! What Kubernetes and Prometheus ask of the operator itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// `/healthz` and `/readyz`. Health is that the process answers: neither the API server nor etcd is restarted by
/// restarting the operator.
pub fn health(ready: &Ready) -> Router {
    let ready = ready.clone();
    let readiness = move || async move {
        if ready.is() {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    };
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readiness))
}

/// `/metrics`.
pub fn metrics(metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let text = move || async move {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
    };
    Router::new().route("/metrics", get(text))
}
