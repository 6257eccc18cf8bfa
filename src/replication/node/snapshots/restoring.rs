//! Builds the state from a snapshot while the node runs: because the log does not begin at its first record any more, or
//! because a master that starts without a snapshot of its own finds one in the shared storage.
//!
//! A snapshot is a hypothesis: the state is no candidate before a `Digest` in the log has confirmed it, and if one
//! contradicts it, that snapshot is not used again.

use std::time::Duration;

use crate::cluster::log_end::{History, LogId};
use crate::cluster::snapshot::HeldSnapshot;
use crate::engine::types::SequenceId;
use crate::replication::node::interface::{RestoreId, SnapshotJob};
use crate::replication::node::{Command, Node, Phase};
use crate::replication::snapshot::{Restored, Wanted, unusable};
use crate::replication::time::Monotonic;

/// How long a snapshot may take to be read: ten million objects take about half a minute. A store that hangs must not
/// keep a master from reading the log.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Time between two attempts that find no snapshot.
const RETRY: Duration = Duration::from_secs(10);

/// Members that the reason names which hold a suitable snapshot.
const MAX_NAMED: usize = 3;

/// Which snapshots the state may be built from, and the one that is being read.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    /// The last record of the snapshot that the present state comes from.
    origin: Option<SequenceId>,
    /// The shared storage is searched before the whole log is read.
    search_first: bool,
    /// Announced snapshots that this master has taken while it led: no other master's digest has confirmed them.
    vouched_by_itself: Vec<SequenceId>,
    /// Snapshots that must not be used.
    without: Vec<SequenceId>,
    last_id: RestoreId,
    /// The one that was asked for last, until the host has answered.
    asked: Option<RestoreId>,
    /// The reason for the attempt under way: the first record that the log still has; and when it is given up.
    running: Option<(SequenceId, Monotonic)>,
    /// Earliest time of the next attempt.
    retry_at: Monotonic,
}

impl Restoring {
    pub(super) fn new(restored: Option<&Restored>, has_store: bool) -> Self {
        let origin = restored.map(|restored| restored.at.last);
        Self { origin, search_first: has_store && origin.is_none(), ..Self::default() }
    }

    /// Begins anew with another log. The host may still be reading a snapshot of the old one, whose answer is ignored.
    pub(super) fn forget_log(&mut self, has_store: bool) {
        let (last_id, asked) = (self.last_id, self.asked);
        *self = Self { last_id, asked, search_first: has_store, ..Self::default() };
    }

    /// Returns whether the state must not be built from this snapshot.
    pub(super) fn suspects(&self, last: SequenceId) -> bool {
        self.without.contains(&last)
    }

    /// Records that this master has announced a snapshot while it led. Those that it holds no longer are forgotten.
    pub(super) fn vouched_by_itself(&mut self, last: SequenceId, held: &[HeldSnapshot]) {
        self.vouched_by_itself.push(last);
        self.vouched_by_itself.retain(|last| held.iter().any(|held| held.sequence_id == last.0));
    }
}

impl Node {
    /// Records which snapshots a state that is in doubt must not be built from: the one that it comes from, unless a
    /// `Digest` has confirmed it, and those that this master has written while it led and that no other one's `Digest`
    /// has confirmed since.
    pub(in crate::replication::node) fn suspect_snapshots(&mut self) {
        let trust = &self.following.trust;
        let (in_doubt, unconfirmed) = (trust.doubt().is_some(), trust.is_unconfirmed());
        let Some(snapshots) = &mut self.snapshots else { return };
        let restoring = &mut snapshots.restoring;
        let origin = restoring.origin.take();
        let own = std::mem::take(&mut restoring.vouched_by_itself);
        if in_doubt {
            restoring.without.extend(origin.filter(|_| unconfirmed).into_iter().chain(own));
        }
    }

    /// Records that a `Digest` of another master's term has matched.
    pub(in crate::replication::node) fn digest_of_another_matched(&mut self, digest: SequenceId) {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.restoring.vouched_by_itself.retain(|last| *last >= digest);
        }
    }

    /// Begins to look for a snapshot before the whole log is read, if there is shared storage and this is the first
    /// time. Returns whether it does.
    pub(in crate::replication::node) fn search_snapshot_first(&mut self, now: Monotonic, log: LogId) -> bool {
        let fresh = self.following.position.applied == SequenceId(0);
        let Some(snapshots) = &mut self.snapshots else { return false };
        fresh
            && std::mem::take(&mut snapshots.restoring.search_first)
            && self.restore(now, log, SequenceId(1))
    }

    /// Begins to read a snapshot that has all records before `first`. Returns false if it cannot be done now.
    pub(in crate::replication::node) fn restore(
        &mut self,
        now: Monotonic,
        log: LogId,
        first: SequenceId,
    ) -> bool {
        let history = self.history;
        let base = self.recovery_of(log).and_then(|recovered| recovered.base);
        let Some(snapshots) = &mut self.snapshots else { return false };
        let restoring = &mut snapshots.restoring;
        // A host that hangs has one thread that does, not one for each attempt.
        if restoring.asked.is_some() || now < restoring.retry_at {
            return false;
        }
        restoring.last_id.0 += 1;
        restoring.asked = Some(restoring.last_id);
        restoring.running = Some((first, now.plus(TIMEOUT)));
        let wanted = Wanted { log, first, base, without: restoring.without.clone() };
        let id = restoring.last_id;
        self.commands.push(Command::Snapshot(SnapshotJob::Restore { id, wanted, history }));
        true
    }

    /// Gives up waiting for a snapshot that takes too long.
    pub(in crate::replication::node) fn restore_overdue(&mut self, now: Monotonic) {
        let running =
            self.snapshots.as_mut().and_then(|it| it.restoring.running.take_if(|(_, until)| now >= *until));
        if let Some((first, _)) = running {
            tracing::warn!("the snapshot takes too long to be read");
            self.restore_failed(now, first);
        }
    }

    /// Handles that the host has read a snapshot, or found none.
    pub(in crate::replication::node) fn snapshot_restored(
        &mut self,
        now: Monotonic,
        id: RestoreId,
        restored: Option<Restored>,
    ) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let restoring = &mut snapshots.restoring;
        if restoring.asked != Some(id) {
            return;
        }
        restoring.asked = None;
        // It was given up meanwhile.
        let Some((first, _)) = restoring.running.take() else { return };
        if !self.following.is_restoring() || !matches!(self.phase, Phase::Standby | Phase::Campaigning(_)) {
            return;
        }
        match restored.filter(|restored| unusable(&restored.at, self.history.as_ref()).is_none()) {
            Some(restored) => self.install(restored),
            None => self.restore_failed(now, first),
        }
    }

    /// Continues from the state of a snapshot.
    fn install(&mut self, restored: Restored) {
        let Restored { incarnation, at } = restored;
        tracing::info!(
            sequence_id = at.last.0,
            objects = incarnation.engine.len(),
            "continuing from a snapshot"
        );
        let old = std::mem::replace(&mut self.incarnation, incarnation);
        old.engine.seal();
        self.commands.push(Command::Discard(old));
        self.following.continue_from(&at);
        self.history = History::newer(self.history, Some(History(at)));
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.restoring.origin = Some(at.last);
            snapshots.started_from = Some(at.last);
        }
        self.read_log();
    }

    fn restore_failed(&mut self, now: Monotonic, first: SequenceId) {
        if first == SequenceId(1) {
            // The log is whole.
            return self.read_log();
        }
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.restoring.retry_at = now.plus(RETRY);
        }
        self.stuck_without_snapshot(now, first);
    }

    /// Records that this node cannot follow, because the log begins after what it has.
    pub(in crate::replication::node) fn stuck_without_snapshot(&mut self, now: Monotonic, first: SequenceId) {
        let (applied, last) = (self.following.position.applied.0, first.0.saturating_sub(1));
        let suits = |held: &&HeldSnapshot| held.sequence_id >= last;
        let others = self.seen_keys.members().filter(|member| member.name != self.settings.name);
        let holders = others.filter_map(|member| {
            let newest = member.snapshots.iter().find(suits)?;
            Some(format!("{} holds one up to record {}", member.name, newest.sequence_id))
        });
        let holders: Vec<String> = holders.take(MAX_NAMED).collect();
        let recovered = self.following.recovered.as_ref().and_then(|recovered| recovered.base);
        let base = match recovered.filter(|base| base.last.0 >= last) {
            Some(base) => {
                format!(
                    " (the one up to record {} of log {}, from which it was recovered, is one)",
                    base.last.0, base.log
                )
            }
            None => String::new(),
        };
        let holders =
            if holders.is_empty() { "no other member holds one".to_owned() } else { holders.join(", ") };
        let place = match &self.snapshots {
            None => "this master has no --data_dir, where it would look for one",
            Some(snapshots) if snapshots.sharing.is_some() => {
                "there is none in --data_dir or --snapshot_store"
            }
            Some(_) => "there is none in --data_dir, and no --snapshot_store is set",
        };
        self.stuck(
            now,
            format!(
                "the log begins at record {}, and this master has records up to {applied}: it needs a snapshot that \
                 has all up to {last}{base}, and {place}; {holders}",
                first.0
            ),
        );
    }
}
