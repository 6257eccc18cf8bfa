//! What the fuzzers share: random mutations of captured bodies, a number of times.
//!
//! Every case has a seed of its own. A run takes as many from 1 on as from those of the day (`MOONKEEPER_TEST_DAY`), which
//! it prints. `MOONKEEPER_FUZZ_SECONDS` lets it go on from there for so long; `MOONKEEPER_FUZZ_SEED` starts with that case,
//! as the message of a failed one says.

use crate::captured::captured;
use crate::dated;
use moonkeeper::wire::functions::Function;
use std::time::{Duration, Instant};

/// Seeds of one day; more than a run takes.
const SEEDS_OF_A_DAY: u64 = 1 << 32;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Where chance comes from.
pub struct Random(u64);

impl Random {
    /// Spreads a small seed over all bits; the state must not be zero.
    pub fn new(seed: u64) -> Self {
        let mixed = (seed.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ (mixed >> 29)) | 1)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`; 0 if there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Names the case when a check inside it fails.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with MOONKEEPER_FUZZ_SEED={}", self.0);
        }
    }
}

/// Changes `bytes` in a few places.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    const NOTABLE: [u8; 10] = [0, 1, 2, 4, 0x15, 0x7f, 0x80, 0xfe, 0xff, 0x0c];
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = NOTABLE[random.below(NOTABLE.len())],
            2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            // The metainfo byte: another width, with or without literal.
            3 if bytes.len() > 4 => bytes[4] = random.next() as u8 & 0x1f,
            4 => bytes.truncate(at),
            5 => {
                let count = 1 + random.below(16);
                let filling = NOTABLE[random.below(NOTABLE.len())];
                bytes.splice(at..at, std::iter::repeat_n(filling, count));
            }
            6 => {
                let other = &others[random.below(others.len())];
                let from = random.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let end = (at + random.below(64)).min(bytes.len());
                let repeated = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, repeated);
            }
        }
    }
}

/// Bodies to start from: everything captured, and for every function a body of zeros under the right codes.
pub fn seeds() -> Vec<(Function, Vec<u8>)> {
    let mut seeds: Vec<_> = captured().into_iter().map(|frame| (frame.function, frame.body)).collect();
    for &function in Function::ALL {
        for shape in [function.request_shape(), Some(function.response_shape())].into_iter().flatten() {
            let mut body = shape.code.to_le_bytes().to_vec();
            body.extend_from_slice(&[0; 160]);
            seeds.push((function, body.clone()));
            body[4..].fill(1);
            seeds.push((function, body));
        }
    }
    seeds
}

/// Calls `case` with `count` fixed seeds and as many of the day; returns how many cases there were.
pub fn cases(count: u64, mut case: impl FnMut(&mut Random)) -> u64 {
    let mut made = 0;
    let mut from = |first: u64, goes_on: &dyn Fn(u64) -> bool| {
        for nth in (0..).take_while(|nth| goes_on(*nth)) {
            let named = Case(first.wrapping_add(nth));
            case(&mut Random::new(named.0));
            made += 1;
        }
    };
    if let Some(seed) = setting("MOONKEEPER_FUZZ_SEED") {
        from(seed, &|nth| nth < count);
        return made;
    }
    from(1, &|nth| nth < count);
    let day = dated::day();
    println!("and {count} cases of day {day} (MOONKEEPER_TEST_DAY={day} repeats them)");
    let until =
        setting("MOONKEEPER_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    from(day * SEEDS_OF_A_DAY, &|nth| nth < count || until.is_some_and(|until| Instant::now() < until));
    made
}
