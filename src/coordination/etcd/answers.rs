//! Converts answers from the types of the etcd-client crate.

use etcd_client::proto::{
    PbEvent, PbKeyValue, PbRangeResponse, PbResponseHeader, PbResponseOp, PbTxnOpResponse, PbTxnResponse,
};
use etcd_client::{LeaseGrantResponse, ResponseHeader, StatusResponse};

use crate::coordination::etcd::failures::{Fault, misfit};
use crate::coordination::types::{Alarms, Change, KeyValue, LeaseId, MemberStatus, OpResult, Page, Response};

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

/// Converts the status of a member. A quota of zero is one that the member does not report, a negative one is none.
pub(super) fn member_status(answer: &StatusResponse) -> MemberStatus {
    MemberStatus {
        member: answer.header().map_or(0, ResponseHeader::member_id),
        db_bytes: unsigned(answer.db_size()),
        in_use_bytes: unsigned(answer.raft_used_db_size()),
        quota_bytes: Some(unsigned(answer.db_size_quota())).filter(|quota| *quota > 0),
        alarms: alarms(answer.errors()),
    }
}

/// Finds the alarms among the errors of a status. They are protobuf messages as text, whose spaces may vary:
/// `memberID:10501334649042878790 alarm:NOSPACE`.
fn alarms(errors: &[String]) -> Alarms {
    let raised = |name: &str| {
        let alarm = format!("alarm:{name}");
        errors.iter().any(|error| error.split_whitespace().collect::<String>().ends_with(&alarm))
    };
    Alarms { no_space: raised("NOSPACE"), corrupt: raised("CORRUPT") }
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

/// Converts a change; `None` if its kind is unknown.
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

/// Converts a number that etcd declares as signed and that is never negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_found_among_the_errors() {
        let found = |errors: &[&str]| {
            let errors: Vec<String> = errors.iter().map(|&error| error.to_owned()).collect();
            let Alarms { no_space, corrupt } = alarms(&errors);
            (no_space, corrupt)
        };
        assert_eq!(found(&[]), (false, false));
        assert_eq!(found(&["etcdserver: no leader"]), (false, false));
        // As etcd 3.4 to 3.6 write it, and as newer protobuf libraries do.
        assert_eq!(found(&["memberID:10501334649042878790 alarm:NOSPACE "]), (true, false));
        assert_eq!(found(&["memberID:1  alarm: CORRUPT", "etcdserver: no leader"]), (false, true));
        assert_eq!(found(&["memberID:1 alarm:CORRUPT ", "memberID:2 alarm:NOSPACE "]), (true, true));
    }
}
