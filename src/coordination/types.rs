//! What masters ask of etcd and what it answers, in words of our own: the same for the real client, the model and the
//! embedded store.

use bytes::Bytes;

/// A lease in etcd; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub i64);

/// One key, or all keys from one up to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The key, or the first one.
    pub start: Bytes,
    /// The first key that is no longer meant; `None` for one key alone.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// One key.
    #[must_use]
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), end: None }
    }

    /// All keys from `start` up to and without `end`.
    #[must_use]
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// All keys that start with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        let end = after_prefix(&start);
        Self { start, end: Some(end) }
    }

    /// Whether a key is meant.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            None => *key == *self.start,
            // etcd's word for "to the very end" is a single zero byte.
            Some(end) => *key >= *self.start && (**end == [0] || *key < **end),
        }
    }
}

/// The first key after all those that start with `prefix`.
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
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The revision that created it.
    pub create_revision: u64,
    /// The revision that changed it last.
    pub mod_revision: u64,
    /// How often it was written since it was created.
    pub version: u64,
    /// The lease that it ends with.
    pub lease: LeaseId,
}

/// What must hold for a transaction to succeed. A key that does not exist has zero revisions and no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was created by that revision; zero: it does not exist.
    CreateRevision {
        /// The key.
        key: Bytes,
        /// The revision.
        equals: u64,
    },
    /// The key was changed last by that revision.
    ModRevision {
        /// The key.
        key: Bytes,
        /// The revision.
        equals: u64,
    },
    /// The key exists and has that value.
    Value {
        /// The key.
        key: Bytes,
        /// The value.
        equals: Bytes,
    },
}

/// A read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// What is read.
    pub range: KeyRange,
    /// As of which revision; zero for the newest.
    pub revision: u64,
    /// At most so many keys, in key order; zero for all.
    pub limit: u64,
    /// Without values.
    pub keys_only: bool,
}

impl Get {
    /// Everything there is in a range now.
    #[must_use]
    pub fn all(range: KeyRange) -> Self {
        Self { range, revision: 0, limit: 0, keys_only: false }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// The lease that it ends with; zero for none.
        lease: LeaseId,
    },
    /// Deletes keys.
    Delete(KeyRange),
    /// Reads keys.
    Get(Get),
}

/// A transaction: if all of `compare` holds then `success` is done, else `failure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions.
    pub compare: Vec<Compare>,
    /// What is done if they hold.
    pub success: Vec<Op>,
    /// What is done if they do not.
    pub failure: Vec<Op>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A transaction.
    Txn(Txn),
    /// A read, of the newest committed state.
    Get(Get),
    /// A new lease.
    LeaseGrant {
        /// Its time to live.
        ttl_seconds: i64,
    },
    /// The lease starts anew.
    LeaseKeepAlive {
        /// The lease.
        lease: LeaseId,
    },
    /// The lease and its keys end.
    LeaseRevoke {
        /// The lease.
        lease: LeaseId,
    },
    /// The history before a revision is given up.
    Compact {
        /// The revision.
        revision: u64,
    },
    /// Whether the store refuses writes until an administrator acts.
    Alarms,
}

/// What one step of a transaction brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// A key was written.
    Put,
    /// So many keys were deleted.
    Deleted(u64),
    /// What was read.
    Got(Page),
}

/// What a read brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In key order.
    pub entries: Vec<KeyValue>,
    /// Whether the limit cut it off.
    pub more: bool,
}

/// An answer. Each carries the store's revision at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Of a transaction.
    Txn {
        /// The store's revision.
        revision: u64,
        /// Whether the conditions held.
        succeeded: bool,
        /// What each step brought.
        results: Vec<OpResult>,
    },
    /// Of a read.
    Got {
        /// The store's revision.
        revision: u64,
        /// What was read.
        page: Page,
    },
    /// A new lease.
    LeaseGranted {
        /// The lease.
        lease: LeaseId,
        /// Its time to live, which may be longer than what was asked for.
        ttl_seconds: i64,
    },
    /// The lease started anew, or has ended before.
    LeaseKeptAlive {
        /// Its time to live; zero or less: there is no such lease any more.
        ttl_seconds: i64,
    },
    /// The lease has ended, now or before.
    LeaseRevoked,
    /// The history was given up.
    Compacted,
    /// The alarms that are raised.
    Alarms {
        /// A member is out of space: nothing is written and no lease is granted.
        no_space: bool,
    },
}

/// Why there is no answer. Whether a write was done is unknown in every case but [`Failure::Compacted`] (R5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The revision that was asked for has been given up.
    #[error("the revision was compacted; the oldest one is {oldest}")]
    Compacted {
        /// The oldest revision that there is; zero if the store does not say.
        oldest: u64,
    },
    /// The lease that a key was to end with does not exist.
    #[error("the lease does not exist")]
    LeaseNotFound,
    /// The store refused for another reason, such as a lack of space or of rights.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// No answer came in time, or the connection broke.
    #[error("no answer from etcd: {0}")]
    Unknown(String),
}

/// Asks to be told of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// Of these keys.
    pub range: KeyRange,
    /// From this revision on.
    pub from_revision: u64,
    /// Deletions, too.
    pub deletions: bool,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// Keys changed. All changes of one revision come together, in order.
    Changes {
        /// Everything up to this revision has been told.
        revision: u64,
        /// What changed.
        changes: Vec<Change>,
    },
    /// Everything up to this revision has been told.
    Progress {
        /// The revision.
        revision: u64,
    },
    /// The revision to start from has been given up. Nothing more comes.
    Compacted {
        /// The oldest revision that there is; zero if the store does not say.
        oldest: u64,
    },
    /// The watch broke for another reason. Nothing more comes.
    Broken(String),
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was written.
    Put(KeyValue),
    /// It was deleted, by hand or with its lease.
    Deleted {
        /// The key.
        key: Bytes,
        /// By which revision.
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
