//! Choosing where new replicas go.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use smallvec::SmallVec;

use crate::engine::core::{Core, Mounted};
use crate::engine::extents::Extents;
use crate::engine::open_segments::OpenSegments;
use crate::engine::record::Place;
use crate::engine::settings::Strategy;
use crate::engine::types::SegmentNumber;

/// Most replicas of one object, more than any client has use for; a request for more gets this many.
const MAX_REPLICAS: u64 = 100;

/// How many segments `free_ratio_first` compares for each replica.
const SAMPLE: usize = 6;

/// How many segments one write tries that may not fit, over all its replicas. Other writers wait meanwhile. What is
/// found after that is found by the index of free ranges, wherever it is.
const MAX_TRIES: usize = 512;

pub(super) type Places = SmallVec<[Place; 1]>;

/// A request for places of an object's replicas.
pub(super) struct Wanted<'a> {
    pub size: u64,
    pub replicas: u64,
    pub preferred: &'a [&'a [u8]],
    pub host_id: &'a [u8],
    pub strategy: Strategy,
}

impl Core {
    /// Returns places for as many of the wanted replicas as fit, each in a segment of a different name.
    pub(super) fn choose_places(&mut self, wanted: &Wanted<'_>) -> Places {
        let Self { segments, names, open, hosts, rng, .. } = self;
        // In a full pool this check is all that a write costs, however many segments there are.
        if wanted.size == 0 || open.longest() < wanted.size {
            return Places::new();
        }
        let count = wanted.replicas.min(MAX_REPLICAS).min(open.len() as u64) as usize;
        let mut search = Search {
            segments,
            size: wanted.size,
            // Only segments that take new objects have their name there.
            count: count.min(names.len()),
            names: SmallVec::new(),
            places: Places::new(),
            tries_left: MAX_TRIES,
        };
        for name in wanted.preferred {
            if search.is_done() {
                break;
            }
            let Some(numbers) = names.get(*name) else { continue };
            let start = rng.below(numbers.len());
            search.try_all(rotated(numbers, start));
        }
        if search.is_done() {
            return search.places;
        }
        match wanted.strategy {
            Strategy::Random => {}
            Strategy::FreeRatioFirst => {
                let start = rng.below(open.len());
                let mut sample: Vec<SegmentNumber> =
                    rotated(open.numbers(), start).take(SAMPLE * count).collect();
                sample.sort_by_cached_key(|number| search.used_share(*number));
                search.try_all(sample.into_iter());
            }
            Strategy::LocalFirst => {
                let from = hosts.range::<[u8], _>((Bound::Included(wanted.host_id), Bound::Unbounded));
                let before = hosts.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(wanted.host_id)));
                search.try_all(from.chain(before).flat_map(|(_, numbers)| numbers.iter().copied()));
            }
        }
        if !search.is_done() {
            search.tries_left = MAX_TRIES;
            let start = rng.below(open.len());
            search.try_fitting(open, start..open.len());
            search.try_fitting(open, 0..start);
        }
        // Most of what fits may be of names that are used already.
        if !search.is_done() && search.tries_left == 0 {
            search.tries_left = MAX_TRIES;
            for (name, numbers) in names.iter() {
                if !search.names.contains(&&**name) {
                    search.try_all(numbers.iter().copied());
                }
                if search.is_over() {
                    break;
                }
            }
        }
        search.places
    }

    /// Returns a place in any open segment of that name that does not overlap `taken`, the places chosen for the same
    /// copy.
    pub(super) fn place_in(&mut self, name: &[u8], size: u64, taken: &[Place]) -> Option<Place> {
        let Self { names, segments, .. } = self;
        names.get(name)?.iter().find_map(|number| {
            let extents = &mut segments.get_mut(number)?.extents;
            let offset = room_beside(extents, size, taken.iter().filter(|place| place.segment == *number))?;
            Some(Place { segment: *number, offset })
        })
    }
}

/// Returns the offset of an allocation that does not overlap `taken`. These places are taken during the search and
/// given back afterwards: cloning the free ranges would cost time for every gap of the segment, for each of the many
/// targets that a copy may name.
fn room_beside<'p>(extents: &mut Extents, size: u64, taken: impl Iterator<Item = &'p Place>) -> Option<u64> {
    let mut looked_past = Places::new();
    for place in taken {
        if extents.take(place.offset, size).is_ok() {
            looked_past.push(*place);
        }
    }
    let offset = extents.find(size);
    for place in looked_past {
        // Cannot fail: it was taken just now.
        let _ = extents.give(place.offset, size);
    }
    offset
}

/// State of a placement: the places found so far, and what is still needed.
struct Search<'c> {
    segments: &'c BTreeMap<SegmentNumber, Mounted>,
    size: u64,
    count: usize,
    /// The names of the segments that they are in.
    names: SmallVec<[&'c [u8]; 1]>,
    places: Places,
    /// How many more segments may be tried in vain.
    tries_left: usize,
}

impl Search<'_> {
    fn is_done(&self) -> bool {
        self.places.len() >= self.count
    }

    fn is_over(&self) -> bool {
        self.is_done() || self.tries_left == 0
    }

    fn try_all(&mut self, numbers: impl Iterator<Item = SegmentNumber>) {
        for number in numbers {
            if self.is_over() {
                return;
            }
            self.try_one(number);
        }
    }

    /// Tries the segments in this range of `open` that have a long enough free range.
    fn try_fitting(&mut self, open: &OpenSegments, places: Range<usize>) {
        let mut from = places.start;
        while !self.is_over() {
            let Some(place) = open.next_with(from, self.size).filter(|place| *place < places.end) else {
                return;
            };
            self.try_one(open.numbers()[place]);
            from = place + 1;
        }
    }

    fn try_one(&mut self, number: SegmentNumber) {
        let Some(mounted) = self.segments.get(&number) else { return };
        let used = self.names.contains(&&*mounted.segment.name);
        match (!used).then(|| mounted.extents.find(self.size)).flatten() {
            Some(offset) => {
                self.places.push(Place { segment: number, offset });
                self.names.push(&mounted.segment.name);
            }
            None => self.tries_left -= 1,
        }
    }

    /// Returns the allocated share of a segment in millionths, for comparison.
    fn used_share(&self, number: SegmentNumber) -> u64 {
        self.segments.get(&number).map_or(u64::MAX, |mounted| {
            let (used, size) = (mounted.extents.used_bytes(), mounted.extents.size().max(1));
            (u128::from(used) * 1_000_000 / u128::from(size)) as u64
        })
    }
}

fn rotated(numbers: &[SegmentNumber], start: usize) -> impl Iterator<Item = SegmentNumber> {
    let start = start.min(numbers.len());
    numbers[start..].iter().chain(&numbers[..start]).copied()
}
