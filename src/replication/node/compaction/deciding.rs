//! Decides where the floor may be, from the member keys: which snapshots members hold, and what they need.

use std::time::Duration;

use super::{Compaction, INTERVAL, Obstacle, Step};
use crate::cluster::log_end::LogId;
use crate::cluster::log_floor::LogFloor;
use crate::cluster::member::MemberValue;
use crate::engine::types::SequenceId;
use crate::replication::floor::{FloorHeld, Holdings, Need, Place, SnapshotCopy, floor};
use crate::replication::node::{Node, Phase};
use crate::replication::time::Monotonic;

/// How old the member keys may be that a decision rests on: they are read each second.
const FRESH: Duration = Duration::from_secs(3);

/// Returns the announced snapshots of a log that members hold.
pub(super) fn copies<'m>(
    members: impl Iterator<Item = &'m MemberValue> + Clone,
    log: LogId,
) -> Vec<SnapshotCopy> {
    let mut copies = Vec::new();
    for member in members.clone() {
        for held in member.snapshots.iter().filter(|held| held.is_of(log)) {
            let last = SequenceId(held.sequence_id);
            let place = Place::Member { name: member.name.clone(), durable: held.durable };
            copies.push(SnapshotCopy { log, last, place });
            if held.shared {
                let others = || members.clone().filter(|other| other.name != member.name);
                let is_proven =
                    |other: &MemberValue| other.proven.iter().any(|it| it.is_of(&member.name, held));
                let proven = others().any(is_proven) || planted!(FloorOverUnproven);
                copies.push(SnapshotCopy { log, last, place: Place::Shared { proven } });
            }
        }
    }
    copies
}

/// Returns what members still have to read of a log, but for this one.
pub(super) fn needs<'m>(
    members: impl Iterator<Item = &'m MemberValue>,
    log: LogId,
    own: &str,
) -> Vec<(&'m MemberValue, Need)> {
    let of = |member: &'m MemberValue| {
        let need = member.needs.as_ref().filter(|need| need.is_of(log) && member.name != own)?;
        Some((member, Need { member: member.name.clone(), log, after: SequenceId(need.after) }))
    };
    members.filter_map(of).collect()
}

/// For so long a setting that lets no floor move may be about to change: a cluster is being started.
const SOON: Duration = Duration::from_secs(60);

/// A cluster that is young has too few snapshots, and so has one whose member has just lost its directory.
const YOUNG: Duration = Duration::from_secs(1_800);

/// Returns why the floor stays.
fn obstacle(held: &FloorHeld, copies: &[SnapshotCopy]) -> Obstacle {
    let lasting = match held {
        FloorHeld::AtSnapshot | FloorHeld::Needed { .. } => None,
        // It takes snapshots, and the next one moves the floor.
        FloorHeld::CannotStart { older, .. } if *older > SequenceId(0) => None,
        FloorHeld::TooFewSnapshots { .. } if copies.is_empty() => {
            let reason =
                "no member holds a snapshot of it; a master without --data_dir takes none".to_owned();
            return Obstacle { reason, lasting: Some(SOON) };
        }
        FloorHeld::TooFewSnapshots { .. } | FloorHeld::CannotStart { .. } => Some(YOUNG),
        FloorHeld::Ephemeral => Some(SOON),
    };
    Obstacle { reason: held.to_string(), lasting }
}

impl Node {
    /// Decides whether the floor moves, and what is done next.
    pub(super) fn decide_floor(&mut self, now: Monotonic) {
        let Some(log) = self.log() else { return };
        let waits_for_own = self.waits_for_own(log);
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let compaction = &mut leadership.compaction;
        compaction.waits_for_own = waits_for_own;
        let keys = &self.seen_keys;
        if keys.read_at().is_none_or(|read_at| now.since(read_at) > FRESH) {
            return compaction.go_on(Step::Decide, now.plus(INTERVAL));
        }
        let copies = copies(keys.members().collect::<Vec<_>>().into_iter(), log);
        let needs = needs(keys.members(), log, &self.settings.name);
        let wanted = self.settings.snapshot_copies;
        let members: Vec<String> = keys.members().map(|member| member.name.clone()).collect();
        let none = SequenceId(0);
        let holdings = Holdings { log, floor: none, copies: &copies, needs: &[], members: &members, wanted };
        // Where it could be if no member needed the log.
        let highest = floor(&holdings).unwrap_or_default();
        let holding = needs.iter().filter(|(_, need)| need.after < highest);
        for name in compaction.patience.note(now, holding.map(|(it, _)| (it.name.as_str(), it.boot_id))) {
            tracing::warn!(
                member = name,
                "this member has needed the log for so long that it is not waited for any more: it may have to start \
                 from a snapshot"
            );
        }
        let left =
            |it: &&(&MemberValue, Need)| !compaction.patience.is_cancelled(now, &it.0.name, it.0.boot_id);
        let needs: Vec<Need> = needs.iter().filter(left).map(|(_, need)| need.clone()).collect();
        let decided = floor(&Holdings { floor: compaction.floor, needs: &needs, ..holdings });
        let alone = members.len() < wanted;
        let floor = decided.map_err(|held| match held {
            FloorHeld::TooFewSnapshots { .. } if alone => {
                let live = members.len();
                let reason =
                    format!("{live} of the {wanted} members that --snapshot_copies asks for are live");
                Obstacle { reason, lasting: Some(SOON) }
            }
            held => obstacle(&held, &copies),
        });
        compaction.decided(now, log, floor);
    }

    /// Returns whether the floor waits for a snapshot of this primary, which takes none as long as there are standbys:
    /// without shared storage it starts from its own when it comes back.
    fn waits_for_own(&self, log: LogId) -> bool {
        let Some(snapshots) = self.snapshots.as_ref().filter(|it| it.is_only_place()) else { return false };
        let own = snapshots.newest().unwrap_or_default();
        let others = self.seen_keys.members().filter(|member| member.name != self.settings.name);
        let held = others.flat_map(|member| &member.snapshots).filter(|held| held.is_of(log) && held.durable);
        held.filter(|held| held.sequence_id > own.0).count() >= 2
    }
}

impl Compaction {
    fn decided(&mut self, now: Monotonic, log: LogId, decided: Result<SequenceId, Obstacle>) {
        match decided {
            Ok(last) => {
                let floor = LogFloor { log, last };
                planted!(DeleteBeforeFloor => return self.delete_without_floor(floor, now));
                self.go_on(Step::WriteFloor(floor), now);
            }
            Err(obstacle) => {
                self.held(now, obstacle);
                let left = self.cleared < self.floor;
                let step = if left { Step::ReadNeeds } else { Step::Decide };
                self.go_on(step, if left { now } else { now.plus(INTERVAL) });
            }
        }
    }
}
