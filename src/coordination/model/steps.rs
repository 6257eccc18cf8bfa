//! Transactions with all that etcd's API allows in them, and why one can be refused. The requests of masters
//! ([`crate::coordination::types`]) use a small part of it; the embedded store serves the rest to other clients.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::coordination::types::{KeyRange, KeyValue, LeaseId};

/// etcd's upper bound of a request as it is written to its log.
const MAX_REQUEST_BYTES: usize = 3 * 512 * 1024;

/// Estimated bytes that a key, a value or a number takes in a request beyond its own.
const OVERHEAD: usize = 8;

/// Upper bound of conditions, and of steps in each branch: etcd's default.
const MAX_OPS: usize = 128;

/// Upper bound of steps in all, those of nested transactions included. etcd has no such bound, and no client comes near
/// it; but some checks are made for each pair of steps.
const MAX_STEPS: usize = 4096;

/// A transaction: if all of `compare` holds then `success` is carried out, else `failure`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub compare: Vec<Condition>,
    pub success: Vec<Step>,
    pub failure: Vec<Step>,
}

/// A condition on all keys of a range. If the range has no keys, it is checked against a key that is zero everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub range: KeyRange,
    pub target: Target,
    pub relation: Relation,
}

/// The field that is compared, and the operand.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Version(i64),
    CreateRevision(i64),
    ModRevision(i64),
    Value(Bytes),
    Lease(LeaseId),
}

/// How the field has to relate to the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
}

impl Relation {
    pub(crate) fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Greater => ordering.is_gt(),
            Self::Less => ordering.is_lt(),
        }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put(Put),
    Delete(Delete),
    Read(Read),
    Txn(Program),
}

/// A step that writes a key.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub key: Bytes,
    /// `None` keeps the present value.
    pub value: Option<Bytes>,
    /// `None` keeps the present lease.
    pub lease: Option<LeaseId>,
    /// Whether the answer includes the key before the change.
    pub previous: bool,
}

/// A step that deletes a range of keys.
#[derive(Clone, Debug)]
pub(crate) struct Delete {
    pub range: KeyRange,
    /// Whether the answer includes the keys before the change.
    pub previous: bool,
}

/// A step that reads a range of keys.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub range: KeyRange,
    /// The revision to read at; zero for the newest.
    pub revision: u64,
    /// Most keys in the answer; zero for all.
    pub limit: u64,
    pub keys_only: bool,
    pub count_only: bool,
    /// Whether the answer includes the number of keys in the range, whatever the limit.
    pub counted: bool,
    /// The order, if it is not that of keys.
    pub sort: Option<Sort>,
    pub kept: Kept,
}

/// Filter by revisions; zero means no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub min_mod_revision: u64,
    pub max_mod_revision: u64,
    pub min_create_revision: u64,
    pub max_create_revision: u64,
}

impl Kept {
    pub(crate) fn keeps(&self, entry: &KeyValue) -> bool {
        let below = |value: u64, bound: u64| bound == 0 || value <= bound;
        entry.mod_revision >= self.min_mod_revision
            && below(entry.mod_revision, self.max_mod_revision)
            && entry.create_revision >= self.min_create_revision
            && below(entry.create_revision, self.max_create_revision)
    }
}

/// The order of a read's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sort {
    pub by: SortBy,
    pub descending: bool,
}

/// The field to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortBy {
    Key,
    Version,
    CreateRevision,
    ModRevision,
    Value,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Put { previous: Option<KeyValue> },
    Deleted { count: u64, previous: Vec<KeyValue> },
    Read(Found),
    Txn { succeeded: bool, outcomes: Vec<Outcome> },
}

/// The result of a read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub entries: Vec<KeyValue>,
    /// Whether the limit cut it off.
    pub more: bool,
    /// How many keys are in the range; only complete if the read asked for it.
    pub count: u64,
}

/// Why etcd refuses a request. The messages are etcd's own, since clients tell errors apart by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    #[error("etcdserver: too large lease TTL")]
    TtlTooLarge,
    #[error("etcdserver: key not found")]
    KeyNotFound,
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    #[error("etcdserver: request is too large")]
    TooLarge,
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    #[error("etcdserver: too many requests")]
    TooMany,
}

impl Program {
    /// Checks what does not depend on any key: counts, sizes, empty keys, a key that is written twice.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.check_counts(MAX_OPS)?;
        if self.count() > MAX_STEPS {
            return Err(Refusal::TooManyOps);
        }
        writes(&self.success)?;
        writes(&self.failure)?;
        if self.size() > MAX_REQUEST_BYTES {
            return Err(Refusal::TooLarge);
        }
        Ok(())
    }

    fn count(&self) -> usize {
        let step = |step: &Step| if let Step::Txn(program) = step { 1 + program.count() } else { 1 };
        self.success.iter().chain(&self.failure).map(step).sum()
    }

    /// Returns an estimate of its size in etcd's log.
    fn size(&self) -> usize {
        let range =
            |range: &KeyRange| range.start.len() + range.end.as_ref().map_or(0, Bytes::len) + OVERHEAD;
        let condition = |condition: &Condition| {
            let value = if let Target::Value(value) = &condition.target { value.len() } else { 0 };
            range(&condition.range) + value + OVERHEAD
        };
        let step = |step: &Step| match step {
            Step::Put(put) => put.key.len() + put.value.as_ref().map_or(0, Bytes::len) + 3 * OVERHEAD,
            Step::Delete(delete) => range(&delete.range),
            Step::Read(read) => range(&read.range) + 2 * OVERHEAD,
            Step::Txn(program) => program.size() + OVERHEAD,
        };
        let steps = self.success.iter().chain(&self.failure);
        self.compare.iter().map(condition).sum::<usize>() + steps.map(step).sum::<usize>()
    }

    /// Returns whether it can make the store larger.
    pub(crate) fn puts(&self) -> bool {
        self.success.iter().chain(&self.failure).any(|step| match step {
            Step::Put(_) => true,
            Step::Txn(program) => program.puts(),
            Step::Delete(_) | Step::Read(_) => false,
        })
    }

    fn check_counts(&self, max: usize) -> Result<(), Refusal> {
        let ops = self.compare.len().max(self.success.len()).max(self.failure.len());
        // A nested transaction may only have as many steps as this one leaves over, which also bounds the depth.
        let left = max.checked_sub(ops).ok_or(Refusal::TooManyOps)?;
        if self.compare.iter().any(|condition| condition.range.start.is_empty()) {
            return Err(Refusal::EmptyKey);
        }
        for step in self.success.iter().chain(&self.failure) {
            let key = match step {
                Step::Put(put) => &put.key,
                Step::Delete(delete) => &delete.range.start,
                Step::Read(read) => &read.range.start,
                Step::Txn(program) => {
                    program.check_counts(left)?;
                    continue;
                }
            };
            if key.is_empty() {
                return Err(Refusal::EmptyKey);
            }
        }
        Ok(())
    }
}

/// The keys that a branch writes, and the ranges that it deletes.
#[derive(Default)]
struct Writes<'a> {
    puts: Vec<&'a Bytes>,
    deletes: Vec<&'a KeyRange>,
}

impl<'a> Writes<'a> {
    fn put(&mut self, key: &'a Bytes) -> Result<(), Refusal> {
        if self.puts.contains(&key) || self.deletes.iter().any(|range| range.contains(key)) {
            return Err(Refusal::DuplicateKey);
        }
        self.puts.push(key);
        Ok(())
    }
}

/// Checks that no key that one step writes is written or deleted by another: no revision changes a key twice.
fn writes(steps: &[Step]) -> Result<Writes<'_>, Refusal> {
    let mut all = Writes::default();
    all.deletes.extend(steps.iter().filter_map(|step| match step {
        Step::Delete(delete) => Some(&delete.range),
        _ => None,
    }));
    for step in steps {
        let Step::Txn(program) = step else { continue };
        let then = writes(&program.success)?;
        let otherwise = writes(&program.failure)?;
        // Only one of the two branches is carried out, so both may write the same key.
        for key in otherwise.puts.into_iter().filter(|key| !then.puts.contains(key)) {
            all.put(key)?;
        }
        for key in then.puts {
            all.put(key)?;
        }
        all.deletes.extend(then.deletes);
        all.deletes.extend(otherwise.deletes);
    }
    for step in steps {
        if let Step::Put(put) = step {
            all.put(&put.key)?;
        }
    }
    Ok(all)
}
