//! Watches: each has a position in the history, and is sent the changes after it.

use std::collections::BTreeMap;

use crate::coordination::model::Model;
use crate::coordination::model::history::Logged;
use crate::coordination::types::{Change, WatchEvent, WatchRequest};

/// Identifies a watch of a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

#[derive(Clone, Debug)]
struct Watch {
    request: WatchRequest,
    /// The first revision that was not delivered.
    next: u64,
}

/// All watches, and the last id that was given out.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches {
    watches: BTreeMap<WatchId, Watch>,
    last: u64,
}

impl Model {
    /// Starts a watch. A start revision of zero means from now on; one that is yet to come is waited for.
    pub fn watch(&mut self, request: WatchRequest) -> WatchId {
        self.watches.last += 1;
        let id = WatchId(self.watches.last);
        let next = if request.from_revision == 0 { self.revision() + 1 } else { request.from_revision };
        self.watches.watches.insert(id, Watch { request, next });
        id
    }

    /// Returns the next event of a watch; `None` if there is none now, or if the watch has ended. If the revision that
    /// it needs next was compacted before it was polled, the watch ends with that event, as the watch of a slow client
    /// does in etcd.
    pub fn poll(&mut self, id: WatchId) -> Option<WatchEvent> {
        let watch = self.watches.watches.get_mut(&id)?;
        if watch.next < self.history.compacted() {
            self.watches.watches.remove(&id);
            return Some(WatchEvent::Compacted { oldest: self.history.compacted() });
        }
        while watch.next <= self.history.revision() {
            let revision = watch.next;
            watch.next += 1;
            let changes: Vec<Change> = self
                .history
                .changes(revision)
                .iter()
                .filter(|logged| wanted(&watch.request, logged))
                .map(change)
                .collect();
            if !changes.is_empty() {
                return Some(WatchEvent::Changes { revision, changes });
            }
        }
        None
    }

    /// Returns the progress event that etcd sends at times to a watch that is up to date; `None` if it is not, or has
    /// ended.
    #[must_use]
    pub fn progress(&self, id: WatchId) -> Option<WatchEvent> {
        let watch = self.watches.watches.get(&id)?;
        let revision = self.revision();
        (watch.next > revision).then_some(WatchEvent::Progress { revision })
    }

    /// Ends a watch; an unknown id is ignored.
    pub fn cancel(&mut self, id: WatchId) {
        self.watches.watches.remove(&id);
    }
}

fn wanted(request: &WatchRequest, logged: &Logged) -> bool {
    request.range.contains(&logged.entry.key) && (request.deletions || !logged.deleted)
}

fn change(logged: &Logged) -> Change {
    if logged.deleted {
        Change::Deleted { key: logged.entry.key.clone(), revision: logged.entry.mod_revision }
    } else {
        Change::Put(logged.entry.clone())
    }
}
