//! What the tests of the state machine share: a primary with a mirror, a model of who may use which bytes, and random
//! operations.
#![allow(dead_code, unused_imports)] // each test program uses a part of this
#![allow(clippy::unwrap_used)] // clippy knows test functions but not their helpers

pub mod claims;
pub mod pair;
pub mod recording;
pub mod rng;
pub mod seeds;
pub mod snapshots;
pub mod world;

pub use claims::Claims;
pub use pair::Pair;
pub use rng::{Rng, cases};
pub use seeds::seeds;
pub use snapshots::{items, restored};

use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{ReplicaTypes, Started, WriteConfig};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::types::{Answer, ErrorCode, LogTime, Uuid};

/// A client, a segment or a task by number.
pub fn uuid(number: u64) -> Uuid {
    Uuid { first: number, second: 7 }
}

/// One replica, no pins, no group.
pub fn plain<'a>() -> WriteConfig<'a> {
    WriteConfig { replicas: 1, ..WriteConfig::default() }
}

/// Mounts a segment of its own name for `client`.
pub fn mount(engine: &Engine, number: u64, client: u64, size: u64, now: u64) {
    let name = format!("segment-{number}");
    let endpoint = format!("host:{number}");
    let spec = SegmentSpec {
        id: uuid(number),
        name: name.as_bytes(),
        base: 0x1000_0000,
        size,
        te_endpoint: endpoint.as_bytes(),
        protocol: b"tcp",
        host_id: b"host",
    };
    engine.sequencer(LogTime(now)).mount(&spec, uuid(client)).result.unwrap();
}

/// Begins to write.
pub fn start(
    engine: &Engine,
    key: &str,
    size: u64,
    config: &WriteConfig<'_>,
    now: u64,
) -> Result<Started, ErrorCode> {
    engine.sequencer(LogTime(now)).put_start(uuid(1), key.as_bytes(), size, config).result
}

/// Ends a write.
pub fn end(engine: &Engine, key: &str, now: u64) -> Result<(), ErrorCode> {
    engine.sequencer(LogTime(now)).end(uuid(1), key.as_bytes(), ReplicaTypes::Memory, None).result
}

/// Writes an object from beginning to end.
pub fn put(engine: &Engine, key: &str, size: u64, config: &WriteConfig<'_>, now: u64) {
    start(engine, key, size, config, now).unwrap();
    end(engine, key, now).unwrap();
}

/// Whether a key is there, without a promise.
pub fn present(engine: &Engine, key: &str) -> bool {
    engine.is_present(key.as_bytes()).result == Ok(true)
}

/// Reads, which promises the object.
pub fn read(engine: &Engine, key: &str, now: u64) -> Result<(), ErrorCode> {
    engine.get(key.as_bytes(), LogTime(now), |_| ()).result
}

/// Removes by key.
pub fn remove(engine: &Engine, key: &str, force: bool, now: u64) -> Result<(), ErrorCode> {
    engine.sequencer(LogTime(now)).remove(key.as_bytes(), force).result
}

/// Nothing in the state contradicts anything else.
pub fn assert_sound(engine: &Engine, what: &str) {
    let wrong = engine.sequencer(LogTime(0)).audit();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// Clients tell their segments, so that there is memory to give out.
pub fn rejoin(pair: &Pair, now: u64) {
    for client in pair.primary.inherited() {
        let segments = pair.primary.segments();
        let own = segments.iter().filter(|segment| segment.client == client);
        let specs: Vec<_> = own
            .map(|segment| SegmentSpec {
                id: segment.id,
                name: &segment.name,
                base: segment.base,
                size: segment.size,
                te_endpoint: &segment.te_endpoint,
                protocol: &segment.protocol,
                host_id: &segment.host_id,
            })
            .collect();
        pair.primary.remount(&specs, client, LogTime(now)).result.unwrap();
    }
}
