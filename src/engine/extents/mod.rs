//! The free byte ranges of one segment.
//!
//! Only what is *free* is kept: a live object knows its own range, so an allocation costs no memory here. Nothing
//! in this module does I/O, reads a clock or draws a random number: the same free set always gives the same answer,
//! however it came about.
//!
//! The policy is best fit: the shortest free range that is long enough, the lowest of them if there are several, cut
//! from its low end. Measured by `cargo bench --bench extents` on mixes of cache blocks (64 KiB to 4 MiB), small and
//! odd sizes, churned at 90 % fill: the first allocation fails at 98.5 to 99.6 % (first fit: 94 to 98 %, and many
//! failures before; a two-level segregated fit: 94.6 to 99.6 %).

mod binned_set;
mod bits;
mod radix;
#[cfg(test)]
mod tests;
mod tree;

use binned_set::{BinnedSet, Cut};
use tree::{pack, unpack};

/// A range that was to be taken is not entirely free, or not inside the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range of {len} bytes at offset {offset} is not free")]
pub struct NotFree {
    /// First byte of the refused range, relative to the segment's base.
    pub offset: u64,
    /// Length of the refused range as it was asked for.
    pub len: u64,
}

/// A range that was to be given back is not entirely taken, or not inside the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range of {len} bytes at offset {offset} is not taken")]
pub struct NotTaken {
    /// First byte of the refused range, relative to the segment's base.
    pub offset: u64,
    /// Length of the refused range as it was asked for.
    pub len: u64,
}

/// The free ranges of one segment; offsets are relative to its base.
///
/// No two of them touch: what is given back is joined with its neighbours at once.
#[derive(Debug, Clone)]
pub struct Extents {
    size: u64,
    free: u64,
    /// `(start, length)` of every free range.
    by_start: BinnedSet,
    /// `(length, start)` of every free range.
    by_len: BinnedSet,
}

impl Extents {
    /// Every range starts on a multiple of this many bytes and ends on one or with the segment: a cache line, so that
    /// two objects never share one.
    pub const GRANULE: u64 = 64;

    /// Creates a segment of `size` bytes, all free.
    pub fn new(size: u64) -> Self {
        let ranges: &[u128] = if size == 0 { &[] } else { &[pack(0, size)] };
        Self::of_free(size, ranges.to_vec())
    }

    /// Returns the offset for an allocation of `len` bytes; `None` when no free range is long enough or `len` is 0.
    pub fn find(&self, len: u64) -> Option<u64> {
        if len == 0 || len > self.size {
            return None;
        }
        let rounded = len.checked_next_multiple_of(Self::GRANULE);
        let best = rounded.and_then(|len| self.by_len.at_least(pack(len, 0)));
        best.map(|key| unpack(key).1).or_else(|| self.find_at_end(len))
    }

    /// Takes exactly this range; all of it must be free. `offset` must be a multiple of the granule.
    pub fn take(&mut self, offset: u64, len: u64) -> Result<(), NotFree> {
        let refused = NotFree { offset, len };
        let end = end_of(self.size, offset, len).ok_or(refused)?;
        let (start, free) = self.by_start.around(pack(offset + 1, 0)).0.map(unpack).ok_or(refused)?;
        let stop = start + free;
        if stop < end {
            return Err(refused);
        }
        self.free -= end - offset;
        match (start < offset, end < stop) {
            (false, false) => {
                self.by_start.remove(pack(start, free));
                self.by_len.remove(pack(free, start));
            }
            (false, true) => {
                self.by_start.replace(pack(start, free), pack(end, stop - end));
                self.by_len.exchange(pack(free, start), pack(stop - end, end));
            }
            (true, rest) => {
                self.by_start.replace(pack(start, free), pack(start, offset - start));
                self.by_len.exchange(pack(free, start), pack(offset - start, start));
                if rest {
                    self.add(end, stop - end);
                }
            }
        }
        Ok(())
    }

    /// Gives a range back and joins it with its free neighbours; no byte of it may be free already.
    pub fn give(&mut self, offset: u64, len: u64) -> Result<(), NotTaken> {
        let refused = NotTaken { offset, len };
        let end = end_of(self.size, offset, len).ok_or(refused)?;
        let (below, above) = self.by_start.around(pack(end, 0));
        let (below, above) = (below.map(unpack), above.map(unpack));
        if below.is_some_and(|(start, free)| start + free > offset) {
            return Err(refused);
        }
        let below = below.filter(|(start, free)| start + free == offset);
        let above = above.filter(|(start, _)| *start == end);
        self.free += end - offset;
        for (start, free) in below.iter().chain(&above) {
            self.by_len.remove(pack(*free, *start));
        }
        let start = below.map_or(offset, |(start, _)| start);
        let joined = above.map_or(end, |(start, free)| start + free) - start;
        self.by_len.insert(pack(joined, start));
        match (below, above) {
            (Some((_, free)), None) => self.by_start.replace(pack(start, free), pack(start, joined)),
            (None, Some((old, free))) => self.by_start.replace(pack(old, free), pack(start, joined)),
            (Some((_, free)), Some((old, after))) => {
                self.by_start.remove(pack(old, after));
                self.by_start.replace(pack(start, free), pack(start, joined));
            }
            (None, None) => self.by_start.insert(pack(start, joined)),
        }
        Ok(())
    }

    /// Returns the bytes that are free, over all ranges.
    pub fn free_bytes(&self) -> u64 {
        self.free
    }

    /// Returns the bytes that are taken, each range counted up to the next multiple of the granule.
    pub fn used_bytes(&self) -> u64 {
        self.size - self.free
    }

    /// Returns the size of the segment.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the length of the longest free range: the longest allocation that would succeed.
    pub fn largest_free(&self) -> u64 {
        self.by_len.last().map_or(0, |key| unpack(key).0)
    }

    /// Calls `visit` with the start and length of every free range, in order of address.
    pub fn for_each_free(&self, mut visit: impl FnMut(u64, u64)) {
        self.by_start.for_each(&mut |key| {
            let (start, len) = unpack(key);
            visit(start, len);
        });
    }

    /// Creates the state in which exactly the ranges of `taken` are taken, in time linear in their number. They may
    /// come in any order; two that overlap, or one outside of the segment, are refused.
    pub fn rebuild(size: u64, taken: impl Iterator<Item = (u64, u64)>) -> Result<Self, NotFree> {
        let mut keys = Vec::with_capacity(taken.size_hint().0);
        for (offset, len) in taken {
            let end = end_of(size, offset, len).ok_or(NotFree { offset, len })?;
            keys.push(pack(offset, end));
        }
        radix::sort_by_first(&mut keys, size, Self::GRANULE);
        let mut at = 0;
        let mut ranges = Vec::new();
        for (offset, end) in keys.into_iter().map(unpack) {
            if offset < at {
                return Err(NotFree { offset, len: end - offset });
            }
            if offset > at {
                ranges.push(pack(at, offset - at));
            }
            at = end;
        }
        if at < size {
            ranges.push(pack(at, size - at));
        }
        Ok(Self::of_free(size, ranges))
    }

    /// Creates a segment with just these free ranges, `(start, length)` in order of address.
    fn of_free(size: u64, mut ranges: Vec<u128>) -> Self {
        let free = ranges.iter().map(|key| unpack(*key).1).sum();
        let by_start = BinnedSet::from_sorted(Cut::Even(bin_shift(size)), size, &ranges);
        ranges.iter_mut().for_each(|key| *key = key.rotate_right(64));
        radix::sort_by_first(&mut ranges, size, Self::GRANULE);
        let by_len = BinnedSet::from_sorted(Cut::Relative, size, &ranges);
        Self { size, free, by_start, by_len }
    }

    fn add(&mut self, start: u64, len: u64) {
        self.by_start.insert(pack(start, len));
        self.by_len.insert(pack(len, start));
    }

    /// Tries the end of a segment whose size is no multiple of the granule: its last range may be long enough for `len`
    /// and yet shorter than `len` rounded up.
    fn find_at_end(&self, len: u64) -> Option<u64> {
        let (start, free) = self.by_start.last().map(unpack)?;
        (free >= len && start + free == self.size).then_some(start)
    }
}

/// Returns the bits of an address within a bin: at most 4,096 bins (100 KB for the largest segments, of which there may
/// be thousands), of 4 MiB at least, because few cache blocks are much smaller.
fn bin_shift(size: u64) -> u32 {
    size.checked_ilog2().map_or(22, |bits| (bits + 1).saturating_sub(12).max(22))
}

/// Returns the rounded end of a range, or `None` if it is empty, misaligned or leaves the segment.
fn end_of(size: u64, offset: u64, len: u64) -> Option<u64> {
    let end = offset.checked_add(len)?;
    if len == 0 || !offset.is_multiple_of(Extents::GRANULE) || end > size {
        return None;
    }
    Some(end.checked_next_multiple_of(Extents::GRANULE).map_or(size, |end| end.min(size)))
}
