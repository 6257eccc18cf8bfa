//! Live leases that are not in the log yet: per shard, lists of the objects and groups that have one, so that the cost
//! of replicating leases depends on their number, not on that of all objects.
//!
//! Objects are listed by slot, which readers know without the sequencer. Bits in the object say which lists its slot is
//! on. A listed slot may belong to another object by now: that one has its own bits.

use std::sync::Arc;

use super::group::Group;

/// A list that an object may be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Half the time of the last replicated lease has passed: worth a record.
    Due,
    /// Replicated a short while ago: only a hand-over needs the extension in the log.
    Early,
}

impl List {
    /// Returns its bit in the object.
    #[must_use]
    pub fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Lists of unreplicated leases of one shard.
#[derive(Debug, Default)]
pub struct Promises {
    pub(super) due: Vec<u32>,
    pub(super) early: Vec<u32>,
    /// Length of `early` when it was last tidied up.
    pub(super) early_left: usize,
    /// Groups whose lease covers members that no reader asked for.
    pub(super) groups: Vec<Arc<Group>>,
    /// Length of `groups` when it was last tidied up.
    pub(super) groups_left: usize,
}

impl Promises {
    /// Adds an object that was just marked as being on that list.
    pub fn add(&mut self, list: List, slot: u32) {
        match list {
            List::Due => self.due.push(slot),
            List::Early => self.early.push(slot),
        }
    }

    /// Returns how many objects and groups are on the lists.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.len() + self.early.len() + self.groups.len()
    }

    /// Returns whether the lists are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a group that was just marked as being on a list.
    pub fn add_group(&mut self, group: Arc<Group>) {
        self.groups.push(group);
    }
}
