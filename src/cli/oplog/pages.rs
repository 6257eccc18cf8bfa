//! The batches of a log, page by page, all as of one revision.

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Failure, Get, KeyRange, KeyValue, Page, Request, Response};
use crate::engine::types::SequenceId;
use crate::replication::keys::Keys;

/// Batches in a page: each has at most some 256 KiB, and a page should be far below what one answer may have.
const PAGE: u64 = 16;

/// How long etcd has for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The batches of a log from one on.
pub(super) struct Pages<'e> {
    etcd: &'e Etcd,
    keys: &'e Keys,
    /// What is still to be read.
    rest: Option<KeyRange>,
    /// As of when; zero before the first answer.
    revision: u64,
    read: u64,
}

impl<'e> Pages<'e> {
    pub(super) fn new(etcd: &'e Etcd, keys: &'e Keys, first: SequenceId) -> Self {
        Self { etcd, keys, rest: Some(keys.batches_from(first)), revision: 0, read: 0 }
    }

    /// The next page, which is not empty; none after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, Failure> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let end = range.end.clone();
        let get = Get { range, revision: self.revision, limit: PAGE, keys_only: false };
        let (revision, Page { entries, more }) = self.get(get).await?;
        if self.revision == 0 {
            self.revision = revision;
        }
        self.read += entries.len() as u64;
        if let Some(last) = entries.last().filter(|_| more) {
            let mut after = BytesMut::from(&last.key[..]);
            after.put_u8(0);
            self.rest = Some(KeyRange { start: after.freeze(), end });
        }
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// Whether nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.read == 0
    }

    /// Whether there is a log at all.
    pub(super) async fn log_exists(&self) -> Result<bool, Failure> {
        let (_, page) = self.get(Get::all(KeyRange::key(self.keys.latest()))).await?;
        Ok(!page.entries.is_empty())
    }

    async fn get(&self, get: Get) -> Result<(u64, Page), Failure> {
        match self.etcd.call(Request::Get(get), PATIENCE).await? {
            Response::Got { revision, page } => Ok((revision, page)),
            other => Err(Failure::Unknown(format!("it answered {other:?}"))),
        }
    }
}
