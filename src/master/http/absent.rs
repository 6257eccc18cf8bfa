//! Routes of features that this master does not have. They answer what the reference answers with the feature off, or
//! that the feature is not supported.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::HttpState;
use super::answer;
use super::query;

#[derive(Serialize)]
struct EventsStatus {
    enabled: bool,
    published_batches: u64,
    published_events: u64,
    dropped_events: u64,
    skipped_unparsed_keys: u64,
}

pub(super) async fn kv_events_status(State(shared): State<HttpState>) -> Response {
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    let off = EventsStatus {
        enabled: false,
        published_batches: 0,
        published_events: 0,
        dropped_events: 0,
        skipped_unparsed_keys: 0,
    };
    answer::json(StatusCode::OK, &off)
}

/// Refuses to create a drain job. The reference has them; here a segment is emptied by unmounting it gracefully.
pub(super) async fn create_drain_job() -> Response {
    answer::error_with(
        StatusCode::NOT_IMPLEMENTED,
        answer::NOT_SUPPORTED.code,
        "drain jobs are not supported by this master; unmount the segment gracefully instead",
    )
}

/// Answers queries and cancellations of drain jobs: there are none.
pub(super) async fn drain_job(State(shared): State<HttpState>, RawQuery(text): RawQuery) -> Response {
    let text = text.unwrap_or_default();
    let is_id = |id: &str| {
        let mut parts = id.split('-');
        parts.clone().count() > 1
            && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    if !query::raw(&text, "job_id").is_some_and(is_id) {
        let code = answer::INVALID_PARAMS.code;
        return answer::error_with(StatusCode::BAD_REQUEST, code, "Missing or invalid job_id");
    }
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    answer::error(answer::JOB_NOT_FOUND)
}

/// Refuses a change on the HTTP port, which needs no authorisation, when there is an admin port.
pub(super) async fn change_on_admin_port() -> Response {
    answer::error_with(
        StatusCode::FORBIDDEN,
        answer::UNAVAILABLE_IN_CURRENT_MODE.code,
        "with --enable_ha this is on the admin port (--admin_port), and needs its token",
    )
}

/// Answers reads of quotas: there are no tenants.
pub(super) async fn read_tenant_quotas(State(shared): State<HttpState>) -> Response {
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    answer::error(answer::UNAVAILABLE_IN_CURRENT_MODE)
}

/// Answers changes of quotas: there are no tenants.
pub(super) async fn change_tenant_quota(
    State(shared): State<HttpState>,
    RawQuery(text): RawQuery,
) -> Response {
    let text = text.unwrap_or_default();
    if query::raw(&text, "tenant_id").unwrap_or_default().is_empty() {
        let code = answer::INVALID_PARAMS.code;
        return answer::error_with(StatusCode::BAD_REQUEST, code, "Missing or invalid tenant_id");
    }
    read_tenant_quotas(State(shared)).await
}
