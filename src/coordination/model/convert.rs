//! Converts requests of masters to operations of the model, and back.

use bytes::Bytes;

use crate::coordination::model::steps::{
    Condition, Delete, Found, Kept, Outcome, Program, Put, Read, Relation, Step, Target,
};
use crate::coordination::types::{Compare, Get, KeyRange, Op, OpResult, Page, Txn};

pub(super) fn program(txn: &Txn) -> Program {
    Program {
        compare: txn.compare.iter().map(condition).collect(),
        success: txn.success.iter().map(step).collect(),
        failure: txn.failure.iter().map(step).collect(),
    }
}

fn condition(compare: &Compare) -> Condition {
    let number = |revision: u64| i64::try_from(revision).unwrap_or(i64::MAX);
    let (key, target) = match compare {
        Compare::CreateRevision { key, equals } => (key, Target::CreateRevision(number(*equals))),
        Compare::ModRevision { key, equals } => (key, Target::ModRevision(number(*equals))),
        Compare::Value { key, equals } => (key, Target::Value(equals.clone())),
    };
    Condition { range: KeyRange::key(key.clone()), target, relation: Relation::Equal }
}

fn step(op: &Op) -> Step {
    match op {
        Op::Put { key, value, lease } => Step::Put(Put {
            key: key.clone(),
            value: Some(value.clone()),
            lease: Some(*lease),
            previous: false,
        }),
        Op::Delete(deleted) => Step::Delete(Delete { range: range(deleted), previous: false }),
        Op::Get(get) => Step::Read(read(get)),
    }
}

pub(super) fn read(get: &Get) -> Read {
    Read {
        range: range(&get.range),
        revision: get.revision,
        limit: get.limit,
        keys_only: get.keys_only,
        count_only: false,
        counted: false,
        sort: None,
        kept: Kept::default(),
    }
}

/// Converts a range: etcd has no empty key, so a range from the empty key starts at the first possible one.
fn range(range: &KeyRange) -> KeyRange {
    match &range.end {
        Some(end) if range.start.is_empty() => KeyRange::between(Bytes::from_static(&[0]), end.clone()),
        _ => range.clone(),
    }
}

pub(super) fn page(found: Found) -> Page {
    Page { entries: found.entries, more: found.more }
}

/// Converts an outcome; `None` for a nested transaction, which masters never send.
pub(super) fn result(outcome: Outcome) -> Option<OpResult> {
    match outcome {
        Outcome::Put { .. } => Some(OpResult::Put),
        Outcome::Deleted { count, .. } => Some(OpResult::Deleted(count)),
        Outcome::Read(found) => Some(OpResult::Got(page(found))),
        Outcome::Txn { .. } => None,
    }
}
