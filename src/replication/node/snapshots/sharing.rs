//! Copies announced snapshots to the storage that all masters share. A store that fails stops nothing else: it is tried
//! again later and later.

use super::{BACKOFF, MAX_BACKOFF};
use crate::cluster::log_end::LogId;
use crate::cluster::snapshot::HeldSnapshot;
use crate::engine::types::SequenceId;
use crate::replication::node::interface::SnapshotJob;
use crate::replication::node::{Command, Node};
use crate::replication::time::Monotonic;

/// What is copied to the shared storage, and how far that is.
#[derive(Debug)]
pub(super) struct Sharing {
    /// The newest announced snapshot, until it is there. Older ones are not copied any more.
    wanted: Option<SequenceId>,
    /// The one that the host copies.
    copying: Option<SequenceId>,
    /// Earliest time of the next attempt.
    due: Monotonic,
    /// Attempts that failed since the last one that succeeded.
    failures: u32,
    pub(super) error: Option<String>,
    /// Copies that succeeded, and attempts that failed.
    pub(super) copied: u64,
    pub(super) failed: u64,
}

impl Sharing {
    /// Creates the state of a master that holds these snapshots, newest first. Whether the newest one is in the shared
    /// storage already is not known.
    pub(super) fn new(held: &[HeldSnapshot]) -> Self {
        Self {
            wanted: held.first().map(|held| SequenceId(held.sequence_id)),
            copying: None,
            due: Monotonic::default(),
            failures: 0,
            error: None,
            copied: 0,
            failed: 0,
        }
    }

    /// Records that a snapshot was announced.
    pub(super) fn announced(&mut self, last: SequenceId) {
        self.wanted = Some(last);
    }

    fn next(&mut self, now: Monotonic) -> Option<SequenceId> {
        if self.copying.is_some() || now < self.due {
            return None;
        }
        self.copying = self.wanted;
        self.copying
    }

    /// Handles the result of the host. Returns whether the snapshot is in the shared storage now.
    fn ended(&mut self, now: Monotonic, last: SequenceId, result: Result<(), String>) -> bool {
        if self.copying != Some(last) {
            return false;
        }
        self.copying = None;
        if self.wanted == Some(last) && result.is_ok() {
            self.wanted = None;
        }
        match result {
            Ok(()) => {
                (self.failures, self.error) = (0, None);
                self.copied += 1;
                true
            }
            Err(error) => {
                let wait = BACKOFF.saturating_mul(1 << self.failures.min(16)).min(MAX_BACKOFF);
                self.failures = self.failures.saturating_add(1);
                self.failed += 1;
                self.due = now.plus(wait);
                if self.error.as_ref() != Some(&error) {
                    tracing::warn!(
                        error,
                        ?wait,
                        "cannot copy a snapshot to the shared storage, trying again"
                    );
                }
                self.error = Some(error);
                false
            }
        }
    }
}

/// Returns how many copies of a member the shared storage keeps: two at least. A copy that another member has just read
/// back, and that the floor rests on, must not go with the next one, which no other member has read yet.
#[must_use]
pub fn shared_kept(kept: usize) -> usize {
    kept.max(2)
}

impl Node {
    /// Has the newest announced snapshot copied to the shared storage.
    pub(super) fn share_snapshot(&mut self, now: Monotonic) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let Some(last) = snapshots.sharing.as_mut().and_then(|sharing| sharing.next(now)) else { return };
        let of = snapshots.held.iter().find(|held| held.sequence_id == last.0);
        // All that are held are of the log that this master knows.
        let log = of.and_then(|held| u64::from_str_radix(&held.log, 16).ok()).map(LogId);
        match log {
            Some(log) => self.commands.push(Command::Snapshot(SnapshotJob::Share { log, last })),
            None => _ = snapshots.sharing.as_mut().map(|sharing| sharing.ended(now, last, Ok(()))),
        }
    }

    /// Handles that the host has copied a snapshot to the shared storage, or could not.
    pub(in crate::replication::node) fn snapshot_shared(
        &mut self,
        now: Monotonic,
        last: SequenceId,
        result: Result<(), String>,
    ) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let Some(sharing) = &mut snapshots.sharing else { return };
        if sharing.ended(now, last, result) {
            tracing::info!(sequence_id = last.0, "copied a snapshot to the shared storage");
            let held = snapshots.held.iter_mut().find(|held| held.sequence_id == last.0);
            held.into_iter().for_each(|held| held.shared = true);
            // The store keeps no more of this member.
            let copies = snapshots.held.iter_mut().filter(|held| held.shared);
            copies.skip(shared_kept(snapshots.kept)).for_each(|held| held.shared = false);
        }
    }
}
