//! Which object is where, by the hash of its key.
//!
//! With millions of objects every look at such a table is a look at memory, and that is what it costs. Here an entry lies
//! at the place that its tag names or soon after it, in one array: what is looked for, or the room for what is not there,
//! is nearly always in one line of the cache. Tables that keep marks and entries apart look at two.

/// What the table has of an object. With the tag it can grow, and tell nearly every other key from the one that is looked
/// for, without a look at the objects, which lie elsewhere.
#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: u32,
    tag: u32,
}

/// No object has this place: a shard does not hold that many.
const NOWHERE: u32 = u32::MAX;

impl Entry {
    const EMPTY: Self = Self { slot: NOWHERE, tag: 0 };

    fn is_empty(self) -> bool {
        self.slot == NOWHERE
    }
}

/// Entries of the smallest table: one line of the cache.
const SMALLEST: usize = 8;

/// A table below this many entries is not worth giving back.
const SMALL: usize = 64;

/// Places by tag. Several entries may have the same tag.
#[derive(Debug, Default)]
pub struct Table {
    /// A power of two of them, or none. At least three of sixteen are empty, so that every search ends.
    entries: Box<[Entry]>,
    len: usize,
}

/// So many entries a table of this size holds at most.
fn room(size: usize) -> usize {
    size / 16 * 13 + size % 16 / 2
}

impl Table {
    /// Where an entry with this tag belongs: tags are spread evenly, so their highest bits are too. A table that doubles
    /// keeps the order of its entries.
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Where the entry is, and its slot, of this tag for which `is_it` is true.
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

    /// The slot with this tag for which `is_it` is true.
    #[inline]
    pub fn find(&self, tag: u32, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.search(tag, is_it).map(|(_, slot)| slot)
    }

    /// Looks at where an entry with this tag would be, so that it is in the cache when it is needed. The number means
    /// nothing: it is made of what was looked at.
    #[inline]
    pub fn touch(&self, tag: u32) -> u32 {
        self.entries.get(self.home(tag)).map_or(0, |entry| entry.slot)
    }

    /// Adds an entry.
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

    /// Takes an entry out, and gives memory back when most of the table stands empty.
    pub fn remove(&mut self, tag: u32, slot: u32) {
        let Some((mut hole, _)) = self.search(tag, |other| other == slot) else { return };
        let mask = self.entries.len() - 1;
        let mut at = self.after(hole);
        // Whoever stands behind the hole moves up, unless the hole lies before where it belongs.
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
        // With room to grow into, so that it does not flap.
        if self.entries.len() > SMALL && self.len * 8 < self.entries.len() {
            self.resize((self.len * 4).next_power_of_two().max(SMALLEST));
        }
    }

    fn resize(&mut self, size: usize) {
        let entries = std::mem::replace(&mut self.entries, vec![Entry::EMPTY; size].into_boxed_slice());
        entries.into_iter().filter(|entry| !entry.is_empty()).for_each(|entry| self.place(entry));
    }

    /// How many entries there are.
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

    /// A tag of few values, so that many are the same or neighbours, at both ends of the table and in between.
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
                // First it fills, then it empties.
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
