//! Requests to etcd and its answers, in types of our own: the same for the real client, the model and the embedded
//! store.

use bytes::Bytes;

/// The id of a lease in etcd; zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// One key, or all keys from one up to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The key, or the first one of a range.
    pub start: Bytes,
    /// The first key after the range; `None` for a single key.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// Returns the range of a single key.
    #[must_use]
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: None }
    }

    /// Returns the range of all keys from `start` up to, but without, `end`.
    #[must_use]
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// Returns the range of all keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        let end = after_prefix(&start);
        Self { start, end: Some(end) }
    }

    /// Returns whether a key is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            None => *key == *self.start,
            // In etcd a range end of a single zero byte means "up to the last key".
            Some(end) => *key >= *self.start && (**end == [0] || *key < **end),
        }
    }
}

/// Returns the first key after all those that start with `prefix`.
fn after_prefix(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff).map_or(0, |last| last + 1);
    let Some((last, head)) = prefix[..kept].split_last() else { return Bytes::from_static(&[0]) };
    let mut end = head.to_vec();
    end.push(last + 1);
    end.into()
}

/// A key with its value and history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision that created it.
    pub create_revision: u64,
    /// The revision that changed it last.
    pub mod_revision: u64,
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease that the key is attached to.
    pub lease: LeaseId,
}

/// A condition of a transaction. A key that does not exist has zero revisions and no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was created by that revision; with zero, it does not exist.
    CreateRevision { key: Bytes, equals: u64 },
    /// The key was last changed by that revision.
    ModRevision { key: Bytes, equals: u64 },
    /// The key exists and has that value.
    Value { key: Bytes, equals: Bytes },
}

/// A read of a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    pub range: KeyRange,
    /// The revision to read at; zero for the newest.
    pub revision: u64,
    /// Upper bound of keys, in key order; zero for all.
    pub limit: u64,
    /// Whether values are left out.
    pub keys_only: bool,
}

impl Get {
    /// Returns a read of all keys in a range at the newest revision.
    #[must_use]
    pub fn all(range: KeyRange) -> Self {
        Self { range, revision: 0, limit: 0, keys_only: false }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        key: Bytes,
        value: Bytes,
        /// The lease that the key is attached to; zero for none.
        lease: LeaseId,
    },
    Delete(KeyRange),
    Get(Get),
}

/// A transaction: if all of `compare` holds then `success` is carried out, else `failure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compare: Vec<Compare>,
    /// Carried out if the conditions hold.
    pub success: Vec<Op>,
    /// Carried out if they do not.
    pub failure: Vec<Op>,
}

/// A request to etcd, which [`Response`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Txn(Txn),
    /// A linearizable read.
    Get(Get),
    LeaseGrant {
        ttl_seconds: i64,
    },
    /// Renews a lease for its whole time to live.
    LeaseKeepAlive {
        lease: LeaseId,
    },
    /// Ends a lease and deletes its keys.
    LeaseRevoke {
        lease: LeaseId,
    },
    /// Discards the history before a revision.
    Compact {
        revision: u64,
    },
}

/// The result of one step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    Put,
    /// The number of deleted keys.
    Deleted(u64),
    Got(Page),
}

/// The result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys found, in key order.
    pub entries: Vec<KeyValue>,
    /// Whether the limit cut it off.
    pub more: bool,
}

/// An answer of etcd. Those of transactions and reads carry etcd's revision at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The answer to a transaction.
    Txn {
        revision: u64,
        /// Whether the conditions held and `success` was carried out.
        succeeded: bool,
        /// The results of the steps, in order.
        results: Vec<OpResult>,
    },
    /// The answer to a read.
    Got {
        /// etcd's revision at the time of the read.
        revision: u64,
        page: Page,
    },
    LeaseGranted {
        lease: LeaseId,
        /// Its time to live, which may be longer than requested.
        ttl_seconds: i64,
    },
    /// The lease was renewed, or had ended before.
    LeaseKeptAlive {
        /// Its time to live; zero or less if the lease no longer exists.
        ttl_seconds: i64,
    },
    /// The lease has ended, now or before.
    LeaseRevoked,
    /// The history before the revision was discarded.
    Compacted,
}

impl Response {
    /// Returns what it is, for messages: the whole answer may be long, and may have values that are secret.
    fn kind(&self) -> &'static str {
        match self {
            Self::Txn { .. } => "the result of a transaction",
            Self::Got { .. } => "the result of a read",
            Self::LeaseGranted { .. } => "a granted lease",
            Self::LeaseKeptAlive { .. } => "a renewed lease",
            Self::LeaseRevoked => "a revoked lease",
            Self::Compacted => "a finished compaction",
        }
    }
}

/// What a member of etcd reports about its own database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// The id of the member that has answered.
    pub member: u64,
    /// Size of the database file. etcd refuses writes when this reaches the quota.
    pub db_bytes: u64,
    /// The part of the file that holds data; what was compacted and not defragmented yet is not in it.
    pub in_use_bytes: u64,
    /// The limit of the file's size; `None` if the member does not report it, as before etcd 3.6, or has none.
    pub quota_bytes: Option<u64>,
    pub alarms: Alarms,
}

/// The alarms of an etcd cluster, which each member knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alarms {
    /// A member is out of space: etcd accepts no writes and grants no leases.
    pub no_space: bool,
    /// The data of a member differs from that of the others: etcd accepts no writes and grants no leases.
    pub corrupt: bool,
}

/// Why there is no answer. Whether a write was carried out is unknown (R5), except after [`Failure::Compacted`] and
/// [`Failure::LeaseNotFound`]: then this attempt did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The requested revision was compacted.
    #[error("the revision was compacted; the oldest one is {oldest}")]
    Compacted {
        /// The oldest revision that is left; zero if etcd does not name it.
        oldest: u64,
    },
    /// The lease that a key was to be attached to does not exist.
    #[error("the lease does not exist")]
    LeaseNotFound,
    /// etcd refused for another reason, such as a lack of space or of rights.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// No answer came in time, or the connection broke.
    #[error("no answer from etcd: {0}")]
    Unknown(String),
    /// An answer came, and is not of the kind or form that the request needs.
    #[error("unexpected answer from etcd: {0}")]
    Unusable(String),
}

impl Failure {
    /// Returns the failure for an answer of another kind than the request has.
    #[must_use]
    pub fn unexpected(answer: &Response) -> Self {
        Self::Unusable(answer.kind().to_owned())
    }
}

/// A request to watch keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    pub range: KeyRange,
    /// The first revision whose changes are delivered.
    pub from_revision: u64,
    /// Whether deletions are delivered, too.
    pub deletions: bool,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// Keys changed. All changes of one revision come together, in order.
    Changes {
        /// All changes up to this revision have been delivered.
        revision: u64,
        changes: Vec<Change>,
    },
    /// All changes up to this revision have been delivered.
    Progress { revision: u64 },
    /// The revision to start from was compacted. No further events come.
    Compacted {
        /// The oldest revision that is left; zero if etcd does not name it.
        oldest: u64,
    },
    /// The watch broke for another reason. No further events come.
    Broken(String),
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created or changed.
    Put(KeyValue),
    /// It was deleted, by a request or with its lease.
    Deleted {
        key: Bytes,
        /// The revision that deleted it.
        revision: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert!(KeyRange::prefix("a/").contains(b"a/x"));
        assert!(KeyRange::prefix("a/").contains(b"a/\xff\xff"));
        assert!(!KeyRange::prefix("a/").contains(b"a0"));
        assert!(!KeyRange::prefix("a/").contains(b"a"));
        assert!(KeyRange::prefix(&b"a\xff"[..]).contains(b"a\xff\xff"));
        assert!(!KeyRange::prefix(&b"a\xff"[..]).contains(b"b"));
        assert!(KeyRange::prefix("").contains(b"\xff"));
    }
}
