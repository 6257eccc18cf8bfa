//! Writes in runs, whose shards stay locked from the first to the last, do what the same writes do one by one.

use crate::support::{Rng, assert_sound, mount, plain, uuid};
use moonkeeper::engine::key::Key;
use moonkeeper::engine::object::Object;
use moonkeeper::engine::ops::{self, ReplicaTypes, WriteConfig, WriteRun};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{Answer, ErrorCode, LogTime, SequenceId};
use moonkeeper::engine::{Engine, Sequencer};

const STEPS: u64 = 1_500;

#[derive(Clone, Copy)]
enum Write {
    Put(u64),
    Upsert(u64),
    End,
    Revoke,
}

/// What a writer is told: addresses of replicas, nothing for an End, or why not; and what that rests on.
type Told = (Result<Vec<u64>, ErrorCode>, SequenceId);

fn told(answer: Answer<Vec<u64>>) -> Told {
    (answer.result, answer.depends_on)
}

fn addresses(object: &Object) -> Vec<u64> {
    object.replicas().map(|replica| replica.address()).collect()
}

fn one_by_one(
    sequencer: &mut Sequencer<'_>,
    write: Write,
    keys: &[String],
    config: &WriteConfig<'_>,
) -> Vec<Told> {
    let each = |key: &String| {
        let (client, key) = (uuid(1), key.as_bytes());
        told(match write {
            Write::Put(size) => sequencer
                .put_start(client, key, size, config)
                .map(|started| started.replicas.iter().map(|replica| replica.address()).collect()),
            Write::Upsert(size) => sequencer
                .upsert_start(client, key, size, config)
                .map(|started| started.replicas.iter().map(|replica| replica.address()).collect()),
            Write::End => sequencer.end(client, key, ReplicaTypes::Memory, None).map(|()| Vec::new()),
            Write::Revoke => sequencer.revoke(client, key, ReplicaTypes::Memory).map(|()| Vec::new()),
        })
    };
    keys.iter().map(each).collect()
}

fn in_runs(
    sequencer: &mut Sequencer<'_>,
    write: Write,
    keys: &[String],
    config: &WriteConfig<'_>,
    length: usize,
) -> Vec<Told> {
    let keys: Vec<Key<'_>> = keys.iter().map(|key| Key::new(key.as_bytes())).collect();
    let mut all = Vec::new();
    for keys in keys.chunks(length) {
        let mut run = sequencer.run(keys);
        all.extend(keys.iter().map(|key| {
            let client = uuid(1);
            let start = |size| ops::Write { client, key: *key, size, config: *config };
            told(match write {
                Write::Put(size) => run.put_start(&start(size), addresses),
                Write::Upsert(size) => run.upsert_start(&start(size), addresses),
                Write::End => run.end(client, *key, ReplicaTypes::Memory, None).map(|()| Vec::new()),
                Write::Revoke => run.revoke(client, *key, ReplicaTypes::Memory).map(|()| Vec::new()),
            })
        }));
    }
    all
}

#[test]
fn runs_do_what_single_writes_do() {
    for seed in crate::support::seeds(4) {
        let settings = EngineSettings {
            discard_timeout_ms: 50,
            release_timeout_ms: 100,
            lease_ttl_ms: 20,
            ..EngineSettings::default()
        };
        let engines = [Engine::new(settings.clone()), Engine::new(settings)];
        for engine in &engines {
            (1..=3).for_each(|number| mount(engine, number, number, 40_000, 1_000));
        }
        let mut rng = Rng::new(seed);
        let mut now = 1_000;
        let (mut succeeded, mut refused) = (0, 0);
        for step in 0..STEPS {
            now += rng.below(12);
            if rng.percent(3) {
                // Objects lose replicas: the next write to such a key drops what is left first.
                let number = 1 + rng.below(3);
                for engine in &engines {
                    let _ = engine.sequencer(LogTime(now)).unmount(uuid(number));
                    mount(engine, number, number, 40_000, now);
                }
            }
            let keys: Vec<String> =
                (0..1 + rng.below(40)).map(|_| format!("key-{}", rng.below(60))).collect();
            let size = 64 * (1 + rng.below(10));
            let write = match rng.below(10) {
                0..4 => Write::Put(size),
                4..6 => Write::Upsert(size),
                6..9 => Write::End,
                _ => Write::Revoke,
            };
            let config = WriteConfig { replicas: 1 + rng.below(2), ..plain() };
            // Runs as they are meant to be, and some that are too long.
            let length = if rng.percent(80) { WriteRun::LENGTH } else { 2 * WriteRun::LENGTH + 1 };
            let single = one_by_one(&mut engines[0].sequencer(LogTime(now)), write, &keys, &config);
            let runs = in_runs(&mut engines[1].sequencer(LogTime(now)), write, &keys, &config, length);
            assert_eq!(single, runs, "seed {seed} step {step}");
            let good = runs.iter().filter(|(result, _)| result.is_ok()).count();
            succeeded += good;
            refused += runs.len() - good;
            let [one, other] = engines.each_ref().map(|engine| engine.sequencer(LogTime(now)).digest());
            assert_eq!(one, other, "seed {seed} step {step}");
            if rng.percent(10) {
                for engine in &engines {
                    engine.upkeep(LogTime(now));
                }
            }
        }
        assert!(succeeded > 1_000 && refused > 1_000, "too one-sided: {succeeded} and {refused}");
        engines.iter().for_each(|engine| assert_sound(engine, "at the end"));
    }
}
