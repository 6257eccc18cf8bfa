//! Mounted memory by where it is: an index over the segments, so that whoever asks what is at an address need not look
//! at all of them. Memory without an endpoint is not in it: nobody can reach it, so it is nowhere.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::segment::{Segment, SegmentSpec};
use super::types::SegmentNumber;

/// The end of each segment by its first address and its number.
type Ends = BTreeMap<(u64, SegmentNumber), u64>;

/// Mounted segments by endpoint and address.
#[derive(Debug, Default)]
pub struct Atlas {
    /// By endpoint.
    segments: HashMap<Box<[u8]>, Ends>,
}

impl Atlas {
    /// A segment is mounted.
    pub fn insert(&mut self, segment: &Segment) {
        if !segment.te_endpoint.is_empty() {
            let segments = self.segments.entry(segment.te_endpoint.clone()).or_default();
            segments.insert((segment.base, segment.number), segment.end());
        }
    }

    /// A segment is no longer mounted.
    pub fn remove(&mut self, segment: &Segment) {
        let Some(segments) = self.segments.get_mut(&segment.te_endpoint) else { return };
        segments.remove(&(segment.base, segment.number));
        if segments.is_empty() {
            self.segments.remove(&segment.te_endpoint);
        }
    }

    /// The segments at that endpoint that have any of these addresses. No two of them share any.
    pub fn at(&self, endpoint: &[u8], range: Range<u64>) -> impl Iterator<Item = SegmentNumber> {
        let below = (range.end, SegmentNumber(0));
        let segments = self.segments.get(endpoint).map(|segments| segments.range(..below).rev());
        let reaching = segments.into_iter().flatten().take_while(move |(_, end)| **end > range.start);
        reaching.map(|((_, number), _)| *number)
    }

    /// The segments that share memory with one that is to be mounted.
    pub fn under(&self, spec: &SegmentSpec<'_>) -> impl Iterator<Item = SegmentNumber> {
        self.at(spec.te_endpoint, spec.base..spec.base.saturating_add(spec.size))
    }

    /// How many segments are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.values().map(BTreeMap::len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
