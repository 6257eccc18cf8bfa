//! Writes into memory that is no longer mounted.
//!
//! A reservation does not end when its segment is unmounted (R4): the writer does not know of that and may still be
//! transferring bytes. If the same memory is mounted again and another client is given these bytes, the two would
//! overwrite each other (INV-5). So every mount leaves out the ranges of such writes, the strays, until they end. This
//! is an index over the objects and the discarded bytes, not state.
//!
//! Memory without an endpoint is not in it: no client can reach it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::extents::Extents;
use super::object::{Replica, ReplicaStatus};
use super::segment::Segment;

/// End address of each range, by its first address and its replica id.
type Ends = BTreeMap<(u64, u64), u64>;

/// Ranges of unmounted memory that a client may still be writing to.
#[derive(Debug, Default)]
pub struct UnmountedWrites {
    /// Ranges by the endpoint of their segment's transfer engine.
    ranges: HashMap<Box<[u8]>, Ends>,
}

/// Returns whether the replica is a stray: its segment is unmounted, and a client may still be writing to it.
#[must_use]
pub fn is_stray(replica: &Replica) -> bool {
    replica.status == ReplicaStatus::Processing && !replica.segment.is_alive()
}

/// Returns the addresses of a replica.
#[must_use]
pub fn addresses(replica: &Replica, size: u64) -> Range<u64> {
    replica.address()..replica.address().saturating_add(size)
}

/// Returns the part of a range of addresses that lies in a segment, as offsets, extended to whole granules.
fn share(segment: &Segment, range: &Range<u64>) -> Option<Range<u64>> {
    let start = range.start.max(segment.base) - segment.base;
    let end = range.end.min(segment.end()).checked_sub(segment.base)?;
    let whole = |end: u64| end.checked_next_multiple_of(Extents::GRANULE).unwrap_or(u64::MAX);
    (start < end).then(|| start - start % Extents::GRANULE..whole(end).min(segment.size))
}

impl UnmountedWrites {
    /// Adds a replica of an unmounted segment. Adding it again changes nothing.
    pub fn insert(&mut self, replica: &Replica, size: u64) {
        let Range { start, end } = addresses(replica, size);
        if !replica.segment.te_endpoint.is_empty() {
            let ranges = self.ranges.entry(replica.segment.te_endpoint.clone()).or_default();
            ranges.insert((start, replica.id().0), end);
        }
    }

    /// Removes a replica whose write has ended. Returns whether it was there.
    pub fn remove(&mut self, replica: &Replica) -> bool {
        let endpoint = &replica.segment.te_endpoint;
        let Some(ranges) = self.ranges.get_mut(endpoint) else { return false };
        let there = ranges.remove(&(replica.address(), replica.id().0)).is_some();
        if ranges.is_empty() {
            self.ranges.remove(endpoint);
        }
        there
    }

    /// Returns what a mount of this segment has to leave out: ranges of offsets, in order, that do not touch.
    #[must_use]
    pub fn left_out(&self, segment: &Segment) -> Vec<Range<u64>> {
        let Some(ranges) = self.ranges.get(&segment.te_endpoint) else { return Vec::new() };
        // No two strays share a byte, so at most one begins before the segment and reaches into it.
        let before = ranges.range(..(segment.base, 0)).next_back();
        let within = ranges.range((segment.base, 0)..(segment.end(), 0));
        let mut all: Vec<Range<u64>> = Vec::new();
        for (start, end) in before.into_iter().chain(within) {
            let Some(range) = share(segment, &(start.0..*end)) else { continue };
            match all.last_mut() {
                // Two of them may share a granule of this segment.
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => all.push(range),
            }
        }
        all
    }

    /// Returns the offsets that a mounted segment need no longer leave out when the stray at these addresses has ended:
    /// whole granules, without those that neighbouring strays still share.
    #[must_use]
    pub fn given_back(&self, segment: &Segment, ended: &Range<u64>) -> Option<Range<u64>> {
        let mut range = share(segment, ended)?;
        let Some(ranges) = self.ranges.get(&segment.te_endpoint) else { return Some(range) };
        let before = ranges.range(..(ended.start, 0)).next_back();
        if let Some(below) = before.and_then(|(start, end)| share(segment, &(start.0..*end))) {
            range.start = range.start.max(below.end);
        }
        let after = ranges.range((ended.start, 0)..).next();
        if let Some(above) = after.and_then(|(start, end)| share(segment, &(start.0..*end))) {
            range.end = range.end.min(above.start);
        }
        (range.start < range.end).then_some(range)
    }

    /// Calls `visit` with the endpoint and the addresses of every stray.
    pub fn each(&self, mut visit: impl FnMut(&[u8], Range<u64>)) {
        for (endpoint, ranges) in &self.ranges {
            ranges.iter().for_each(|((start, _), end)| visit(endpoint, *start..*end));
        }
    }

    /// Returns how many strays there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.values().map(BTreeMap::len).sum()
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}
