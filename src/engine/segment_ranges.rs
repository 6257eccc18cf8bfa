//! Mounted memory by endpoint and address: an index over the segments, so that finding those at an address does not
//! visit all of them. Memory without an endpoint is not in it: no client can reach it, so it has no address.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::segment::{Segment, SegmentSpec};
use super::types::SegmentNumber;

/// End address of each segment, by its first address and its number.
type Ends = BTreeMap<(u64, SegmentNumber), u64>;

/// Mounted segments by endpoint and address.
#[derive(Debug, Default)]
pub struct SegmentRanges {
    /// Segments by the endpoint of their transfer engine.
    segments: HashMap<Box<[u8]>, Ends>,
}

impl SegmentRanges {
    /// Adds a segment that was mounted.
    pub fn insert(&mut self, segment: &Segment) {
        if !segment.te_endpoint.is_empty() {
            let segments = self.segments.entry(segment.te_endpoint.clone()).or_default();
            segments.insert((segment.base, segment.number), segment.end());
        }
    }

    /// Removes a segment that was unmounted.
    pub fn remove(&mut self, segment: &Segment) {
        let Some(segments) = self.segments.get_mut(&segment.te_endpoint) else { return };
        segments.remove(&(segment.base, segment.number));
        if segments.is_empty() {
            self.segments.remove(&segment.te_endpoint);
        }
    }

    /// Returns the segments at that endpoint that contain any of these addresses. Relies on no two of them sharing one.
    pub fn at(&self, endpoint: &[u8], range: Range<u64>) -> impl Iterator<Item = SegmentNumber> {
        let below = (range.end, SegmentNumber(0));
        let segments = self.segments.get(endpoint).map(|segments| segments.range(..below).rev());
        let reaching = segments.into_iter().flatten().take_while(move |(_, end)| **end > range.start);
        reaching.map(|((_, number), _)| *number)
    }

    /// Returns the segments that share memory with one that is to be mounted.
    pub fn under(&self, spec: &SegmentSpec<'_>) -> impl Iterator<Item = SegmentNumber> {
        self.at(spec.te_endpoint, spec.base..spec.base.saturating_add(spec.size))
    }

    /// Returns how many segments are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.values().map(BTreeMap::len).sum()
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
