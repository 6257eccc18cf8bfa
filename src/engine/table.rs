//! Hash table from keys to the slots of their objects.
//!
//! With millions of objects every look-up in such a table misses the CPU cache, and that is what it costs. Here an
//! entry is at the index that its tag determines or soon after it, in one array (linear probing): the entry, or the gap
//! that shows that there is none, is nearly always in one cache line. Tables that keep marks and entries apart access
//! two.

/// Entry of one object. With the tag the table can grow, and rule out nearly every key other than the one that is
/// looked for, without access to the objects, which are elsewhere in memory.
#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: u32,
    tag: u32,
}

/// Slot of an empty entry: no object has it, because a shard does not hold that many.
const NOWHERE: u32 = u32::MAX;

impl Entry {
    const EMPTY: Self = Self { slot: NOWHERE, tag: 0 };

    fn is_empty(self) -> bool {
        self.slot == NOWHERE
    }
}

/// Entries of the smallest table: one cache line.
const SMALLEST: usize = 8;

/// A table of no more than this many entries is not worth shrinking.
const SMALL: usize = 64;

/// Slots by tag. Several entries may have the same tag.
#[derive(Debug, Default)]
pub struct Table {
    /// A power of two of them, or none. At least three of sixteen are empty, so that every search ends.
    entries: Box<[Entry]>,
    len: usize,
}

/// Returns how many entries a table of this size holds at most.
fn room(size: usize) -> usize {
    size / 16 * 13 + size % 16 / 2
}

impl Table {
    /// Returns the index where an entry with this tag belongs: tags are spread evenly, so their highest bits are too. A
    /// table that doubles keeps the order of its entries.
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Returns the index and the slot of the entry with this tag for which `is_it` is true.
    fn search(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let mut at = self.home(tag);
        loop {
            let entry = *self.entries.get(at)?;
            if entry.is_empty() {
                return None;
            }
            if entry.tag == tag && is_it(entry.slot) {
                return Some((at, entry.slot));
            }
            at = self.after(at);
        }
    }

    /// Returns the slot with this tag for which `is_it` is true.
    #[inline]
    pub fn find(&self, tag: u32, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.search(tag, is_it).map(|(_, slot)| slot)
    }

    /// Loads the memory where an entry with this tag would be into the CPU cache. The number means nothing: it only
    /// depends on that memory, so that the load is not optimised away.
    #[inline]
    pub fn touch(&self, tag: u32) -> u32 {
        self.entries.get(self.home(tag)).map_or(0, |entry| entry.slot)
    }

    /// Adds an entry; a table that is too full doubles first.
    pub fn insert(&mut self, tag: u32, slot: u32) {
        if self.len >= room(self.entries.len()) {
            self.resize((self.entries.len() * 2).max(SMALLEST));
        }
        self.place(Entry { slot, tag });
        self.len += 1;
    }

    fn place(&mut self, entry: Entry) {
        let mut at = self.home(entry.tag);
        while self.entries.get(at).is_some_and(|other| !other.is_empty()) {
            at = self.after(at);
        }
        if let Some(free) = self.entries.get_mut(at) {
            *free = entry;
        }
    }

    /// Removes an entry, and shrinks the table when most of it is empty.
    pub fn remove(&mut self, tag: u32, slot: u32) {
        let Some((mut hole, _)) = self.search(tag, |other| other == slot) else { return };
        let mask = self.entries.len() - 1;
        let mut at = self.after(hole);
        // Each entry behind the hole moves into it, unless the hole lies before the index where that entry belongs.
        while !self.entries[at].is_empty() {
            let home = self.home(self.entries[at].tag);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.entries[hole] = Entry::EMPTY;
        self.len -= 1;
        // With space to grow into, so that the size does not flap.
        if self.entries.len() > SMALL && self.len * 8 < self.entries.len() {
            self.resize((self.len * 4).next_power_of_two().max(SMALLEST));
        }
    }

    fn resize(&mut self, size: usize) {
        let entries = std::mem::replace(&mut self.entries, vec![Entry::EMPTY; size].into_boxed_slice());
        entries.into_iter().filter(|entry| !entry.is_empty()).for_each(|entry| self.place(entry));
    }

    /// Returns how many entries there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Returns a tag of few values, so that many are the same or neighbours, at both ends of the table and in between.
    fn tag() -> impl Strategy<Value = u32> {
        prop_oneof![
            0..4_u32,
            (0..4_u32).prop_map(|low| u32::MAX - low),
            (0..16_u32).prop_map(|high| high << 28),
            any::<u32>()
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in proptest::collection::vec((0..5_u8, tag(), 0..200_u32), 0..3000)) {
            let mut table = Table::default();
            let mut model: BTreeSet<(u32, u32)> = BTreeSet::new();
            for (what, tag, slot) in steps {
                // Three inserts for two removals, so that the table grows.
                if what < 3 {
                    if model.insert((tag, slot)) {
                        table.insert(tag, slot);
                    }
                } else {
                    let gone = model.range((tag, slot)..).next().copied().unwrap_or((tag, slot));
                    model.remove(&gone);
                    table.remove(gone.0, gone.1);
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.entries.iter().filter(|entry| !entry.is_empty()).count(), model.len());
            }
            for (tag, slot) in &model {
                prop_assert_eq!(table.find(*tag, |other| other == *slot), Some(*slot));
                prop_assert_eq!(table.find(*tag, |other| other == slot + 1000), None);
            }
        }
    }

    #[test]
    fn grows_and_gives_memory_back() {
        let mut table = Table::default();
        assert_eq!(table.find(7, |_| true), None);
        assert_eq!(table.touch(7), 0);
        let tags: Vec<u32> = (0..100_000_u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
        for (slot, tag) in (0..).zip(&tags) {
            table.insert(*tag, slot);
        }
        assert!(table.entries.len() <= 1 << 17);
        for (slot, tag) in (0..).zip(&tags) {
            assert_eq!(table.find(*tag, |other| other == slot), Some(slot));
        }
        for (slot, tag) in (0..).zip(&tags).skip(10) {
            table.remove(*tag, slot);
        }
        assert!(table.entries.len() <= 128, "{}", table.entries.len());
        for (slot, tag) in (0..).zip(&tags).take(10) {
            assert_eq!(table.find(*tag, |other| other == slot), Some(slot));
        }
    }

    #[test]
    fn a_full_table_has_room_for_every_search_to_end() {
        for size in (3..20).map(|bits| 1_usize << bits) {
            assert!(room(size) < size && room(size) >= size / 2, "{size}");
        }
        assert_eq!(room(0), 0);
    }
}
