//! Snapshots: when a master takes one of its state, and when the file counts.
//!
//! Standbys take them, and a primary only if no standby is caught up. A snapshot begins at the end of a batch, and the
//! host writes the file while later batches are applied. The file is *pending* until a later `Digest` record has matched
//! here: only then is the state in it known to be what the log says, and the file is announced. Any sign of divergence
//! before that discards it, and so does a change of this master's role. The digests of a primary that is alone are its
//! own: they show that the log has one which confirms the file to a master that starts from it, no more.

mod completing;
mod proving;
mod restoring;
mod schedule;
mod sharing;
mod taking;
mod unsaved;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Command;
use super::interface::{SnapshotId, SnapshotPolicy, SnapshotRequest};
use crate::cluster::member::MAX_TROUBLE_CHARS;
use crate::cluster::snapshot::{
    HeldSnapshot, MAX_LISTED, ProvenCopy, SnapshotProgress, SnapshotRefused, SnapshotStage, SnapshotStatus,
};
use crate::engine::types::{LogTime, SequenceId, Term};
use crate::replication::snapshot::{BeginningCapture, Progress};
use crate::replication::time::Monotonic;

use proving::Proving;
use restoring::Restoring;
use schedule::Schedule;
use sharing::Sharing;
use unsaved::Unsaved;

pub use sharing::shared_kept;

/// Delay after the first attempt that failed. It doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(1);

/// Longest delay after an attempt that failed.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// The snapshots of a node.
#[derive(Debug)]
pub(super) struct Snapshots {
    schedule: Schedule,
    kept: usize,
    /// The directory outlives the machine of this master.
    durable: bool,
    /// Announced snapshots of this log, newest first.
    held: Vec<HeldSnapshot>,
    /// Those that are removed when the one that is being announced is.
    removing: Vec<SequenceId>,
    started_from: Option<SequenceId>,
    stage: Stage,
    unsaved: Unsaved,
    /// Since when this master has led without a standby that could take snapshots; `None` otherwise.
    alone_since: Option<Monotonic>,
    /// Attempts that failed since the last one that succeeded.
    failures: u32,
    error: Option<String>,
    /// Requests, each with the record that the snapshot has to include.
    waiting: Vec<(SnapshotRequest, SequenceId)>,
    last_id: SnapshotId,
    report: SnapshotReport,
    /// `None` without storage that all masters share.
    sharing: Option<Sharing>,
    proving: Proving,
    restoring: Restoring,
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
    /// Copies to the shared storage.
    pub copied: u64,
    /// Attempts at such a copy that failed.
    pub copies_failed: u64,
}

#[derive(Debug)]
enum Stage {
    Idle,
    /// Of a primary: the batch that ends with the last record of the state is not durable yet.
    Beginning(Attempt, BeginningCapture),
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
    /// The term in which this master led when it began; `None` if it was a standby.
    led: Option<Term>,
    began: Monotonic,
    progress: Arc<Progress>,
}

impl Snapshots {
    /// Creates the state of a node that has taken no snapshot yet. One that holds none takes the first one as soon as
    /// it can.
    pub(super) fn new(settings: &SnapshotPolicy, now: Monotonic) -> Self {
        let SnapshotPolicy { interval, kept, durable, has_store, origin } = settings;
        let of_directory = |held: &HeldSnapshot| HeldSnapshot { durable: *durable, ..held.clone() };
        Self {
            schedule: Schedule::new(*interval, !origin.held.is_empty(), now),
            kept: (*kept).max(1),
            durable: *durable,
            held: origin.held.iter().map(of_directory).collect(),
            removing: Vec::new(),
            started_from: origin.restored.as_ref().map(|restored| restored.at.last),
            stage: Stage::Idle,
            unsaved: Unsaved::default(),
            alone_since: None,
            failures: 0,
            error: None,
            waiting: Vec::new(),
            last_id: SnapshotId::default(),
            report: SnapshotReport::default(),
            sharing: has_store.then(|| Sharing::new(&origin.held)),
            proving: Proving::default(),
            restoring: Restoring::new(origin.restored.as_ref(), *has_store),
        }
    }

    /// Forgets the snapshots of a log that was superseded. Their files stay where they are.
    pub(super) fn forget_log(&mut self) {
        self.held.clear();
        self.started_from = None;
        // The first one of the new log is due.
        self.schedule.retry(Monotonic::default());
        self.sharing = self.sharing.take().map(|_| Sharing::new(&[]));
        self.restoring.forget_log(self.sharing.is_some());
    }

    /// Returns the announced snapshots as the member key lists them: without those that a doubt has taken in.
    pub(super) fn listed(&self) -> Vec<HeldSnapshot> {
        let trusted = self.held.iter().filter(|held| !self.restoring.suspects(SequenceId(held.sequence_id)));
        let listed = trusted.take(MAX_LISTED).cloned().collect();
        planted!(FloorBeforeVerified => return self.with_unverified(listed));
        listed
    }

    /// Returns whether the directory of this master is the only place where it finds a snapshot when it starts again.
    pub(super) fn is_only_place(&self) -> bool {
        self.durable && self.sharing.is_none()
    }

    /// Returns the last record of the newest announced snapshot.
    pub(super) fn newest(&self) -> Option<SequenceId> {
        self.held.first().map(|held| SequenceId(held.sequence_id))
    }

    /// Returns the copies of other members that this master has read back.
    pub(super) fn proven(&self) -> Vec<ProvenCopy> {
        self.proving.proven.clone()
    }

    /// Planted bug: also lists the snapshot that no digest has confirmed yet.
    #[cfg(feature = "planted")]
    fn with_unverified(&self, mut listed: Vec<HeldSnapshot>) -> Vec<HeldSnapshot> {
        if let Stage::Pending(_, held) = &self.stage {
            listed.insert(0, HeldSnapshot { durable: self.durable, ..held.clone() });
        }
        listed
    }

    /// Returns for how long, in log time, there have been changes that no announced snapshot has.
    pub(super) fn unsaved_ms(&self, log_time: LogTime) -> u64 {
        self.unsaved.ms(log_time)
    }

    /// Returns why the last attempt failed, as the member key says it.
    pub(super) fn error(&self) -> Option<String> {
        self.error.as_ref().map(|why| why.chars().take(MAX_TROUBLE_CHARS).collect())
    }

    pub(super) fn report(&self) -> SnapshotReport {
        let running = match &self.stage {
            Stage::Idle | Stage::Stopping(_) => None,
            Stage::Beginning(attempt, _) | Stage::Writing(attempt) => {
                Some(attempt.shown(SnapshotStage::Writing))
            }
            Stage::Pending(attempt, _) | Stage::Announcing(attempt, _) => {
                Some(attempt.shown(SnapshotStage::WaitingForDigest))
            }
        };
        let status = SnapshotStatus {
            held: self.held.clone(),
            started_from: self.started_from.map(|last| last.0),
            running,
            error: self.error.clone(),
            proven: self.proving.proven.clone(),
            proof_error: self.proving.error.clone(),
            store_error: self.sharing.as_ref().and_then(|sharing| sharing.error.clone()),
        };
        let (copied, failed) = self.sharing.as_ref().map_or((0, 0), |it| (it.copied, it.failed));
        SnapshotReport { status, copied, copies_failed: failed, ..self.report.clone() }
    }

    /// Returns the snapshot that is being taken.
    fn attempt(&self) -> Option<&Attempt> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Beginning(attempt, _)
            | Stage::Writing(attempt)
            | Stage::Stopping(attempt)
            | Stage::Pending(attempt, _)
            | Stage::Announcing(attempt, _) => Some(attempt),
        }
    }

    /// Returns the newest announced snapshot that has this record.
    fn holds(&self, wanted: SequenceId) -> Option<&HeldSnapshot> {
        self.held.first().filter(|held| held.sequence_id >= wanted.0)
    }

    fn failed(&mut self, now: Monotonic, error: String) -> Vec<Command> {
        let wait = BACKOFF.saturating_mul(1 << self.failures.min(16)).min(MAX_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        self.report.failed += 1;
        self.schedule.retry(now.plus(wait));
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
