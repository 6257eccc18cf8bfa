//! The allocator against a naive map of intervals, and against arguments meant to break it.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Model that the allocator must equal: free ranges in a plain map, every question answered by a scan of all of them.
#[derive(Default)]
struct Naive {
    size: u64,
    free: BTreeMap<u64, u64>,
}

impl Naive {
    fn new(size: u64) -> Self {
        let free = if size == 0 { BTreeMap::new() } else { BTreeMap::from([(0, size)]) };
        Self { size, free }
    }

    fn end(&self, offset: u64, len: u64) -> Option<u64> {
        let end = u128::from(offset) + u128::from(len);
        if len == 0 || !offset.is_multiple_of(64) || end > u128::from(self.size) {
            return None;
        }
        Some((end.div_ceil(64) * 64).min(u128::from(self.size)) as u64)
    }

    fn find(&self, len: u64) -> Option<u64> {
        let fits = |(start, _): &(&u64, &u64)| {
            let end = self.end(**start, len);
            end.is_some_and(|end| end <= *start + self.free[*start])
        };
        let rounded = u128::from(len).div_ceil(64) * 64;
        // The range that ends with a ragged segment counts as too short unless nothing else is there.
        let key = |(start, free): &(&u64, &u64)| (u128::from(**free) < rounded, **free, **start);
        self.free.iter().filter(fits).min_by_key(key).map(|(start, _)| *start)
    }

    fn take(&mut self, offset: u64, len: u64) -> bool {
        let Some(end) = self.end(offset, len) else { return false };
        let Some((&start, &free)) = self.free.iter().find(|(s, f)| **s <= offset && end <= *s + *f) else {
            return false;
        };
        self.free.remove(&start);
        if start < offset {
            self.free.insert(start, offset - start);
        }
        if end < start + free {
            self.free.insert(end, start + free - end);
        }
        true
    }

    fn give(&mut self, offset: u64, len: u64) -> bool {
        let Some(end) = self.end(offset, len) else { return false };
        if self.free.iter().any(|(start, free)| *start < end && offset < *start + *free) {
            return false;
        }
        self.free.insert(offset, end - offset);
        let mut joined: BTreeMap<u64, u64> = BTreeMap::new();
        for (&start, &free) in &self.free {
            match joined.last_entry() {
                Some(mut last) if last.key() + last.get() == start => *last.get_mut() += free,
                _ => drop(joined.insert(start, free)),
            }
        }
        self.free = joined;
        true
    }
}

fn ranges(extents: &Extents) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    extents.for_each_free(|start, len| ranges.push((start, len)));
    ranges
}

/// Checks that all indexes and sums agree, and that no free range touches another.
fn check(extents: &Extents) {
    let ranges = ranges(extents);
    assert_eq!(extents.free_bytes(), ranges.iter().map(|r| r.1).sum::<u64>());
    assert_eq!(extents.used_bytes() + extents.free_bytes(), extents.size());
    assert_eq!(extents.largest_free(), ranges.iter().map(|r| r.1).max().unwrap_or(0));
    assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "ranges touch or overlap: {ranges:?}");
    let mut by_len = Vec::new();
    extents.by_len.for_each(&mut |key| by_len.push((unpack(key).1, unpack(key).0)));
    by_len.sort_unstable();
    assert_eq!(by_len, ranges);
}

#[derive(Debug, Clone)]
enum Op {
    Alloc(u64),
    TakeAt(u64, u64),
    GiveLive(usize),
    GiveAt(u64, u64),
}

impl Op {
    /// Returns the same operation for a segment `by` times as large: one with many bins.
    fn scaled(self, by: u64) -> Self {
        let times = |number: u64| number.saturating_mul(by);
        match self {
            Op::Alloc(len) => Op::Alloc(times(len)),
            Op::TakeAt(at, len) => Op::TakeAt(times(at), times(len)),
            Op::GiveAt(at, len) => Op::GiveAt(times(at), times(len)),
            Op::GiveLive(i) => Op::GiveLive(i),
        }
    }
}

fn ops(size: u64) -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![4 => 1..300u64, 3 => Just(64u64), 3 => Just(128u64), 1 => 0..=size + 70, 1 => any::<u64>()];
    let at = prop_oneof![8 => (0..=size / 64).prop_map(|g| g * 64), 1 => 0..=size + 70, 1 => any::<u64>()];
    let op = prop_oneof![
        6 => len.clone().prop_map(Op::Alloc),
        2 => (at.clone(), len.clone()).prop_map(|(at, len)| Op::TakeAt(at, len)),
        5 => any::<usize>().prop_map(Op::GiveLive),
        1 => (at, len).prop_map(|(at, len)| Op::GiveAt(at, len)),
    ];
    proptest::collection::vec(op, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn equals_a_naive_interval_map(
        (size, ops) in (0..40_000u64).prop_flat_map(|size| (Just(size), ops(size))),
        scale in prop_oneof![Just(1u64), Just(1 << 10), Just(1 << 20)],
        holes in prop_oneof![Just(0u64), 0..120u64],
    ) {
        let size = size * scale;
        let mut extents = Extents::new(size);
        let mut naive = Naive::new(size);
        let mut live: Vec<(u64, u64)> = Vec::new();
        // About as many free ranges as one tree has before it is cut up.
        for (offset, len) in (0..holes).map(|nth| (nth * 128 * scale, 64 * scale)) {
            prop_assert_eq!(extents.take(offset, len).is_ok(), naive.take(offset, len));
            live.extend((offset + len <= size).then_some((offset, len)));
        }
        for op in ops {
            match op.scaled(scale) {
                Op::Alloc(len) => {
                    let found = extents.find(len);
                    prop_assert_eq!(found, naive.find(len));
                    prop_assert_eq!(found.is_some(), len > 0 && len <= extents.largest_free());
                    if let Some(offset) = found {
                        prop_assert_eq!(extents.take(offset, len), Ok(()));
                        prop_assert!(naive.take(offset, len));
                        live.push((offset, len));
                    }
                }
                Op::TakeAt(offset, len) => {
                    let taken = extents.take(offset, len);
                    prop_assert_eq!(taken.is_ok(), naive.take(offset, len));
                    if taken.is_ok() {
                        live.push((offset, len));
                    }
                }
                Op::GiveLive(i) if !live.is_empty() => {
                    let (offset, len) = live.swap_remove(i % live.len());
                    prop_assert_eq!(extents.give(offset, len), Ok(()));
                    prop_assert!(naive.give(offset, len));
                    prop_assert_eq!(extents.give(offset, len), Err(NotTaken { offset, len }));
                }
                Op::GiveLive(_) => {}
                Op::GiveAt(offset, len) => {
                    let given = extents.give(offset, len);
                    prop_assert_eq!(given.is_ok(), naive.give(offset, len));
                    if given.is_ok() {
                        // A piece was torn out of live ranges: what is left of them is unknown, so drop them all.
                        live.clear();
                    }
                }
            }
            prop_assert_eq!(ranges(&extents), naive.free.iter().map(|(s, l)| (*s, *l)).collect::<Vec<_>>());
        }
        check(&extents);
    }

    #[test]
    fn rebuild_equals_the_incremental_result(
        (size, most) in prop_oneof![
            (0..2_000_000u64, Just(6_000u64)),
            (0..1u64 << 30, Just(5_000_000)),
            (0..1u64 << 42, Just(1 << 38)),
        ],
        lens in proptest::collection::vec(any::<proptest::sample::Index>(), 0..900),
        keep in any::<u64>(),
        seed in any::<u64>(),
    ) {
        let mut extents = Extents::new(size);
        let mut live = Vec::new();
        for (i, len) in lens.into_iter().enumerate() {
            let len = 1 + len.index(most as usize) as u64;
            if let Some(offset) = extents.find(len) {
                extents.take(offset, len).unwrap();
                live.push((offset, len));
            }
            if keep >> (i % 64) & 1 == 0 && !live.is_empty() {
                let (offset, len) = live.swap_remove(seed as usize % live.len());
                extents.give(offset, len).unwrap();
            }
        }
        let rebuilt = Extents::rebuild(size, live.iter().copied()).unwrap();
        check(&rebuilt);
        prop_assert_eq!(ranges(&rebuilt), ranges(&extents));
        for len in (0..70).map(|i| i * 97).chain([1, 63, 64, 65, extents.largest_free(), u64::MAX]) {
            prop_assert_eq!(rebuilt.find(len), extents.find(len));
        }
        if let Some(&twice) = live.first() {
            prop_assert!(Extents::rebuild(size, live.iter().copied().chain([twice])).is_err());
        }
    }
}

proptest! {
    #[test]
    fn bits_equal_a_set(
        len in 1..300_000usize,
        picks in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 0..200),
    ) {
        let mut bits = bits::Bits::new(len);
        let mut set = std::collections::BTreeSet::new();
        for (add, pick) in picks {
            let bit = pick.index(len);
            prop_assert_eq!(bits.next(bit), set.range(bit..).next().copied());
            prop_assert_eq!(bits.previous(bit), set.range(..bit).next_back().copied());
            if add {
                bits.insert(bit);
                set.insert(bit);
            } else if let Some(&bit) = set.range(bit..).next() {
                bits.remove(bit);
                set.remove(&bit);
            }
        }
        prop_assert_eq!(bits.next(0), set.first().copied());
        prop_assert_eq!(bits.previous(len), set.last().copied());
    }
}

/// Enough ranges for a tree of three levels, built up and torn down again in several orders.
#[test]
fn many_ranges_come_and_go() {
    const N: u64 = 20_000;
    for stride in [1, 7, 9_973] {
        let mut extents = Extents::new(N * 128);
        for i in 0..N {
            extents.take(i * 128, 128).unwrap();
        }
        assert_eq!(extents.find(1), None);
        for i in 0..N {
            extents.give(i * stride % N * 128, 64).unwrap();
        }
        check(&extents);
        assert_eq!((extents.free_bytes(), extents.largest_free()), (N * 64, 64));
        for i in 0..N / 2 {
            extents.give(i * stride % N * 128 + 64, 64).unwrap();
        }
        check(&extents);
        for i in 0..N / 2 {
            extents.take(i * stride % N * 128, 128).unwrap();
        }
        check(&extents);
        for i in 0..N {
            let len = if i < N / 2 { 128 } else { 64 };
            extents.give(i * stride % N * 128 + 128 - len, len).unwrap();
        }
        assert_eq!(ranges(&extents), [(0, N * 128)]);
        check(&extents);
    }
}

#[test]
fn a_segment_that_is_hardly_used_is_one_tree() {
    // Clients may mount segments by the thousand, and the largest would have some 4,600 bins.
    let mut extents = Extents::new(1 << 44);
    for nth in 0..40 {
        extents.take(nth << 38, 1 << 30).unwrap();
    }
    assert_eq!((extents.by_start.bins(), extents.by_len.bins()), (1, 1));
    for nth in 40..64 {
        extents.take(nth << 38, 1 << 30).unwrap();
        extents.take((nth << 38) + (1 << 31), 1 << 30).unwrap();
    }
    assert!(
        extents.by_start.bins() > 2_000 && extents.by_len.bins() > 400,
        "many ranges are spread over bins"
    );
    check(&extents);
}

#[test]
fn arguments_that_overflow_are_refused() {
    let mut extents = Extents::new(u64::MAX);
    assert_eq!(extents.find(u64::MAX), Some(0));
    for (offset, len) in [(64, u64::MAX), (u64::MAX, 1), (u64::MAX - 63, 64), (0, 0), (1, 1)] {
        assert_eq!(extents.take(offset, len), Err(NotFree { offset, len }), "{offset} {len}");
        assert_eq!(extents.give(offset, len), Err(NotTaken { offset, len }), "{offset} {len}");
        assert!(Extents::rebuild(u64::MAX, [(offset, len)].into_iter()).is_err(), "{offset} {len}");
    }
    extents.take(u64::MAX - 63, 63).unwrap();
    extents.take(0, u64::MAX - 63).unwrap();
    assert_eq!((extents.free_bytes(), extents.find(1)), (0, None));
    extents.give(0, u64::MAX).unwrap();
    check(&extents);
}

#[test]
fn a_ragged_end_is_usable() {
    let mut extents = Extents::new(100);
    assert_eq!(extents.find(101), None);
    assert_eq!(extents.find(100), Some(0));
    extents.take(0, 100).unwrap();
    assert_eq!(extents.used_bytes(), 100);
    extents.give(0, 64).unwrap();
    assert_eq!(extents.find(60), Some(0));
    extents.take(0, 60).unwrap();
    extents.give(64, 36).unwrap();
    assert_eq!((extents.find(36), extents.find(37)), (Some(64), None));
}
