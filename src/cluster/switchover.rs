//! The request for a switchover, and its result.

use serde::{Deserialize, Serialize};

/// The request for a switchover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchoverRequest {
    /// The member that shall lead; `None` lets the primary choose the best standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The result of a switchover that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchoverDone {
    /// Name of the old primary.
    pub from: String,
    /// Name of the new primary.
    pub to: String,
    /// The term that began with it.
    pub term: u64,
    /// From the last answer of the old primary until the new one has published its address, as the old one sees it.
    pub unanswered_ms: u64,
    /// From the request until then.
    pub total_ms: u64,
}
