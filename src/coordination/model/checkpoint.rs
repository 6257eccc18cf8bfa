//! A model as a list of entries that comes in parts, while the model goes on changing: what is read is the state at one
//! revision and the revisions after it, up to that of the beginning. Entries of what is changed later have to follow.

use bytes::Bytes;

use crate::coordination::model::Model;
use crate::coordination::model::entries::Entry;
use crate::coordination::model::history::FIRST_REVISION;

/// How far a model was read. Its history must not discard anything until all of it was.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The compacted revision at the beginning, whose state comes first; zero if there was none.
    base: u64,
    /// The newest revision at the beginning, which comes last.
    until: u64,
    next: Next,
}

#[derive(Debug)]
enum Next {
    /// The keys behind this one, as they were at `base`.
    Keys(Bytes),
    Base,
    Revision(u64),
}

impl Model {
    /// Begins to read this model. Returns all leases as entries, which come before those of the checkpoint.
    pub(crate) fn checkpoint(&self) -> (Checkpoint, Vec<Entry>) {
        let leases = self.leases.ids().filter_map(|lease| {
            let ttl_seconds = self.leases.get(lease)?.ttl_seconds;
            Some(Entry::Granted { lease, ttl_seconds })
        });
        let base = self.compacted();
        let next = if base > 0 { Next::Keys(Bytes::new()) } else { Next::Revision(FIRST_REVISION + 1) };
        (Checkpoint { base, until: self.revision(), next }, leases.collect())
    }
}

impl Checkpoint {
    /// Returns the next entries, of about this many bytes and sometimes none; `None` after the last ones.
    pub(crate) fn part(&mut self, model: &Model, bytes: usize) -> Option<Vec<Entry>> {
        match &self.next {
            Next::Keys(after) => {
                let (kept, last) = model.history.part_of_state(self.base, after, bytes);
                self.next = last.map_or(Next::Base, Next::Keys);
                Some(kept.into_iter().map(Entry::Kept).collect())
            }
            Next::Base => {
                self.next = Next::Revision(self.base.max(FIRST_REVISION) + 1);
                Some(vec![Entry::Base { revision: self.base, changes: model.redos(self.base) }])
            }
            Next::Revision(first) => {
                let (first, mut next, mut left) = (*first, *first, bytes);
                while next <= self.until && left > 0 {
                    left = left.saturating_sub(model.history.logged_bytes(next));
                    next += 1;
                }
                self.next = Next::Revision(next);
                let part = (first..next).map(|revision| model.revision_entry(revision));
                (first < next).then(|| part.collect())
            }
        }
    }
}
