//! Snapshots: when a standby takes one of its state, and when the file counts.
//!
//! A snapshot begins at the end of a batch, and the host writes the file while later batches are applied. The file is
//! *pending* until a later `Digest` record has matched here: only then is the state in it known to be what the log says,
//! and the file is announced. Any sign of divergence before that discards it, and so does leading, because a primary's
//! own digests prove nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::interface::{SnapshotId, SnapshotJob, SnapshotPolicy, SnapshotRequest};
use super::{Command, Node, Phase};
use crate::cluster::snapshot::{
    HeldSnapshot, MAX_LISTED, SnapshotProgress, SnapshotRefused, SnapshotStage, SnapshotStatus,
};
use crate::engine::snapshot::BeginError;
use crate::engine::types::SequenceId;
use crate::replication::snapshot::{self, Progress};
use crate::replication::time::Monotonic;

/// Delay after the first attempt that failed. It doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(1);

/// Longest delay after an attempt that failed.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Most requests that wait for a snapshot.
const MAX_WAITING: usize = 64;

/// The snapshots of a node.
#[derive(Debug)]
pub(super) struct Snapshots {
    interval: Option<Duration>,
    kept: usize,
    /// Announced snapshots of this log, newest first.
    held: Vec<HeldSnapshot>,
    started_from: Option<SequenceId>,
    stage: Stage,
    /// When the next one is taken without a request.
    due: Monotonic,
    /// Attempts that failed since the last one that succeeded.
    failures: u32,
    error: Option<String>,
    /// Requests, each with the record that the snapshot has to include.
    waiting: Vec<(SnapshotRequest, SequenceId)>,
    last_id: SnapshotId,
    report: SnapshotReport,
}

/// The snapshots of a node, and what became of its attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    pub status: SnapshotStatus,
    /// Snapshots that were announced.
    pub announced: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were given up because this master began to lead, or its state fell in doubt.
    pub cancelled: u64,
    /// Duration of the last attempt that succeeded.
    pub took: Option<Duration>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// The host writes the file and reads it back.
    Writing(Attempt),
    /// The host was told to stop writing, and has not answered yet.
    Stopping(Attempt),
    /// The file is complete; a `Digest` has to match.
    Pending(Attempt, HeldSnapshot),
    /// The host gives the file its final name.
    Announcing(Attempt, HeldSnapshot),
}

/// A snapshot that is being taken.
#[derive(Debug)]
struct Attempt {
    id: SnapshotId,
    /// The last record in it.
    last: SequenceId,
    began: Monotonic,
    progress: Arc<Progress>,
}

impl Snapshots {
    /// Creates the state of a node that has taken no snapshot yet. One that holds none takes the first one as soon as
    /// it can.
    pub(super) fn new(settings: &SnapshotPolicy, now: Monotonic) -> Self {
        let SnapshotPolicy { interval, kept, origin } = settings;
        let wait = interval.filter(|_| !origin.held.is_empty()).unwrap_or_default();
        Self {
            interval: *interval,
            kept: (*kept).max(1),
            held: origin.held.clone(),
            started_from: origin.restored.as_ref().map(|restored| restored.at.last),
            stage: Stage::Idle,
            due: now.plus(wait),
            failures: 0,
            error: None,
            waiting: Vec::new(),
            last_id: SnapshotId::default(),
            report: SnapshotReport::default(),
        }
    }

    /// Returns the announced snapshots as the member key lists them.
    pub(super) fn listed(&self) -> Vec<HeldSnapshot> {
        self.held.iter().take(MAX_LISTED).cloned().collect()
    }

    pub(super) fn report(&self) -> SnapshotReport {
        let running = match &self.stage {
            Stage::Idle | Stage::Stopping(_) => None,
            Stage::Writing(attempt) => Some(attempt.shown(SnapshotStage::Writing)),
            Stage::Pending(attempt, _) | Stage::Announcing(attempt, _) => {
                Some(attempt.shown(SnapshotStage::WaitingForDigest))
            }
        };
        let status = SnapshotStatus {
            held: self.held.clone(),
            started_from: self.started_from.map(|last| last.0),
            running,
            error: self.error.clone(),
        };
        SnapshotReport { status, ..self.report.clone() }
    }

    /// Returns the newest announced snapshot that has this record.
    fn holds(&self, wanted: SequenceId) -> Option<&HeldSnapshot> {
        self.held.first().filter(|held| held.sequence_id >= wanted.0)
    }

    fn failed(&mut self, now: Monotonic, error: String) -> Vec<Command> {
        let wait = BACKOFF.saturating_mul(1 << self.failures.min(16)).min(MAX_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        self.report.failed += 1;
        self.due = now.plus(wait);
        if self.error.as_ref() != Some(&error) {
            tracing::warn!(error, ?wait, "cannot take a snapshot, trying again");
        }
        let refusal = SnapshotRefused::Failed(error.clone());
        self.error = Some(error);
        self.refuse_all(&refusal)
    }

    fn refuse_all(&mut self, refusal: &SnapshotRefused) -> Vec<Command> {
        let taken = |(id, _)| Command::SnapshotTaken { id, result: Err(refusal.clone()) };
        std::mem::take(&mut self.waiting).into_iter().map(taken).collect()
    }
}

impl Attempt {
    fn shown(&self, stage: SnapshotStage) -> SnapshotProgress {
        SnapshotProgress {
            sequence_id: self.last.0,
            objects: self.progress.objects.load(Ordering::Relaxed),
            of: self.progress.of.load(Ordering::Relaxed),
            bytes: self.progress.bytes.load(Ordering::Relaxed),
            stage,
        }
    }
}

impl Node {
    /// Takes a snapshot if one is due, and announces one that a `Digest` has confirmed.
    pub(super) fn keep_snapshots(&mut self, now: Monotonic) {
        if self.snapshots.is_none() {
            return;
        }
        if let Some(reason) = self.distrusts_snapshots() {
            self.cancel_snapshot(reason);
        }
        self.announce_snapshot();
        let Some(snapshots) = &self.snapshots else { return };
        let asked = !snapshots.waiting.is_empty();
        let due =
            snapshots.interval.is_some() && now >= snapshots.due && matches!(self.phase, Phase::Standby);
        if !matches!(snapshots.stage, Stage::Idle) || !(asked || due) {
            return;
        }
        let has_grown = snapshots.holds(self.following.position.applied).is_none();
        match self.snapshot_refusal(now) {
            None if has_grown => self.begin_snapshot(now),
            None => {}
            Some(refusal) if asked => {
                let refused = self.snapshots.as_mut().map(|snapshots| snapshots.refuse_all(&refusal));
                self.commands.extend(refused.into_iter().flatten());
            }
            Some(_) => {}
        }
    }

    /// Returns why what this node has begun to write must never be announced.
    fn distrusts_snapshots(&self) -> Option<&'static str> {
        let trust = &self.following.trust;
        match self.phase {
            Phase::Standby | Phase::Campaigning(_) => {}
            Phase::Leading(_) | Phase::Leaving(_) | Phase::Stopped => {
                planted!(AnnounceAsPrimary => return None);
                return Some("this master does not follow any more");
            }
        }
        if trust.doubt().is_some() || trust.is_rebuilding() {
            return Some("the state of this master is in doubt");
        }
        let against = trust.against(self.following.position.term).is_some();
        against.then_some("the primary of this term has logged a wrong digest")
    }

    /// Returns why no snapshot can begin now.
    fn snapshot_refusal(&self, now: Monotonic) -> Option<SnapshotRefused> {
        if self.snapshots.is_none() {
            return Some(SnapshotRefused::NoDataDir);
        }
        let role = match &self.phase {
            Phase::Standby if self.stopping => Some("is stopping"),
            Phase::Standby => None,
            Phase::Campaigning(_) => Some("stands for election"),
            Phase::Leading(_) => Some("leads"),
            Phase::Leaving(_) => Some("is stepping down"),
            Phase::Stopped => Some("has stopped"),
        };
        if let Some(role) = role {
            return Some(SnapshotRefused::NotStandby(role.to_owned()));
        }
        if !self.following.is_caught_up(now) {
            let why = self.trouble().unwrap_or_else(|| "it reads the log".to_owned());
            return Some(SnapshotRefused::NotCaughtUp(why));
        }
        if self.seen_keys.leader().is_none() || self.seen_keys.successor().is_some() {
            return Some(SnapshotRefused::NotCaughtUp("the primary is being changed".to_owned()));
        }
        self.distrusts_snapshots().map(|why| SnapshotRefused::Failed(why.to_owned()))
    }

    fn begin_snapshot(&mut self, now: Monotonic) {
        let Some(at) = self.following.position.at() else { return };
        let capture = match snapshot::begin(&self.incarnation.engine, &at) {
            Ok(capture) => Box::new(capture),
            // One that was cancelled is still being let go.
            Err(BeginError::UnderWay) => return,
            // The state has a change that is not in the log.
            Err(error @ BeginError::Elsewhere { .. }) => return self.distrust(error.to_string()),
        };
        let Some(snapshots) = &mut self.snapshots else { return };
        snapshots.last_id.0 += 1;
        snapshots.due = now.plus(snapshots.interval.unwrap_or_default());
        let (id, progress) = (snapshots.last_id, Arc::<Progress>::default());
        let attempt = Attempt { id, last: at.last, began: now, progress: Arc::clone(&progress) };
        snapshots.stage = Stage::Writing(attempt);
        tracing::debug!(sequence_id = at.last.0, "taking a snapshot");
        self.commands.push(Command::Snapshot(SnapshotJob::Write { id, capture, progress }));
    }

    /// Announces a pending snapshot if a later `Digest` has matched.
    fn announce_snapshot(&mut self) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let Stage::Pending(attempt, _) = &snapshots.stage else { return };
        let confirmed = self.incarnation.engine.digest_matched() > attempt.last;
        let confirmed = confirmed || planted!(AnnounceUnconfirmed);
        if !confirmed {
            return;
        }
        if let Stage::Pending(attempt, written) = std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            let (id, last) = (attempt.id, attempt.last);
            let older = snapshots.held.iter().skip(snapshots.kept - 1);
            let remove = older.map(|held| SequenceId(held.sequence_id)).collect();
            snapshots.stage = Stage::Announcing(attempt, written);
            self.commands.push(Command::Snapshot(SnapshotJob::Announce { id, last, remove }));
        }
    }

    /// Gives up a snapshot that is not announced yet.
    pub(super) fn cancel_snapshot(&mut self, reason: &str) {
        let Some(snapshots) = &mut self.snapshots else { return };
        match std::mem::replace(&mut snapshots.stage, Stage::Idle) {
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
        // The next one is taken as soon as this node is a standby without doubts again.
        snapshots.due = Monotonic::default();
        let refused = snapshots.refuse_all(&SnapshotRefused::Failed(reason.to_owned()));
        self.commands.extend(refused);
    }

    /// Handles that the host has written a file, or could not.
    pub(super) fn snapshot_written(
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
    pub(super) fn snapshot_announced(&mut self, now: Monotonic, id: SnapshotId, result: Result<(), String>) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let (attempt, held) = match std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            Stage::Announcing(attempt, held) if attempt.id == id => (attempt, held),
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
        snapshots.held.insert(0, held.clone());
        snapshots.held.truncate(snapshots.kept);
        let done = snapshots.waiting.extract_if(.., |(_, wanted)| wanted.0 <= held.sequence_id);
        let taken = |(id, _)| Command::SnapshotTaken { id, result: Ok(held.clone()) };
        self.commands.extend(done.map(taken));
    }

    /// Handles a request for a snapshot of the state as it is now.
    pub(super) fn snapshot_requested(&mut self, now: Monotonic, id: SnapshotRequest) {
        let refusal = self.snapshot_refusal(now);
        let wanted = self.following.position.applied;
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
