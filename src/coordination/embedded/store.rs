//! The store: the model, its clock, and its file if it has one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::coordination::embedded::journal::{Journal, JournalError};
use crate::coordination::embedded::limits::Limits;
use crate::coordination::model::Model;
use crate::coordination::model::entries::{Entry, Rebuild};
use crate::coordination::model::steps::{Outcome, Program, Refusal};
use crate::coordination::types::LeaseId;

/// Above this no puts are accepted until keys are deleted and compacted, as in etcd. In bytes as the file has them.
pub(super) const QUOTA_BYTES: usize = 2 << 30;

/// The same for the number of versions of keys, each of which takes some hundred bytes of memory beside its key and value.
const MAX_VERSIONS: usize = 8_000_000;

/// Upper bound of leases at a time.
const MAX_LEASES: usize = 100_000;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the embedded store cannot be opened: {0}")]
pub struct OpenError(#[from] JournalError);

/// What a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreSize {
    /// All versions of all keys.
    pub in_use_bytes: u64,
    /// The file, or all versions of a store without one.
    pub bytes: u64,
    /// Whether no puts are accepted.
    pub full: bool,
}

/// Why a request to the store failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    Refused(Refusal),
    /// The disk failed, so memory no longer matches the disk; or the store is closed.
    Failed,
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The embedded store. Clones share one store.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    start: Instant,
    durable: bool,
    /// The newest revision, for watches.
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    pub(super) journal: Option<Journal>,
    pub(super) limits: Limits,
    /// Changes that are in memory and not yet in the file.
    unwritten: Vec<Entry>,
    /// Why no more requests are answered.
    failed: Option<String>,
}

impl Store {
    /// Opens a store in memory, or one that keeps its file in a folder and continues from what is there. Leases then
    /// have their whole time to live again.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, another process uses it, or its file is damaged.
    pub fn open(folder: Option<&Path>) -> Result<Self, OpenError> {
        Self::open_within(folder, Limits::default())
    }

    /// Opens a store that keeps as much as these limits allow.
    pub(super) fn open_within(folder: Option<&Path>, limits: Limits) -> Result<Self, OpenError> {
        let mut rebuild = Rebuild::default();
        let journal = folder.map(|folder| {
            Journal::open(folder, |entry| {
                rebuild.take(Duration::ZERO, entry).map_err(|misfit| misfit.to_string())
            })
        });
        let journal = journal.transpose()?;
        let model = rebuild.finish().map_err(|misfit| JournalError::Damaged {
            path: folder.unwrap_or(Path::new("")).to_owned(),
            at: 0,
            why: misfit.to_string(),
        })?;
        let durable = journal.is_some();
        let revision = watch::Sender::new(model.revision());
        let state = State { model, journal, limits, unwritten: Vec::new(), failed: None };
        let shared = Shared { state: Mutex::new(state), start: Instant::now(), durable, revision };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Subscribes to the newest revision.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Reads from the model; fails once the disk has failed or the store is closed.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Model) -> T) -> Result<T, Rejection> {
        self.look_at(|state| look(&state.model))
    }

    /// Reads from the state; fails as [`Self::look`] does.
    pub(super) fn look_at<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T, Rejection> {
        let state = self.shared.state.lock();
        if state.failed.is_some() { Err(Rejection::Failed) } else { Ok(look(&state)) }
    }

    /// Returns the newest revision and what the store takes.
    pub(super) fn size(&self) -> Result<(u64, StoreSize), Rejection> {
        self.look_at(|state| (state.model.revision(), state.size()))
    }

    /// Changes the model; the change is on disk before this returns.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State, Duration) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Rejection> {
        if !self.shared.durable {
            return self.shared.change(change);
        }
        // The disk may be slow, and the tasks that serve connections must not wait for it.
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || shared.change(change));
        done.await.unwrap_or(Err(Rejection::Failed))
    }

    /// Returns why the store answers no more requests.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.state.lock().failed.clone()
    }

    /// Releases the file. Every later request is rejected.
    pub(super) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.failed.get_or_insert_with(|| "it is closed".to_owned());
        state.journal = None;
    }

    /// Returns the time on the store's clock.
    pub(super) fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }
}

impl Shared {
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut State, Duration) -> Result<T, Refusal>,
    ) -> Result<T, Rejection> {
        let mut state = self.state.lock();
        if state.failed.is_some() {
            return Err(Rejection::Failed);
        }
        let now = self.start.elapsed();
        while let Some(lease) = state.model.expire_one(now) {
            state.unwritten.push(Entry::Ended { lease });
        }
        let done = change(&mut state, now);
        state.compact_what_is_old();
        if let Err(error) = state.write() {
            tracing::error!(%error, "the embedded store cannot write its file and answers no more requests");
            state.failed = Some(error.to_string());
            return Err(Rejection::Failed);
        }
        // Watches read only after this and, since the lock is held, find only what is on disk.
        let revision = state.model.revision();
        self.revision.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        Ok(done?)
    }
}

impl State {
    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    pub(super) fn transact(&mut self, program: &Program) -> Result<(bool, Vec<Outcome>), Refusal> {
        if program.puts() && self.is_full() {
            return Err(Refusal::NoSpace);
        }
        let before = self.model.revision();
        let done = self.model.transact(program)?;
        let revision = self.model.revision();
        if revision > before && self.journal.is_some() {
            self.unwritten.push(self.model.revision_entry(revision));
        }
        Ok(done)
    }

    pub(super) fn grant(
        &mut self,
        now: Duration,
        id: LeaseId,
        ttl_seconds: i64,
    ) -> Result<(LeaseId, i64), Refusal> {
        if self.model.leases().count() >= MAX_LEASES {
            return Err(Refusal::TooMany);
        }
        let (lease, ttl_seconds) = self.model.grant(now, id, ttl_seconds)?;
        self.unwritten.push(Entry::Granted { lease, ttl_seconds });
        Ok((lease, ttl_seconds))
    }

    /// Renews a lease. This is not written to the file: after a restart the lease has its whole time to live anyway.
    pub(super) fn keep_alive(&mut self, now: Duration, lease: LeaseId) -> Option<i64> {
        self.model.keep_alive(now, lease)
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> Result<(), Refusal> {
        if !self.model.revoke(lease) {
            return Err(Refusal::LeaseNotFound);
        }
        self.unwritten.push(Entry::Ended { lease });
        Ok(())
    }

    pub(super) fn compact(&mut self, revision: u64) -> Result<(), Refusal> {
        self.model.history_mut().give_up(revision)?;
        self.unwritten.push(Entry::Compacted { revision });
        Ok(())
    }

    fn is_full(&self) -> bool {
        let size = self.model.history().size();
        size.bytes > QUOTA_BYTES || size.versions > MAX_VERSIONS
    }

    fn size(&self) -> StoreSize {
        let in_use_bytes = self.model.history().size().bytes as u64;
        let bytes = self.journal.as_ref().map_or(in_use_bytes, Journal::bytes);
        StoreSize { in_use_bytes, bytes, full: self.is_full() }
    }

    /// Writes what changed to the file, and takes a step of discarding or rewriting.
    fn write(&mut self) -> std::io::Result<()> {
        let entries = std::mem::take(&mut self.unwritten);
        let appended = match &mut self.journal {
            Some(journal) if !entries.is_empty() => journal.append(&entries)?,
            _ => 0,
        };
        self.keep_up(appended)
    }
}
