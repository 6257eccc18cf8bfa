//! The log is truncated by the masters. What is checked is what they write to etcd: the floor rests on snapshots that
//! really lie where they say, no batch is deleted above it, or of another log, and none that a member needed before the
//! floor was written (INV-6).

use std::collections::BTreeMap;

use bytes::Bytes;
use moonkeeper::cluster::log_end::LogId;
use moonkeeper::cluster::log_floor::LogFloor;
use moonkeeper::cluster::member::{BootId, ElectionValue, MemberValue};
use moonkeeper::coordination::types::{Change, KeyValue, LeaseId, Op, Request, Txn};
use moonkeeper::engine::types::SequenceId;

use super::plan::SECOND;
use super::truth::Cause;
use super::{Event, Sim};

type Broken = (&'static str, String);

/// What a process needs of the log, as etcd has it, and since which revision.
struct Need {
    boot: BootId,
    after: SequenceId,
    since: u64,
}

/// What etcd has about the floor of the log.
#[derive(Default)]
pub struct Floors {
    /// Every floor that was written, and the revision that did it.
    written: Vec<(SequenceId, u64)>,
    needs: BTreeMap<Bytes, Need>,
    /// The process that leads, or led last.
    leader: BootId,
    /// A batch of another log lies beside those of this one.
    has_other: bool,
}

impl Floors {
    fn member(&mut self, entry: &KeyValue) {
        let value: Option<MemberValue> = serde_json::from_slice(&entry.value).ok();
        let need = value.and_then(|value| Some((value.boot_id, value.needs?)));
        let Some((boot, need)) = need else {
            self.needs.remove(&entry.key);
            return;
        };
        let after = SequenceId(need.after);
        let before = self.needs.get(&entry.key).filter(|it| it.boot == boot && it.after <= after);
        let since = before.map_or(entry.mod_revision, |before| before.since);
        self.needs.insert(entry.key.clone(), Need { boot, after, since });
    }

    /// The revision from which on this record could be deleted.
    fn allowed_at(&self, last: SequenceId) -> Option<u64> {
        self.written.iter().find(|(floor, _)| *floor >= last).map(|(_, revision)| *revision)
    }

    fn deleted(&self, first: SequenceId, last: SequenceId) -> Result<(), Broken> {
        let batch = format!("the batch {}..{}", first.0, last.0);
        let Some(allowed_at) = self.allowed_at(last) else {
            let floor = self.written.last().map_or(0, |floor| floor.0.0);
            return Err(("INV-6", format!("{batch} was deleted, and the floor is {floor}")));
        };
        let needed = |need: &&Need| need.after < last && need.since < allowed_at && need.boot != self.leader;
        match self.needs.values().find(needed) {
            None => Ok(()),
            Some(Need { boot, after, since }) => {
                let what = format!(
                    "{batch} was deleted, and {} needs what comes after {} since revision {since}, the floor is of {allowed_at}",
                    boot.0, after.0
                );
                Err(("INV-6", what))
            }
        }
    }
}

impl Sim {
    /// How many masters have to hold a snapshot. Without shared storage a master finds only its own, so all do.
    pub fn snapshot_copies(&self) -> usize {
        if self.disks.has_store() { self.plan.masters.min(2) } else { self.plan.masters }
    }

    /// What a change in etcd means for what may be deleted.
    pub fn check_compaction(&mut self, change: &Change, cause: Cause) -> Result<(), Broken> {
        let members = self.keys.members();
        match change {
            Change::Put(entry) if members.contains(&entry.key) => self.floors.member(entry),
            Change::Deleted { key, .. } if members.contains(key) => _ = self.floors.needs.remove(key),
            Change::Put(entry) if entry.key == self.keys.election() => {
                let value = serde_json::from_slice::<ElectionValue>(&entry.value);
                self.floors.leader = value.map_or(BootId(0), |value| value.boot_id);
            }
            Change::Put(entry) if entry.key == self.keys.floor() && cause != Cause::Hand => {
                return self.floor_written(entry);
            }
            Change::Deleted { key, .. } if self.keys.batches().contains(key) && cause != Cause::Hand => {
                let first = self.truth.log().and_then(|log| self.keys.first_of_batch(log, key));
                let Some(first) = first else {
                    return Err(("INV-6", "a batch of another log was deleted".into()));
                };
                let last = self.truth.batches.range(first..).next().map_or(first, |(last, _)| *last);
                return self.floors.deleted(first, last);
            }
            _ => {}
        }
        Ok(())
    }

    fn floor_written(&mut self, entry: &KeyValue) -> Result<(), Broken> {
        let floor = LogFloor::from_bytes(&entry.value).map_err(|why| ("INV-6", why.to_string()))?;
        if Some(floor.log) != self.truth.log() {
            return Err(("INV-6", format!("{floor:?} is of another log")));
        }
        note!(self, "the floor is {}", floor.last.0);
        self.counts.truncations += 1;
        self.floors.written.push((floor.last, entry.mod_revision));
        if !std::mem::replace(&mut self.floors.has_other, true) {
            self.after(1, Event::OtherLog);
        }
        self.check_floor(floor.last)
    }

    /// A batch of another log comes to lie beside those of this one: no deletion may touch it. Masters that watch take
    /// it for damage, and read their own log again.
    pub fn leave_other_log(&mut self) {
        if self.is_damaged() {
            return self.after(SECOND, Event::OtherLog);
        }
        note!(self, "by hand: a batch of another log");
        let key = self.keys.batch(LogId(1), SequenceId(1));
        let put = Op::Put { key, value: Bytes::from_static(b"of another log"), lease: LeaseId(0) };
        let _ = self.by_hand(&Request::Txn(Txn { success: vec![put], ..Txn::default() }));
        self.watchdog.trouble(self.now + 4 * SECOND);
        self.look(Cause::Hand);
    }

    /// What lies below the floor is in two snapshots. Each is in proven shared storage or in as many directories as it
    /// has to be, of those that outlive their machines.
    fn check_floor(&self, floor: SequenceId) -> Result<(), Broken> {
        let wanted = self.snapshot_copies();
        let durable = |index: usize| {
            let files = if self.disks.is_durable() { self.announced_files(index) } else { Vec::new() };
            files.into_iter().filter(|last| *last >= floor).collect::<Vec<_>>()
        };
        let held: Vec<Vec<SequenceId>> = (0..self.masters.len()).map(durable).collect();
        let shared: Vec<(usize, SequenceId, bool)> =
            self.disks.shared(self.now).filter(|it| it.1 >= floor).collect();
        let covered = |in_range: &dyn Fn(SequenceId) -> bool| {
            shared.iter().any(|(_, last, proven)| *proven && in_range(*last))
                || held.iter().filter(|held| held.iter().any(|last| in_range(*last))).count() >= wanted
        };
        let all = held.iter().flatten().copied().chain(shared.iter().map(|it| it.1));
        let split =
            all.clone().any(|border| covered(&|last| last > border) && covered(&|last| last <= border));
        // A member that has taken another one since has removed the oldest.
        let two_each = held.iter().filter(|held| held.len() >= 2).count() >= wanted;
        let two_shared = (0..self.masters.len()).any(|by| {
            let of = || shared.iter().filter(|it| it.0 == by);
            of().count() >= 2 && of().any(|it| it.2)
        });
        if split || two_each || two_shared {
            return Ok(());
        }
        let what =
            format!("the floor is {}, {wanted} copies are wanted, held {held:?} shared {shared:?}", floor.0);
        Err(("INV-6", what))
    }
}
