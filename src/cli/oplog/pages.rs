//! The batches of a log, page by page, all as of one revision.

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Latest, LatestError};
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Failure, Get, KeyRange, KeyValue, Page, Request, Response};
use crate::engine::types::SequenceId;

/// Batches in a page: each has at most some 256 KiB, and a page should be far below the limit of one response.
const PAGE: u64 = 16;

/// Timeout of a call to etcd.
const PATIENCE: Duration = Duration::from_secs(10);

/// The batches of a log from one sequence id on.
pub(in crate::cli) struct Pages<'e> {
    etcd: &'e Etcd,
    keys: &'e Keys,
    end: Latest,
    /// The range that is read next, and where the page after it begins.
    next: Option<(KeyRange, Option<SequenceId>)>,
    revision: u64,
}

impl<'e> Pages<'e> {
    /// Starts reading the log that the cluster writes now; `None` if it has no log.
    pub(in crate::cli) async fn open(
        etcd: &'e Etcd,
        keys: &'e Keys,
        first: SequenceId,
    ) -> Result<Option<Self>, PagesError> {
        let latest = Get::all(KeyRange::key(keys.latest()));
        let (revision, page) = get(etcd, latest).await?;
        let Some(entry) = page.entries.first() else { return Ok(None) };
        let end = Latest::from_bytes(&entry.value)?;
        let next = Some(keys.page_of_batches(end.log, first, end.last));
        Ok(Some(Self { etcd, keys, end, next, revision }))
    }

    /// Returns the end of the log as of the revision that is read.
    pub(in crate::cli) fn end(&self) -> Latest {
        self.end
    }

    /// Returns the next page, which is not empty; `None` after the last.
    pub(in crate::cli) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, Failure> {
        while let Some((range, after)) = self.next.take() {
            let end = range.end.clone();
            let page = Get { range, revision: self.revision, limit: PAGE, keys_only: false };
            let (_, Page { entries, more }) = get(self.etcd, page).await?;
            self.next = match entries.last().filter(|_| more) {
                Some(last) => {
                    let mut start = BytesMut::from(&last.key[..]);
                    start.put_u8(0);
                    Some((KeyRange { start: start.freeze(), end }, after))
                }
                None => after.map(|first| self.keys.page_of_batches(self.end.log, first, self.end.last)),
            };
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
        }
        Ok(None)
    }
}

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum PagesError {
    /// A call to etcd failed.
    #[error(transparent)]
    Etcd(#[from] Failure),
    /// The key with the end of the log is damaged.
    #[error(transparent)]
    End(#[from] LatestError),
}

async fn get(etcd: &Etcd, get: Get) -> Result<(u64, Page), Failure> {
    match etcd.call(Request::Get(get), PATIENCE).await? {
        Response::Got { revision, page } => Ok((revision, page)),
        other => Err(Failure::unexpected(&other)),
    }
}
