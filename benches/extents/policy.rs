//! Placement policies to compare with: slow and plain, only where they place things matters.

use moonkeeper::engine::extents::Extents;
use std::collections::{BTreeMap, BTreeSet};

/// A policy at work on one segment.
pub trait Place {
    fn all_free(size: u64) -> Self;
    /// Allocates `len` bytes; gives back where.
    fn place(&mut self, len: u64) -> Option<u64>;
    fn give_back(&mut self, offset: u64, len: u64);
}

impl Place for Extents {
    fn all_free(size: u64) -> Self {
        Extents::new(size)
    }

    fn place(&mut self, len: u64) -> Option<u64> {
        let offset = self.find(len)?;
        self.take(offset, len).ok()?;
        Some(offset)
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        assert_eq!(self.give(offset, len), Ok(()));
    }
}

/// Free ranges by start, and by (class, start); classes cut every doubling into eight.
#[derive(Default)]
struct Classed {
    by_start: BTreeMap<u64, u64>,
    by_class: BTreeSet<(u64, u64)>,
}

fn round(len: u64) -> u64 {
    len.next_multiple_of(Extents::GRANULE)
}

fn class(len: u64) -> u64 {
    let exponent = u64::from(len.max(8).ilog2());
    (exponent << 3) + (len.max(8) >> (exponent - 3) & 7)
}

impl Classed {
    fn insert(&mut self, start: u64, len: u64) {
        self.by_start.insert(start, len);
        self.by_class.insert((class(len), start));
    }

    fn remove(&mut self, start: u64) -> u64 {
        let len = self.by_start.remove(&start).unwrap_or(0);
        self.by_class.remove(&(class(len), start));
        len
    }

    fn cut(&mut self, start: u64, len: u64) {
        let free = self.remove(start);
        if free > len {
            self.insert(start + len, free - len);
        }
    }

    fn give(&mut self, offset: u64, len: u64) {
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&below, &free)) = self.by_start.range(..offset).next_back()
            && below + free == offset
        {
            self.remove(below);
            start = below;
        }
        if self.by_start.contains_key(&end) {
            end += self.remove(end);
        }
        self.insert(start, end - start);
    }

    /// The lowest range of one class that is long enough.
    fn lowest_of(&self, class: u64, len: u64) -> Option<u64> {
        let mut members = self.by_class.range((class, 0)..(class + 1, 0));
        members.find(|(_, start)| self.by_start[start] >= len).map(|(_, start)| *start)
    }
}

/// The lowest range that is long enough.
pub struct FirstFit(Classed);

impl Place for FirstFit {
    fn all_free(size: u64) -> Self {
        let mut free = Classed::default();
        free.insert(0, size);
        Self(free)
    }

    fn place(&mut self, len: u64) -> Option<u64> {
        let len = round(len);
        let mut best = self.0.lowest_of(class(len), len);
        let mut next = class(len) + 1;
        while let Some(&(class, start)) = self.0.by_class.range((next, 0)..).next() {
            best = best.map_or(Some(start), |best| Some(best.min(start)));
            next = class + 1;
        }
        self.0.cut(best?, len);
        best
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        self.0.give(offset, round(len));
    }
}

/// Two-level segregated fit: the lowest range of the first class all of whose members are long enough.
pub struct GoodFit(Classed);

impl Place for GoodFit {
    fn all_free(size: u64) -> Self {
        let mut free = Classed::default();
        free.insert(0, size);
        Self(free)
    }

    fn place(&mut self, len: u64) -> Option<u64> {
        let len = round(len);
        let step = 1 << len.max(8).ilog2().saturating_sub(3);
        let &(_, start) = self.0.by_class.range((class(len.next_multiple_of(step)), 0)..).next()?;
        self.0.cut(start, len);
        Some(start)
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        self.0.give(offset, round(len));
    }
}
