//! A model as a list of entries, from which an equal one can be rebuilt: this is what the embedded store keeps on disk.

use std::time::Duration;

use bytes::Bytes;

use crate::coordination::model::Model;
use crate::coordination::model::history::{FIRST_REVISION, History, Logged};
use crate::coordination::types::{KeyValue, LeaseId};

/// One step of rebuilding a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A lease was granted for so many seconds.
    Granted { lease: LeaseId, ttl_seconds: i64 },
    /// A lease ended, and its keys with it.
    Ended { lease: LeaseId },
    /// A revision was made, with these changes of keys.
    Revision { revision: u64, changes: Vec<Redo> },
    /// The history before a revision was compacted.
    Compacted { revision: u64 },
    /// A key that existed at the revision of the `Base` that follows.
    Kept(KeyValue),
    /// All keys of a revision have come as `Kept`; these are the changes of that revision.
    Base { revision: u64, changes: Vec<Redo> },
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redo {
    Put(KeyValue),
    Delete(Bytes),
}

/// The error of entries that cannot follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry does not fit to those before it")]
pub(crate) struct Misfit;

/// Rebuilds a model from entries.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    model: Model,
    kept: Vec<KeyValue>,
}

impl Rebuild {
    /// Applies the next entry. Leases start with their whole time to live, at `now`.
    pub(crate) fn take(&mut self, now: Duration, entry: Entry) -> Result<(), Misfit> {
        let model = &mut self.model;
        match entry {
            Entry::Granted { lease, ttl_seconds } => {
                model.grant(now, lease, ttl_seconds).map_err(|_| Misfit)?;
            }
            Entry::Ended { lease } => {
                if !model.revoke(lease) {
                    return Err(Misfit);
                }
            }
            Entry::Revision { revision, changes } => model.redo(revision, changes)?,
            Entry::Compacted { revision } => model.compact(revision).map_err(|_| Misfit)?,
            Entry::Kept(entry) => self.kept.push(entry),
            Entry::Base { revision, changes } => {
                if model.revision() != FIRST_REVISION {
                    return Err(Misfit);
                }
                for entry in &self.kept {
                    model.leases.attach(entry.lease, &entry.key);
                }
                let logged = changes.into_iter().map(|change| logged(revision, change)).collect();
                model.history = History::from_state(revision, std::mem::take(&mut self.kept), logged);
            }
        }
        Ok(())
    }

    /// Returns the model that all entries lead to.
    pub(crate) fn finish(self) -> Result<Model, Misfit> {
        if self.kept.is_empty() { Ok(self.model) } else { Err(Misfit) }
    }
}

impl Model {
    fn redo(&mut self, revision: u64, changes: Vec<Redo>) -> Result<(), Misfit> {
        if revision != self.revision() + 1 || changes.is_empty() {
            return Err(Misfit);
        }
        for change in changes {
            let Logged { entry, deleted, .. } = logged(revision, change);
            if entry.mod_revision != revision {
                return Err(Misfit);
            }
            let (key, lease) = (entry.key.clone(), entry.lease);
            let previous = self.history.redo(entry, deleted);
            if let Some(previous) = previous {
                self.leases.detach(previous.lease, &key);
            }
            self.leases.attach(lease, &key);
        }
        self.history.commit();
        Ok(())
    }

    /// Returns the changes of a revision as an entry.
    pub(crate) fn revision_entry(&self, revision: u64) -> Entry {
        Entry::Revision { revision, changes: self.redos(revision) }
    }

    pub(super) fn redos(&self, revision: u64) -> Vec<Redo> {
        let redo = |logged: &Logged| match logged.deleted {
            true => Redo::Delete(logged.entry.key.clone()),
            false => Redo::Put(logged.entry.clone()),
        };
        self.history.changes(revision).iter().map(redo).collect()
    }
}

fn logged(revision: u64, change: Redo) -> Logged {
    match change {
        Redo::Put(entry) => Logged { entry, deleted: false, previous: None },
        Redo::Delete(key) => {
            let entry = KeyValue {
                key,
                value: Bytes::new(),
                create_revision: 0,
                mod_revision: revision,
                version: 0,
                lease: LeaseId::default(),
            };
            Logged { entry, deleted: true, previous: None }
        }
    }
}
