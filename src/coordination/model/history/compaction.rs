//! Compaction: which revisions are given up, and what is discarded because of it. The two are apart: a revision can no
//! longer be read at once, while its versions are discarded in pieces, and not while a checkpoint still reads them.

use crate::coordination::model::history::size::Size;
use crate::coordination::model::history::{FIRST_REVISION, History, Logged};
use crate::coordination::model::steps::Refusal;

impl History {
    /// Gives up the revisions before this one, and discards their versions. The state at this revision stays.
    pub(crate) fn compact(&mut self, revision: u64) -> Result<(), Refusal> {
        self.give_up(revision)?;
        self.discard(usize::MAX);
        Ok(())
    }

    /// Gives up the revisions before this one, so that they can no longer be read; [`Self::discard`] has to follow.
    pub(crate) fn give_up(&mut self, revision: u64) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        for at in self.compacted + 1..=revision {
            self.superseded_bytes -= self.superseded_by(at);
        }
        self.compacted = revision;
        Ok(())
    }

    /// Returns whether there are versions to discard.
    pub(crate) fn is_discarding(&self) -> bool {
        self.discarded < self.compacted
    }

    /// Returns the revision before which everything superfluous was discarded.
    pub(crate) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Discards versions that no readable revision has, those of whole revisions and until this many changes were
    /// looked through.
    pub(crate) fn discard(&mut self, changes: usize) {
        let (mut done, target) = (0, self.compacted);
        while self.is_discarding() && done < changes {
            // Before the first write there is nothing to discard.
            if self.first_logged > target {
                self.discarded = target;
                return;
            }
            // Only keys that were changed up to then have a version to discard.
            let mut logged = self.log.pop_front().unwrap_or_default();
            done += logged.len() + 1;
            for change in &mut logged {
                self.drop_versions(change, target);
                // The revision before this one can no longer be read, so etcd does not tell this either.
                change.previous = None;
            }
            if self.first_logged < target {
                self.first_logged += 1;
            } else {
                self.log.push_front(logged);
                self.discarded = target;
            }
        }
    }

    fn drop_versions(&mut self, change: &Logged, target: u64) {
        let key = &change.entry.key;
        let Some(versions) = self.versions.get_mut(key) else { return };
        let after = versions.partition_point(|version| version.revision <= target);
        // The last version up to then is the state at that revision. A deletion is kept only as long as it can be
        // watched.
        let last = versions[..after].last();
        let gone = last.is_some_and(|last| last.entry.is_none() && last.revision < target);
        let dropped = versions.drain(..if gone { after } else { after.saturating_sub(1) });
        let mut size = Size::default();
        dropped.for_each(|version| size += Size::of(key, version.entry.as_ref()));
        self.size -= size;
        if versions.is_empty() {
            self.versions.remove(key);
        } else if versions.len() < versions.capacity() / 4 {
            // A key that was written often once would keep the memory for good.
            versions.shrink_to_fit();
        }
    }

    /// Returns the bytes of the versions that only the readable history keeps, but not the present.
    pub(crate) fn superseded_bytes(&self) -> usize {
        self.superseded_bytes
    }

    /// Returns the oldest revision from which on the history has at most this many revisions and superseded bytes;
    /// `None` if it has no more now.
    pub(crate) fn oldest_within(&self, revisions: u64, bytes: usize) -> Option<u64> {
        let (mut oldest, mut left) = (self.compacted.max(FIRST_REVISION), self.superseded_bytes);
        while oldest < self.revision && (left > bytes || self.revision - oldest > revisions) {
            oldest += 1;
            left -= self.superseded_by(oldest);
        }
        (oldest > self.compacted.max(FIRST_REVISION)).then_some(oldest)
    }

    /// Counts all versions, and what the readable history made superfluous in the present.
    #[cfg(test)]
    pub(crate) fn recount(&self) -> (Size, usize) {
        let mut size = Size::default();
        for (key, versions) in &self.versions {
            versions.iter().for_each(|version| size += Size::of(key, version.entry.as_ref()));
        }
        (size, (self.compacted + 1..=self.revision).map(|revision| self.superseded_by(revision)).sum())
    }

    /// Returns the bytes that are superfluous when the revisions before this one are given up.
    fn superseded_by(&self, revision: u64) -> usize {
        self.changes(revision).iter().map(superseded).sum()
    }
}

/// Returns the bytes that a change makes superfluous in the present: the version before it, and the deletion itself.
pub(super) fn superseded(change: &Logged) -> usize {
    let key = &change.entry.key;
    let previous = change.previous.as_ref().map_or(0, |previous| Size::of(key, Some(previous)).bytes);
    let own = if change.deleted { Size::of(key, None).bytes } else { 0 };
    previous + own
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::coordination::types::LeaseId;

    #[test]
    fn a_key_that_was_written_often_takes_no_more_than_another() {
        let mut history = History::new();
        let key = Bytes::from_static(b"k");
        for _ in 0..1000 {
            history.put(&key, Bytes::from_static(b"v"), LeaseId::default());
            history.commit();
        }
        history.compact(history.revision()).unwrap();
        let versions = &history.versions[&key];
        assert!(versions.len() == 1 && versions.capacity() < 10, "{}", versions.capacity());
        assert_eq!((history.size().versions, history.superseded_bytes()), (1, 0));
    }
}
