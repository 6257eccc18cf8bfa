//! Answers, from the words of the etcd-client crate.

use etcd_client::LeaseGrantResponse;
use etcd_client::proto::{
    PbEvent, PbKeyValue, PbRangeResponse, PbResponseHeader, PbResponseOp, PbTxnOpResponse, PbTxnResponse,
};

use crate::coordination::etcd::failures::Fault;
use crate::coordination::etcd::questions::misfit;
use crate::coordination::types::{Change, KeyValue, LeaseId, OpResult, Page, Response};

pub(super) fn txn(answer: PbTxnResponse) -> Result<Response, Fault> {
    Ok(Response::Txn {
        revision: revision(answer.header.as_ref()),
        succeeded: answer.succeeded,
        results: answer.responses.into_iter().map(result).collect::<Result<_, _>>()?,
    })
}

fn result(answer: PbResponseOp) -> Result<OpResult, Fault> {
    match answer.response {
        Some(PbTxnOpResponse::ResponsePut(_)) => Ok(OpResult::Put),
        Some(PbTxnOpResponse::ResponseDeleteRange(deleted)) => {
            Ok(OpResult::Deleted(unsigned(deleted.deleted)))
        }
        Some(PbTxnOpResponse::ResponseRange(range)) => Ok(OpResult::Got(page(range))),
        Some(PbTxnOpResponse::ResponseTxn(_)) | None => Err(misfit("a step of a transaction")),
    }
}

pub(super) fn got(answer: PbRangeResponse) -> Response {
    Response::Got { revision: revision(answer.header.as_ref()), page: page(answer) }
}

fn page(answer: PbRangeResponse) -> Page {
    Page { entries: answer.kvs.into_iter().map(entry).collect(), more: answer.more }
}

pub(super) fn granted(answer: &LeaseGrantResponse) -> Response {
    Response::LeaseGranted { lease: LeaseId(answer.id()), ttl_seconds: answer.ttl() }
}

fn entry(entry: PbKeyValue) -> KeyValue {
    KeyValue {
        key: entry.key.into(),
        value: entry.value.into(),
        create_revision: unsigned(entry.create_revision),
        mod_revision: unsigned(entry.mod_revision),
        version: unsigned(entry.version),
        lease: LeaseId(entry.lease),
    }
}

/// A change; `None` for one of a kind that there was not when this was written.
pub(super) fn change(event: PbEvent) -> Option<Change> {
    let entry = entry(event.kv?);
    match event.r#type {
        0 => Some(Change::Put(entry)),
        1 => Some(Change::Deleted { key: entry.key, revision: entry.mod_revision }),
        _ => None,
    }
}

pub(super) fn revision(header: Option<&PbResponseHeader>) -> u64 {
    header.map_or(0, |header| unsigned(header.revision))
}

/// A number that etcd writes with a sign and never has below zero.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
