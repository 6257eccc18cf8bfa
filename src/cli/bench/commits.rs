//! The time that etcd takes for one fenced transaction as the writer sends it, which bounds every call that waits for
//! the log.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::latency::Latencies;
use super::{BenchError, CommitArguments};
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Compare, KeyRange, LeaseId, Op, Request, Txn};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Commits one transaction after the other, each with one compare and two puts, and reports how long they took.
pub(super) async fn measure(arguments: &CommitArguments) -> Result<Value, BenchError> {
    let access = arguments.etcd.access()?.ok_or(BenchError::NoEtcd)?;
    let etcd = Etcd::connect(access.settings())?;
    let prefix = format!("moonkeeper/bench/{}/", std::process::id());
    let fence = Compare::CreateRevision { key: format!("{prefix}fence").into(), equals: 0 };
    let value = Bytes::from(vec![b'.'; arguments.bytes]);
    let mut latencies = Latencies::new();
    let start = Instant::now();
    for number in 0..arguments.count {
        let put = |name: String, value: Bytes| Op::Put {
            key: format!("{prefix}{name}").into(),
            value,
            lease: LeaseId(0),
        };
        let txn = Txn {
            compare: vec![fence.clone()],
            success: vec![
                put(format!("{number:020}"), value.clone()),
                put("latest".into(), number.to_string().into()),
            ],
            failure: Vec::new(),
        };
        let sent = Instant::now();
        etcd.call(Request::Txn(txn), TIMEOUT).await?;
        latencies.add(sent.elapsed());
    }
    let elapsed = start.elapsed();
    let clean = Txn { success: vec![Op::Delete(KeyRange::prefix(prefix))], ..Txn::default() };
    etcd.call(Request::Txn(clean), TIMEOUT).await?;
    Ok(json!({
        "commits": arguments.count,
        "bytes": arguments.bytes,
        "seconds": elapsed.as_secs_f64(),
        "p50_us": latencies.quantile(0.5),
        "p99_us": latencies.quantile(0.99),
    }))
}
