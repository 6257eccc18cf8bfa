//! The types of conditions, their values, and a condition without its times.

/// A primary serves, and a standby could take over. Nothing else counts: otherwise tools that wait for this condition
/// would consider a cluster failed because of one standby more than it needs.
pub const READY: &str = "Ready";
/// A primary serves, whether or not a standby could take over.
pub const AVAILABLE: &str = "Available";
/// A standby could take over without losing anything.
pub const REDUNDANT: &str = "Redundant";
/// Something is under way that needs no manual action.
pub const PROGRESSING: &str = "Progressing";
/// It will not become ready without a manual action.
pub const STALLED: &str = "Stalled";
/// etcd answers, has enough space and no alarm.
pub const ETCD_HEALTHY: &str = "EtcdHealthy";
/// The reason of [`STALLED`] while the log in etcd is not the one that the masters know.
pub const LOG_UNUSABLE: &str = "LogUnusable";
/// A recent snapshot has the state, but for recent changes.
pub const SNAPSHOT_FRESH: &str = "SnapshotFresh";
/// All pods run with the present template.
pub const UP_TO_DATE: &str = "UpToDate";

/// A condition holds.
pub const TRUE: &str = "True";
/// A condition does not hold.
pub const FALSE: &str = "False";
/// It was not observed whether a condition holds.
pub const UNKNOWN: &str = "Unknown";

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionValue {
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub value: &'static str,
    /// The reason, in one CamelCase word.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
}

impl ConditionValue {
    pub(super) fn new(
        kind: &'static str,
        value: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, value, reason: reason.to_owned(), message: message.into() }
    }
}
