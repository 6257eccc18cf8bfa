//! Choosing where new replicas go.

use smallvec::SmallVec;

use crate::engine::core::Core;
use crate::engine::record::Place;
use crate::engine::rules::Strategy;
use crate::engine::types::SegmentNumber;

/// More replicas of one object than anybody has use for; a request for more gets these.
const MAX_REPLICAS: u64 = 100;

/// How many segments `free_ratio_first` looks at for each replica.
const SAMPLE: usize = 6;

pub(super) type Places = SmallVec<[Place; 1]>;

/// What to place.
pub(super) struct Wanted<'a> {
    pub size: u64,
    pub replicas: u64,
    pub preferred: &'a [&'a [u8]],
    pub host_id: &'a [u8],
    pub strategy: Strategy,
}

impl Core {
    /// Places for as many of the wanted replicas as there is room for, each in a segment of another name.
    pub(super) fn choose_places(&mut self, wanted: &Wanted<'_>) -> Places {
        let count = wanted.replicas.min(MAX_REPLICAS).min(self.open.len() as u64) as usize;
        let mut places = Places::new();
        for name in wanted.preferred {
            let Some(numbers) = self.names.get(*name) else { continue };
            let start = self.chance.below(numbers.len());
            self.try_all(rotated(numbers, start), wanted.size, count, &mut places);
        }
        if places.len() >= count {
            return places;
        }
        match wanted.strategy {
            Strategy::Random => {}
            Strategy::FreeRatioFirst => {
                let start = self.chance.below(self.open.len());
                let mut sample: Vec<SegmentNumber> =
                    rotated(&self.open, start).take(SAMPLE * count).collect();
                sample.sort_by_cached_key(|number| self.used_share(*number));
                self.try_all(sample.into_iter(), wanted.size, count, &mut places);
            }
            Strategy::LocalFirst => {
                let from = self.hosts.range::<[u8], _>((
                    std::ops::Bound::Included(wanted.host_id),
                    std::ops::Bound::Unbounded,
                ));
                let before = self.hosts.range::<[u8], _>((
                    std::ops::Bound::Unbounded,
                    std::ops::Bound::Excluded(wanted.host_id),
                ));
                let ring = from.chain(before).flat_map(|(_, numbers)| numbers.iter().copied());
                self.try_all(ring, wanted.size, count, &mut places);
            }
        }
        if places.len() < count {
            let start = self.chance.below(self.open.len());
            self.try_all(rotated(&self.open, start), wanted.size, count, &mut places);
        }
        places
    }

    /// A place in any open segment of that name.
    pub(super) fn place_in(&self, name: &[u8], size: u64, taken: &[Place]) -> Option<Place> {
        self.names.get(name)?.iter().find_map(|number| self.room_in(*number, size, taken))
    }

    fn room_in(&self, number: SegmentNumber, size: u64, taken: &[Place]) -> Option<Place> {
        let mounted = self.segments.get(&number)?;
        if !taken.iter().any(|place| place.segment == number) {
            return mounted.extents.find(size).map(|offset| Place { segment: number, offset });
        }
        // Rare: several new replicas in one segment. Take what is promised already out of a copy before looking.
        let mut extents = mounted.extents.clone();
        for place in taken.iter().filter(|place| place.segment == number) {
            extents.take(place.offset, size).ok()?;
        }
        extents.find(size).map(|offset| Place { segment: number, offset })
    }

    fn try_all(
        &self,
        numbers: impl Iterator<Item = SegmentNumber>,
        size: u64,
        count: usize,
        places: &mut Places,
    ) {
        for number in numbers {
            if places.len() >= count {
                return;
            }
            let Some(mounted) = self.segments.get(&number) else { continue };
            let name_taken = places.iter().any(|place| {
                self.segments
                    .get(&place.segment)
                    .is_some_and(|other| other.segment.name == mounted.segment.name)
            });
            if name_taken {
                continue;
            }
            if let Some(offset) = mounted.extents.find(size) {
                places.push(Place { segment: number, offset });
            }
        }
    }

    /// The share of a segment that is given out, as a number that can be compared.
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
