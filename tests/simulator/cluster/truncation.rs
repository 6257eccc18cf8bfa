//! The log is cut off behind the floor. The floor itself is computed by the code of the masters, from what really lies in
//! their directories; who deletes the batches is not part of the masters yet, so it is done by hand here.

use moonkeeper::coordination::types::{KeyRange, Op, Request, Txn};
use moonkeeper::engine::types::SequenceId;
use moonkeeper::replication::floor::{Holdings, Need, Place, SnapshotCopy, floor};

use super::plan::SECOND;
use super::truth::Cause;
use super::{Event, Sim};

/// Batches that are deleted at once.
const CHUNK: usize = 100;

impl Sim {
    /// The next time that the log is looked at.
    pub fn truncate_later(&mut self) {
        if self.plan.data_dir && self.disks.is_used() {
            let delay = 2 * SECOND + self.disks.below(6 * SECOND);
            self.after(delay, Event::Truncate);
        }
    }

    /// The batches up to the floor are deleted.
    pub fn truncate(&mut self) {
        self.truncate_later();
        let Some(log) = self.truth.log() else { return };
        if self.is_damaged() {
            return;
        }
        let (copies, needs) = (self.copies(), self.needs());
        let wanted = self.masters.len().min(2);
        let holdings = Holdings { log, floor: self.truth.truncated, copies: &copies, needs: &needs, wanted };
        let Ok(floor) = floor(&holdings) else { return };
        self.check_floor(floor, &copies, &needs, wanted);
        let up_to = floor.min(self.least_second());
        let from = self.truth.truncated;
        let doomed = self.truth.batches.iter().filter(|(last, _)| **last > from && **last <= up_to);
        let keys: Vec<_> = doomed.map(|(_, (header, _))| self.keys.batch(log, header.first)).collect();
        if keys.is_empty() {
            return;
        }
        note!(self, "the log is truncated up to {}: {} batches", up_to.0, keys.len());
        self.counts.truncations += 1;
        self.truth.truncated = up_to;
        for chunk in keys.chunks(CHUNK) {
            let success = chunk.iter().map(|key| Op::Delete(KeyRange::key(key.clone()))).collect();
            let _ = self.by_hand(&Request::Txn(Txn { success, ..Txn::default() }));
        }
        self.look(Cause::Hand);
    }

    /// Who holds which good snapshot.
    fn copies(&self) -> Vec<SnapshotCopy> {
        let of = |index: usize| {
            let name = self.masters[index].name.clone();
            self.good_files(index).map(move |at| SnapshotCopy {
                log: at.log,
                last: at.last,
                place: Place::Member { name: name.clone(), durable: true },
            })
        };
        (0..self.masters.len()).flat_map(of).collect()
    }

    /// What processes that run have not read yet.
    fn needs(&self) -> Vec<Need> {
        let Some(log) = self.truth.log() else { return Vec::new() };
        let need = |master: &super::masters::Master| {
            let node = master.node.as_ref()?;
            Some(Need { member: master.name.clone(), log, after: node.incarnation().engine.applied() })
        };
        self.masters.iter().filter_map(need).collect()
    }

    /// The highest record that every directory has two good snapshots from: there is no other storage here, and the
    /// newest one of a directory may be damaged before the next process of its master reads it.
    fn least_second(&self) -> SequenceId {
        let second = |index| {
            let mut all: Vec<SequenceId> = self.good_files(index).map(|at| at.last).collect();
            all.sort_unstable_by(|one, other| other.cmp(one));
            all.get(1).copied().unwrap_or_default()
        };
        (0..self.masters.len()).map(second).min().unwrap_or_default()
    }

    /// What lies below the floor is in two snapshots, each of them in as many directories as it has to be, and no process
    /// that runs has yet to read it (INV-6).
    fn check_floor(&mut self, floor: SequenceId, copies: &[SnapshotCopy], needs: &[Need], wanted: usize) {
        let needed = needs.iter().find(|need| need.after < floor);
        if let Some(need) = needed {
            let what =
                format!("the floor is {}, and {} has read up to {}", floor.0, need.member, need.after.0);
            self.fail(("INV-6", what));
        }
        let holders = |in_range: &dyn Fn(SequenceId) -> bool| {
            let of = |index: &usize| self.good_files(*index).any(|at| in_range(at.last));
            (0..self.masters.len()).filter(of).count()
        };
        let kept_twice = copies.iter().any(|border| {
            holders(&|last| last > border.last) >= wanted
                && holders(&|last| (floor..=border.last).contains(&last)) >= wanted
        });
        if !kept_twice {
            self.fail(("INV-6", format!("the floor is {}, and the snapshots are {copies:?}", floor.0)));
        }
    }
}
