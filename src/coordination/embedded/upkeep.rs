//! What keeps a store small: giving up old revisions, discarding their versions, and rewriting the file. All of it is
//! done in steps, one with each change and some while there are none, so that no request waits long.

use std::io;

use crate::coordination::embedded::journal::Journal;
use crate::coordination::embedded::store::{Rejection, State, Store};
use crate::coordination::model::Model;

/// Upper bound of the changes that are looked through in a step of discarding.
const CHANGES_AT_A_TIME: usize = 4096;

/// Upper bound of what the file needs for a version or a lease beyond what [`History::size`] counts: the headers of
/// entries, and the key that an entry of its own names.
///
/// [`History::size`]: crate::coordination::model::history::History::size
const ENTRY_BYTES: u64 = 33;

/// Upper bound of the steps of discarding or rewriting between two looks at the leases.
const STEPS_OF_A_TICK: usize = 16;

impl Store {
    /// Ends the leases whose time is over, and goes on with what is left to discard or to rewrite.
    pub(super) async fn tick(&self) -> Result<(), Rejection> {
        for _ in 0..STEPS_OF_A_TICK {
            let now = self.now();
            let due = |model: &Model| model.next_expiry().is_some_and(|expires| expires <= now);
            if !self.look_at(|state| due(&state.model) || state.is_busy())? {
                break;
            }
            self.step().await?;
        }
        Ok(())
    }

    /// Changes nothing; every change expires leases first and takes a step of discarding or rewriting.
    async fn step(&self) -> Result<(), Rejection> {
        self.change(|_, _| Ok(())).await
    }

    /// Waits until what was given up before a revision is discarded.
    pub(super) async fn discarded(&self, revision: u64) -> Result<(), Rejection> {
        while self.look(|model| model.history().discarded() < revision)? {
            self.step().await?;
        }
        Ok(())
    }

    /// Rewrites the file, and waits for it. Returns why that failed, if it did.
    pub(super) async fn rewrite(&self) -> Result<Option<String>, Rejection> {
        // What is being written does not have the changes before this request in their shortest form.
        while self.look_at(State::is_rewriting)? {
            self.step().await?;
        }
        self.change(|state, _| {
            state.begin_rewrite();
            Ok(())
        })
        .await?;
        while self.look_at(State::is_rewriting)? {
            self.step().await?;
        }
        self.look_at(State::rewrite_failure)
    }
}

impl State {
    /// Gives up old revisions if there are too many, or if overwritten and deleted versions take too much.
    pub(super) fn compact_what_is_old(&mut self) {
        let (history, limits) = (self.model.history(), self.limits);
        let revisions = history.revision().saturating_sub(history.compacted());
        let too_many = revisions > limits.revisions.saturating_add(limits.more_revisions);
        if !too_many && history.superseded_bytes() <= limits.superseded_bytes {
            return;
        }
        if let Some(oldest) = history.oldest_within(limits.revisions, limits.superseded_bytes_left()) {
            // This revision is neither in the future nor compacted already, so it is not refused.
            _ = self.compact(oldest);
        }
    }

    /// Takes a step of what is left to do, after a change that appended so many bytes.
    pub(super) fn keep_up(&mut self, appended: u64) -> io::Result<()> {
        if !self.is_rewriting() {
            // While the file is rewritten, the checkpoint reads versions that were given up.
            self.model.history_mut().discard(CHANGES_AT_A_TIME);
        }
        if self.is_rewrite_due() {
            self.begin_rewrite();
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let bytes = self.limits.step_bytes.max(appended.saturating_mul(2));
        journal.go_on(&self.model, bytes, self.limits.retry_bytes)
    }

    /// Begins to rewrite the file, if there is one and that is not being done already.
    pub(super) fn begin_rewrite(&mut self) {
        if let Some(journal) = self.journal.as_mut().filter(|journal| !journal.is_rewriting()) {
            journal.begin_rewrite(&self.model, self.limits.retry_bytes);
        }
    }

    pub(super) fn is_rewriting(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_rewriting)
    }

    /// Returns why the last rewrite failed, if it did.
    pub(super) fn rewrite_failure(&self) -> Option<String> {
        self.journal.as_ref()?.failure().map(|(why, _)| why.clone())
    }

    /// Returns whether there is something to do even if nothing is changed.
    pub(super) fn is_busy(&self) -> bool {
        self.is_rewriting() || self.model.history().is_discarding() || self.is_rewrite_due()
    }

    fn is_rewrite_due(&self) -> bool {
        let Some(journal) = self.journal.as_ref().filter(|journal| !journal.is_rewriting()) else {
            return false;
        };
        let size = self.model.history().size();
        let entries = (size.versions + self.model.leases().count()) as u64;
        let needed = size.bytes as u64 + entries * ENTRY_BYTES;
        let is_early = journal.failure().is_some_and(|(_, retry_at)| journal.bytes() < *retry_at);
        !is_early && self.limits.is_superfluous(journal.bytes(), needed)
    }
}
