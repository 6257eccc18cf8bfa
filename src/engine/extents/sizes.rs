//! Free ranges by length: which is the shortest that is long enough?

use super::tree::{Tree, pack, unpack};

/// Every doubling of length is cut into this many bins (a power of two).
const STEPS_LOG2: u32 = 3;
const STEPS: u64 = 1 << STEPS_LOG2;
/// Bins that cover every length up to `u64::MAX`.
const BINS: usize = ((64 - STEPS_LOG2 as usize + 1) << STEPS_LOG2) as usize;

/// Free ranges ordered by (length, start). The bins stand in for the upper levels of a search tree: which one a length
/// belongs to is arithmetic, and within a bin the order is exact, so the choice is exact too.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    /// Allocated up to the highest bin that was ever used.
    bins: Vec<Tree>,
    /// Bit `i` is set when bin `i` has an entry.
    present: [u64; BINS.div_ceil(64)],
}

/// The bin of a length; grows with the length.
fn bin_of(len: u64) -> usize {
    if len < STEPS {
        return len as usize;
    }
    let exponent = len.ilog2();
    let step = (len >> (exponent - STEPS_LOG2)) & (STEPS - 1);
    ((u64::from(exponent - STEPS_LOG2 + 1) << STEPS_LOG2) + step) as usize
}

impl Sizes {
    pub(super) fn new() -> Self {
        Self { bins: Vec::new(), present: [0; BINS.div_ceil(64)] }
    }

    /// Takes `(len, start)` pairs, sorted and without duplicates, in linear time.
    pub(super) fn from_sorted(sorted: &[u128]) -> Self {
        let mut sizes = Self::new();
        for chunk in sorted.chunk_by(|a, b| bin_of(unpack(*a).0) == bin_of(unpack(*b).0)) {
            let bin = bin_of(unpack(chunk[0]).0);
            *sizes.bin(bin) = Tree::from_sorted(chunk);
            sizes.present[bin / 64] |= 1 << (bin % 64);
        }
        sizes
    }

    fn bin(&mut self, bin: usize) -> &mut Tree {
        if self.bins.len() <= bin {
            self.bins.resize_with(bin + 1, Tree::default);
        }
        &mut self.bins[bin]
    }

    pub(super) fn insert(&mut self, start: u64, len: u64) {
        let bin = bin_of(len);
        self.bin(bin).insert(pack(len, start));
        self.present[bin / 64] |= 1 << (bin % 64);
    }

    pub(super) fn remove(&mut self, start: u64, len: u64) {
        let bin = bin_of(len);
        let tree = self.bin(bin);
        tree.remove(pack(len, start));
        if tree.is_empty() {
            *tree = Tree::default();
            self.present[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// The start of the shortest range of at least `len`, the lowest of them if there are several.
    pub(super) fn best(&self, len: u64) -> Option<u64> {
        let bin = bin_of(len);
        if let Some(key) = self.bins.get(bin)?.around(pack(len, 0)).1 {
            return Some(unpack(key).1);
        }
        let next = self.next_present(bin + 1)?;
        self.bins.get(next)?.first().map(|key| unpack(key).1)
    }

    /// The longest length.
    pub(super) fn largest(&self) -> u64 {
        let highest = self.present.iter().rposition(|word| *word != 0);
        let bin = highest.map(|word| word * 64 + self.present[word].ilog2() as usize);
        bin.and_then(|bin| self.bins.get(bin)?.last()).map_or(0, |key| unpack(key).0)
    }

    /// Calls `visit` with the start and length of every range, in order of length.
    #[cfg(test)]
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, u64)) {
        for (bin, tree) in self.bins.iter().enumerate() {
            assert_eq!(tree.is_empty(), self.present[bin / 64] >> (bin % 64) & 1 == 0);
            tree.for_each(&mut |key| visit(unpack(key).1, unpack(key).0));
        }
    }

    /// The first bin from `from` on that has an entry.
    fn next_present(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.present.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.present.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}
