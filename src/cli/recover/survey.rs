//! What a recovery finds: the keys of the cluster and of its log in etcd, as of one revision.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use super::RecoverError;
use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Latest, LogId};
use crate::cluster::recovered::{Recovered, log_id};
use crate::cluster::snapshot::HeldSnapshot;
use crate::cluster::view::ClusterView;
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Failure, Get, KeyRange, Op, OpResult, Page, Request, Response, Txn};
use crate::engine::types::SequenceId;
use crate::replication::snapshot::{self, SharedStore};

/// Timeout of a call to etcd.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The keys of a cluster and of its log.
#[derive(Debug)]
pub(super) struct Survey {
    pub keys: Keys,
    pub cluster_id: String,
    pub view: ClusterView,
    /// The value of `latest`, which the transactions compare.
    pub latest: Option<Bytes>,
    pub end: Option<Latest>,
    /// Why the value of `latest` says nothing.
    pub end_error: Option<String>,
    /// The first record of the first batch that is left of this log.
    pub first: Option<SequenceId>,
    pub format: Option<Bytes>,
    /// The value of `recovered`.
    pub recovered_before: Option<Bytes>,
    /// The recovery before, if its key can be read.
    pub before: Option<Recovered>,
    /// The log that an interrupted recovery was writing.
    pub leftover: Option<LogId>,
}

impl Survey {
    pub(super) async fn read(etcd: &Etcd, cluster_id: &str) -> Result<Self, RecoverError> {
        let keys = Keys::new(cluster_id);
        let get = |range| Op::Get(Get::all(range));
        let one = |key| get(KeyRange::key(key));
        let success = vec![
            get(keys.cluster()),
            one(keys.latest()),
            one(keys.format()),
            one(keys.recovered()),
            one(keys.recovering()),
        ];
        let answer = etcd.call(Request::Txn(Txn { success, ..Txn::default() }), PATIENCE).await?;
        let Response::Txn { revision, results, .. } = answer else {
            return Err(Failure::unexpected(&answer).into());
        };
        let mut pages = results.into_iter().map(|result| match result {
            OpResult::Got(page) => page,
            OpResult::Put | OpResult::Deleted(_) => Page::default(),
        });
        let mut next = || pages.next().unwrap_or_default();
        let view = ClusterView::read(&keys, revision, &next().entries);
        let mut value = || next().entries.into_iter().next().map(|entry| entry.value);
        let (latest, format, recovered_before, recovering) = (value(), value(), value(), value());
        let (end, end_error) = match latest.as_deref().map(Latest::from_bytes).transpose() {
            Ok(end) => (end, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let first = match end {
            Some(end) => first_batch(etcd, &keys, end.log, revision).await?,
            None => None,
        };
        let leftover = recovering.and_then(|value| log_id(std::str::from_utf8(&value).ok()?).ok());
        Ok(Self {
            before: recovered_before.as_deref().and_then(|value| Recovered::from_bytes(value).ok()),
            cluster_id: cluster_id.to_owned(),
            keys,
            view,
            latest,
            end,
            end_error,
            first,
            format,
            recovered_before,
            leftover,
        })
    }

    /// Returns the last batches that live members know, each with the name of its member.
    pub(super) fn histories(&self) -> impl Iterator<Item = (&str, Latest)> {
        let members = self.view.members.iter();
        members.filter_map(|(name, member)| Some((name.as_str(), member.value.as_ref()?.history?.0)))
    }

    /// Returns the snapshots that live members hold, each with the name of its member.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = (&str, &HeldSnapshot)> {
        let held = |member: &'_ crate::cluster::view::Member| member.value.is_some();
        let members = self.view.members.iter().filter(move |(_, member)| held(member));
        members.flat_map(|(name, member)| {
            let snapshots = member.value.iter().flat_map(|value| &value.snapshots);
            snapshots.map(move |held| (name.as_str(), held))
        })
    }

    /// Returns the file that `--from-snapshot` names: a path, or the last record of a snapshot in the shared storage.
    pub(super) fn snapshot_file(&self, named: &str, store: Option<&Path>) -> Result<PathBuf, RecoverError> {
        let path = Path::new(named);
        let id: u64 = match named.parse() {
            Ok(id) if !path.exists() => id,
            _ => return Ok(path.to_owned()),
        };
        let holders: Vec<&str> =
            self.snapshots().filter(|(_, held)| held.sequence_id == id).map(|(name, _)| name).collect();
        if let Some(store) = store {
            let store = SharedStore::Directory(store.to_owned()).of_cluster(&self.cluster_id);
            let logs = self.histories().map(|(_, known)| known.log).chain(self.end.map(|end| end.log));
            let mut files = logs.flat_map(|log| store.newest(log));
            if let Some((_, file)) = files.find(|(last, file)| last.0 == id && snapshot::header(file).is_ok())
            {
                return Ok(file);
            }
        }
        Err(RecoverError::NoSuchSnapshot { id, holders: holders.join(", "), in_store: store.is_some() })
    }
}

/// Returns the first record of the first batch of a log.
async fn first_batch(
    etcd: &Etcd,
    keys: &Keys,
    log: LogId,
    revision: u64,
) -> Result<Option<SequenceId>, RecoverError> {
    let range = keys.batches_of(log);
    let prefix = range.start.len();
    let get = Get { range, revision, limit: 1, keys_only: true };
    match etcd.call(Request::Get(get), PATIENCE).await? {
        Response::Got { page, .. } => Ok(page.entries.first().and_then(|entry| {
            let digits = std::str::from_utf8(entry.key.get(prefix..)?).ok()?;
            digits.parse().ok().map(SequenceId)
        })),
        other => Err(Failure::unexpected(&other).into()),
    }
}
