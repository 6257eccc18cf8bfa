//! The HTTP server of a master: metrics, health, and queries about keys and segments.
//!
//! Routes, status codes, content types and field names are those of the reference, because its users' probes,
//! dashboards and scripts depend on them. [`HttpBackend`] is all that the routes know of the master.

mod absent;
pub mod answer;
mod backend;
mod keys;
pub mod query;
mod segments;
mod status;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

pub use backend::{
    Answer, BackendError, BufferInfo, Health, HttpBackend, KeysPiece, NotRemoved, ReferenceRole, SegmentInfo,
};

use crate::master::metrics::{Metrics, Summary};

/// State that every route can reach.
#[derive(Clone)]
struct HttpState {
    backend: Arc<dyn HttpBackend>,
    metrics: Arc<Metrics>,
    summary: Arc<Summary>,
}

/// Builds all routes of a master that is alone. Serve them with [`http_server::serve`](crate::net::http_server::serve).
pub fn router(backend: Arc<dyn HttpBackend>, metrics: Arc<Metrics>) -> Router {
    with_fallback(reads(&backend, &metrics).merge(changes(backend, metrics)))
}

/// Builds the routes of a master that replicates, with `more` routes about replication. Those that change something are
/// [`changes`], on the admin port.
pub fn replicated_router(backend: Arc<dyn HttpBackend>, metrics: Arc<Metrics>, more: Router) -> Router {
    let elsewhere = post(absent::change_on_admin_port);
    with_fallback(reads(&backend, &metrics).route(REMOVE_ALL, elsewhere).merge(more))
}

/// Builds the routes that change something.
pub fn changes(backend: Arc<dyn HttpBackend>, metrics: Arc<Metrics>) -> Router {
    Router::new().route(REMOVE_ALL, post(keys::remove_all)).with_state(HttpState {
        backend,
        metrics,
        summary: Arc::default(),
    })
}

const REMOVE_ALL: &str = "/api/v1/remove_all";

fn with_fallback(router: Router) -> Router {
    router.fallback(answer::not_found).method_not_allowed_fallback(answer::not_found)
}

fn reads(backend: &Arc<dyn HttpBackend>, metrics: &Arc<Metrics>) -> Router {
    let shared =
        HttpState { backend: Arc::clone(backend), metrics: Arc::clone(metrics), summary: Arc::default() };
    Router::new()
        .route("/metrics", get(status::metrics))
        .route("/metrics/summary", get(status::summary))
        .route("/health", get(status::health))
        .route("/role", get(status::role))
        .route("/ha_status", get(status::ha_status))
        .route("/leader", get(status::leader))
        .route("/query_key", get(keys::query_key))
        .route("/batch_query_keys", get(keys::batch_query_keys))
        .route("/get_all_keys", get(keys::get_all_keys))
        .route("/get_all_segments", get(segments::get_all_segments))
        .route("/get_segments_detail", get(segments::get_segments_detail))
        .route("/query_segment", get(segments::query_segment))
        .route("/api/v1/segments/status", get(segments::segment_status))
        .route("/kv_events/status", get(absent::kv_events_status))
        .route("/api/v1/drain_jobs", post(absent::create_drain_job))
        .route("/api/v1/drain_jobs/query", get(absent::drain_job))
        .route("/api/v1/drain_jobs/cancel", post(absent::drain_job))
        .route(
            "/api/v1/tenant_quotas",
            get(absent::read_tenant_quotas)
                .put(absent::change_tenant_quota)
                .delete(absent::change_tenant_quota),
        )
        .with_state(shared)
}
