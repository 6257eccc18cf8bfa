//! A set of small numbers with a fast "next" and "previous".

/// A hierarchical bit set: one bit for every number, above it one bit for every word of those that is not 0, and so on.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    /// From the bits themselves up to a level of one word.
    levels: Vec<Vec<u64>>,
}

impl Bits {
    /// Creates the empty set of numbers below `len`.
    pub(super) fn new(len: usize) -> Self {
        let mut levels = vec![vec![0; len.div_ceil(64).max(1)]];
        while let Some(top) = levels.last()
            && top.len() > 1
        {
            levels.push(vec![0; top.len().div_ceil(64)]);
        }
        Self { levels }
    }

    pub(super) fn insert(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            let had = *word;
            *word |= 1 << (bit % 64);
            if had != 0 {
                return;
            }
            bit /= 64;
        }
    }

    pub(super) fn remove(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            *word &= !(1 << (bit % 64));
            if *word != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// Returns the smallest member that is at least `from`.
    pub(super) fn next(&self, mut from: usize) -> Option<usize> {
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(from / 64)? & (u64::MAX << (from % 64));
            if word != 0 {
                let mut bit = from / 64 * 64 + word.trailing_zeros() as usize;
                for level in self.levels[..height].iter().rev() {
                    bit = bit * 64 + level[bit].trailing_zeros() as usize;
                }
                return Some(bit);
            }
            from = from / 64 + 1;
        }
        None
    }

    /// Returns the largest member that is below `to`.
    pub(super) fn previous(&self, mut to: usize) -> Option<usize> {
        for (height, level) in self.levels.iter().enumerate() {
            let at = to.checked_sub(1)?;
            let word = level.get(at / 64)? & (u64::MAX >> (63 - at % 64));
            if word != 0 {
                let mut bit = at / 64 * 64 + word.ilog2() as usize;
                for level in self.levels[..height].iter().rev() {
                    bit = bit * 64 + level[bit].ilog2() as usize;
                }
                return Some(bit);
            }
            to = at / 64;
        }
        None
    }
}
