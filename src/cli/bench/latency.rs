//! A histogram of latencies: exact to about 3 %, and cheap to add to.

use std::time::Duration;

/// Logarithm of the number of buckets for every doubling.
const STEPS_LOG2: u32 = 5;
const STEPS: u64 = 1 << STEPS_LOG2;

/// Number of calls in each bucket of latency.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self { buckets: vec![0; (65 - STEPS_LOG2 as usize) << STEPS_LOG2], count: 0 }
    }

    pub(super) fn add(&mut self, latency: Duration) {
        self.buckets[bucket(latency.as_nanos() as u64)] += 1;
        self.count += 1;
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, more)| *mine += more);
        self.count += other.count;
    }

    /// Returns the latency in microseconds below which this share of the calls lies; 0 if there are none.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share) as u64;
        let mut seen = 0;
        for (i, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen > wanted {
                return upper(i) as f64 / 1000.0;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEPS_LOG2;
    ((u64::from(shift) << STEPS_LOG2) + (nanos >> shift)) as usize
}

/// Returns the largest number that falls into a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = (bucket >> STEPS_LOG2) - 1;
    (((bucket & (STEPS - 1)) + STEPS + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut all = Latencies::new();
        let mut half = Latencies::new();
        for micros in 1..=1_000 {
            (if micros % 2 == 0 { &mut all } else { &mut half }).add(Duration::from_micros(micros));
        }
        all.add_all(&half);
        for (share, exact) in [(0.5, 501.0), (0.99, 991.0), (0.0, 1.0)] {
            let quantile = all.quantile(share);
            assert!((quantile / exact - 1.0).abs() < 0.04, "{share}: {quantile}, not {exact}");
        }
        assert_eq!(Latencies::new().quantile(0.5), 0.0);
    }

    #[test]
    fn a_bucket_holds_what_is_put_into_it() {
        for nanos in (0..200).chain((7..63).map(|bits| (1 << bits) + 5)) {
            let bucket = bucket(nanos);
            assert!(nanos <= upper(bucket) && (bucket == 0 || nanos > upper(bucket - 1)), "{nanos}");
        }
    }
}
