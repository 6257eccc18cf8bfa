//! Routes about the process: metrics, health and role.

use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::HttpState;
use super::answer::{self, METRICS, TEXT};
use super::backend::Health;

pub(super) async fn metrics(State(shared): State<HttpState>) -> Response {
    let text = shared.metrics.prometheus_text(&shared.backend.gauges());
    answer::with_type(StatusCode::OK, METRICS, text)
}

pub(super) async fn summary(State(shared): State<HttpState>) -> Response {
    let Health { role, state, service_ready, .. } = shared.backend.health();
    let master = shared.summary.text(&shared.metrics, &shared.backend.gauges(), Instant::now());
    let text =
        format!("role={}, state={state}, service_ready={service_ready}, master={{{master}}}", role.as_str());
    answer::with_type(StatusCode::OK, METRICS, text)
}

#[derive(Serialize)]
struct HealthAnswer {
    status: &'static str,
    role: &'static str,
    ha_state: &'static str,
    service_ready: bool,
    leader_address: Option<String>,
    view_version: Option<i64>,
}

pub(super) async fn health(State(shared): State<HttpState>) -> Response {
    let Health { role, state, service_ready, leader_address, view_version } = shared.backend.health();
    let body = HealthAnswer {
        status: "ok",
        role: role.as_str(),
        ha_state: state,
        service_ready,
        leader_address,
        view_version,
    };
    answer::json(StatusCode::OK, &body)
}

pub(super) async fn role(State(shared): State<HttpState>) -> Response {
    answer::with_type(StatusCode::OK, TEXT, shared.backend.health().role.as_str())
}

pub(super) async fn ha_status(State(shared): State<HttpState>) -> Response {
    answer::with_type(StatusCode::OK, TEXT, shared.backend.health().state)
}

#[derive(Serialize)]
struct LeaderAnswer {
    present: bool,
    leader_address: Option<String>,
    view_version: Option<i64>,
}

pub(super) async fn leader(State(shared): State<HttpState>) -> Response {
    let Health { leader_address, view_version, .. } = shared.backend.health();
    let body = LeaderAnswer { present: leader_address.is_some(), leader_address, view_version };
    answer::json(StatusCode::OK, &body)
}
