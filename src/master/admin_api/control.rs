//! What the admin API asks of the master.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::status::Status;

/// Something that takes a while.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The master, as the admin API sees it.
pub trait Control: Send + Sync + 'static {
    /// How it stands. Must not wait for anything.
    fn status(&self) -> Status;

    /// How long ago its loop last came round. Must not wait for anything, a lock included.
    fn silent_for(&self) -> Duration;

    /// Hands over to the member with this name, or to the one that is best placed. What was begun goes on when the
    /// caller has gone.
    fn switchover(&self, to: Option<String>) -> Pending<Result<SwitchoverDone, ControlError>>;
}

/// What a switchover is asked for with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchoverRequest {
    /// The member that shall lead; without one the best placed standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A switchover that has been made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchoverDone {
    /// Who led before.
    pub from: String,
    /// Who leads now.
    pub to: String,
    /// The term that began with it.
    pub term: u64,
    /// From the last answer of the old primary to the open port of the new one, as far as the old one can tell.
    pub unanswered_ms: u64,
    /// From the request to the end.
    pub total_ms: u64,
}

/// Why the master did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Only the primary can do it.
    #[error("this master is not the primary{}", .primary.as_ref().map(|at| format!("; {at} is")).unwrap_or_default())]
    NotPrimary {
        /// Who is, if that is known.
        primary: Option<String>,
    },
    /// There is no such member.
    #[error("there is no member called '{0}'")]
    NoSuchMember(String),
    /// Nobody could take over without losing something.
    #[error("no standby can take over: {0}")]
    NoTarget(String),
    /// Something of the kind is under way.
    #[error("another switchover is under way")]
    Busy,
    /// It was begun and went back.
    #[error("the switchover was given up: {0}")]
    GivenUp(String),
}

impl ControlError {
    /// The word in answers.
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

    /// The status of the answer.
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
