//! Compaction of the log: the primary moves the floor and deletes the batches below it (INV-6).
//!
//! The order is what makes it safe. The primary writes the floor, fenced by its term (R1). Only then does it read the
//! needs of the members, and it deletes nothing that one of them needs. A standby writes its need first and reads the
//! log and its floor then. So of a standby that begins to read and a primary that begins to delete, at least one sees
//! the other. Deletions are fenced by the value of the floor, which names the log: a late one finds another floor and
//! does nothing, or deletes what may be missing anyway, and never a batch of another log.
//!
//! Nothing is decided or deleted before this primary serves, or during a hand-over.

mod deciding;
mod patience;
mod steps;

use std::time::Duration;

use bytes::Bytes;

use super::{CallId, Node, Phase, Stage};
use crate::cluster::log_end::LogId;
use crate::cluster::log_floor::{FloorState, LogFloor};
use crate::engine::types::SequenceId;
use crate::replication::time::Monotonic;

use patience::Patience;

/// Time between two decisions.
const INTERVAL: Duration = Duration::from_secs(1);

/// Delay before a call without an answer is made again.
const RETRY: Duration = Duration::from_millis(200);

/// Delay after an obstacle that only a person can remove.
const RETRY_LATER: Duration = Duration::from_secs(10);

/// Records whose batches one transaction deletes at first. etcd serves nothing else while it does.
const FIRST_CHUNK: u64 = 1_000;

/// Most records whose batches one transaction deletes.
const MAX_CHUNK: u64 = 1 << 20;

/// Batches that one transaction should delete: about five milliseconds of etcd's time.
const CHUNK_BATCHES: u64 = 500;

/// The compaction of the log in one term.
#[derive(Debug)]
pub(super) struct Compaction {
    step: Step,
    call: Option<CallId>,
    /// Earliest time of the next step.
    due: Monotonic,
    /// The value of the floor key, as it was last read or written; `None` if there is none.
    key: Option<Bytes>,
    /// The floor of the log that this primary writes; zero if there is none.
    floor: SequenceId,
    /// Batches up to this record were deleted by this primary, or were not there.
    cleared: SequenceId,
    /// Records whose batches the next transaction deletes.
    chunk: u64,
    patience: Patience,
    state: FloorState,
    /// Since when the floor has stayed for reasons that the next snapshots do not change.
    stuck_since: Option<Monotonic>,
    /// The reason that was logged last.
    warned: Option<String>,
    /// The floor waits for a snapshot of this primary.
    waits_for_own: bool,
    /// Batches that this primary has deleted.
    deleted: u64,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read the floor key.
    ReadFloor,
    /// Decide whether the floor moves, from the member keys as this node last saw them.
    Decide,
    WriteFloor(LogFloor),
    /// Read what members need and hold, after the floor was written.
    ReadNeeds,
    /// Find the first batch below the floor.
    FindFirst,
    /// Delete batches from the one that begins with this record.
    Delete(SequenceId),
}

/// Why the floor stays, for people.
struct Obstacle {
    reason: String,
    /// After how long it is logged as a warning; `None` if the next snapshots change it.
    lasting: Option<Duration>,
}

impl Compaction {
    pub(super) fn new() -> Self {
        Self {
            step: Step::ReadFloor,
            call: None,
            due: Monotonic::default(),
            key: None,
            floor: SequenceId(0),
            cleared: SequenceId(0),
            chunk: FIRST_CHUNK,
            patience: Patience::default(),
            state: FloorState::default(),
            stuck_since: None,
            warned: None,
            waits_for_own: false,
            deleted: 0,
        }
    }

    fn go_on(&mut self, step: Step, due: Monotonic) {
        (self.step, self.due) = (step, due);
    }

    /// Records why the floor stays, or batches below it do. Warns once if that lasts and the next snapshots do not change
    /// it.
    fn held(&mut self, now: Monotonic, obstacle: Obstacle) {
        let Obstacle { reason, lasting } = obstacle;
        if lasting.is_none() {
            self.stuck_since = None;
        } else if let Some(lasting) = lasting
            && now.since(*self.stuck_since.get_or_insert(now)) >= lasting
            && self.warned.as_ref() != Some(&reason)
        {
            tracing::warn!(reason, floor = self.floor.0, "the log cannot be truncated further, so it grows");
            self.warned = Some(reason.clone());
        }
        self.state.held_by = Some(reason);
        self.state.can_move = lasting.is_none();
    }
}

impl Node {
    /// Returns the floor of the log as this primary reports it; `None` if it does not lead.
    pub(super) fn floor_state(&self) -> Option<FloorState> {
        match &self.phase {
            Phase::Leading(leadership) => {
                let compaction = &leadership.compaction;
                Some(FloorState { floor: compaction.floor.0, ..compaction.state.clone() })
            }
            _ => None,
        }
    }

    /// Returns whether the floor waits for a snapshot of this primary.
    pub(super) fn floor_waits_for_own(&self) -> bool {
        matches!(&self.phase, Phase::Leading(leadership) if leadership.compaction.waits_for_own)
    }

    /// Returns the batches that this primary has deleted in its term.
    pub(super) fn batches_deleted(&self) -> u64 {
        match &self.phase {
            Phase::Leading(leadership) => leadership.compaction.deleted,
            _ => 0,
        }
    }

    /// Returns the floor of a log, as far as this node knows it; zero if it knows none.
    pub(super) fn known_floor(&self, log: LogId) -> SequenceId {
        match &self.phase {
            Phase::Leading(leadership) => leadership.compaction.floor,
            _ => {
                let read = self.following.floor.filter(|floor| floor.log == log).map(|floor| floor.last);
                let told = self.seen_keys.members().filter_map(|member| member.floor.as_ref());
                let told = told.map(|told| SequenceId(told.floor)).max();
                read.max(told).unwrap_or_default()
            }
        }
    }

    /// Takes the next step of compaction, if one is due and nothing else is going on.
    pub(super) fn compact(&mut self, now: Monotonic) {
        let stopping = self.stopping;
        let Some(compaction) = self.compaction() else { return };
        if stopping || compaction.call.is_some() || now < compaction.due {
            return;
        }
        if compaction.step == Step::Decide {
            self.decide_floor(now);
        }
        let Some(request) = self.compaction_request() else { return };
        let call = self.call(super::Purpose::Compaction, request);
        if let Some(compaction) = self.compaction() {
            compaction.call = Some(call);
        }
    }

    /// Returns the compaction of this primary if it serves, and no hand-over is under way.
    fn compaction(&mut self) -> Option<&mut Compaction> {
        match &mut self.phase {
            Phase::Leading(leadership)
                if leadership.stage == Stage::Serving && leadership.handover.is_none() =>
            {
                Some(&mut leadership.compaction)
            }
            _ => None,
        }
    }
}
