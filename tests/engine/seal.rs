//! A sealed engine takes no change of its own: no commit, no live lease. What the log says is still applied, and what was
//! asked of it while it was sealed leaves no trace.

use std::collections::BTreeSet;

use crate::support::world::World;
use crate::support::{Pair, mount, plain, present, put, read, seeds, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::record::SoftPin;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId};

const STEPS: u64 = 2_000;

/// Every kind of operation of the world has to be tried on a sealed engine; those that are told apart by their success
/// alone cannot be.
const KINDS: usize = 39;

fn reading(engine: &Engine) -> (SequenceId, moonkeeper::engine::types::Digest) {
    let reading = engine.sequencer(LogTime(0)).reading();
    assert_eq!(reading.sequence_id, engine.applied());
    (reading.sequence_id, reading.digest)
}

#[test]
fn no_operation_changes_a_sealed_engine_and_none_leaves_a_trace() {
    let mut tried = BTreeSet::new();
    for seed in seeds(6) {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        let before = reading(&world.pair.primary);
        let written = world.pair.written(|log| log.last);
        world.done.clear();
        world.pair.primary.seal();
        for step in 0..STEPS {
            world.step();
            assert_eq!(
                reading(&world.pair.primary),
                before,
                "seed {seed}, step {step}: a sealed engine changed"
            );
            assert_eq!(
                world.pair.written(|log| log.last),
                written,
                "seed {seed}, step {step}: appended to the log"
            );
        }
        tried.extend(world.done.keys().copied());
        world.pair.primary.unseal();
        for _ in 0..STEPS / 16 {
            (0..16).for_each(|_| world.step());
            world.check("after the seal");
        }
        assert!(world.pair.primary.applied() > before.0, "seed {seed}: an unsealed engine takes changes");
    }
    assert_eq!(tried.len(), KINDS, "{tried:?}");
}

#[test]
fn a_sealed_engine_applies_the_log() {
    let pair = Pair::new(EngineSettings::default());
    pair.mirror.seal();
    mount(&pair.primary, 1, 1, 100_000, 1_000);
    put(&pair.primary, "key", 100, &plain(), 1_000);
    assert!(present(&pair.mirror, "key"));
    pair.assert_same("a sealed mirror");
}

#[test]
fn a_sealed_engine_gives_no_lease() {
    let engine = Engine::new(EngineSettings { lease_ttl_ms: 1_000, ..EngineSettings::default() });
    mount(&engine, 1, 1, 100_000, 1_000);
    put(&engine, "key", 100, &plain(), 1_000);
    let lease = || engine.peek(b"key", |object| object.lease()).result;
    let before = lease();
    engine.seal();
    assert!(engine.is_sealed());
    assert_eq!(engine.get(b"key", LogTime(5_000), |_| ()).depends_on, SequenceId::NEVER);
    assert_eq!(engine.exist(b"key", LogTime(5_000)).depends_on, SequenceId::NEVER);
    assert_eq!(lease(), before, "a lease was given");
    assert_ne!(
        engine.peek(b"key", |_| ()).depends_on,
        SequenceId::NEVER,
        "what promises nothing is answered"
    );
    engine.unseal();
    read(&engine, "key", 5_000).unwrap();
    assert_eq!(lease(), Ok(LogTime(6_000)));
}

/// Each of these goes on until nothing is due, and in a sealed engine everything stays due.
#[test]
fn upkeep_and_eviction_of_a_sealed_engine_end() {
    let settings = EngineSettings {
        lease_ttl_ms: 10,
        release_timeout_ms: 1_000,
        discard_timeout_ms: 500,
        high_watermark: 0.0,
        ..EngineSettings::default()
    };
    let engine = Engine::new(settings);
    mount(&engine, 1, 1, 10_000_000, 1_000);
    let pinned = moonkeeper::engine::ops::WriteConfig { soft_pin: SoftPin::Enable(100), ..plain() };
    for nth in 0..600 {
        put(&engine, &format!("pinned-{nth}"), 64, &pinned, 1_000);
        put(&engine, &format!("read-{nth}"), 64, &plain(), 1_000);
        read(&engine, &format!("read-{nth}"), 1_000).unwrap();
        start(&engine, &format!("stuck-{nth}"), 64, &plain(), 1_000).unwrap();
    }
    let before = reading(&engine);
    engine.seal();
    let now = LogTime(1_000_000);
    assert_eq!(engine.upkeep(now), Default::default());
    assert_eq!(engine.evict(now), 0);
    assert_eq!(engine.evict_expired(now), 0);
    assert_eq!(engine.replicate_leases(now), 0);
    assert_eq!(engine.flush_leases(LogTime(1_000)), 0);
    assert_eq!(engine.remove_all(true, now), (0, SequenceId::NEVER));
    let _ = engine.sequencer(now).unmount(uuid(1));
    engine.sweep(now);
    assert_eq!(reading(&engine), before);
    engine.unseal();
    assert_eq!(engine.upkeep(now).released, 600);
    assert!(engine.evict(now) > 0);
    assert!(engine.remove_all(true, now).0 > 0);
    assert!(!present(&engine, "read-1"), "no object is left marked");
}

#[test]
fn sealing_waits_for_the_sequencer() {
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 100_000, 1_000);
    std::thread::scope(|scope| {
        let mut sequencer = engine.sequencer(LogTime(1_000));
        let sealing = scope.spawn(|| engine.seal());
        for _ in 0..100 {
            std::thread::yield_now();
            assert_ne!(sequencer.commit_digest(), SequenceId::NEVER, "sealed under a commit");
        }
        drop(sequencer);
        sealing.join().unwrap();
        assert_eq!(engine.sequencer(LogTime(1_000)).commit_digest(), SequenceId::NEVER);
    });
}
