//! Snapshots that are taken while the state changes: they have the state of the moment at which they began.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::pair::picture;
use crate::support::snapshots::from_items;
use crate::support::world::World;
use crate::support::{Rng, assert_sound, end, items, mount, plain, put, read, remove, seeds, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::key::{Key, KeyHash};
use moonkeeper::engine::record::{Place, Record, SoftPin, Start};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::snapshot::{BeginError, Capture, CaptureError, Check, Restore};
use moonkeeper::engine::types::{LogTime, SegmentNumber, SequenceId};

/// What a snapshot has to have: the state when it began.
struct Expected {
    at: SequenceId,
    /// Length of the items of a snapshot that nothing interrupted.
    length: usize,
    picture: BTreeMap<String, String>,
}

impl Expected {
    fn of(engine: &Arc<Engine>) -> Self {
        Self { at: engine.applied(), length: items(engine).len(), picture: everything(engine) }
    }

    /// Returns what is wrong with these items.
    fn compare(&self, items: &[u8]) -> Result<(), String> {
        let mut check = Check::default();
        check.chunk(items).map_err(|why| format!("check: {why}"))?;
        check.finish().map_err(|why| format!("check: {why}"))?;
        let mut restore = Restore::new(EngineSettings::default(), None);
        restore.chunk(items).map_err(|why| format!("restore: {why}"))?;
        let restored = restore.finish().map_err(|why| format!("restore: {why}"))?;
        let wrong = restored.sequencer(LogTime(0)).audit();
        let picture = everything(&restored);
        let differs = picture.iter().zip(&self.picture).find(|(found, expected)| found != expected);
        match (wrong.first(), differs) {
            (Some(wrong), _) => Err(format!("audit: {wrong}")),
            (_, Some((found, expected))) => Err(format!("{found:?} instead of {expected:?}")),
            _ if restored.applied() != self.at => Err(format!("it is at {:?}", restored.applied())),
            _ if picture.len() != self.picture.len() => Err("something is missing".into()),
            // An unmounted segment may come twice.
            _ if items.len() < self.length => Err(format!("{} bytes of {}", items.len(), self.length)),
            _ => Ok(()),
        }
    }
}

/// The picture of a state, and what of clients, tasks and metadata is not in it.
fn everything(engine: &Engine) -> BTreeMap<String, String> {
    let mut all = picture(engine);
    for number in 100..104 {
        all.insert(format!("client {number}"), format!("{:?}", engine.client(uuid(number))));
    }
    for number in 0..8 {
        let entry = engine.metadata(format!("entry-{number}").as_bytes());
        all.insert(format!("entry {number}"), format!("{entry:?}"));
    }
    for number in 1000..1040 {
        let task = engine.sequencer(LogTime(0)).query_task(uuid(number)).result;
        all.insert(format!("task {number}"), format!("{task:?}"));
    }
    let reading = engine.sequencer(LogTime(0)).reading();
    all.insert("reading".into(), format!("{reading:?}"));
    all
}

/// Takes a snapshot step by step, and does something else before each.
fn take(mut capture: Capture, most: usize, mut between: impl FnMut()) -> Result<Vec<u8>, CaptureError> {
    let mut items = Vec::new();
    loop {
        between();
        if !capture.step(most, &mut items)? {
            return Ok(items);
        }
    }
}

/// Snapshots of a world that goes on. Returns what is wrong with the first that is.
fn snapshots_of_a_world(seed: u64, snapshots: u64) -> Result<World, String> {
    let mut world = World::new(seed);
    let mut rng = Rng::new(seed);
    for nth in 0..snapshots {
        for _ in 0..rng.below(600) {
            world.step();
        }
        let of_the_mirror = rng.percent(80);
        let engine = Arc::clone(if of_the_mirror { &world.pair.mirror } else { &world.pair.primary });
        let expected = Expected::of(&engine);
        let capture = Capture::begin(&engine, expected.at).unwrap();
        // Much happens before the first step, or a little before each.
        let (first, each) = ([0, 0, 300][rng.below(3) as usize], [20, 80, 200][rng.below(3) as usize]);
        (0..first).for_each(|_| world.step());
        let items = take(capture, 1, || {
            (0..each / 100 + u64::from(rng.percent(each % 100))).for_each(|_| world.step());
        });
        let items = items.map_err(|why| format!("snapshot {nth} of seed {seed}: {why}"))?;
        expected.compare(&items).map_err(|why| format!("snapshot {nth} of seed {seed}: {why}"))?;
    }
    Ok(world)
}

#[test]
fn a_snapshot_of_a_state_that_changes_is_that_of_its_beginning() {
    let mut done = BTreeMap::<_, u64>::new();
    for seed in seeds(10) {
        let mut world = snapshots_of_a_world(seed + 9_000, 12).unwrap();
        world.check("after the snapshots");
        for (kind, times) in &world.done {
            *done.entry(*kind).or_default() += times;
        }
    }
    let missing: Vec<_> = done.iter().filter(|(_, times)| **times == 0).collect();
    assert!(missing.is_empty(), "nothing of this happened: {missing:?}");
}

/// Bugs on purpose: each makes a snapshot that differs from the state that it is of.
#[cfg(feature = "planted")]
#[test]
fn planted_what_a_snapshot_forgets_is_noticed() {
    use moonkeeper::planted::{Bug, plant};
    for bug in [Bug::SkipPreImage, Bug::SkipEndedWrite, Bug::SnapshotSegmentAsNow] {
        plant(Some(bug));
        let found = (0..20).find_map(|seed| snapshots_of_a_world(seed + 9_000, 12).err());
        plant(None);
        assert!(found.is_some(), "{bug:?} is not found");
    }
}

/// Keys of few shards, so that there are many pages in each.
fn crowded_keys(count: usize) -> Vec<String> {
    let keys = (0..).map(|number: u64| format!("key-{number}"));
    keys.filter(|key| KeyHash::of(key.as_bytes()).shard() < 3).take(count).collect()
}

#[test]
fn every_page_of_a_shard_is_kept_as_it_was() {
    for seed in seeds(6) {
        let mut rng = Rng::new(seed);
        let engine = Arc::new(Engine::new(EngineSettings { lease_ttl_ms: 10, ..EngineSettings::default() }));
        (1..=3).for_each(|number| mount(&engine, number, number, 1 << 24, 1_000));
        let keys = crowded_keys(3_000);
        keys.iter().take(2_000).for_each(|key| put(&engine, key, 64, &plain(), 1_000));
        let expected = Expected::of(&engine);
        let capture = Capture::begin(&engine, expected.at).unwrap();
        let mut now = 2_000;
        let items = take(capture, 64, || {
            for _ in 0..rng.below(60) {
                now += 20;
                let key = &keys[rng.below(keys.len() as u64) as usize];
                match rng.below(100) {
                    0..40 => _ = remove(&engine, key, true, now),
                    40..70 => {
                        let mut sequencer = engine.sequencer(LogTime(now));
                        // In place where the key is there, a new object otherwise.
                        let _ = sequencer.upsert_start(uuid(1), key.as_bytes(), 64, &plain());
                        drop(sequencer);
                        let _ = end(&engine, key, now);
                    }
                    70..90 => _ = start(&engine, key, 64, &plain(), now),
                    90..99 => {
                        let _ = read(&engine, key, now);
                        engine.replicate_leases(LogTime(now));
                    }
                    // Every shard becomes empty, and its pages are given back.
                    _ if rng.percent(10) => _ = engine.remove_all(true, LogTime(now)),
                    _ => {}
                }
            }
        });
        expected.compare(&items.unwrap()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_sound(&engine, "after the snapshot");
    }
}

#[test]
fn reservations_that_end_meanwhile_are_kept() {
    let engine = Arc::new(Engine::new(EngineSettings { discard_timeout_ms: 1, ..EngineSettings::default() }));
    mount(&engine, 1, 1, 1 << 24, 1_000);
    let key = |number: u64| format!("key-{number}");
    // All are being written; half of them anew, so that the bytes of the first write are discarded.
    (0..400).for_each(|number| _ = start(&engine, &key(number), 64, &plain(), 1_000).unwrap());
    (0..200).for_each(|number| _ = start(&engine, &key(2 * number), 128, &plain(), 2_000).unwrap());
    let expected = Expected::of(&engine);
    let discarded = expected.picture.keys().filter(|name| name.starts_with("discarded")).count();
    assert_eq!(discarded, 200);
    let mut next = 0;
    let mut now = 700_000;
    let capture = Capture::begin(&engine, expected.at).unwrap();
    let items = take(capture, 7, || {
        if next < 400 {
            let _ = end(&engine, &key(next), now);
            next += 1;
        }
        // Some releases at a time: those of one record each.
        now += 1;
        if next % 50 == 0 {
            engine.upkeep(LogTime(now));
        }
    });
    expected.compare(&items.unwrap()).unwrap();
    assert!(!everything(&engine).keys().any(|name| name.starts_with("discarded")), "all were released");
}

/// A fault of the log discards the bytes of several objects at once, one of them under the id of the object, which the
/// snapshot has still.
#[test]
fn bytes_discarded_under_an_old_id_are_not_part_of_an_older_snapshot() {
    for released in [false, true] {
        let engine = Arc::new(Engine::new(EngineSettings::default()));
        mount(&engine, 1, 1, 1 << 20, 1_000);
        let keys = crowded_keys(4);
        keys.iter().for_each(|key| put(&engine, key, 1_024, &plain(), 1_000));
        let expected = Expected::of(&engine);
        let capture = Capture::begin(&engine, expected.at).unwrap();
        // A write to all of the memory, whoever has it.
        let over = Record::PutStart(Start {
            key: Key::new(b"over"),
            client: uuid(1),
            size: 1 << 20,
            places: &[Place { segment: SegmentNumber(0), offset: 0 }],
            hard_pin: false,
            soft_pin: SoftPin::Preserve,
            group: None,
            data_type: 0,
        });
        let mut sequencer = engine.sequencer(LogTime(2_000));
        let id = sequencer.next_id();
        sequencer.apply(Format::NEWEST, id, LogTime(2_000), &over);
        let mut discarded = Vec::new();
        sequencer.each_discarded(|record, _, _, _| discarded.push(record));
        drop(sequencer);
        assert_eq!(discarded.iter().filter(|record| **record <= expected.at).count(), 3, "{discarded:?}");
        if released {
            engine.upkeep(LogTime(2_000_000));
        }
        let items = take(capture, 1, || ()).unwrap();
        expected.compare(&items).unwrap();
    }
}

#[test]
fn there_is_one_snapshot_at_a_time_and_one_that_is_dropped_leaves_nothing() {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    mount(&engine, 1, 1, 1 << 24, 1_000);
    put(&engine, "first", 64, &plain(), 1_000);
    let at = engine.applied();
    let capture = Capture::begin(&engine, at).unwrap();
    assert_eq!(Capture::begin(&engine, at).unwrap_err(), BeginError::UnderWay);
    put(&engine, "second", 64, &plain(), 1_000);
    drop(capture);
    let elsewhere = BeginError::Elsewhere { found: engine.applied(), said: at };
    assert_eq!(Capture::begin(&engine, at).unwrap_err(), elsewhere);
    assert_eq!(from_items(&items(&engine)).len(), 2);
}

#[test]
fn a_snapshot_that_would_take_too_much_memory_is_given_up() {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    mount(&engine, 1, 1, 1 << 24, 1_000);
    let key = |number: u64| format!("key-{number}");
    (0..1_000).for_each(|number| put(&engine, &key(number), 64, &plain(), 1_000));
    let mut capture = Capture::bounded(&engine, engine.applied(), 10_000).unwrap();
    (0..1_000).for_each(|number| remove(&engine, &key(number), true, 2_000).unwrap());
    let mut items = Vec::new();
    let why = (0..).find_map(|_| capture.step(64, &mut items).err()).unwrap();
    let CaptureError::TooManyChanges { waiting } = why else { panic!("{why}") };
    assert!((10_000..11_000).contains(&waiting), "it stops at the bound: {waiting}");
    drop(capture);
    assert!(from_items(&crate::support::items(&engine)).is_empty());
}
