//! The store: the model, its clock, and its file if it has one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::coordination::embedded::journal::{Journal, JournalError};
use crate::coordination::model::Model;
use crate::coordination::model::entries::{Entry, Rebuild};
use crate::coordination::model::steps::{Outcome, Program, Refusal};
use crate::coordination::types::LeaseId;

/// Above this no puts are accepted until keys are deleted and compacted, as in etcd.
pub(super) const QUOTA_BYTES: usize = 2 << 30;

/// At least this many revisions are kept; at twice as many the older ones are compacted. A standby that reads pages of
/// one revision or resumes a watch is never that far behind; one that is starts anew.
const KEPT_REVISIONS: u64 = 50_000;

/// Upper bound of leases at a time.
const MAX_LEASES: usize = 100_000;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the embedded store cannot be opened: {0}")]
pub struct OpenError(#[from] JournalError);

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
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    start: Instant,
    durable: bool,
    /// The newest revision, for watches.
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    model: Model,
    journal: Option<Journal>,
    /// Changes that are in memory and not yet in the file.
    unwritten: Vec<Entry>,
    failed: bool,
}

impl Store {
    /// Opens a store in memory, or one that keeps its file in a folder and continues from what is there. Leases then
    /// have their whole time to live again.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, another process uses it, or its file is damaged.
    pub fn open(folder: Option<&Path>) -> Result<Self, OpenError> {
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
        let state = State { model, journal, unwritten: Vec::new(), failed: false };
        let shared = Shared { state: Mutex::new(state), start: Instant::now(), durable, revision };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Subscribes to the newest revision.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// Reads from the model; fails once the disk has failed or the store is closed.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Model) -> T) -> Result<T, Rejection> {
        let state = self.shared.state.lock();
        if state.failed { Err(Rejection::Failed) } else { Ok(look(&state.model)) }
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

    /// Ends the leases whose time is over.
    pub(super) async fn expire(&self) -> Result<(), Rejection> {
        let now = self.shared.start.elapsed();
        let due = self.look(|model| model.next_expiry().is_some_and(|expires| expires <= now))?;
        // Every change expires leases first, so an empty one is enough.
        if due { self.change(|_, _| Ok(())).await } else { Ok(()) }
    }

    /// Releases the file. Every later request is rejected.
    pub(super) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.failed = true;
        state.journal = None;
    }

    /// Returns the time on the store's clock.
    pub(super) fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }
}

impl Shared {
    fn change<T>(
        &self,
        change: impl FnOnce(&mut State, Duration) -> Result<T, Refusal>,
    ) -> Result<T, Rejection> {
        let mut state = self.state.lock();
        if state.failed {
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
            state.failed = true;
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
        if program.puts() && self.model.history().bytes() > QUOTA_BYTES {
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
        self.model.compact(revision)?;
        self.unwritten.push(Entry::Compacted { revision });
        Ok(())
    }

    fn compact_what_is_old(&mut self) {
        let revision = self.model.revision();
        if revision > self.model.compacted() + 2 * KEPT_REVISIONS {
            // This revision is neither in the future nor compacted already, so it is not refused.
            _ = self.compact(revision - KEPT_REVISIONS);
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        let entries = std::mem::take(&mut self.unwritten);
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if entries.is_empty() {
            return Ok(());
        }
        journal.append(&entries)?;
        // Only compaction makes a rewritten file smaller.
        if entries.iter().any(|entry| matches!(entry, Entry::Compacted { .. })) && journal.is_large() {
            journal.rewrite(self.model.entries())?;
        }
        Ok(())
    }
}
