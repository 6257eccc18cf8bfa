//! Several threads on one primary: whatever the order, the state is sound and the mirror is the same.

mod engine;

use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Chance, Claims, Pair, mount, plain, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
use moonkeeper::engine::record::SoftPin;
use moonkeeper::engine::rules::Rules;
use moonkeeper::engine::types::LogTime;

const THREADS: u64 = 4;
const STEPS: u64 = 6_000;

fn use_it(engine: &Engine, clock: &AtomicU64, seed: u64) {
    let mut chance = Chance::new(seed);
    let client = uuid(10 + seed % THREADS);
    for _ in 0..STEPS {
        let now = LogTime(clock.fetch_add(chance.below(8), Ordering::AcqRel));
        let key = format!("key-{}", chance.below(300));
        let key = key.as_bytes();
        match chance.below(100) {
            0..40 => {
                let group = format!("group-{}", chance.below(6));
                let config = WriteConfig {
                    replicas: 1 + chance.below(2),
                    group: chance.percent(30).then_some(group.as_bytes()),
                    soft_pin: if chance.percent(10) { SoftPin::Enable(500) } else { SoftPin::Preserve },
                    ..plain()
                };
                let size = 1 + chance.below(4_000);
                let started = if chance.percent(25) {
                    engine.sequencer(now).upsert_start(
                        client,
                        key,
                        size,
                        &WriteConfig { group: None, ..config },
                    )
                } else {
                    engine.sequencer(now).put_start(client, key, size, &config)
                };
                if started.result.is_ok() && chance.percent(95) {
                    let _ = engine.sequencer(now).end(client, key, ReplicaTypes::Memory, None);
                }
            }
            40..75 => drop(engine.get(key, now, |object| object.size)),
            75..85 => drop(engine.sequencer(now).remove(key, chance.percent(20))),
            85..90 => drop(engine.evict(now)),
            90..93 => drop(engine.upkeep(now)),
            93..96 => drop(engine.replicate_leases(now)),
            96..98 => drop(engine.sweep(now)),
            98 => drop(engine.remove_all(false, now)),
            _ => {
                let number = 1 + chance.below(3);
                let _ = engine.sequencer(now).unmount(uuid(number));
                mount(engine, number, number, 150_000, now.0);
            }
        }
    }
}

#[test]
fn threads_leave_a_sound_state_and_the_same_on_the_mirror() {
    for round in 0..engine::cases(3) {
        let rules = Rules {
            lease_ttl: 300,
            high_watermark: 0.6,
            discard_timeout: 500,
            release_timeout: 2_000,
            ..Rules::default()
        };
        let pair = Pair::new(rules);
        (1..=4).for_each(|number| mount(&pair.primary, number, number, 150_000, 1_000));
        let clock = AtomicU64::new(1_000);
        std::thread::scope(|scope| {
            for nth in 0..THREADS {
                let (engine, clock) = (&pair.primary, &clock);
                scope.spawn(move || use_it(engine, clock, round * THREADS + nth));
            }
        });
        let now = LogTime(clock.load(Ordering::Acquire));
        let what = format!("round {round}");
        assert!(pair.primary.applied().0 > STEPS, "{what}: hardly anything happened");
        pair.assert_same(&what);
        Claims::default().check(&pair.primary, now, &what);
    }
}
