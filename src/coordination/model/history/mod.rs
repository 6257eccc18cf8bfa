//! All versions of all keys: the present ones, those at every revision that is not compacted, and the changes of each
//! revision.

mod compaction;
mod parts;
mod size;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;

use crate::coordination::model::history::compaction::superseded;
use crate::coordination::model::history::size::Size;
use crate::coordination::model::steps::{Found, Read, Refusal, SortBy};
use crate::coordination::types::{KeyRange, KeyValue, LeaseId};

/// The revision of a store that was never written to.
pub(crate) const FIRST_REVISION: u64 = 1;

/// The change of one key by one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    /// The key as it was written; of a deletion only its name and the revision.
    pub entry: KeyValue,
    pub deleted: bool,
    /// The key before the change.
    pub previous: Option<KeyValue>,
}

/// A key as of a revision; without an entry it was deleted then.
#[derive(Clone, Debug)]
struct Version {
    revision: u64,
    entry: Option<KeyValue>,
}

/// All versions of all keys.
#[derive(Clone, Debug)]
pub(crate) struct History {
    revision: u64,
    compacted: u64,
    current: BTreeMap<Bytes, KeyValue>,
    versions: BTreeMap<Bytes, Vec<Version>>,
    /// The changes of the revisions from `first_logged` on, one element for each revision.
    log: VecDeque<Vec<Logged>>,
    first_logged: u64,
    /// The changes so far of the revision that is being made.
    pending: Vec<Logged>,
    /// The compacted revision whose older versions are all discarded.
    discarded: u64,
    /// All of `versions`.
    size: Size,
    /// What the revisions after the compacted one made superfluous in the present.
    superseded_bytes: usize,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            revision: FIRST_REVISION,
            compacted: 0,
            current: BTreeMap::new(),
            versions: BTreeMap::new(),
            log: VecDeque::new(),
            first_logged: FIRST_REVISION + 1,
            pending: Vec::new(),
            discarded: 0,
            size: Size::default(),
            superseded_bytes: 0,
        }
    }

    /// Returns the size of all versions, including those that are still to be discarded.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Returns the newest revision, including that of the transaction in progress.
    pub(crate) fn revision(&self) -> u64 {
        self.revision + u64::from(!self.pending.is_empty())
    }

    /// Returns the oldest revision that can be read; zero if none was compacted.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Returns the present version of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.current.get(key)
    }

    /// Returns the present versions of the keys in a range.
    pub(crate) fn entries<'a>(&'a self, range: &KeyRange) -> impl Iterator<Item = &'a KeyValue> {
        bounds(range)
            .into_iter()
            .flat_map(|bounds| self.current.range::<Bytes, _>(bounds))
            .map(|(_, entry)| entry)
    }

    /// Returns the keys of a range as they were at a revision.
    pub(crate) fn entries_at<'a>(
        &'a self,
        range: &KeyRange,
        revision: u64,
    ) -> impl Iterator<Item = &'a KeyValue> {
        let versions = bounds(range).into_iter().flat_map(|bounds| self.versions.range::<Bytes, _>(bounds));
        versions.filter_map(move |(_, versions)| {
            let after = versions.partition_point(|version| version.revision <= revision);
            versions[..after].last()?.entry.as_ref()
        })
    }

    /// Checks that a revision can be read; zero is the newest.
    pub(crate) fn check_revision(&self, revision: u64) -> Result<(), Refusal> {
        match revision {
            0 => Ok(()),
            _ if revision > self.revision() => Err(Refusal::FutureRevision),
            _ if revision < self.compacted => Err(Refusal::Compacted),
            _ => Ok(()),
        }
    }

    pub(crate) fn read(&self, read: &Read) -> Result<Found, Refusal> {
        self.check_revision(read.revision)?;
        Ok(match read.revision {
            0 => select(read, self.entries(&read.range)),
            revision if revision == self.revision() => select(read, self.entries(&read.range)),
            revision => select(read, self.entries_at(&read.range, revision)),
        })
    }

    /// Writes a key as part of the revision that is being made. Returns the key before the change.
    pub(crate) fn put(&mut self, key: &Bytes, value: Bytes, lease: LeaseId) -> Option<KeyValue> {
        let revision = self.revision + 1;
        let previous = self.current.get(key).cloned();
        let (create_revision, version) = previous
            .as_ref()
            .map_or((revision, 1), |previous| (previous.create_revision, previous.version + 1));
        let entry =
            KeyValue { key: key.clone(), value, create_revision, mod_revision: revision, version, lease };
        self.change(Logged { entry, deleted: false, previous: previous.clone() });
        previous
    }

    /// Deletes a key as part of the revision that is being made. Returns the key before the change.
    pub(crate) fn delete(&mut self, key: &Bytes) -> Option<KeyValue> {
        let previous = self.current.get(key).cloned()?;
        let entry = KeyValue {
            key: key.clone(),
            value: Bytes::new(),
            create_revision: 0,
            mod_revision: self.revision + 1,
            version: 0,
            lease: LeaseId::default(),
        };
        self.change(Logged { entry, deleted: true, previous: Some(previous.clone()) });
        Some(previous)
    }

    /// Repeats a change that was made before, as part of the revision that is being made. Returns the key before the
    /// change.
    pub(crate) fn redo(&mut self, entry: KeyValue, deleted: bool) -> Option<KeyValue> {
        let previous = self.current.get(&entry.key).cloned();
        self.change(Logged { entry, deleted, previous: previous.clone() });
        previous
    }

    fn change(&mut self, logged: Logged) {
        let key = &logged.entry.key;
        let entry = (!logged.deleted).then(|| logged.entry.clone());
        match &entry {
            Some(entry) => _ = self.current.insert(key.clone(), entry.clone()),
            None => _ = self.current.remove(key),
        }
        self.size += Size::of(key, entry.as_ref());
        self.superseded_bytes += superseded(&logged);
        let versions = self.versions.entry(key.clone()).or_default();
        versions.push(Version { revision: logged.entry.mod_revision, entry });
        self.pending.push(logged);
    }

    /// Completes the revision that is being made, if there are any changes.
    pub(crate) fn commit(&mut self) {
        if !self.pending.is_empty() {
            self.revision += 1;
            self.log.push_back(std::mem::take(&mut self.pending));
        }
    }

    /// Returns a history of which only the state at a revision is left, and the changes of that revision.
    pub(crate) fn from_state(revision: u64, state: Vec<KeyValue>, last: Vec<Logged>) -> Self {
        let mut history = Self::new();
        for entry in state {
            history.size += Size::of(&entry.key, Some(&entry));
            let version = Version { revision: entry.mod_revision, entry: Some(entry.clone()) };
            history.versions.insert(entry.key.clone(), vec![version]);
            history.current.insert(entry.key.clone(), entry);
        }
        for Logged { entry, .. } in last.iter().filter(|logged| logged.deleted) {
            history.size += Size::of(&entry.key, None);
            history.versions.entry(entry.key.clone()).or_default().push(Version { revision, entry: None });
        }
        history.revision = revision;
        history.compacted = revision;
        history.discarded = revision;
        history.first_logged = revision;
        history.log.push_back(last);
        history
    }

    /// Returns the changes of a revision; none if it is compacted or not made yet.
    pub(crate) fn changes(&self, revision: u64) -> &[Logged] {
        let index = revision.checked_sub(self.first_logged).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.log.get(index)).map_or(&[], Vec::as_slice)
    }
}

/// Converts a range to bounds of a map; `None` if no key can be in it.
fn bounds(range: &KeyRange) -> Option<(Bound<&Bytes>, Bound<&Bytes>)> {
    let start = &range.start;
    match &range.end {
        None => Some((Bound::Included(start), Bound::Included(start))),
        Some(end) if **end == [0] => Some((Bound::Included(start), Bound::Unbounded)),
        Some(end) => (start < end).then_some((Bound::Included(start), Bound::Excluded(end))),
    }
}

/// Selects what a read requests from the keys of its range, which come in key order.
fn select<'a>(read: &Read, entries: impl Iterator<Item = &'a KeyValue>) -> Found {
    if read.count_only {
        return Found { count: entries.count() as u64, ..Found::default() };
    }
    let limit = if read.limit == 0 { usize::MAX } else { usize::try_from(read.limit).unwrap_or(usize::MAX) };
    let mut count = 0;
    let mut found: Vec<&KeyValue> = Vec::new();
    // One more than the limit shows whether there are more; sorting needs all of them.
    let wanted = if read.sort.is_some() { usize::MAX } else { limit.saturating_add(1) };
    for entry in entries {
        count += 1;
        if found.len() >= wanted && !read.counted {
            break;
        }
        if found.len() < wanted && read.kept.keeps(entry) {
            found.push(entry);
        }
    }
    if let Some(sort) = read.sort {
        match sort.by {
            SortBy::Key => found.sort_by(|left, right| left.key.cmp(&right.key)),
            SortBy::Version => found.sort_by_key(|entry| entry.version),
            SortBy::CreateRevision => found.sort_by_key(|entry| entry.create_revision),
            SortBy::ModRevision => found.sort_by_key(|entry| entry.mod_revision),
            SortBy::Value => found.sort_by(|left, right| left.value.cmp(&right.value)),
        }
        if sort.descending {
            found.reverse();
        }
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let entry = |entry: &KeyValue| {
        let value = if read.keys_only { Bytes::new() } else { entry.value.clone() };
        KeyValue { key: entry.key.clone(), value, ..*entry }
    };
    Found { entries: found.into_iter().map(entry).collect(), more, count }
}
