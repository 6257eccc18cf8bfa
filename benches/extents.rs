//! Speed and fragmentation of the allocator of a segment: `cargo bench --bench extents`.
//!
//! The segment is filled and then churned at 90 % with a mix of sizes like that of a KV cache. Speed: nanoseconds of
//! `find` + `take` and of `give`, and of `rebuild` for each live range. Fragmentation: how full the segment is, in
//! requested bytes, when the first allocation fails; beside it the same for other policies, on plain maps.

#[path = "extents/policy.rs"]
mod policy;

use moonkeeper::engine::extents::Extents;
use policy::{FirstFit, GoodFit, Place};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

/// A xorshift generator: the same run every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

#[derive(Debug, Clone, Copy)]
enum Mix {
    /// 65 % powers of two from 64 KiB to 4 MiB, 20 % below 4 KiB, 15 % odd ones up to 8 MiB.
    Blocks,
    /// 90 % of four sizes as one model with several caches has them, 10 % below 4 KiB.
    Fixed,
    /// Every size between 64 KiB and 4 MiB.
    Odd,
}

impl Mix {
    fn draw(self, random: &mut Random) -> u64 {
        let percent = random.below(100);
        match self {
            Mix::Blocks if percent < 20 => 1 + random.below(4 * KIB),
            Mix::Blocks if percent < 85 => (64 * KIB) << random.below(7),
            Mix::Blocks => 4 * KIB + random.below(8192 * KIB),
            Mix::Fixed if percent < 10 => 1 + random.below(4 * KIB),
            Mix::Fixed => [288, 576, 1024, 2048][random.below(4) as usize] * KIB,
            Mix::Odd => 64 * KIB + random.below(4032 * KIB),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Order {
    /// Any object goes.
    Random,
    /// One of the oldest quarter goes.
    Aged,
}

/// Live objects (offset, length), oldest first, of one segment under one policy.
struct Run<P> {
    place: P,
    live: VecDeque<(u64, u64)>,
    requested: u64,
    size: u64,
}

impl<P: Place> Run<P> {
    fn new(size: u64) -> Self {
        Self { place: P::all_free(size), live: VecDeque::new(), requested: 0, size }
    }

    fn put(&mut self, len: u64) -> bool {
        let Some(offset) = self.place.place(len) else { return false };
        self.live.push_back((offset, len));
        self.requested += len;
        true
    }

    fn pick(&mut self, order: Order, random: &mut Random) -> Option<(u64, u64)> {
        let among = match order {
            Order::Random => self.live.len(),
            Order::Aged => self.live.len().div_ceil(4),
        };
        let picked = self.live.swap_remove_front(random.below(among as u64) as usize)?;
        self.requested -= picked.1;
        Some(picked)
    }

    fn remove(&mut self, order: Order, random: &mut Random) {
        if let Some((offset, len)) = self.pick(order, random) {
            self.place.give_back(offset, len);
        }
    }

    /// Fill at the first failure, after as many bytes as `times` the segment went through it at 90 %; and how many
    /// allocations failed below that.
    fn fill_at_first_failure(mix: Mix, order: Order, size: u64, times: u64) -> (f64, u64) {
        let (mut run, mut random) = (Self::new(size), Random(0x2545_F491_4F6C_DD1D));
        let (mut written, mut failed) = (0, 0);
        while written < size * times {
            let len = mix.draw(&mut random);
            written += len;
            while !run.put(len) {
                failed += 1;
                run.remove(order, &mut random);
            }
            while run.requested > size / 10 * 9 {
                run.remove(order, &mut random);
            }
        }
        while run.put(mix.draw(&mut random)) {}
        (run.requested as f64 / run.size as f64 * 100.0, failed)
    }
}

fn fragmentation() {
    println!("fill at the first failure, of 16 GiB (allocations that failed below 90 %)");
    println!("{:24} {:>18} {:>18} {:>18}", "mix, removal", "best fit (ours)", "first fit", "good fit 1/8");
    for mix in [Mix::Blocks, Mix::Fixed, Mix::Odd] {
        for order in [Order::Random, Order::Aged] {
            let best = Run::<Extents>::fill_at_first_failure(mix, order, 16 * GIB, 15);
            let first = Run::<FirstFit>::fill_at_first_failure(mix, order, 16 * GIB, 15);
            let good = Run::<GoodFit>::fill_at_first_failure(mix, order, 16 * GIB, 15);
            let cell = |(fill, failed): (f64, u64)| format!("{fill:.2} % ({failed})");
            let name = format!("{mix:?}, {order:?}");
            println!("{name:24} {:>18} {:>18} {:>18}", cell(best), cell(first), cell(good));
        }
    }
}

/// The middle one: a round in which the machine did something else does not count.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn speed(size: u64, mix: Mix) {
    const ROUND: usize = 1_000;
    let (mut run, mut random) = (Run::<Extents>::new(size), Random(0x2545_F491_4F6C_DD1D));
    while run.requested < size / 10 * 9 {
        run.put(mix.draw(&mut random));
    }
    let (mut taking, mut giving) = (Vec::new(), Vec::new());
    for _ in 0..2_000 {
        let out: Vec<_> = (0..ROUND).filter_map(|_| run.pick(Order::Random, &mut random)).collect();
        let start = Instant::now();
        for &(offset, len) in &out {
            run.place.give_back(offset, len);
        }
        giving.push(start.elapsed() / ROUND as u32);
        let (mut lens, mut missing) = (Vec::new(), (size / 10 * 9).saturating_sub(run.requested));
        while missing > 0 {
            let len = mix.draw(&mut random);
            missing = missing.saturating_sub(len);
            lens.push(len);
        }
        let start = Instant::now();
        for &len in &lens {
            run.put(len);
        }
        taking.push(start.elapsed() / lens.len().max(1) as u32);
    }
    let mut ranges = 0;
    run.place.for_each_free(|_, _| ranges += 1);
    let start = Instant::now();
    let rebuilt = Extents::rebuild(size, run.live.iter().copied());
    let rebuild = start.elapsed() / run.live.len() as u32;
    assert_eq!(rebuilt.map(|rebuilt| rebuilt.free_bytes()), Ok(run.place.free_bytes()));
    println!(
        "{:>6} GiB {mix:?}: {:>9} live, {ranges:>7} free ranges: find+take {:>4} ns, give {:>4} ns, rebuild {:>3} ns/live",
        size / GIB,
        run.live.len(),
        median(taking).as_nanos(),
        median(giving).as_nanos(),
        rebuild.as_nanos(),
    );
}

fn main() {
    for size in [16, 256, 4096] {
        for mix in [Mix::Blocks, Mix::Fixed] {
            speed(size * GIB, mix);
        }
    }
    fragmentation();
}
