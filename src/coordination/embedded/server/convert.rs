//! Converts the messages of etcd's API to operations of the model, and back.

use bytes::Bytes;
use etcd_client::proto::{
    PbCompare, PbDeleteRequest, PbDeleteResponse, PbKeyValue, PbPutRequest, PbPutResponse, PbRangeRequest,
    PbRangeResponse, PbResponseHeader, PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse,
    PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};
use tonic::{Code, Status};

use crate::coordination::embedded::store::Rejection;
use crate::coordination::model::steps::{
    Condition, Delete, Found, Kept, Outcome, Program, Put, Read, Refusal, Relation, Sort, SortBy, Step,
    Target,
};
use crate::coordination::types::{KeyRange, KeyValue, LeaseId};

/// There is always one cluster with one member.
pub(super) const CLUSTER_ID: u64 = 0x6d6f_6f6e;
pub(super) const MEMBER_ID: u64 = 1;
pub(super) const RAFT_TERM: u64 = 1;

/// Upper bound of the answer to a read; a client that wants more has to read in pages.
const MAX_ANSWER_BYTES: usize = 256 << 20;

pub(super) fn header(revision: u64) -> Option<PbResponseHeader> {
    Some(PbResponseHeader {
        cluster_id: CLUSTER_ID,
        member_id: MEMBER_ID,
        revision: signed(revision),
        raft_term: RAFT_TERM,
    })
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn status(rejection: Rejection) -> Status {
    let Rejection::Refused(refusal) = rejection else {
        return Status::unavailable("the file of the store cannot be written");
    };
    let code = match refusal {
        Refusal::Compacted | Refusal::FutureRevision | Refusal::TtlTooLarge => Code::OutOfRange,
        Refusal::LeaseNotFound => Code::NotFound,
        Refusal::LeaseExists => Code::FailedPrecondition,
        Refusal::KeyNotFound
        | Refusal::DuplicateKey
        | Refusal::TooManyOps
        | Refusal::EmptyKey
        | Refusal::TooLarge => Code::InvalidArgument,
        Refusal::NoSpace | Refusal::TooMany => Code::ResourceExhausted,
    };
    Status::new(code, refusal.to_string())
}

pub(super) fn range(key: Vec<u8>, range_end: Vec<u8>) -> KeyRange {
    let end = (!range_end.is_empty()).then(|| range_end.into());
    KeyRange { start: key.into(), end }
}

pub(super) fn read(request: PbRangeRequest) -> Result<Read, Status> {
    let invalid = || Status::invalid_argument("etcdserver: invalid sort option");
    let by = match request.sort_target {
        0 => SortBy::Key,
        1 => SortBy::Version,
        2 => SortBy::CreateRevision,
        3 => SortBy::ModRevision,
        4 => SortBy::Value,
        _ => return Err(invalid()),
    };
    let sort = match request.sort_order {
        // Keys come in this order anyway; other sort targets are ascending unless the request names an order.
        0 | 1 => (by != SortBy::Key).then_some(Sort { by, descending: false }),
        2 => Some(Sort { by, descending: true }),
        _ => return Err(invalid()),
    };
    Ok(Read {
        range: range(request.key, request.range_end),
        revision: unsigned(request.revision),
        limit: unsigned(request.limit),
        keys_only: request.keys_only,
        count_only: request.count_only,
        counted: true,
        sort,
        kept: Kept {
            min_mod_revision: unsigned(request.min_mod_revision),
            max_mod_revision: unsigned(request.max_mod_revision),
            min_create_revision: unsigned(request.min_create_revision),
            max_create_revision: unsigned(request.max_create_revision),
        },
    })
}

pub(super) fn put(request: PbPutRequest) -> Result<Put, Status> {
    if request.ignore_value && !request.value.is_empty() {
        return Err(Status::invalid_argument("etcdserver: value is provided"));
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Status::invalid_argument("etcdserver: lease is provided"));
    }
    Ok(Put {
        key: request.key.into(),
        value: (!request.ignore_value).then(|| request.value.into()),
        lease: (!request.ignore_lease).then_some(LeaseId(request.lease)),
        previous: request.prev_kv,
    })
}

pub(super) fn delete(request: PbDeleteRequest) -> Delete {
    Delete { range: range(request.key, request.range_end), previous: request.prev_kv }
}

pub(super) fn program(request: PbTxnRequest) -> Result<Program, Status> {
    Ok(Program {
        compare: request.compare.into_iter().map(condition).collect::<Result<_, _>>()?,
        success: request.success.into_iter().map(step).collect::<Result<_, _>>()?,
        failure: request.failure.into_iter().map(step).collect::<Result<_, _>>()?,
    })
}

fn condition(compare: PbCompare) -> Result<Condition, Status> {
    let relation = match compare.result {
        0 => Relation::Equal,
        1 => Relation::Greater,
        2 => Relation::Less,
        3 => Relation::NotEqual,
        _ => return Err(Status::invalid_argument("unknown comparison")),
    };
    // The operand is zero or empty if it is absent or belongs to another target, as in etcd.
    let given = compare.target_union;
    let target = match compare.target {
        0 => Target::Version(if let Some(PbTargetUnion::Version(given)) = given { given } else { 0 }),
        1 => Target::CreateRevision(if let Some(PbTargetUnion::CreateRevision(given)) = given {
            given
        } else {
            0
        }),
        2 => Target::ModRevision(if let Some(PbTargetUnion::ModRevision(given)) = given { given } else { 0 }),
        3 => Target::Value(if let Some(PbTargetUnion::Value(given)) = given {
            given.into()
        } else {
            Bytes::new()
        }),
        4 => Target::Lease(LeaseId(if let Some(PbTargetUnion::Lease(given)) = given { given } else { 0 })),
        _ => return Err(Status::invalid_argument("unknown target of a comparison")),
    };
    Ok(Condition { range: range(compare.key, compare.range_end), target, relation })
}

fn step(op: PbTxnRequestOp) -> Result<Step, Status> {
    Ok(match op.request {
        Some(PbTxnOpRequest::RequestRange(request)) => Step::Read(read(request)?),
        Some(PbTxnOpRequest::RequestPut(request)) => Step::Put(put(request)?),
        Some(PbTxnOpRequest::RequestDeleteRange(request)) => Step::Delete(delete(request)),
        Some(PbTxnOpRequest::RequestTxn(request)) => Step::Txn(program(request)?),
        None => return Err(status(Refusal::KeyNotFound.into())),
    })
}

pub(super) fn entry(entry: KeyValue) -> PbKeyValue {
    PbKeyValue {
        key: entry.key.into(),
        value: entry.value.into(),
        create_revision: signed(entry.create_revision),
        mod_revision: signed(entry.mod_revision),
        version: signed(entry.version),
        lease: entry.lease.0,
    }
}

pub(super) fn found(revision: u64, found: Found) -> Result<PbRangeResponse, Status> {
    let bytes: usize = found.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    if bytes > MAX_ANSWER_BYTES {
        return Err(Status::resource_exhausted("the answer would be too large; set a limit"));
    }
    Ok(PbRangeResponse {
        header: header(revision),
        kvs: found.entries.into_iter().map(entry).collect(),
        more: found.more,
        count: signed(found.count),
    })
}

pub(super) fn put_answer(revision: u64, previous: Option<KeyValue>) -> PbPutResponse {
    PbPutResponse { header: header(revision), prev_kv: previous.map(entry) }
}

pub(super) fn delete_answer(revision: u64, count: u64, previous: Vec<KeyValue>) -> PbDeleteResponse {
    let prev_kvs = previous.into_iter().map(entry).collect();
    PbDeleteResponse { header: header(revision), deleted: signed(count), prev_kvs }
}

pub(super) fn txn_answer(
    revision: u64,
    succeeded: bool,
    outcomes: Vec<Outcome>,
) -> Result<PbTxnResponse, Status> {
    let responses = outcomes.into_iter().map(|outcome| outcome_answer(revision, outcome));
    Ok(PbTxnResponse { header: header(revision), succeeded, responses: responses.collect::<Result<_, _>>()? })
}

fn outcome_answer(revision: u64, outcome: Outcome) -> Result<PbResponseOp, Status> {
    let response = match outcome {
        Outcome::Put { previous } => PbTxnOpResponse::ResponsePut(put_answer(revision, previous)),
        Outcome::Deleted { count, previous } => {
            PbTxnOpResponse::ResponseDeleteRange(delete_answer(revision, count, previous))
        }
        Outcome::Read(read) => PbTxnOpResponse::ResponseRange(found(revision, read)?),
        Outcome::Txn { succeeded, outcomes } => {
            PbTxnOpResponse::ResponseTxn(txn_answer(revision, succeeded, outcomes)?)
        }
    };
    Ok(PbResponseOp { response: Some(response) })
}
