//! HTTP endpoints of the operator itself: health for the kubelet, metrics for Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::metrics::Metrics;

/// Whether the operator is ready: it waits for the Lease, or holds it and its caches are filled.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// Sets whether the operator is ready.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A pass that has been under way for this long is stuck: its own deadline is far shorter.
const STUCK: Duration = Duration::from_secs(120);

/// Serves `/healthz` and `/readyz`. Healthy means that the process answers and that no pass is stuck. It does not
/// depend on the API server or etcd: restarting the operator would not repair them.
pub fn health(ready: &Ready, metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let liveness = move || async move {
        match metrics.oldest_pass() {
            Some(age) if age >= STUCK => {
                let (age, limit) = (age.as_secs(), STUCK.as_secs());
                let text = format!("one reconciliation has been running for {age} s (limit {limit} s)\n");
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
            _ => (StatusCode::OK, "ok\n".to_owned()),
        }
    };
    let ready = ready.clone();
    let readiness = move || async move {
        if ready.is() {
            (StatusCode::OK, "ready\n")
        } else {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: the operator has not read all MasterClusters from the API server yet\n",
            )
        }
    };
    Router::new().route("/healthz", get(liveness)).route("/readyz", get(readiness))
}

/// Returns the route `/metrics`, which answers in Prometheus' text format.
pub fn metrics(metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let text = move || async move {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
    };
    Router::new().route("/metrics", get(text))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns the first line of the answer to a GET.
    async fn asked(listener: TcpListener, router: Router, path: &str) -> String {
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: operator\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        server.abort();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn a_pass_that_is_stuck_is_no_health() {
        let (ready, metrics) = (Ready::default(), Metrics::new().unwrap());
        let ask = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            asked(listener, health(&ready, &metrics), "/healthz").await
        };
        assert_eq!(ask().await, "HTTP/1.1 200 OK");
        // One that has only just begun, and one that is about to meet its own deadline.
        let _new = metrics.begin_pass();
        let _slow = metrics.pass_since(Instant::now() - STUCK / 2);
        assert_eq!(ask().await, "HTTP/1.1 200 OK");
        let stuck = metrics.pass_since(Instant::now() - STUCK);
        assert_eq!(ask().await, "HTTP/1.1 503 Service Unavailable");
        drop(stuck);
        assert_eq!(ask().await, "HTTP/1.1 200 OK");
    }
}
