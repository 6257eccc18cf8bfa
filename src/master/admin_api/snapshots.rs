//! The routes of the admin API about snapshots.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::audit::Detail;
use super::control::Control;
use super::failure::error;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotProgress, SnapshotRefused, SnapshotStatus};
use crate::master::http::answer;

/// How long a request waits for its snapshot. The server closes a connection without traffic after 30 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The snapshots of a master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsAnswer {
    /// `None` without a data directory.
    pub snapshots: Option<SnapshotStatus>,
}

/// The answer to a request for a snapshot that was not refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotAnswer {
    /// Name of the master that takes it.
    pub member: String,
    /// The snapshot has at least this record.
    pub up_to: u64,
    /// The snapshot, if it is complete.
    pub taken: Option<HeldSnapshot>,
    /// What the master is writing, if it takes longer: the snapshot, or an earlier one that has to end first.
    pub running: Option<SnapshotProgress>,
}

/// Returns the snapshots that this master holds and the snapshot being taken.
pub(super) async fn list(State(control): State<Arc<dyn Control>>) -> Response {
    answer::json(StatusCode::OK, &SnapshotsAnswer { snapshots: control.status().snapshots })
}

/// Takes a snapshot.
pub(super) async fn take(
    State(control): State<Arc<dyn Control>>,
    Extension(detail): Extension<Detail>,
) -> Response {
    take_within(control, &detail, ANSWER_WITHIN).await
}

async fn take_within(control: Arc<dyn Control>, detail: &Detail, within: Duration) -> Response {
    let status = control.status();
    let answer = SnapshotAnswer { member: status.name, up_to: status.applied, ..SnapshotAnswer::default() };
    // A task of its own: a caller that disconnects must not end a snapshot that others may wait for.
    let taking = tokio::spawn(control.snapshot());
    match timeout(within, taking).await {
        Ok(Ok(Ok(taken))) => {
            detail.set(format!("up to record {}", taken.sequence_id));
            answer::json(StatusCode::OK, &SnapshotAnswer { taken: Some(taken), ..answer })
        }
        Ok(Ok(Err(why))) => error(status_of(&why), why.code(), &why.to_string()),
        Ok(Err(_)) => error(StatusCode::SERVICE_UNAVAILABLE, "stopping", "this master is stopping"),
        Err(_) => {
            detail.set(format!("up to record {} or later, which takes longer", answer.up_to));
            let running = control.status().snapshots.and_then(|snapshots| snapshots.running);
            answer::json(StatusCode::ACCEPTED, &SnapshotAnswer { running, ..answer })
        }
    }
}

/// Returns the HTTP status for a refusal.
fn status_of(why: &SnapshotRefused) -> StatusCode {
    match why {
        SnapshotRefused::NotStandby(_) | SnapshotRefused::NotCaughtUp(_) | SnapshotRefused::NoDataDir => {
            StatusCode::CONFLICT
        }
        SnapshotRefused::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        SnapshotRefused::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::digests::{DigestRequest, DigestsProgress, DigestsRefused, StateDigests};
    use crate::cluster::status::Status;
    use crate::cluster::switchover::SwitchoverDone;
    use crate::master::admin_api::{ControlError, Pending};

    /// A master whose snapshots take for ever.
    struct Slow;

    impl Control for Slow {
        fn status(&self) -> Status {
            let running =
                SnapshotProgress { sequence_id: 7, objects: 1, of: 9, ..SnapshotProgress::default() };
            let snapshots = SnapshotStatus { running: Some(running), ..SnapshotStatus::default() };
            Status { name: "m-1".into(), applied: 5, snapshots: Some(snapshots), ..Status::default() }
        }

        fn silent_for(&self) -> Duration {
            Duration::ZERO
        }

        fn snapshot(&self) -> Pending<Result<HeldSnapshot, SnapshotRefused>> {
            Box::pin(std::future::pending())
        }

        fn log_time_ms(&self) -> u64 {
            0
        }

        fn digests(&self, _: DigestRequest) -> Pending<Result<Arc<StateDigests>, DigestsRefused>> {
            Box::pin(std::future::pending())
        }

        fn digests_progress(&self) -> Option<DigestsProgress> {
            None
        }

        fn switchover(&self, _: Option<String>) -> Pending<Result<SwitchoverDone, ControlError>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_long_snapshot_is_answered_before_it_is_complete() {
        let response = take_within(Arc::new(Slow), &Detail::default(), Duration::from_millis(1)).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        let answer: SnapshotAnswer = serde_json::from_slice(&body).unwrap();
        assert_eq!((answer.member.as_str(), answer.up_to, answer.taken), ("m-1", 5, None));
        assert_eq!(answer.running.map(|running| running.sequence_id), Some(7));
    }

    #[test]
    fn refusals_differ_from_failures() {
        for (why, expected) in [
            (SnapshotRefused::NotStandby("leads".into()), 409),
            (SnapshotRefused::NotCaughtUp("34 records behind".into()), 409),
            (SnapshotRefused::NoDataDir, 409),
            (SnapshotRefused::Failed("disk full".into()), 503),
            (SnapshotRefused::TimedOut(60), 504),
        ] {
            assert_eq!(status_of(&why).as_u16(), expected, "{why}");
        }
    }
}
