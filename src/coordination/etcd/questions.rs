//! Converts requests to the types of the etcd-client crate.

use bytes::Bytes;
use etcd_client::{CompareOp, DeleteOptions, GetOptions, PutOptions, TxnOp};

use crate::coordination::etcd::answers;
use crate::coordination::etcd::connection::Connection;
use crate::coordination::etcd::failures::{Fault, misfit};
use crate::coordination::types::{Compare, Failure, Get, KeyRange, MemberStatus, Op, Request, Response, Txn};

impl Connection {
    /// Sends a request and waits for the answer without a timeout.
    pub(super) async fn perform(&self, request: Request) -> Result<Response, Fault> {
        match request {
            Request::Txn(request) => answers::txn(self.kv.clone().txn(txn(request)).await?.0),
            Request::Get(get) => {
                let (key, options) = range_and_options(get);
                Ok(answers::got(self.kv.clone().get(key, Some(options)).await?.0))
            }
            Request::LeaseGrant { ttl_seconds } => {
                let granted = self.lease.clone().grant(ttl_seconds, None).await?;
                Ok(answers::granted(&granted))
            }
            Request::LeaseKeepAlive { lease } => {
                self.keep_alive(lease).await.map(|ttl_seconds| Response::LeaseKeptAlive { ttl_seconds })
            }
            Request::LeaseRevoke { lease } => {
                match self.lease.clone().revoke(lease.0).await.map_err(Fault::from) {
                    // The lease had ended before, which is the same for the caller.
                    Ok(_) | Err(Fault { failure: Failure::LeaseNotFound, .. }) => Ok(Response::LeaseRevoked),
                    Err(fault) => Err(fault),
                }
            }
            Request::Compact { revision } => {
                self.kv.clone().compact(signed(revision), None).await?;
                Ok(Response::Compacted)
            }
        }
    }
}

impl Connection {
    /// Reads the cluster id, which etcd puts into the header of every answer.
    pub(super) async fn cluster_id(&self, key: Bytes) -> Result<u64, Fault> {
        let options = GetOptions::new().with_keys_only();
        let answer = self.kv.clone().get(key, Some(options)).await?;
        answer.header().map(etcd_client::ResponseHeader::cluster_id).ok_or_else(|| misfit("it has no header"))
    }

    /// Asks the member at this endpoint for its own status, which needs no quorum and no permission.
    pub(super) async fn member_status(&self) -> Result<MemberStatus, Fault> {
        Ok(answers::member_status(&self.maintenance.clone().status().await?))
    }
}

/// Converts a revision to etcd's signed type. etcd has no revision above its maximum.
pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Converts a range. etcd has no empty key, so a range from the empty key starts at the first possible one.
pub(super) fn range(range: KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
    match range.end {
        Some(end) if range.start.is_empty() => (vec![0], Some(end.into())),
        end => (range.start.into(), end.map(Bytes::into)),
    }
}

fn txn(txn: Txn) -> etcd_client::Txn {
    etcd_client::Txn::new()
        .when(txn.compare.into_iter().map(compare).collect::<Vec<_>>())
        .and_then(txn.success.into_iter().map(op).collect::<Vec<_>>())
        .or_else(txn.failure.into_iter().map(op).collect::<Vec<_>>())
}

fn compare(compare: Compare) -> etcd_client::Compare {
    match compare {
        Compare::CreateRevision { key, equals } => {
            etcd_client::Compare::create_revision(key, CompareOp::Equal, signed(equals))
        }
        Compare::ModRevision { key, equals } => {
            etcd_client::Compare::mod_revision(key, CompareOp::Equal, signed(equals))
        }
        Compare::Value { key, equals } => etcd_client::Compare::value(key, CompareOp::Equal, equals),
    }
}

fn op(op: Op) -> TxnOp {
    match op {
        Op::Put { key, value, lease } => TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease.0))),
        Op::Delete(deleted) => {
            let (key, end) = range(deleted);
            TxnOp::delete(key, end.map(|end| DeleteOptions::new().with_range(end)))
        }
        Op::Get(get) => {
            let (key, options) = range_and_options(get);
            TxnOp::get(key, Some(options))
        }
    }
}

fn range_and_options(get: Get) -> (Vec<u8>, GetOptions) {
    let (key, end) = range(get.range);
    let mut options = GetOptions::new().with_revision(signed(get.revision)).with_limit(signed(get.limit));
    if let Some(end) = end {
        options = options.with_range(end);
    }
    if get.keys_only {
        options = options.with_keys_only();
    }
    (key, options)
}
