//! A store of values by small index, in pages that are freed when they are empty.
//!
//! One growing vector would take up to twice the memory it needs, and could not shrink below its last used index.

const PAGE: usize = 64;

/// Values by index. Indexes are reused.
#[derive(Debug)]
pub struct Slab<T> {
    pages: Vec<Page<T>>,
    /// The pages that are not full, each once; the last one is filled first.
    open: Vec<u32>,
    len: usize,
}

/// A page, and a bit set of its used slots. The values are an allocation of their own, so that 64 of a round size take
/// no more than they need from the memory allocator.
#[derive(Debug)]
struct Page<T> {
    values: Option<Box<[Option<T>; PAGE]>>,
    used: u64,
}

fn index_of(page: usize, place: usize) -> u32 {
    (page * PAGE + place) as u32
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), open: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Stores a value and returns its index.
    pub fn insert(&mut self, value: T) -> u32 {
        let number = match self.open.last() {
            Some(&number) => number as usize,
            None => {
                self.pages.push(Page { values: None, used: 0 });
                self.open.push(self.pages.len() as u32 - 1);
                self.pages.len() - 1
            }
        };
        let page = &mut self.pages[number];
        let place = page.used.trailing_ones() as usize;
        page.values.get_or_insert_with(|| Box::new(std::array::from_fn(|_| None)))[place] = Some(value);
        page.used |= 1 << place;
        if page.used == u64::MAX {
            self.open.pop();
        }
        self.len += 1;
        index_of(number, place)
    }

    /// Returns whether the slot that the next insert uses is allocated and free. Callers want the access more than the
    /// answer: it loads that slot into the CPU cache.
    #[must_use]
    pub fn is_next_free(&self) -> bool {
        self.open.last().and_then(|number| self.pages.get(*number as usize)).is_some_and(|page| {
            let place = page.used.trailing_ones() as usize % PAGE;
            page.values.as_ref().is_some_and(|values| values[place].is_none())
        })
    }

    /// Removes and returns the value at `index`.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let number = index as usize / PAGE;
        let place = index as usize % PAGE;
        let page = self.pages.get_mut(number)?;
        let value = page.values.as_mut()?[place].take()?;
        if page.used == u64::MAX {
            self.open.push(number as u32);
        }
        page.used &= !(1 << place);
        if page.used == 0 {
            page.values = None;
        }
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
        }
        Some(value)
    }

    /// Returns the value at `index`.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.pages.get(index as usize / PAGE)?.values.as_ref()?[index as usize % PAGE].as_ref()
    }

    /// Returns the value at `index` for modification.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.pages.get_mut(index as usize / PAGE)?.values.as_mut()?[index as usize % PAGE].as_mut()
    }

    /// Returns how many values are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the lowest index above all that are in use.
    #[must_use]
    pub fn end(&self) -> u32 {
        index_of(self.pages.len(), 0)
    }

    /// Returns whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Visits about `most` values from an index on, in whole pages, with their indexes. Returns the index to continue
    /// from, or `None` if all were visited. An empty page counts as one value, because visiting it is not free either.
    pub fn visit_from(&self, index: u32, most: usize, mut visit: impl FnMut(u32, &T)) -> Option<u32> {
        let (mut number, mut place) = (index as usize / PAGE, index as usize % PAGE);
        let mut cost = 0;
        while let Some(page) = self.pages.get(number) {
            if cost >= most {
                return Some(index_of(number, place));
            }
            if let Some(values) = &page.values {
                let indexed = (index_of(number, place)..).zip(&values[place..]);
                indexed.for_each(|(index, value)| value.iter().for_each(|value| visit(index, value)));
            }
            cost += page.used.count_ones().max(1) as usize;
            (number, place) = (number + 1, 0);
        }
        None
    }

    /// Returns all values, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.values.iter().flat_map(|values| values.iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..2000)) {
            let mut slab = Slab::default();
            let mut model: HashMap<u32, u16> = HashMap::new();
            for (insert, value) in steps {
                if insert || model.is_empty() {
                    let index = slab.insert(value);
                    prop_assert!(model.insert(index, value).is_none(), "index {index} was in use");
                } else {
                    let keys: Vec<u32> = { let mut k: Vec<u32> = model.keys().copied().collect(); k.sort_unstable(); k };
                    let index = keys[value as usize % keys.len()];
                    prop_assert_eq!(slab.remove(index), model.remove(&index));
                    prop_assert_eq!(slab.remove(index), None);
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            for (index, value) in &model {
                prop_assert_eq!(slab.get(*index), Some(value));
            }
            prop_assert_eq!(slab.iter().count(), model.len());
            let (mut next, mut visited, mut pieces) = (Some(0), Vec::new(), 0);
            while let Some(index) = next {
                next = slab.visit_from(index, 64, |index, value| visited.push((index, *value)));
                pieces += 1;
            }
            prop_assert!(visited.iter().map(|(_, value)| value).eq(slab.iter()) && pieces <= 1 + slab.pages.len());
            prop_assert!(visited.iter().all(|(index, value)| model.get(index) == Some(value) && *index < slab.end()));
        }
    }

    #[test]
    fn gives_pages_back() {
        let mut slab = Slab::default();
        let all: Vec<u32> = (0..10_000).map(|n| slab.insert(n)).collect();
        for index in &all[64..] {
            slab.remove(*index);
        }
        assert_eq!(slab.pages.iter().filter(|page| page.values.is_some()).count(), 1);
        for index in &all[..64] {
            slab.remove(*index);
        }
        assert!(slab.pages.is_empty());
    }
}
