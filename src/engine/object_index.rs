//! Index of objects by id.
//!
//! Ids are assigned in order, so objects that are written together are neighbours here: adding one needs no search, and
//! growth never moves existing entries.

use std::collections::BTreeMap;

use super::types::ObjectId;
use crate::engine::key::Handle;

/// Locations of objects by id.
#[derive(Debug, Default)]
pub struct ObjectIndex {
    /// Runs of 64 ids each; none is empty.
    runs: BTreeMap<u64, IdRun>,
    /// The number of the last run, and that run, which may be empty: most ids are added here.
    last: (u64, IdRun),
    len: usize,
}

/// A run of 64 ids: which of them exist, and their handles in order.
#[derive(Debug, Default)]
struct IdRun {
    present: u64,
    handles: Vec<Handle>,
}

impl IdRun {
    /// Returns how many ids of the run lie below that of `bit`.
    fn rank(&self, bit: u64) -> usize {
        (self.present & (bit - 1)).count_ones() as usize
    }

    /// Returns the ids of the run, which has that number, and their handles.
    fn ids(&self, number: u64) -> impl Iterator<Item = (ObjectId, Handle)> {
        let mut present = self.present;
        self.handles.iter().map(move |handle| {
            let id = ObjectId(number * 64 + u64::from(present.trailing_zeros()));
            present &= present.wrapping_sub(1);
            (id, *handle)
        })
    }
}

/// Returns the run of an id, and the bit of the id in it.
fn place(id: ObjectId) -> (u64, u64) {
    (id.0 / 64, 1 << (id.0 % 64))
}

impl ObjectIndex {
    /// Returns the location of the object with this id.
    #[must_use]
    pub fn find(&self, id: ObjectId) -> Option<Handle> {
        let (number, bit) = place(id);
        let run = if number == self.last.0 { &self.last.1 } else { self.runs.get(&number)? };
        let there = run.present & bit != 0;
        run.handles.get(run.rank(bit)).filter(|_| there).copied()
    }

    /// Returns the run of that number to add an id to, created if there is none.
    fn run_for(&mut self, number: u64) -> &mut IdRun {
        if number < self.last.0 {
            return self.runs.entry(number).or_default();
        }
        if number > self.last.0 {
            let (old, run) = std::mem::replace(&mut self.last, (number, IdRun::default()));
            if run.present != 0 {
                self.runs.insert(old, run);
            }
        }
        &mut self.last.1
    }

    /// Adds an id, or replaces its handle.
    pub fn insert(&mut self, id: ObjectId, handle: Handle) {
        let (number, bit) = place(id);
        let run = self.run_for(number);
        let rank = run.rank(bit);
        if run.present & bit != 0 {
            run.handles[rank] = handle;
            return;
        }
        run.present |= bit;
        run.handles.insert(rank, handle);
        self.len += 1;
    }

    /// Removes an id, and frees memory when most of its run is empty.
    pub fn remove(&mut self, id: ObjectId) {
        let (number, bit) = place(id);
        let last = number == self.last.0;
        let run = if last { Some(&mut self.last.1) } else { self.runs.get_mut(&number) };
        let Some(run) = run.filter(|run| run.present & bit != 0) else { return };
        run.handles.remove(run.rank(bit));
        run.present &= !bit;
        self.len -= 1;
        if run.handles.is_empty() && !last {
            self.runs.remove(&number);
        } else if run.handles.len() * 4 <= run.handles.capacity() {
            run.handles.shrink_to(run.handles.len() * 2);
        }
    }

    /// Returns all ids from this one on, in order, and the locations of their objects.
    pub fn range(&self, from: ObjectId) -> impl Iterator<Item = (ObjectId, Handle)> {
        let number = from.0 / 64;
        let last = Some((&self.last.0, &self.last.1)).filter(|(last, _)| **last >= number);
        let runs = self.runs.range(number..).chain(last);
        runs.flat_map(|(number, run)| run.ids(*number)).skip_while(move |(id, _)| *id < from)
    }

    /// Returns how many ids there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::collections::hash_map::Entry;

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((any::<bool>(), 0..400_u64), 0..2000)) {
            let mut ids = ObjectIndex::default();
            let mut model: HashMap<u64, Handle> = HashMap::new();
            for (nth, (insert, id)) in steps.into_iter().enumerate() {
                if !insert {
                    ids.remove(ObjectId(id));
                    model.remove(&id);
                } else if let Entry::Vacant(vacant) = model.entry(id) {
                    let handle = Handle::new(nth % 256, nth as u32);
                    ids.insert(ObjectId(id), handle);
                    vacant.insert(handle);
                }
                prop_assert_eq!(ids.len(), model.len());
            }
            let mut all: Vec<(ObjectId, Handle)> = model.iter().map(|(id, at)| (ObjectId(*id), *at)).collect();
            all.sort_unstable_by_key(|(id, _)| *id);
            for from in [0, 1, 63, 64, 200, 399, 400] {
                prop_assert!(ids.range(ObjectId(from)).eq(all.iter().copied().filter(|(id, _)| id.0 >= from)));
            }
            for id in 0..400 {
                prop_assert_eq!(ids.find(ObjectId(id)), model.get(&id).copied());
            }
        }
    }

    #[test]
    fn gives_memory_back() {
        let mut ids = ObjectIndex::default();
        (0..1000).for_each(|id| ids.insert(ObjectId(id), Handle::new(0, id as u32)));
        (1..1000).for_each(|id| ids.remove(ObjectId(id)));
        assert_eq!(ids.runs.len(), 1);
        assert!(ids.runs.values().all(|run| run.handles.capacity() <= 8));
    }
}
