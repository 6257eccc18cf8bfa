//! Carries a recovery out, in a term of its own. It ends before or after the one transaction that makes the new log the
//! log of the cluster; what an interrupted one has left below `batches/` is deleted by the next.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::RecoverError;
use super::plan::Plan;
use super::survey::{PATIENCE, Survey};
use crate::cli::oplog::pages::{Pages, PagesError};
use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Latest, LogId};
use crate::cluster::member::{BootId, ElectionValue};
use crate::cluster::recovered::Recovered;
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Failure, Get, KeyValue, LeaseId, Op, OpResult, Request, Response, Txn};
use crate::engine::format::Format;
use crate::engine::types::{SequenceId, Term};
use crate::replication::batch::Batch;
use crate::replication::formats::LogFormat;
use crate::replication::recovery::{Commit, NewLog, chunks, create_election, delete_leftovers, fenced};

/// The name in the election key while a recovery holds it.
pub(super) const NAME: &str = "moonkeeper recover";

/// Time to live of its lease: an interrupted recovery keeps masters from leading for no longer.
const TTL: Duration = Duration::from_secs(15);

/// The lease is renewed when this has passed since the last time.
const RENEW: Duration = Duration::from_secs(3);

/// How long a transaction without an answer is sent again.
const RESEND: Duration = Duration::from_secs(60);

/// Keys that are deleted in one transaction.
const DELETED_AT_ONCE: u64 = 1000;

/// The term of a recovery.
struct Tenure<'e> {
    etcd: &'e Etcd,
    keys: &'e Keys,
    lease: LeaseId,
    term: Term,
    renewed: Instant,
}

/// Carries a plan out, and returns the end of the new log.
pub(super) async fn act(etcd: &Etcd, survey: &Survey, plan: &Plan) -> Result<Latest, RecoverError> {
    let mut tenure = Tenure::begin(etcd, survey).await?;
    let result = write(&mut tenure, survey, plan).await;
    // Without this the key would stay until the lease ends.
    let _ = etcd.call(Request::LeaseRevoke { lease: tenure.lease }, PATIENCE).await;
    result
}

async fn write(tenure: &mut Tenure<'_>, survey: &Survey, plan: &Plan) -> Result<Latest, RecoverError> {
    let keys = &survey.keys;
    if let Some(leftover) = survey.leftover {
        tenure.delete_batches(leftover).await?;
    }
    let log = LogId(getrandom::u64().map_err(|error| RecoverError::Random(error.to_string()))?);
    let named = Op::Put { key: keys.recovering(), value: Bytes::from(log.to_string()), lease: LeaseId(0) };
    tenure.execute(vec![named]).await?;
    let mut new = NewLog::new(keys.clone(), log, tenure.term, plan.base.as_ref());
    copy(tenure, survey, plan, &mut new).await?;
    let (format, in_key) = format(survey, plan)?;
    let own = new.begin(format, plan.kept.log_time, plan.kept.digest, &plan.removed);
    let mut own = chunks(own);
    let batches = own.pop().unwrap_or_default();
    for chunk in own {
        tenure.execute(chunk).await?;
    }
    let recovered = Recovered {
        log,
        base: plan.base,
        began: SequenceId(plan.kept.last.0.saturating_add(1)),
        supersedes: plan.supersedes.clone(),
        no_starts_before: plan.no_starts_before,
    };
    let end = new.end();
    let commit = Commit {
        term: tenure.term,
        latest_before: survey.latest.as_ref(),
        recovered_before: survey.recovered_before.as_ref(),
        batches,
        end,
        recovered: &recovered,
        format: (!in_key).then_some(format),
    };
    tenure.commit(commit.txn(keys), end).await?;
    Ok(end)
}

/// Copies the records of the old log that are kept.
async fn copy(
    tenure: &mut Tenure<'_>,
    survey: &Survey,
    plan: &Plan,
    new: &mut NewLog,
) -> Result<(), RecoverError> {
    let from = plan.base.map_or(SequenceId(0), |base| base.last);
    if plan.kept.last <= from {
        return Ok(());
    }
    let opened = Pages::open(tenure.etcd, &survey.keys, SequenceId(from.0.saturating_add(1))).await;
    let opened = opened.map_err(|error| match error {
        PagesError::Etcd(failure) => RecoverError::Etcd(failure),
        PagesError::End(error) => RecoverError::Changed(error.to_string()),
    })?;
    let mut pages = opened.ok_or_else(|| RecoverError::Changed("the log is gone".to_owned()))?;
    while let Some(page) = pages.next().await? {
        let mut ops = Vec::new();
        for entry in &page {
            if new.end().last >= plan.kept.last {
                break;
            }
            let batch = Batch::open(&entry.value);
            let batch = batch.map_err(|error| RecoverError::Changed(error.to_string()))?;
            ops.extend(new.copy(&batch, plan.kept.last)?);
        }
        if ops.is_empty() {
            break;
        }
        for chunk in chunks(ops) {
            tenure.execute(chunk).await?;
        }
    }
    let copied = new.end().last;
    if copied == plan.kept.last {
        Ok(())
    } else {
        Err(RecoverError::Changed(format!("only records up to {} could be copied", copied.0)))
    }
}

/// Returns the format of the new log, and whether the format key has it already.
fn format(survey: &Survey, plan: &Plan) -> Result<(Format, bool), RecoverError> {
    if let Some(value) = &survey.format {
        return Ok((LogFormat::of_key(Some(value))?.written_on(), true));
    }
    let members: Vec<_> = survey.view.members.values().filter_map(|member| member.value.as_ref()).collect();
    let all_read = |format: &&Format| members.iter().all(|it| it.formats.contains(&format.number()));
    let newest = Format::READABLE.iter().rev().find(all_read).copied();
    let empty = plan.kept.last == SequenceId(0);
    // Masters that are not there may be of an earlier version.
    let format = if members.is_empty() && !empty { None } else { newest };
    Ok((format.unwrap_or(Format::OLDEST), false))
}

impl<'e> Tenure<'e> {
    /// Creates the election key. No master can lead from then on, and the fence keeps late writes of earlier ones out.
    async fn begin(etcd: &'e Etcd, survey: &'e Survey) -> Result<Self, RecoverError> {
        let ttl_seconds = i64::try_from(TTL.as_secs()).unwrap_or(i64::MAX);
        let granted = etcd.call(Request::LeaseGrant { ttl_seconds }, PATIENCE).await?;
        let Response::LeaseGranted { lease, .. } = granted else {
            return Err(Failure::unexpected(&granted).into());
        };
        let boot_id = getrandom::u64().map_err(|error| RecoverError::Random(error.to_string()))?;
        let value = ElectionValue {
            name: NAME.to_owned(),
            boot_id: BootId(boot_id),
            lease_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
            ..ElectionValue::default()
        };
        let value = Bytes::from(
            serde_json::to_vec(&value).map_err(|error| RecoverError::Changed(error.to_string()))?,
        );
        let txn = create_election(&survey.keys, survey.latest.as_ref(), value, lease);
        let tenure = |term| Self { etcd, keys: &survey.keys, lease, term, renewed: Instant::now() };
        let (succeeded, revision, found) = send(etcd, txn).await?;
        match found {
            _ if succeeded => Ok(tenure(Term(revision))),
            // An earlier attempt without an answer had succeeded.
            Some(entry) if entry.lease == lease => Ok(tenure(Term(entry.create_revision))),
            Some(entry) => {
                let leader = serde_json::from_slice::<ElectionValue>(&entry.value).unwrap_or_default();
                Err(RecoverError::Led { name: leader.name, term: entry.create_revision })
            }
            None => Err(RecoverError::Changed("the end of the log is another one".to_owned())),
        }
    }

    /// Executes a transaction of this term.
    async fn execute(&mut self, ops: Vec<Op>) -> Result<(), RecoverError> {
        self.keep_alive().await?;
        let (succeeded, _, _) = send(self.etcd, fenced(self.keys, self.term, ops)).await?;
        if succeeded { Ok(()) } else { Err(RecoverError::LostTerm) }
    }

    /// Executes the last transaction.
    async fn commit(&mut self, txn: Txn, end: Latest) -> Result<(), RecoverError> {
        self.keep_alive().await?;
        match send(self.etcd, txn).await {
            Ok((true, ..)) => Ok(()),
            // An earlier attempt without an answer had succeeded.
            Ok((false, _, Some(entry))) if entry.value == end.to_bytes() => Ok(()),
            Ok(_) => Err(RecoverError::LostTerm),
            Err(error) => Err(RecoverError::Unanswered(Box::new(error))),
        }
    }

    async fn keep_alive(&mut self) -> Result<(), RecoverError> {
        if self.renewed.elapsed() < RENEW {
            return Ok(());
        }
        let sent = Instant::now();
        match self.etcd.call(Request::LeaseKeepAlive { lease: self.lease }, PATIENCE).await? {
            Response::LeaseKeptAlive { ttl_seconds } if ttl_seconds > 0 => {
                self.renewed = sent;
                Ok(())
            }
            _ => Err(RecoverError::LostTerm),
        }
    }

    /// Deletes what an interrupted recovery has written, some keys at a time.
    async fn delete_batches(&mut self, leftover: LogId) -> Result<(), RecoverError> {
        loop {
            let range = self.keys.batches_of(leftover);
            let get = Get { range, revision: 0, limit: DELETED_AT_ONCE, keys_only: true };
            let page = match self.etcd.call(Request::Get(get), PATIENCE).await? {
                Response::Got { page, .. } => page,
                other => return Err(Failure::unexpected(&other).into()),
            };
            let Some(last) = page.entries.last() else { return Ok(()) };
            let mut after = last.key.to_vec();
            after.push(0);
            self.execute(vec![delete_leftovers(self.keys, leftover, after.into())]).await?;
        }
    }
}

/// Sends a transaction until there is an answer (R5). Returns whether it succeeded, the revision, and the key that its
/// failure branch read.
async fn send(etcd: &Etcd, txn: Txn) -> Result<(bool, u64, Option<KeyValue>), RecoverError> {
    let began = Instant::now();
    loop {
        match etcd.call(Request::Txn(txn.clone()), PATIENCE).await {
            Ok(Response::Txn { succeeded, revision, results }) => {
                let read = results.into_iter().find_map(|result| match result {
                    OpResult::Got(page) => page.entries.into_iter().next(),
                    OpResult::Put | OpResult::Deleted(_) => None,
                });
                return Ok((succeeded, revision, read));
            }
            Ok(other) => return Err(Failure::unexpected(&other).into()),
            Err(Failure::Unknown(_)) if began.elapsed() < RESEND => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(failure) => return Err(failure.into()),
        }
    }
}
