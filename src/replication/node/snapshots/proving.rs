//! Reads back copies that other members have written to the shared storage. A copy counts for the floor once a second
//! member has: a storage that only its writer can read, or that every machine has for itself, is none.

use std::time::Duration;

use super::{BACKOFF, MAX_BACKOFF};

use crate::cluster::member::MemberValue;
use crate::cluster::role::Role;
use crate::cluster::snapshot::{HeldSnapshot, MAX_PROVEN, ProvenCopy};
use crate::engine::types::SequenceId;
use crate::replication::node::interface::SnapshotJob;
use crate::replication::node::{Command, Node, Phase};
use crate::replication::time::Monotonic;

/// Interval of looking for a copy that is to be read back.
const INTERVAL: Duration = Duration::from_secs(1);

/// The copies that this master has read back, and the one that it is reading.
#[derive(Debug, Default)]
pub(super) struct Proving {
    pub(super) proven: Vec<ProvenCopy>,
    reading: Option<ProvenCopy>,
    /// Earliest time of the next attempt.
    due: Monotonic,
    /// Attempts that failed since the last one that succeeded.
    failures: u32,
    pub(super) error: Option<String>,
}

impl Node {
    /// Has a copy read back that another member wrote and no second one has read yet.
    pub(super) fn prove_copy(&mut self, now: Monotonic) {
        let (log, proves) = (self.log(), self.proves());
        let Some(snapshots) = &mut self.snapshots else { return };
        let proving = &mut snapshots.proving;
        if snapshots.sharing.is_none() || now < proving.due {
            return;
        }
        proving.due = now.plus(INTERVAL);
        let keys = &self.seen_keys;
        // What its writer does not list any more is gone. A member without a key may be back in a moment.
        let lists = |member: &MemberValue, copy: &ProvenCopy| {
            member.snapshots.iter().any(|held| held.shared && copy.is_of(&member.name, held))
        };
        proving.proven.retain(|copy| keys.member(&copy.by).is_none_or(|member| lists(member, copy)));
        let (Some(log), true) = (log, proves) else { return };
        if proving.reading.is_some() || proving.proven.len() >= MAX_PROVEN {
            return;
        }
        let own = self.settings.name.as_str();
        let proven_by = |it: &MemberValue, by: &MemberValue, held: &HeldSnapshot| {
            it.name != by.name && it.proven.iter().any(|copy| copy.is_of(&by.name, held))
        };
        let mut unproven = Vec::new();
        for by in keys.members().filter(|by| by.name != own) {
            for held in by.snapshots.iter().filter(|held| held.shared && held.is_of(log)) {
                let mine = proving.proven.iter().any(|copy| copy.is_of(&by.name, held));
                if !mine && !keys.members().any(|it| proven_by(it, by, held)) {
                    unproven.push((by, held));
                }
            }
        }
        let Some((by, held)) = unproven.into_iter().max_by_key(|(_, held)| held.sequence_id) else { return };
        let (last, by) = (SequenceId(held.sequence_id), by.name.clone());
        let (sequence_id, digest) = (held.sequence_id, held.digest.clone());
        proving.reading = Some(ProvenCopy { log: log.to_string(), sequence_id, by: by.clone(), digest });
        self.commands.push(Command::Snapshot(SnapshotJob::Prove { log, last, by }));
    }

    /// Returns whether this master reads copies back: a standby does, and a primary only if no two standbys are there.
    fn proves(&self) -> bool {
        match self.phase {
            Phase::Standby => true,
            Phase::Leading(_) => self.seen_keys.members().filter(|it| it.role == Role::Standby).count() < 2,
            Phase::Campaigning(_) | Phase::Leaving(_) | Phase::Stopped => false,
        }
    }

    /// Handles that the host has read a copy back, or could not.
    pub(in crate::replication::node) fn snapshot_proven(
        &mut self,
        now: Monotonic,
        last: SequenceId,
        by: &str,
        result: Result<String, String>,
    ) {
        let Some(snapshots) = &mut self.snapshots else { return };
        let proving = &mut snapshots.proving;
        let asked = |copy: &mut ProvenCopy| copy.sequence_id == last.0 && copy.by == by;
        let Some(copy) = proving.reading.take_if(asked) else { return };
        let result = result.and_then(|digest| {
            let differs = || format!("its state has the digest {digest}, {by} names {}", copy.digest);
            if digest == copy.digest { Ok(()) } else { Err(differs()) }
        });
        match result {
            Ok(()) => {
                tracing::info!(sequence_id = last.0, by, "read a copy in the shared storage back");
                (proving.failures, proving.error) = (0, None);
                proving.proven.push(copy);
            }
            Err(error) => {
                let wait = BACKOFF.saturating_mul(1 << proving.failures.min(16)).min(MAX_BACKOFF);
                proving.failures = proving.failures.saturating_add(1);
                proving.due = now.plus(wait);
                let error = format!("the copy of {by} up to record {} cannot be read back: {error}", last.0);
                if proving.error.as_ref() != Some(&error) {
                    tracing::warn!(error, ?wait, "the log below it is not deleted, trying again");
                }
                proving.error = Some(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::log_end::LogId;

    #[test]
    fn a_copy_is_proven_of_one_writer_one_record_and_one_state() {
        let held = HeldSnapshot {
            log: LogId(7).to_string(),
            sequence_id: 9,
            digest: "0a".to_owned(),
            ..HeldSnapshot::default()
        };
        let copy = ProvenCopy {
            log: LogId(7).to_string(),
            sequence_id: 9,
            by: "a".to_owned(),
            digest: "0a".to_owned(),
        };
        assert!(copy.is_of("a", &held) && !copy.is_of("b", &held));
        assert!(!copy.is_of("a", &HeldSnapshot { sequence_id: 8, ..held.clone() }));
        assert!(!copy.is_of("a", &HeldSnapshot { digest: "0b".to_owned(), ..held.clone() }));
        assert!(!copy.is_of("a", &HeldSnapshot { log: LogId(8).to_string(), ..held }));
    }
}
