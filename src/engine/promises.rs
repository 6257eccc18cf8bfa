//! Promises to readers that no record says yet: per shard, lists of the objects and groups that have one, so that
//! replicating promises costs as much as there are of them and nothing for all other objects.
//!
//! Objects are named by slot, which readers know without asking the sequencer. Bits in the object say which lists its
//! slot is on. A slot may since belong to another object: that one has its own bits.

use std::sync::Arc;

use super::group::Group;
use super::object::Object;
use super::shard::Shard;
use super::types::LogTime;

/// At most so many objects are looked at before the lock of their shard is given back.
const PIECE: usize = 1024;

/// Fewer entries than this are never worth tidying up.
const SMALL: usize = 256;

/// The lists that an object may be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Half the time of the last replicated promise has passed: worth a record.
    Due,
    /// Replicated a short while ago: only a hand-over needs the rest.
    Early,
}

impl List {
    /// Its bit in the object.
    #[must_use]
    pub fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The promises of one shard.
#[derive(Debug, Default)]
pub struct Promises {
    due: Vec<u32>,
    early: Vec<u32>,
    /// How many of `early` were left when it was last tidied up.
    early_left: usize,
    /// Groups whose promise covers members that no reader asked for.
    groups: Vec<Arc<Group>>,
    /// How many of these were left when they were last tidied up.
    groups_left: usize,
}

impl Promises {
    /// Adds an object that was just marked as being on that list.
    pub fn add(&mut self, list: List, slot: u32) {
        match list {
            List::Due => self.due.push(slot),
            List::Early => self.early.push(slot),
        }
    }

    /// How many objects and groups are on the lists.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len() + self.early.len() + self.groups.len()
    }

    /// Whether the lists are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a group that was just marked as being on a list.
    pub fn add_group(&mut self, group: Arc<Group>) {
        self.groups.push(group);
    }
}

impl Shard {
    /// Takes the objects off a list and hands those with an unreplicated promise beyond `now` to `visit`.
    pub(super) fn take_promised(&self, list: List, now: LogTime, mut visit: impl FnMut(u32, &Object)) {
        let mut slots = {
            let mut promises = self.promises.lock();
            match list {
                List::Due => std::mem::take(&mut promises.due),
                List::Early => {
                    promises.early_left = 0;
                    std::mem::take(&mut promises.early)
                }
            }
        };
        // Neighbours lie together, and a slot that was reused may be listed more than once.
        slots.sort_unstable();
        slots.dedup();
        for piece in slots.chunks(PIECE) {
            let objects = self.objects.read();
            for slot in piece {
                let Some(object) = objects.at(*slot) else { continue };
                if object.unlist(list) && object.owes_renewal() && object.lease() > now {
                    visit(*slot, object);
                }
            }
        }
    }

    /// Takes the groups off their list whose promise reaches beyond `now`.
    pub(super) fn take_promised_groups(&self, now: LogTime) -> Vec<Arc<Group>> {
        let mut groups = {
            let mut promises = self.promises.lock();
            promises.groups_left = 0;
            std::mem::take(&mut promises.groups)
        };
        groups.retain(|group| {
            group.unlist();
            group.until() > now
        });
        groups
    }

    /// Puts an object back on a list.
    pub(super) fn relist(&self, list: List, slot: u32, object: &Object) {
        if object.list(list) {
            self.promises.lock().add(list, slot);
        }
    }

    /// Forgets promises that have ended or were replicated since, if so many were added that it may be worth it: the
    /// lists stay in proportion to what is on them, and each addition pays for its share of this.
    pub(super) fn tidy_promises(&self, now: LogTime) {
        let (early, groups) = {
            let promises = self.promises.lock();
            let worth = |length: usize, left: usize| length > 2 * left + SMALL;
            let early = worth(promises.early.len(), promises.early_left);
            (early, worth(promises.groups.len(), promises.groups_left))
        };
        if early {
            let mut kept = Vec::new();
            self.take_promised(List::Early, now, |slot, object| {
                if object.list(List::Early) {
                    kept.push(slot);
                }
            });
            let mut promises = self.promises.lock();
            promises.early_left = kept.len();
            promises.early.append(&mut kept);
        }
        if groups {
            let mut kept = self.take_promised_groups(now);
            kept.retain(|group| group.list());
            let mut promises = self.promises.lock();
            promises.groups_left = kept.len();
            promises.groups.append(&mut kept);
        }
    }
}
