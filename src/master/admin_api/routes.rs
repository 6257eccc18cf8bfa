//! Routes of the admin API.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Serialize;

use super::access::{self, Access};
use super::audit::Detail;
use super::control::Control;
use super::failure::error;
use super::{digests, snapshots};
use crate::cluster::promotion::PromotionReport;
use crate::cluster::status::Member;
use crate::cluster::switchover::SwitchoverRequest;
use crate::master::http::answer;

/// Most bytes in the body of a request.
pub(super) const MAX_BODY: usize = 4 << 10;

/// Most characters of a member's name that the audit log repeats.
const MAX_NAME: usize = 253;

/// Longest time for one round of the node's loop before the master counts as dead. It comes round fifty times a second;
/// a large piece of the log on a busy machine takes some seconds.
const MAX_SILENCE: Duration = Duration::from_secs(20);

type Shared = State<Arc<dyn Control>>;

/// Builds all routes of the admin API. `changes` are further routes that need authorisation.
pub fn router(control: Arc<dyn Control>, access: Access, changes: Router) -> Router {
    let guarded = Router::new()
        .route("/api/v1/switchover", post(switchover))
        .route("/api/v1/snapshots", post(snapshots::take))
        .route("/api/v1/digest", post(digests::compute))
        .with_state(Arc::clone(&control))
        .merge(changes)
        .route_layer(middleware::from_fn_with_state(access, access::check));
    readable(control).merge(guarded).fallback(not_found).method_not_allowed_fallback(not_found)
}

/// Builds the routes that only read, and need no authorisation. The HTTP port has them, too.
pub fn readable(control: Arc<dyn Control>) -> Router {
    Router::new()
        .route("/api/v1/status", get(status))
        .route("/api/v1/members", get(members))
        .route("/api/v1/promotion", get(promotion))
        .route("/api/v1/digest", get(digests::read))
        .route("/api/v1/snapshots", get(snapshots::list))
        .route("/ready", get(ready))
        .route("/live", get(live))
        .with_state(control)
}

async fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "not_found", "there is no such route with this method")
}

async fn status(State(control): Shared) -> Response {
    answer::json(StatusCode::OK, &control.status())
}

#[derive(Serialize)]
struct Members {
    members: Vec<Member>,
}

async fn members(State(control): Shared) -> Response {
    answer::json(StatusCode::OK, &Members { members: control.status().members })
}

#[derive(Serialize)]
struct Promotion {
    promotion: Option<PromotionReport>,
}

async fn promotion(State(control): Shared) -> Response {
    answer::json(StatusCode::OK, &Promotion { promotion: control.status().promotion })
}

/// Answers whether this master serves or could take over at once.
async fn ready(State(control): Shared) -> Response {
    let status = control.status();
    if status.ready {
        // Reads go on while etcd refuses writes, so this master stays ready and names the problem.
        let refused = status.log_refused.map_or(String::new(), |reason| {
            format!("; etcd refuses writes: {reason}; until it accepts them no other master can be elected")
        });
        return answer::with_type(
            StatusCode::OK,
            answer::TEXT,
            format!("ready, {}{refused}\n", status.phase),
        );
    }
    let why = status.why_not_ready.or(status.waits_for).unwrap_or(status.phase);
    answer::with_type(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, format!("not ready: {why}\n"))
}

/// Answers whether the node's loop still runs. Neither etcd nor the primary has a part in it.
async fn live(State(control): Shared) -> Response {
    let silent = control.silent_for();
    if silent <= MAX_SILENCE {
        return answer::with_type(StatusCode::OK, answer::TEXT, "alive\n");
    }
    let text = format!("the main loop of this master has not run for {} s\n", silent.as_secs());
    answer::with_type(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, text)
}

async fn switchover(State(control): Shared, Extension(detail): Extension<Detail>, body: Body) -> Response {
    let bad = |message: &str| error(StatusCode::BAD_REQUEST, "bad_request", message);
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return bad("the request is too long or incomplete");
    };
    let request = if body.is_empty() {
        SwitchoverRequest::default()
    } else {
        match serde_json::from_slice(&body) {
            Ok(request) => request,
            Err(why) => return bad(&format!("the body must be like {{\"to\": \"NAME\"}}: {why}")),
        }
    };
    detail.set(match &request.to {
        Some(name) => format!("to {}", name.escape_default().take(MAX_NAME).collect::<String>()),
        None => "to the best placed standby".to_owned(),
    });
    // A task of its own: a caller that disconnects must not leave a hand-over half done.
    match tokio::spawn(control.switchover(request.to)).await {
        Ok(Ok(done)) => answer::json(StatusCode::OK, &done),
        Ok(Err(why)) => error(why.http_status(), why.code(), &why.to_string()),
        Err(_) => error(StatusCode::SERVICE_UNAVAILABLE, "stopping", "this master is stopping"),
    }
}
