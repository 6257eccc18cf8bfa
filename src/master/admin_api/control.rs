//! What the admin API needs of the master.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;

use crate::cluster::digests::{DigestRequest, DigestsProgress, DigestsRefused, StateDigests};
use crate::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use crate::cluster::status::Status;
use crate::cluster::switchover::SwitchoverDone;

/// A result that takes a while, such as that of a switchover.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The master, as the admin API sees it.
pub trait Control: Send + Sync + 'static {
    /// Returns the status of the master. Must not wait for anything.
    fn status(&self) -> Status;

    /// Returns how long ago the node's loop last ran. Must not wait for anything, a lock included.
    fn silent_for(&self) -> Duration;

    /// Hands over to the member with this name, or to the standby that is best placed. A hand-over that has begun goes
    /// on when the caller has gone.
    fn switchover(&self, to: Option<String>) -> Pending<Result<SwitchoverDone, ControlError>>;

    /// Returns the timestamp of the last record that was applied. Must not wait for anything.
    fn log_time_ms(&self) -> u64;

    /// Computes digests of the state at a later record. An equal request joins the one under way, which goes on when the
    /// caller has gone.
    fn digests(&self, request: DigestRequest) -> Pending<Result<Arc<StateDigests>, DigestsRefused>>;

    /// Returns how far the digests are that are being computed. Must not wait for anything.
    fn digests_progress(&self) -> Option<DigestsProgress>;

    /// Takes a snapshot, and returns it when it is announced. A snapshot that has begun goes on when the caller has
    /// gone.
    fn snapshot(&self) -> Pending<Result<HeldSnapshot, SnapshotRefused>>;
}

/// Why the master did not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Only the primary can do it.
    #[error("this master is not the primary{}", .primary.as_ref().map(|at| format!("; {at} is")).unwrap_or_default())]
    NotPrimary {
        /// The primary, if it is known.
        primary: Option<String>,
    },
    /// There is no such member.
    #[error("there is no member called '{0}'")]
    NoSuchMember(String),
    /// No standby, or not the named one, could take over without losing records, or it leads already.
    #[error("{0}")]
    NoTarget(String),
    /// Another hand-over is under way.
    #[error("another switchover is under way")]
    Busy,
    /// The hand-over had begun, and this master serves again.
    #[error("the switchover was given up: {0}")]
    GivenUp(String),
}

impl ControlError {
    /// Returns the code of the error in JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            ControlError::NotPrimary { .. } => "not_primary",
            ControlError::NoSuchMember(_) => "no_such_member",
            ControlError::NoTarget(_) => "no_target",
            ControlError::Busy => "busy",
            ControlError::GivenUp(_) => "given_up",
        }
    }

    /// Returns the HTTP status of the response.
    #[must_use]
    pub fn http_status(&self) -> StatusCode {
        match self {
            ControlError::NoSuchMember(_) => StatusCode::NOT_FOUND,
            ControlError::NotPrimary { .. } | ControlError::NoTarget(_) | ControlError::Busy => {
                StatusCode::CONFLICT
            }
            ControlError::GivenUp(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
