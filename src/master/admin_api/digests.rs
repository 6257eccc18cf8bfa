//! The routes of the admin API about digests of the state.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::audit::Detail;
use super::control::Control;
use super::failure::error;
use super::routes::MAX_BODY;
use crate::cluster::digests::{DigestRequest, DigestsAnswer, DigestsProgress, DigestsRefused};
use crate::cluster::status::Fault;
use crate::master::http::answer;

/// How long a request waits for its digests. The server closes a connection without traffic after 30 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The digest of the whole state as a master keeps it up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DigestAnswer {
    /// Name of the master.
    pub name: String,
    pub term: u64,
    /// The last record applied.
    pub applied: u64,
    /// Timestamp of the last record, in milliseconds of log time.
    pub log_time_ms: u64,
    /// In hexadecimal digits.
    pub digest: String,
    pub faults: Vec<Fault>,
    /// How far the digests by range are that were requested, while they are being computed.
    pub computing: Option<DigestsProgress>,
}

/// Returns the digest of the whole state.
pub(super) async fn read(State(control): State<Arc<dyn Control>>) -> Response {
    let status = control.status();
    let answer = DigestAnswer {
        name: status.name,
        term: status.term,
        applied: status.applied,
        log_time_ms: control.log_time_ms(),
        digest: status.digest,
        faults: status.faults,
        computing: control.digests_progress(),
    };
    answer::json(StatusCode::OK, &answer)
}

/// Computes digests by range at a later record.
pub(super) async fn compute(
    State(control): State<Arc<dyn Control>>,
    Extension(detail): Extension<Detail>,
    body: Body,
) -> Response {
    let bad = |message: &str| error(StatusCode::BAD_REQUEST, "bad_request", message);
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return bad("the request is too long or incomplete");
    };
    match serde_json::from_slice(&body) {
        Ok(request) => compute_within(control, &detail, request, ANSWER_WITHIN).await,
        Err(why) => bad(&format!("the body must be like {{\"from_ms\": LOG_TIME}}: {why}")),
    }
}

async fn compute_within(
    control: Arc<dyn Control>,
    detail: &Detail,
    request: DigestRequest,
    within: Duration,
) -> Response {
    let answer = DigestsAnswer { member: control.status().name, ..DigestsAnswer::default() };
    match timeout(within, control.digests(request)).await {
        Ok(Ok(digests)) => {
            detail.set(format!("at record {}", digests.sequence_id));
            let digests = Some(Arc::unwrap_or_clone(digests));
            answer::json(StatusCode::OK, &DigestsAnswer { digests, ..answer })
        }
        Ok(Err(why)) => error(status_of(&why), why.code(), &why.to_string()),
        Err(_) => {
            detail.set("which takes longer".to_owned());
            let progress = control.digests_progress();
            answer::json(StatusCode::ACCEPTED, &DigestsAnswer { progress, ..answer })
        }
    }
}

/// Returns the HTTP status for a refusal.
fn status_of(why: &DigestsRefused) -> StatusCode {
    match why {
        DigestsRefused::NoSuchRange => StatusCode::BAD_REQUEST,
        DigestsRefused::TooLate { .. } | DigestsRefused::Busy | DigestsRefused::SnapshotUnderWay => {
            StatusCode::CONFLICT
        }
        DigestsRefused::Replaced | DigestsRefused::NotDurable(_) | DigestsRefused::Failed(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        DigestsRefused::NoRecord { .. } => StatusCode::GATEWAY_TIMEOUT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_differ_from_failures() {
        for (why, expected) in [
            (DigestsRefused::NoSuchRange, 400),
            (DigestsRefused::Busy, 409),
            (DigestsRefused::SnapshotUnderWay, 409),
            (DigestsRefused::Replaced, 503),
            (DigestsRefused::NotDurable(7), 503),
            (DigestsRefused::NoRecord { seconds: 60, applied: 7 }, 504),
        ] {
            assert_eq!(status_of(&why).as_u16(), expected, "{why}");
        }
    }
}
