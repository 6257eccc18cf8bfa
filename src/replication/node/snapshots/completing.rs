//! From a snapshot that was written to one that counts, or to the end of the attempt.

use super::Stage;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use crate::engine::types::SequenceId;
use crate::replication::node::interface::{SnapshotId, SnapshotJob, SnapshotRequest};
use crate::replication::node::{Command, Node};
use crate::replication::time::Monotonic;

/// Most requests that wait for a snapshot.
const MAX_WAITING: usize = 64;

impl Node {
    /// Announces a pending snapshot if a later `Digest` has matched.
    pub(super) fn announce_snapshot(&mut self) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let Stage::Pending(attempt, _) = &snapshots.stage else { return };
        let matched = self.incarnation.engine.digest_matched();
        // What a primary has matched itself need not be in the log yet, where a master that starts from it looks.
        let durable = matched <= self.incarnation.gate.durable();
        let durable = durable || planted!(AnnounceUndurable);
        let confirmed = matched > attempt.last && durable;
        let confirmed = confirmed || planted!(AnnounceUnconfirmed);
        if !confirmed {
            return;
        }
        if let Stage::Pending(attempt, written) = std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            let (id, last) = (attempt.id, attempt.last);
            snapshots.stage = Stage::Announcing(attempt, written);
            let remove = self.prunable();
            let Some(snapshots) = &mut self.snapshots else { return };
            snapshots.removing.clone_from(&remove);
            self.commands.push(Command::Snapshot(SnapshotJob::Announce { id, last, remove }));
        }
    }

    /// Returns which snapshots are not kept any longer once another one is announced. Beyond the newest ones, two stay:
    /// the one that is nearest above the floor, because the log below it may be deleted and the floor rests on two of
    /// each holder; and one that a member needs the log after, because it is reading it.
    fn prunable(&self) -> Vec<SequenceId> {
        let Some(snapshots) = &self.snapshots else { return Vec::new() };
        let older = snapshots.held.iter().skip(snapshots.kept - 1);
        let mut older: Vec<SequenceId> = older.map(|held| SequenceId(held.sequence_id)).collect();
        let floor = self.log().map_or(SequenceId(0), |log| self.known_floor(log));
        if floor > SequenceId(0) {
            let nearest = older.iter().rposition(|last| *last >= floor);
            nearest.map(|nearest| older.remove(nearest));
        }
        let needed = |last: &SequenceId| {
            self.seen_keys.members().filter_map(|it| it.needs.as_ref()).any(|need| need.after == last.0)
        };
        let needed = older.iter().rposition(needed);
        needed.map(|needed| older.remove(needed));
        older
    }

    /// Gives up a snapshot that is not announced yet.
    pub(in crate::replication::node) fn cancel_snapshot(&mut self, reason: &str) {
        let Some(snapshots) = &mut self.snapshots else { return };
        match std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            // Dropping the capture ends it.
            Stage::Beginning(..) => {}
            Stage::Writing(attempt) => {
                attempt.progress.cancel();
                snapshots.stage = Stage::Stopping(attempt);
            }
            Stage::Pending(attempt, _) => {
                let last = attempt.last;
                self.commands.push(Command::Snapshot(SnapshotJob::Discard { last }));
            }
            stage @ (Stage::Idle | Stage::Stopping(_) | Stage::Announcing(..)) => {
                snapshots.stage = stage;
                return;
            }
        }
        tracing::info!(reason, "gave up a snapshot");
        snapshots.report.cancelled += 1;
        // The next one is taken as soon as this node can take one again.
        snapshots.schedule.retry(Monotonic::default());
        let refused = snapshots.refuse_all(&SnapshotRefused::Failed(reason.to_owned()));
        self.commands.extend(refused);
    }

    /// Handles that the host has written a file, or could not.
    pub(in crate::replication::node) fn snapshot_written(
        &mut self,
        now: Monotonic,
        id: SnapshotId,
        result: Result<HeldSnapshot, String>,
    ) {
        let Some(snapshots) = &mut self.snapshots else { return };
        match std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            Stage::Writing(attempt) if attempt.id == id => match result {
                Ok(written) => snapshots.stage = Stage::Pending(attempt, written),
                Err(error) => {
                    let refused = snapshots.failed(now, error);
                    self.commands.extend(refused);
                }
            },
            Stage::Stopping(attempt) if attempt.id == id => {
                if result.is_ok() {
                    let last = attempt.last;
                    self.commands.push(Command::Snapshot(SnapshotJob::Discard { last }));
                }
            }
            stage => snapshots.stage = stage,
        }
    }

    /// Handles that the host has announced a snapshot, or could not.
    pub(in crate::replication::node) fn snapshot_announced(
        &mut self,
        now: Monotonic,
        id: SnapshotId,
        result: Result<(), String>,
    ) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let durable = snapshots.durable;
        let (attempt, held) = match std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            Stage::Announcing(attempt, held) if attempt.id == id => {
                (attempt, HeldSnapshot { durable, ..held })
            }
            stage => {
                snapshots.stage = stage;
                return;
            }
        };
        if let Err(error) = result {
            let last = attempt.last;
            let refused = snapshots.failed(now, error);
            self.commands.push(Command::Snapshot(SnapshotJob::Discard { last }));
            self.commands.extend(refused);
            return;
        }
        let took = now.since(attempt.began);
        tracing::info!(sequence_id = held.sequence_id, bytes = held.bytes, ?took, "took a snapshot");
        (snapshots.failures, snapshots.error) = (0, None);
        snapshots.report.announced += 1;
        snapshots.report.took = Some(took);
        let removed = std::mem::take(&mut snapshots.removing);
        snapshots.held.retain(|held| !removed.contains(&SequenceId(held.sequence_id)));
        snapshots.held.insert(0, held.clone());
        if let Some(sharing) = &mut snapshots.sharing {
            sharing.announced(attempt.last);
        }
        if attempt.led.is_some() {
            snapshots.restoring.vouched_by_itself(attempt.last, &snapshots.held);
        }
        let done = snapshots.waiting.extract_if(.., |(_, wanted)| wanted.0 <= held.sequence_id);
        let taken = |(id, _)| Command::SnapshotTaken { id, result: Ok(held.clone()) };
        self.commands.extend(done.map(taken));
    }

    /// Handles a request for a snapshot of the state as it is now.
    pub(in crate::replication::node) fn snapshot_requested(&mut self, now: Monotonic, id: SnapshotRequest) {
        let refusal = self.snapshot_refusal(now, true);
        let wanted = self.incarnation.engine.applied();
        let result = match (refusal, &mut self.snapshots) {
            (Some(refusal), _) => Err(refusal),
            (None, None) => Err(SnapshotRefused::NoDataDir),
            (None, Some(snapshots)) => match snapshots.holds(wanted) {
                Some(held) => Ok(held.clone()),
                None if snapshots.waiting.len() >= MAX_WAITING => {
                    Err(SnapshotRefused::Failed("too many requests wait for one".to_owned()))
                }
                None => return snapshots.waiting.push((id, wanted)),
            },
        };
        self.commands.push(Command::SnapshotTaken { id, result });
    }
}
