//! An ordered set of packed pairs, cut into bins by its first number.
//!
//! The bins stand in for the upper levels of a search tree: which one a pair belongs to is arithmetic, and a bin mostly
//! holds a handful. Within a bin the order is exact, so the order of the whole is exact too.
//!
//! A set begins as one tree and is cut when that has more than a leaf's worth: a segment that is mounted and hardly
//! used takes a kilobyte and not a hundred. That matters because clients may mount many of them.

use super::bits::Bits;
use super::tree::{Tree, unpack};

/// Every doubling of length is cut into this many bins (its logarithm).
const STEPS_LOG2: u32 = 4;

/// How pairs are cut into bins. The bin never falls as the first number grows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    /// Bins of `1 << n` each: for addresses, which are spread evenly.
    Even(u32),
    /// Bins in proportion to the number: for lengths.
    Relative,
    /// One bin for all: for few entries.
    Whole,
}

impl Cut {
    fn bin(self, number: u64) -> usize {
        match self {
            Cut::Even(shift) => (number >> shift) as usize,
            Cut::Whole => 0,
            Cut::Relative if number < 1 << STEPS_LOG2 => number as usize,
            Cut::Relative => {
                let shift = number.ilog2() - STEPS_LOG2;
                ((u64::from(shift) << STEPS_LOG2) + (number >> shift)) as usize
            }
        }
    }
}

/// An ordered set of packed pairs.
#[derive(Debug, Clone)]
pub(super) struct BinnedSet {
    /// How it is cut now.
    cut: Cut,
    /// How it is cut when there are many pairs.
    fine: Cut,
    /// No first number is above this one.
    most: u64,
    bins: Vec<Tree>,
    /// The bins that have an entry.
    present: Bits,
}

impl BinnedSet {
    /// Creates the set of `keys`, which are sorted and without duplicates, and whose first number is at most `most`, in
    /// linear time. With many of them, `fine` says how they are cut.
    pub(super) fn from_sorted(fine: Cut, most: u64, keys: &[u128]) -> Self {
        let cut = if keys.len() > Tree::LEAF { fine } else { Cut::Whole };
        let bins = cut.bin(most) + 1;
        let mut new = Self { cut, fine, most, bins: vec![Tree::default(); bins], present: Bits::new(bins) };
        for chunk in keys.chunk_by(|a, b| new.bin(*a) == new.bin(*b)).collect::<Vec<_>>() {
            let bin = new.bin(chunk[0]);
            new.bins[bin] = Tree::from_sorted(chunk);
            new.present.insert(bin);
        }
        new
    }

    fn bin(&self, key: u128) -> usize {
        self.cut.bin(unpack(key).0)
    }

    /// Returns how many trees there are.
    #[cfg(test)]
    pub(super) fn bins(&self) -> usize {
        self.bins.len()
    }

    /// Returns the first entry that is at least `key`.
    pub(super) fn at_least(&self, key: u128) -> Option<u128> {
        let bin = self.bin(key);
        self.bins.get(bin)?.around(key).1.or_else(|| self.after(bin))
    }

    /// Returns the last entry below `key`; and the first one not below it, if that is in the bin of `key` (as one with
    /// the same first number is).
    pub(super) fn around(&self, key: u128) -> (Option<u128>, Option<u128>) {
        let bin = self.bin(key);
        let (below, above) = self.bins.get(bin).map_or((None, None), |tree| tree.around(key));
        (below.or_else(|| self.before(bin)), above)
    }

    /// Returns the largest entry; `None` if there is none.
    pub(super) fn last(&self) -> Option<u128> {
        self.before(self.bins.len())
    }

    fn after(&self, bin: usize) -> Option<u128> {
        self.bins.get(self.present.next(bin + 1)?)?.first()
    }

    fn before(&self, bin: usize) -> Option<u128> {
        self.bins.get(self.present.previous(bin)?)?.last()
    }

    /// Adds `key`, which is not in the set.
    pub(super) fn insert(&mut self, key: u128) {
        let bin = self.bin(key);
        let tree = &mut self.bins[bin];
        if tree.is_empty() {
            self.present.insert(bin);
        }
        tree.insert(key);
        if self.bins.len() == 1 && !self.bins[0].is_leaf() && self.fine.bin(self.most) > 0 {
            self.cut_up();
        }
    }

    /// Cuts the one tree into bins.
    fn cut_up(&mut self) {
        let mut keys = Vec::with_capacity(2 * Tree::LEAF);
        self.for_each(&mut |key| keys.push(key));
        *self = Self::from_sorted(self.fine, self.most, &keys);
    }

    /// Removes `key`, if it is there.
    pub(super) fn remove(&mut self, key: u128) {
        let bin = self.bin(key);
        let tree = &mut self.bins[bin];
        tree.remove(key);
        if tree.is_empty() {
            self.present.remove(bin);
        }
    }

    /// Puts `new` in the place of `old`. No other entry lies between the two.
    pub(super) fn replace(&mut self, old: u128, new: u128) {
        let bin = self.bin(old);
        if bin == self.bin(new) {
            self.bins[bin].replace(old, new);
        } else {
            self.remove(old);
            self.insert(new);
        }
    }

    /// Puts `new` into the set and takes `old` out of it, wherever the two belong.
    pub(super) fn exchange(&mut self, old: u128, new: u128) {
        let bin = self.bin(old);
        // Fast path: a segment with much free memory has one long free range, which is alone in its bin and gets a
        // little shorter with each allocation.
        if bin == self.bin(new) && self.bins[bin].is_single() {
            self.bins[bin].replace(old, new);
        } else {
            self.remove(old);
            self.insert(new);
        }
    }

    /// Calls `visit` with every entry, in order.
    pub(super) fn for_each(&self, visit: &mut impl FnMut(u128)) {
        self.bins.iter().for_each(|tree| tree.for_each(visit));
    }
}
