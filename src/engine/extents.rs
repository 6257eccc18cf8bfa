//! The free byte ranges of one segment.
//!
//! Only what is *free* is kept: a live object knows its own range, so an allocation costs no memory here. Nothing
//! in this module does I/O, reads a clock or draws a random number: the same free set always gives the same answer,
//! however it came about.

use std::collections::BTreeMap;

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
#[derive(Debug, Clone)]
pub struct Extents {
    size: u64,
    free: u64,
    ranges: BTreeMap<u64, u64>,
}

impl Extents {
    /// Every range starts and ends on a multiple of this many bytes (the last may end with the segment).
    pub const GRANULE: u64 = 64;

    /// A segment of `size` bytes, all free.
    pub fn new(size: u64) -> Self {
        let ranges = if size == 0 { BTreeMap::new() } else { BTreeMap::from([(0, size)]) };
        Self { size, free: size, ranges }
    }

    /// Where an allocation of `len` bytes goes; `None` when no free range is long enough or `len` is 0.
    pub fn find(&self, len: u64) -> Option<u64> {
        if len == 0 {
            return None;
        }
        self.ranges.iter().find(|&(_, &free)| free >= len).map(|(&start, _)| start)
    }

    /// Takes exactly this range; all of it must be free. `offset` must be a multiple of the granule.
    pub fn take(&mut self, offset: u64, len: u64) -> Result<(), NotFree> {
        let end = self.end(offset, len).ok_or(NotFree { offset, len })?;
        let (&start, &free) = self.ranges.range(..=offset).next_back().ok_or(NotFree { offset, len })?;
        let stop = start + free;
        if stop < end {
            return Err(NotFree { offset, len });
        }
        self.ranges.remove(&start);
        if start < offset {
            self.ranges.insert(start, offset - start);
        }
        if end < stop {
            self.ranges.insert(end, stop - end);
        }
        self.free -= end - offset;
        Ok(())
    }

    /// Gives a range back and joins it with its free neighbours; no byte of it may be free already.
    pub fn give(&mut self, offset: u64, len: u64) -> Result<(), NotTaken> {
        let refused = NotTaken { offset, len };
        let end = self.end(offset, len).ok_or(refused)?;
        let (mut start, mut stop) = (offset, end);
        if let Some((&before, &free)) = self.ranges.range(..end).next_back() {
            if before + free > offset {
                return Err(refused);
            }
            if before + free == offset {
                start = before;
            }
        }
        if let Some(free) = self.ranges.remove(&end) {
            stop += free;
        }
        self.ranges.insert(start, stop - start);
        self.free += end - offset;
        Ok(())
    }

    /// Bytes that are free, over all ranges.
    pub fn free_bytes(&self) -> u64 {
        self.free
    }

    /// Bytes that are taken, each range counted up to the next multiple of the granule.
    pub fn used_bytes(&self) -> u64 {
        self.size - self.free
    }

    /// Size of the segment.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Length of the longest free range: the longest allocation that would succeed.
    pub fn largest_free(&self) -> u64 {
        self.ranges.values().copied().max().unwrap_or(0)
    }

    /// The state in which exactly the ranges of `taken` are taken, in time linear in their number. They may come in
    /// any order; two that overlap, or one outside of the segment, are refused.
    pub fn rebuild(size: u64, taken: impl Iterator<Item = (u64, u64)>) -> Result<Self, NotFree> {
        let mut built = Self::new(size);
        for (offset, len) in taken {
            built.take(offset, len)?;
        }
        Ok(built)
    }

    /// The rounded end of a range, or `None` if it is empty, misaligned or leaves the segment.
    fn end(&self, offset: u64, len: u64) -> Option<u64> {
        let end = offset.checked_add(len)?;
        if len == 0 || !offset.is_multiple_of(Self::GRANULE) || end > self.size {
            return None;
        }
        Some(end.div_ceil(Self::GRANULE).saturating_mul(Self::GRANULE).min(self.size))
    }
}
