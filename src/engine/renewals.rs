//! Takes live leases off the lists of a shard, to replicate those that have not ended.

use std::sync::Arc;

use super::group::Group;
use super::object::Object;
use super::promises::List;
use super::shard::Shard;
use super::types::LogTime;

/// Most objects that are visited before the lock of their shard is released.
const PIECE: usize = 1024;
/// A list with fewer entries than this is not worth tidying up.
const SMALL: usize = 256;

impl Shard {
    /// Takes up to `most` entries off a list and calls `visit` with those of its objects that have an unreplicated lease
    /// beyond `now`. Returns whether the list has more.
    pub(super) fn take_promised(
        &self,
        list: List,
        now: LogTime,
        most: usize,
        mut visit: impl FnMut(u32, &Object),
    ) -> bool {
        let (mut slots, more) = {
            let mut promises = self.promises.lock();
            let entries = match list {
                List::Due => &mut promises.due,
                List::Early => &mut promises.early,
            };
            let left = entries.len().saturating_sub(most);
            let taken = if left == 0 { std::mem::take(entries) } else { entries.split_off(left) };
            promises.early_left = promises.early_left.min(promises.early.len());
            (taken, left > 0)
        };
        // In order, because neighbouring slots share memory; and a slot that was reused may be listed more than once.
        slots.sort_unstable();
        slots.dedup();
        for piece in slots.chunks(PIECE) {
            let objects = self.read();
            for slot in piece {
                let Some(object) = objects.at(*slot) else { continue };
                if object.unlist(list) && object.owes_renewal() && object.lease() > now {
                    visit(*slot, object);
                }
            }
        }
        more
    }

    /// Empties the list of groups and returns those whose lease ends after `now`.
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

    /// Drops entries whose lease has ended or was replicated since, if enough were added to make it worth the effort:
    /// the lists stay in proportion to the leases that are left, at an amortised constant cost for each addition.
    pub(super) fn tidy_promises(&self, now: LogTime) {
        let (early, groups) = {
            let promises = self.promises.lock();
            let worth = |length: usize, left: usize| length > 2 * left + SMALL;
            let early = worth(promises.early.len(), promises.early_left);
            (early, worth(promises.groups.len(), promises.groups_left))
        };
        if early {
            let mut kept = Vec::new();
            self.take_promised(List::Early, now, usize::MAX, |slot, object| {
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
