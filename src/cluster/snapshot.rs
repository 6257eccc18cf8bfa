//! Snapshots that masters hold, as member keys, the status of a master and the admin API name them.

use serde::{Deserialize, Serialize};

use super::log_end::LogId;

/// Most snapshots that a member key lists.
pub const MAX_LISTED: usize = 8;

/// A snapshot in the data directory of a master: complete, read back, and confirmed by a later `Digest` record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldSnapshot {
    /// The log that it belongs to.
    pub log: String,
    /// The term of the batch that it was taken after.
    pub term: u64,
    /// The last record in it.
    pub sequence_id: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Objects in it; `None` if that was not counted, as for a file that an earlier process wrote.
    pub objects: Option<u64>,
    /// The digest of the state, in hexadecimal digits.
    pub digest: String,
    /// When it was taken, in milliseconds since 1970 on the wall clock of the master that took it.
    pub taken_at_ms: u64,
    /// The directory that it is in outlives the machine of its master (`--data_dir_durable`). What an earlier version
    /// wrote counts as ephemeral.
    pub durable: bool,
    /// A copy of it is in the storage that all masters share (`--snapshot_store`).
    pub shared: bool,
}

impl HeldSnapshot {
    /// Returns the words for what becomes of it with the machine of its master.
    #[must_use]
    pub fn durability(&self) -> &'static str {
        match (self.durable, self.shared) {
            (true, false) => "durable",
            (true, true) => "durable, shared",
            (false, false) => "ephemeral",
            (false, true) => "ephemeral, shared",
        }
    }

    /// Returns whether it belongs to this log.
    #[must_use]
    pub fn is_of(&self, log: LogId) -> bool {
        self.log == log.to_string()
    }
}

/// Most copies that a member key lists as proven: two of each master of a large cluster.
pub const MAX_PROVEN: usize = 32;

/// A copy of a snapshot in the shared storage that a member has read back, which another member wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProvenCopy {
    /// The log that it belongs to.
    pub log: String,
    /// The last record in it.
    pub sequence_id: u64,
    /// The member that wrote it.
    pub by: String,
    /// The digest of the state, in hexadecimal digits.
    pub digest: String,
}

impl ProvenCopy {
    /// Returns whether it is the copy that this member says it has written.
    #[must_use]
    pub fn is_of(&self, by: &str, held: &HeldSnapshot) -> bool {
        self.by == by
            && self.log == held.log
            && self.sequence_id == held.sequence_id
            && self.digest == held.digest
    }
}

/// What a snapshot that is being taken waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotStage {
    /// The file is being written and read back.
    #[default]
    #[serde(rename = "writing")]
    Writing,
    /// The file is complete. It counts as soon as a later `Digest` record matches.
    #[serde(rename = "waiting for a digest")]
    WaitingForDigest,
}

impl std::fmt::Display for SnapshotStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Writing => "writing",
            Self::WaitingForDigest => "waiting for a digest",
        })
    }
}

/// A snapshot that is being taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotProgress {
    /// The last record in it.
    pub sequence_id: u64,
    /// Objects that were written.
    pub objects: u64,
    /// Objects that there are to write.
    pub of: u64,
    /// Bytes that were written.
    pub bytes: u64,
    pub stage: SnapshotStage,
}

/// The snapshots of a master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotStatus {
    /// Snapshots that this master can start from, newest first.
    pub held: Vec<HeldSnapshot>,
    /// The last record in the snapshot that this process started from; `None` if it read the whole log.
    pub started_from: Option<u64>,
    /// The one that is being taken.
    pub running: Option<SnapshotProgress>,
    /// Why the last attempt failed; `None` after one that succeeded.
    pub error: Option<String>,
    /// Why the newest one could not be copied to the shared storage; `None` once it was, and without such storage.
    pub store_error: Option<String>,
    /// Copies of other members in the shared storage that this master has read back.
    pub proven: Vec<ProvenCopy>,
    /// Why the last copy of another member could not be read back; `None` once one was.
    pub proof_error: Option<String>,
}

/// Why a master did not take a snapshot on request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotRefused {
    #[error("this master is not a standby: it {0}")]
    NotStandby(String),
    #[error("this standby is not caught up: {0}")]
    NotCaughtUp(String),
    #[error("this master has no --data_dir to keep snapshots in")]
    NoDataDir,
    /// It was tried.
    #[error("the snapshot failed: {0}")]
    Failed(String),
    /// It goes on.
    #[error("the snapshot was not complete after {0} s; it goes on")]
    TimedOut(u64),
}

impl SnapshotRefused {
    /// Returns the code of the error in JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotStandby(_) => "not_standby",
            Self::NotCaughtUp(_) => "not_caught_up",
            Self::NoDataDir => "no_data_dir",
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed_out",
        }
    }
}
