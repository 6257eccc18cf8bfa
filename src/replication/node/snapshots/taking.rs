//! Decides whether a snapshot can begin, and begins it.

use std::sync::Arc;
use std::time::Duration;

use super::schedule::Share;
use super::{Attempt, Stage};
use crate::cluster::role::Role;
use crate::cluster::snapshot::SnapshotRefused;
use crate::engine::snapshot::BeginError;
use crate::engine::types::{LogTime, SequenceId};
use crate::replication::node::interface::SnapshotJob;
use crate::replication::node::{Command, Leadership, Node, Phase, Stage as Serving};
use crate::replication::snapshot::{self, BeginningCapture, Capture, Progress};
use crate::replication::time::Monotonic;

/// How long a primary has to be alone before it takes snapshots by itself: a standby that is restarted takes its own
/// again soon. With a shorter interval, that.
const ALONE_FOR: Duration = Duration::from_secs(60);

/// How long the records of a primary's snapshot may take to be durable: meanwhile objects that change are kept as they
/// were.
const DURABLE_WITHIN: Duration = Duration::from_secs(10);

/// A snapshot that has just begun.
enum Begun {
    Following(Box<Capture>),
    Leading(Box<BeginningCapture>),
}

/// Returns whether this primary serves, and no hand-over is under way.
fn is_serving(leadership: &Leadership) -> bool {
    leadership.stage == Serving::Serving && leadership.handover.is_none()
}

impl Node {
    /// Takes a snapshot if one is due, and announces one that a `Digest` has confirmed.
    pub(in crate::replication::node) fn keep_snapshots(&mut self, now: Monotonic) {
        if self.snapshots.is_none() {
            return;
        }
        if let Some(reason) = self.distrusts_snapshot() {
            self.cancel_snapshot(reason);
        }
        self.write_snapshot(now);
        self.announce_snapshot();
        self.share_snapshot(now);
        self.prove_copy(now);
        self.note_alone(now);
        let (changed, log_time) = (self.incarnation.engine.last_change(), self.incarnation.engine.log_time());
        self.note_unsaved(now, changed, log_time);
        let by_itself = self.takes_by_itself(now);
        let Some(snapshots) = &self.snapshots else { return };
        let asked = !snapshots.waiting.is_empty();
        if !matches!(snapshots.stage, Stage::Idle) || !(asked || by_itself) {
            return;
        }
        let share = self.share_of_interval();
        let Some(snapshots) = &mut self.snapshots else { return };
        if !asked && !snapshots.schedule.is_due(now, log_time, share) {
            return;
        }
        // The digests of a quiet primary are no reason for another one.
        let has_changed = snapshots.held.is_empty() || snapshots.holds(changed).is_none();
        match self.snapshot_refusal(now, asked) {
            None if asked || has_changed => self.begin_snapshot(now),
            None => {
                if let Some(snapshots) = &mut self.snapshots {
                    snapshots.schedule.passed(log_time);
                }
            }
            Some(refusal) if asked => {
                let refused = self.snapshots.as_mut().map(|snapshots| snapshots.refuse_all(&refusal));
                self.commands.extend(refused.into_iter().flatten());
            }
            Some(_) => {}
        }
    }

    /// Returns the share of this master in the interval: standbys take their snapshots at different times.
    fn share_of_interval(&self) -> Share {
        if !matches!(self.phase, Phase::Standby) {
            return Share { before: 0, of: 1 };
        }
        let own = self.settings.name.as_str();
        let others = self.seen_keys.members().filter(|it| it.role == Role::Standby && it.name != own);
        others.fold(Share { before: 0, of: 1 }, |share, other| Share {
            before: share.before + usize::from(other.name.as_str() < own),
            of: share.of + 1,
        })
    }

    /// Returns whether no standby is caught up, so that this primary has to take snapshots.
    fn is_alone(&self) -> bool {
        !self.seen_keys.members().any(|member| {
            member.name != self.settings.name && member.role == Role::Standby && member.caught_up
        })
    }

    /// Notes since when this primary is alone.
    fn note_alone(&mut self, now: Monotonic) {
        let alone =
            matches!(&self.phase, Phase::Leading(leadership) if is_serving(leadership)) && self.is_alone();
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.alone_since = alone.then(|| snapshots.alone_since.unwrap_or(now));
        }
    }

    /// Notes since when there are changes that no snapshot has, once this master knows the log to its end.
    fn note_unsaved(&mut self, now: Monotonic, changed: SequenceId, log_time: LogTime) {
        let caught_up = matches!(self.phase, Phase::Leading(_)) || self.following.is_caught_up(now);
        let Some(snapshots) = &mut self.snapshots else { return };
        if caught_up {
            let newest = snapshots.held.first().map(|held| SequenceId(held.sequence_id));
            snapshots.unsaved.note(newest, changed, log_time);
        } else {
            snapshots.unsaved.forget();
        }
    }

    /// Returns whether this master takes snapshots without a request.
    fn takes_by_itself(&self, now: Monotonic) -> bool {
        let Some(snapshots) = &self.snapshots else { return false };
        match self.phase {
            Phase::Standby => true,
            Phase::Leading(_) => {
                let patience = snapshots.schedule.interval().map_or(ALONE_FOR, |it| it.min(ALONE_FOR));
                snapshots.alone_since.is_some_and(|since| now.since(since) >= patience)
                    || self.floor_waits_for_own()
            }
            Phase::Campaigning(_) | Phase::Leaving(_) | Phase::Stopped => false,
        }
    }

    /// Returns why what this node has begun to write must never be announced.
    fn distrusts_snapshot(&self) -> Option<&'static str> {
        let led = self.snapshots.as_ref()?.attempt()?.led;
        match &self.phase {
            Phase::Standby | Phase::Campaigning(_) if led.is_some() => {
                return Some("this master does not lead any more");
            }
            Phase::Standby | Phase::Campaigning(_) => {}
            Phase::Leading(leadership) if led == Some(leadership.term) => {
                return (!is_serving(leadership)).then_some("the primary is being changed");
            }
            Phase::Leading(_) | Phase::Leaving(_) | Phase::Stopped => {
                planted!(AnnounceAsPrimary => return None);
                return Some("this master does not follow any more");
            }
        }
        self.distrusts_state()
    }

    /// Returns why no snapshot of this standby's state can be relied on.
    fn distrusts_state(&self) -> Option<&'static str> {
        let trust = &self.following.trust;
        if trust.doubt().is_some() || trust.is_rebuilding() {
            return Some("the state of this master is in doubt");
        }
        let against = trust.against(self.following.position.term).is_some();
        against.then_some("the primary of this term has logged a wrong digest")
    }

    /// Returns why no snapshot can begin now. A primary that is not alone takes one only when the floor waits for it.
    pub(super) fn snapshot_refusal(&self, now: Monotonic, asked: bool) -> Option<SnapshotRefused> {
        if self.snapshots.is_none() {
            return Some(SnapshotRefused::NoDataDir);
        }
        let role = match &self.phase {
            _ if self.stopping => Some("is stopping"),
            Phase::Standby => None,
            Phase::Leading(leadership)
                if is_serving(leadership) && (self.is_alone() || !asked && self.floor_waits_for_own()) =>
            {
                return None;
            }
            Phase::Leading(_) => Some("leads"),
            Phase::Campaigning(_) => Some("stands for election"),
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
        self.distrusts_state().map(|why| SnapshotRefused::Failed(why.to_owned()))
    }

    fn begin_snapshot(&mut self, now: Monotonic) {
        let led = match &self.phase {
            Phase::Leading(leadership) => Some(leadership.term),
            _ => None,
        };
        let begun = match led {
            Some(_) => self.begin_leading_snapshot(),
            None => self.begin_following_snapshot(),
        };
        let Some((last, begun)) = begun else { return };
        let log_time = self.incarnation.engine.log_time();
        let Some(snapshots) = &mut self.snapshots else { return };
        snapshots.last_id.0 += 1;
        snapshots.schedule.passed(log_time);
        let attempt = Attempt { id: snapshots.last_id, last, led, began: now, progress: Arc::default() };
        tracing::debug!(sequence_id = last.0, "taking a snapshot");
        match begun {
            Begun::Leading(capture) => snapshots.stage = Stage::Beginning(attempt, *capture),
            Begun::Following(capture) => self.submit_snapshot(attempt, capture),
        }
        self.write_snapshot(now);
    }

    /// Begins a snapshot after the batch that this standby has applied last.
    fn begin_following_snapshot(&mut self) -> Option<(SequenceId, Begun)> {
        let at = self.following.position.at()?;
        match snapshot::begin(&self.incarnation.engine, &at) {
            Ok(capture) => Some((at.last, Begun::Following(Box::new(capture)))),
            // One that was cancelled is still being let go.
            Err(BeginError::UnderWay) => None,
            // The state has a change that is not in the log.
            Err(error @ BeginError::Elsewhere { .. }) => {
                self.distrust(error.to_string());
                None
            }
        }
    }

    /// Begins a snapshot after the last record of this primary, which need not be durable yet.
    fn begin_leading_snapshot(&self) -> Option<(SequenceId, Begun)> {
        let capture = snapshot::begin_leading(&self.incarnation).ok()?;
        Some((capture.last(), Begun::Leading(Box::new(capture))))
    }

    fn submit_snapshot(&mut self, attempt: Attempt, capture: Box<Capture>) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let (id, progress) = (attempt.id, Arc::<Progress>::clone(&attempt.progress));
        snapshots.stage = Stage::Writing(attempt);
        self.commands.push(Command::Snapshot(SnapshotJob::Write { id, capture, progress }));
    }

    /// Writes a primary's snapshot as soon as the batch that it was taken after is durable.
    fn write_snapshot(&mut self, now: Monotonic) {
        let Phase::Leading(leadership) = &self.phase else { return };
        let Some(snapshots) = &mut self.snapshots else { return };
        let Stage::Beginning(attempt, _) = &snapshots.stage else { return };
        let end = leadership.writer.durable_end().filter(|end| end.last >= attempt.last);
        if end.is_none() && now.since(attempt.began) < DURABLE_WITHIN {
            return;
        }
        if let Stage::Beginning(attempt, capture) = std::mem::replace(&mut snapshots.stage, Stage::Idle) {
            match end.and_then(|end| capture.after(end)) {
                Some(capture) => self.submit_snapshot(attempt, Box::new(capture)),
                None => {
                    let error = "the log was not written up to the record at which it began".to_owned();
                    let refused = snapshots.failed(now, error);
                    self.commands.extend(refused);
                }
            }
        }
    }
}
