//! Deletes the keys of a cluster in etcd, fenced: in one transaction, only if no master leads at that moment and the
//! end of the log is unchanged since it was found to be that of this cluster's log. So an operator whose view is old,
//! or whose call outlives its Lease, deletes no log that another master writes.

use std::time::Duration;

use super::observation::KeysLeft;
use crate::cluster::keys::Keys;
use crate::cluster::log_end::Latest;
use crate::cluster::view::ClusterView;
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{
    Compare, Failure, Get, KeyRange, KeyValue, LeaseId, Op, OpResult, Request, Response, Txn,
};

/// Upper bound of the keys besides the log that are read.
const MAX_KEYS: u64 = 1000;

/// Deletes the log, if it is `log`, and everything else of the cluster.
///
/// # Errors
///
/// If a member exists, the log is another one, or etcd does not confirm the deletion. In the first two cases nothing
/// was deleted.
pub async fn delete(etcd: &Etcd, keys: &Keys, log: Option<&str>, within: Duration) -> Result<(), KeysLeft> {
    let others = Op::Get(Get { limit: MAX_KEYS, ..Get::all(keys.cluster()) });
    let latest = Op::Get(Get::all(KeyRange::key(keys.latest())));
    let found = transaction(etcd, Txn { success: vec![others, latest], ..Txn::default() }, within).await?;
    let [OpResult::Got(others), OpResult::Got(latest)] = &found.1[..] else {
        return Err(KeysLeft::Failed("unexpected answer from etcd".to_owned()));
    };
    if let Some(why) = in_use(keys, &others.entries) {
        return Err(KeysLeft::InUse(why));
    }
    let end = latest.entries.first();
    check_log(end, log)?;
    let fence = vec![
        Compare::CreateRevision { key: keys.election(), equals: 0 },
        Compare::ModRevision { key: keys.latest(), equals: end.map_or(0, |end| end.mod_revision) },
    ];
    let success = vec![Op::Delete(keys.log()), Op::Delete(keys.cluster())];
    match transaction(etcd, Txn { compare: fence, success, failure: Vec::new() }, within).await? {
        (true, _) => Ok(()),
        (false, _) => Err(KeysLeft::InUse("a master was elected primary meanwhile".to_owned())),
    }
}

async fn transaction(etcd: &Etcd, txn: Txn, within: Duration) -> Result<(bool, Vec<OpResult>), KeysLeft> {
    let failed = |failure: Failure| KeysLeft::Failed(failure.to_string());
    match etcd.call(Request::Txn(txn), within).await.map_err(failed)? {
        Response::Txn { succeeded, results, .. } => Ok((succeeded, results)),
        other => Err(failed(Failure::unexpected(&other))),
    }
}

/// Returns a message about a master that uses the keys: the primary, or else a registered member, which could lead
/// next.
fn in_use(keys: &Keys, entries: &[KeyValue]) -> Option<String> {
    let view = ClusterView::read(keys, 0, entries);
    if let Some(leader) = &view.leader {
        let address = view.serving.as_ref().map_or(&leader.value.addresses.rpc, |serving| &serving.address);
        return Some(format!("{} at {address} is primary and uses them", leader.value.name));
    }
    // A key without a lease was left behind by a process that is gone.
    let mut live = view.members.iter().filter(|(_, member)| member.stamp.lease != LeaseId(0));
    let (name, member) = live.next()?;
    let at = member.value.as_ref().map_or_else(String::new, |value| format!(" at {}", value.addresses.rpc));
    Some(format!("{name}{at} is still a member of the cluster"))
}

/// Checks that the log with this end is the one that the status names.
fn check_log(end: Option<&KeyValue>, log: Option<&str>) -> Result<(), KeysLeft> {
    let Some(end) = end else { return Ok(()) };
    let found = match Latest::from_bytes(&end.value) {
        Ok(latest) => latest.log.to_string(),
        Err(why) => return Err(KeysLeft::OtherLog(why.to_string())),
    };
    match log {
        Some(log) if log == found => Ok(()),
        Some(log) => Err(KeysLeft::OtherLog(format!(
            "the log in etcd is {found}, but the masters of this cluster wrote {log}"
        ))),
        None => Err(KeysLeft::OtherLog(format!(
            "the status names no log, so it is not known whether the log {found} is this cluster's"
        ))),
    }
}
