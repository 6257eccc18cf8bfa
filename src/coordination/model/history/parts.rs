//! A history that is read in parts, by a checkpoint.

use std::ops::Bound;

use bytes::Bytes;

use crate::coordination::model::history::size::Size;
use crate::coordination::model::history::{History, Logged};
use crate::coordination::types::KeyValue;

/// Upper bound of the keys that a part of a state looks through, of which not all have to exist at its revision.
const KEYS_AT_A_TIME: usize = 4096;

impl History {
    /// Returns keys as they were at a revision, from behind `after` on and until they have this many bytes or many keys
    /// were looked through; with the last key that was, if there are more.
    pub(in crate::coordination::model) fn part_of_state(
        &self,
        revision: u64,
        after: &Bytes,
        bytes: usize,
    ) -> (Vec<KeyValue>, Option<Bytes>) {
        let mut found = Vec::new();
        let (mut found_bytes, mut last) = (0, after);
        let keys = self.versions.range::<Bytes, _>((Bound::Excluded(after), Bound::Unbounded));
        for (looked, (key, versions)) in keys.enumerate() {
            if found_bytes >= bytes || looked >= KEYS_AT_A_TIME {
                return (found, Some(last.clone()));
            }
            last = key;
            let upto = versions.partition_point(|version| version.revision <= revision);
            if let Some(entry) = versions[..upto].last().and_then(|version| version.entry.as_ref()) {
                found_bytes += Size::of(key, Some(entry)).bytes;
                found.push(entry.clone());
            }
        }
        (found, None)
    }

    /// Returns the bytes of the versions that a revision made.
    pub(in crate::coordination::model) fn logged_bytes(&self, revision: u64) -> usize {
        let entry =
            |logged: &Logged| Size::of(&logged.entry.key, (!logged.deleted).then_some(&logged.entry)).bytes;
        self.changes(revision).iter().map(entry).sum()
    }
}
