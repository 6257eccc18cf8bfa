//! The transactions of a recovery. All but the first compare the election key with the term of the recovery (R1), and
//! before the last one nothing that masters read has changed: a recovery that ends in the middle has done nothing.

use bytes::Bytes;

use super::new_log::put;
use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Latest, LogId};
use crate::cluster::recovered::Recovered;
use crate::coordination::types::{Compare, Get, KeyRange, LeaseId, Op, Txn};
use crate::engine::format::Format;
use crate::engine::types::Term;
use crate::replication::formats;

/// Most operations of a transaction; etcd takes 128.
const MAX_OPS: usize = 64;

/// Most bytes of a transaction; etcd refuses 1.5 MiB and slows down near 1 MiB.
const MAX_BYTES: usize = 768 << 10;

/// Operations for one transaction.
pub type Chunk = Vec<Op>;

/// Divides operations into transactions.
#[must_use]
pub fn chunks(ops: impl IntoIterator<Item = Op>) -> Vec<Chunk> {
    let mut all: Vec<(usize, Chunk)> = Vec::new();
    for op in ops {
        let bytes = match &op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::Delete(_) | Op::Get(_) => 0,
        };
        match all.last_mut().filter(|(sum, chunk)| sum + bytes <= MAX_BYTES && chunk.len() < MAX_OPS) {
            Some((sum, chunk)) => {
                *sum += bytes;
                chunk.push(op);
            }
            None => all.push((bytes, vec![op])),
        }
    }
    all.into_iter().map(|(_, chunk)| chunk).collect()
}

/// Returns the comparison with the present value of a key.
fn unchanged(key: Bytes, value: Option<&Bytes>) -> Compare {
    match value {
        Some(value) => Compare::Value { key, equals: value.clone() },
        None => Compare::CreateRevision { key, equals: 0 },
    }
}

fn get(key: Bytes) -> Op {
    Op::Get(Get::all(KeyRange::key(key)))
}

/// Returns the transaction that creates the election key, if no master leads and the log ends where the recovery has
/// found it. Its failure branch reads that key.
#[must_use]
pub fn create_election(keys: &Keys, latest: Option<&Bytes>, value: Bytes, lease: LeaseId) -> Txn {
    Txn {
        compare: vec![
            Compare::CreateRevision { key: keys.election(), equals: 0 },
            unchanged(keys.latest(), latest),
        ],
        success: vec![Op::Put { key: keys.election(), value, lease }],
        failure: vec![get(keys.election())],
    }
}

/// Returns a transaction that is executed only while the recovery leads.
#[must_use]
pub fn fenced(keys: &Keys, term: Term, success: Vec<Op>) -> Txn {
    let mine = Compare::CreateRevision { key: keys.election(), equals: term.0 };
    Txn { compare: vec![mine], success, failure: vec![get(keys.election())] }
}

/// Returns the operation that deletes the batches before a key of the log that an interrupted recovery was writing.
#[must_use]
pub fn delete_leftovers(keys: &Keys, leftover: LogId, up_to: Bytes) -> Op {
    Op::Delete(KeyRange::between(keys.batches_of(leftover).start, up_to))
}

/// What the last transaction writes.
#[derive(Debug)]
pub struct Commit<'a> {
    pub term: Term,
    /// The values that `latest` and `recovered` had when the recovery was planned.
    pub latest_before: Option<&'a Bytes>,
    pub recovered_before: Option<&'a Bytes>,
    /// The last batches.
    pub batches: Chunk,
    pub end: Latest,
    pub recovered: &'a Recovered,
    /// The format of the new log, if there is no format key.
    pub format: Option<Format>,
}

impl Commit<'_> {
    /// Returns the transaction that makes the new log the log of the cluster and ends the term of the recovery. Its
    /// failure branch reads `latest`: after an attempt without an answer it shows whether that one was executed (R5).
    #[must_use]
    pub fn txn(self, keys: &Keys) -> Txn {
        let Self { term, latest_before, recovered_before, batches, end, recovered, format } = self;
        let compare = vec![
            Compare::CreateRevision { key: keys.election(), equals: term.0 },
            unchanged(keys.latest(), latest_before),
            unchanged(keys.recovered(), recovered_before),
        ];
        let mut success = batches;
        success.push(put(keys.latest(), end.to_bytes()));
        success.push(put(keys.recovered(), recovered.to_bytes()));
        success.extend(format.map(|format| put(keys.format(), formats::key_value(format))));
        success.push(Op::Delete(KeyRange::key(keys.recovering())));
        success.push(Op::Delete(KeyRange::key(keys.election())));
        Txn { compare, success, failure: vec![get(keys.latest())] }
    }
}
