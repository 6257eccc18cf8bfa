//! Counters of events that are not RPCs, and the histogram of value sizes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of events since the start of the process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Puts that found no memory at all.
    pub put_start_alloc_failures: AtomicU64,
    /// Puts that got fewer replicas than they asked for.
    pub put_start_partial_allocations: AtomicU64,
    /// Puts that are parked at present, waiting for clients to rejoin.
    pub parked_puts: AtomicU64,
    /// Puts that were ever parked.
    pub parked_puts_ever: AtomicU64,
    /// Parked puts that found memory, or failed for another reason, after clients had rejoined.
    pub parked_puts_resumed: AtomicU64,
    /// Parked puts that were answered that there is no memory.
    pub parked_puts_starved: AtomicU64,
    /// Unfinished puts that were replaced or dropped.
    pub put_start_discards: AtomicU64,
    /// Dropped puts whose memory was released.
    pub put_start_releases: AtomicU64,
    /// Keys for which replicas were asked, batches counted by item.
    pub gets: AtomicU64,
    /// Those of the gets that returned at least one replica.
    pub valid_gets: AtomicU64,
    /// Those of the gets that returned a replica in memory.
    pub memory_hits: AtomicU64,
    /// Sizes of the objects in these hits, summed up.
    pub memory_hit_bytes: AtomicU64,
    /// Rounds of eviction that were started.
    pub attempted_evictions: AtomicU64,
    /// Rounds of eviction that freed something.
    pub successful_evictions: AtomicU64,
    pub evicted_keys: AtomicU64,
    pub evicted_bytes: AtomicU64,
    pub expired_clients: AtomicU64,
    /// Requests that could not be decoded or that named an unknown function.
    pub malformed_requests: AtomicU64,
    /// Calls that were refused because the log had no space for too long.
    pub refused_changes: AtomicU64,
    /// Connections between masters that could not be authenticated.
    pub peer_auth_failures: AtomicU64,
    /// How often the connection to a companion was lost, or one could not be started.
    pub companion_failures: AtomicU64,
    /// 1 while a companion watches this process, else 0.
    pub companion_connected: AtomicU64,
    /// Connections that clients have opened.
    pub accepted_connections: AtomicU64,
}

impl Counters {
    /// Adds `by` events to one of the counters.
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Relaxed);
    }

    /// Counts one look-up of replicas, with the object's size if it was found.
    pub fn get(&self, found: Option<u64>) {
        self.gets.fetch_add(1, Relaxed);
        if let Some(bytes) = found {
            self.valid_gets.fetch_add(1, Relaxed);
            self.memory_hits.fetch_add(1, Relaxed);
            self.memory_hit_bytes.fetch_add(bytes, Relaxed);
        }
    }
}

/// Upper bounds of the reference's buckets, in bytes.
const BOUNDS: [u64; 7] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// A histogram of the sizes of new objects' values.
#[derive(Debug, Default)]
pub struct ValueSizes {
    /// Number of values up to each bound, and last of those above all of them. Not cumulative.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl ValueSizes {
    /// Counts this many new objects of one size.
    pub fn observe(&self, bytes: u64, objects: u64) {
        let bucket = BOUNDS.iter().position(|bound| bytes <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(objects, Relaxed);
        self.sum.fetch_add(bytes.wrapping_mul(objects), Relaxed);
    }

    /// Returns the bounds with their cumulative counts, then the count and the sum of all values.
    pub(super) fn snapshot(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let mut total = 0;
        let counts = self.buckets.each_ref().map(|bucket| {
            total += bucket.load(Relaxed);
            total
        });
        (BOUNDS.into_iter().zip(counts).collect(), total, self.sum.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_cumulative_buckets() {
        let sizes = ValueSizes::default();
        for bytes in [1, 4096, 4097, 64 << 20, 1 << 40] {
            sizes.observe(bytes, 1);
        }
        let (buckets, count, sum) = sizes.snapshot();
        let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 4]);
        assert_eq!((count, sum), (5, 1 + 4096 + 4097 + (64 << 20) + (1 << 40)));
    }
}
