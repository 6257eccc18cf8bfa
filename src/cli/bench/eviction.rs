//! The cost of eviction with few and with many objects: it should depend on the number of victims alone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::engine::ops::{ReplicaTypes, WriteConfig};
use crate::engine::record::SoftPin;
use crate::engine::segment::SegmentSpec;
use crate::engine::settings::EngineSettings;
use crate::engine::types::{ErrorCode, LogTime, Uuid};

use super::BenchError;

/// Objects that one eviction is set to remove; its time is scaled to this number.
const VICTIMS: u64 = 1_000;
/// Evictions from each population, of which the median counts.
const ROUNDS: usize = 25;
/// Milliseconds over which objects are read, so that their leases end at different times.
const READING: u64 = 60_000;

const CLIENT: Uuid = Uuid { first: 1, second: 2 };

/// Evicts from a hundred thousand and from a million objects, in turn.
pub(super) fn measure() -> Result<Value, BenchError> {
    let (few, many) = (100_000, 1_000_000);
    let populations = [Population::new(few)?, Population::new(many)?];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (population, times) in populations.iter().zip(&mut times) {
            times.push(population.evict());
        }
    }
    let [few_micros, many_micros] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    Ok(json!({
        "victims": VICTIMS,
        "few_objects": few,
        "few_us": few_micros,
        "many_objects": many,
        "many_us": many_micros,
        "ratio": many_micros / few_micros,
    }))
}

struct Population {
    engine: Engine,
    now: LogTime,
}

impl Population {
    /// Builds an engine with this many objects, all read once, in another order than they were written in.
    fn new(objects: u64) -> Result<Self, BenchError> {
        // Memory is always short, but the segment is so large that the amount does not matter: every eviction takes the
        // same share.
        let eviction_ratio = VICTIMS as f64 / objects as f64;
        let engine =
            Engine::new(EngineSettings { high_watermark: 0.0, eviction_ratio, ..EngineSettings::default() });
        let start = LogTime(1_000_000);
        let refused = |call| move |code: ErrorCode| BenchError::Refused { call, code: code.0 };
        let spec = SegmentSpec {
            id: CLIENT,
            name: b"bench",
            base: 1 << 32,
            size: 1 << 60,
            te_endpoint: b"127.0.0.1:17001",
            protocol: b"tcp",
            host_id: b"",
        };
        engine.sequencer(start).mount(&spec, CLIENT).result.map_err(refused("MountSegment"))?;
        let config = WriteConfig {
            replicas: 1,
            soft_pin: SoftPin::Preserve,
            hard_pin: false,
            preferred: &[],
            host_id: b"",
            data_type: 0,
            group: None,
        };
        for number in 0..objects {
            let mut sequencer = engine.sequencer(start);
            let key = key(number);
            sequencer.put_start(CLIENT, &key, 4096, &config).result.map_err(refused("PutStart"))?;
            sequencer.end(CLIENT, &key, ReplicaTypes::Memory, None).result.map_err(refused("PutEnd"))?;
        }
        for i in 0..objects {
            let now = start.plus(i * READING / objects);
            // A prime that divides neither population visits every object once.
            engine.exist(&key(i * 7_919 % objects), now).result.map_err(refused("ExistKey"))?;
            if i % 10_000 == 0 {
                engine.replicate_leases(now);
            }
        }
        let end = start.plus(READING);
        engine.replicate_leases(end);
        let now = end.plus(2 * engine.settings.lease_ttl_ms);
        Ok(Self { engine, now })
    }

    /// Returns the time of one eviction, scaled to [`VICTIMS`] victims.
    fn evict(&self) -> Duration {
        let start = Instant::now();
        let evicted = self.engine.evict(self.now);
        let elapsed = start.elapsed();
        elapsed.mul_f64(VICTIMS as f64 / evicted.max(1) as f64)
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("moonkeeper/bench/...............................{number:016x}").into_bytes()
}
