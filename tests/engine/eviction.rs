//! Who is evicted: in which order, how many, and who never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::support::{Pair, Rng, end, mount, plain, present, put, read, remove, start, uuid};
use moonkeeper::engine::eviction::MAX_VICTIMS;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::record::{DynamicLease, LeaseBucket, Record, SoftPin};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{ErrorCode, LogTime, ObjectId, SequenceId};
use moonkeeper::engine::{Engine, Log};

/// Evicts whenever it is asked to, this share of the objects.
fn eager(share: f64) -> EngineSettings {
    EngineSettings {
        high_watermark: 0.0,
        eviction_ratio: share,
        lease_ttl_ms: 1_000,
        ..EngineSettings::default()
    }
}

/// So large that what is used is next to nothing, and the share of objects to evict is what the rules say.
const HUGE: u64 = 1 << 50;

fn in_group(group: &str) -> WriteConfig<'_> {
    WriteConfig { group: Some(group.as_bytes()), ..plain() }
}

fn pinned_for<'a>(ms: u64) -> WriteConfig<'a> {
    WriteConfig { soft_pin: SoftPin::Enable(ms), ..plain() }
}

/// Every object by key: its place in the order of eviction, and its lease.
fn places(engine: &Engine) -> BTreeMap<String, ((LeaseBucket, ObjectId), LogTime)> {
    let mut all = BTreeMap::new();
    for shard in 0..SHARDS {
        engine.walk(shard, |object| {
            let place = (LeaseBucket::of(object.lease()), object.id);
            all.insert(String::from_utf8_lossy(&object.key).into_owned(), (place, object.lease()));
        });
    }
    all
}

#[test]
fn the_least_recently_promised_go_first_and_no_more_than_asked() {
    for seed in crate::support::seeds(6) {
        let mut rng = Rng::new(seed);
        let pair = Pair::new(eager(0.07));
        let engine = &pair.primary;
        mount(engine, 1, 1, HUGE, 1);
        let mut now = 1_000;
        for number in 0..600 {
            now += rng.below(30);
            put(engine, &format!("key-{number}"), 64, &plain(), now);
        }
        for round in 0..12 {
            for _ in 0..200 {
                now += rng.below(20);
                let _ = read(engine, &format!("key-{}", rng.below(600)), now);
                if rng.percent(2) {
                    engine.replicate_leases(LogTime(now));
                }
            }
            now += rng.below(1_500);
            let what = format!("seed {seed}, round {round}");
            let before = places(engine);
            let want = (before.len() as f64 * 0.07).ceil() as usize;
            let evicted = engine.evict(LogTime(now)) as usize;
            let after = places(engine);
            let (stayed, gone): (Vec<_>, Vec<_>) =
                before.iter().partition(|(key, _)| after.contains_key(*key));
            assert_eq!(gone.len(), evicted, "{what}: the count is wrong");
            let free: Vec<_> = before.values().filter(|(_, lease)| lease.0 <= now).collect();
            assert_eq!(evicted, want.min(free.len()), "{what}: of {} without a lease", free.len());
            for (key, (_, lease)) in &gone {
                assert!(lease.0 <= now, "{what}: {key} had a lease until {lease:?} at {now}");
            }
            let last = gone.iter().map(|(_, (place, _))| *place).max();
            let first =
                stayed.iter().filter(|(_, (_, lease))| lease.0 <= now).map(|(_, (place, _))| *place).min();
            if let (Some(last), Some(first)) = (last, first) {
                assert!(last < first, "{what}: {last:?} went before {first:?}");
            }
            pair.assert_same(&what);
        }
    }
}

#[test]
fn what_is_leased_pinned_written_or_copied_never_goes() {
    let pair = Pair::new(eager(1.0));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    mount(engine, 2, 1, HUGE, 1);
    for number in 0..20 {
        put(engine, &format!("plain-{number}"), 64, &plain(), 100);
    }
    let on_first = WriteConfig { preferred: &[b"segment-1"], ..plain() };
    put(engine, "read", 64, &plain(), 100);
    put(engine, "hard", 64, &WriteConfig { hard_pin: true, ..plain() }, 100);
    put(engine, "copied", 64, &on_first, 100);
    put(engine, "moved", 64, &on_first, 100);
    put(engine, "rewritten", 64, &plain(), 100);
    start(engine, "written", 64, &plain(), 100).unwrap();
    {
        let mut sequencer = engine.sequencer(LogTime(100));
        let copy =
            sequencer.copy_start(uuid(1), b"copied", b"segment-1", &[b"segment-2"], DynamicLease::default());
        assert!(copy.result.is_ok());
        assert!(sequencer.move_start(uuid(1), b"moved", b"segment-1", b"segment-2").result.is_ok());
        assert!(sequencer.upsert_start(uuid(1), b"rewritten", 64, &plain()).result.is_ok());
    }
    read(engine, "read", 9_000).unwrap();
    assert_eq!(engine.evict(LogTime(9_999)), 20);
    for key in ["read", "hard", "copied", "moved", "rewritten", "written"] {
        assert!(present(engine, key), "{key}");
    }
    // The lease ends, the writes end, the pin stays.
    end(engine, "written", 10_000).unwrap();
    end(engine, "rewritten", 10_000).unwrap();
    assert_eq!(engine.evict(LogTime(20_000)), 3);
    assert!(!present(engine, "read") && !present(engine, "written") && !present(engine, "rewritten"));
    assert!(present(engine, "hard") && present(engine, "copied") && present(engine, "moved"));
    pair.assert_same("in the end");
}

#[test]
fn a_lease_in_the_grain_under_way_still_counts_to_the_millisecond() {
    let pair = Pair::new(eager(1.0));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    // Leases end at 6401 to 6460, all in one step of the order of eviction, and the oldest objects have the longest.
    for number in 1..=60 {
        put(engine, &format!("key-{number}"), 64, &plain(), 5_000);
        read(engine, &format!("key-{number}"), 5_461 - number).unwrap();
    }
    engine.replicate_leases(LogTime(5_500));
    assert_eq!(engine.evict(LogTime(6_420)), 20);
    for number in 1..=60 {
        assert_eq!(present(engine, &format!("key-{number}")), number <= 40, "key-{number}");
    }
    pair.assert_same("in the end");
}

#[test]
fn groups_go_whole_or_not_at_all() {
    for seed in crate::support::seeds(6) {
        let mut rng = Rng::new(seed);
        let pair = Pair::new(eager(0.1));
        let engine = &pair.primary;
        mount(engine, 1, 1, HUGE, 1);
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut now = 1_000;
        for number in 0..400 {
            now += rng.below(40);
            let group = format!("group-{}", rng.below(40));
            let key = format!("key-{number}");
            put(engine, &key, 64, &in_group(&group), now);
            groups.entry(group).or_default().insert(key);
        }
        let largest = groups.values().map(BTreeSet::len).max().unwrap();
        for round in 0..15 {
            for _ in 0..30 {
                now += rng.below(30);
                let _ = read(engine, &format!("key-{}", rng.below(400)), now);
            }
            if rng.percent(50) {
                engine.replicate_leases(LogTime(now));
            }
            now += rng.below(2_000);
            let what = format!("seed {seed}, round {round}");
            let before = places(engine);
            let want = (before.len() as f64 * 0.1).ceil() as usize;
            let evicted = engine.evict(LogTime(now)) as usize;
            let after = places(engine);
            assert_eq!(evicted, before.len() - after.len(), "{what}");
            assert!(evicted < want + largest, "{what}: {evicted} went, {want} were asked for");
            for (group, members) in &groups {
                let there = members.iter().filter(|key| before.contains_key(*key)).count();
                let left = members.iter().filter(|key| after.contains_key(*key)).count();
                assert!(left == 0 || left == there, "{what}: {left} of {there} are left of {group}");
            }
            pair.assert_same(&what);
        }
    }
}

#[test]
fn a_group_stays_while_one_member_cannot_go() {
    let pair = Pair::new(eager(1.0));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    for group in ["read", "written", "free"] {
        (0..3).for_each(|number| put(engine, &format!("{group}-{number}"), 64, &in_group(group), 100));
    }
    start(engine, "written-3", 64, &in_group("written"), 100).unwrap();
    read(engine, "read-1", 9_500).unwrap();
    assert_eq!(engine.evict(LogTime(10_000)), 3);
    assert!((0..3).all(|number| present(engine, &format!("read-{number}"))));
    assert!((0..3).all(|number| present(engine, &format!("written-{number}"))));
    assert!((0..3).all(|number| !present(engine, &format!("free-{number}"))));
    pair.assert_same("in the end");
}

#[test]
fn soft_pins_are_spared_while_others_can_go() {
    for evict_soft_pinned in [false, true] {
        let pair = Pair::new(EngineSettings { evict_soft_pinned, ..eager(0.5) });
        let engine = &pair.primary;
        mount(engine, 1, 1, HUGE, 1);
        // The pinned ones are the oldest, so that only the pin spares them.
        (0..10).for_each(|number| put(engine, &format!("soft-{number}"), 64, &pinned_for(1_000_000), 100));
        (0..10).for_each(|number| put(engine, &format!("plain-{number}"), 64, &plain(), 1_000));
        let soft_left = || (0..10).filter(|number| present(engine, &format!("soft-{number}"))).count();
        assert_eq!(engine.evict(LogTime(10_000)), 10);
        assert_eq!(soft_left(), 10);
        // Nothing else is left: half of what was asked for goes, if that is allowed at all.
        let evicted = engine.evict(LogTime(10_000));
        assert_eq!(evicted, if evict_soft_pinned { 3 } else { 0 });
        assert_eq!(soft_left(), 10 - evicted as usize);
        pair.assert_same("in the end");
    }
}

#[test]
fn a_member_written_again_in_place_is_promised_with_its_group() {
    let pair = Pair::new(eager(1.0));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    put(engine, "one", 64, &in_group("group"), 100);
    put(engine, "two", 64, &in_group("group"), 100);
    engine.sequencer(LogTime(200)).upsert_start(uuid(1), b"one", 64, &plain()).result.unwrap();
    end(engine, "one", 200).unwrap();
    read(engine, "two", 5_000).unwrap();
    assert_eq!(remove(engine, "one", false, 5_500), Err(ErrorCode::OBJECT_HAS_LEASE));
    assert_eq!(remove(engine, "one", false, 6_000), Ok(()));
    pair.assert_same("in the end");
}

#[test]
fn a_promise_after_a_write_in_place_is_replicated() {
    let pair = Pair::new(eager(1.0));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    put(engine, "key", 64, &plain(), 100);
    read(engine, "key", 150).unwrap();
    engine.sequencer(LogTime(200)).upsert_start(uuid(1), b"key", 64, &plain()).result.unwrap();
    end(engine, "key", 200).unwrap();
    engine.replicate_leases(LogTime(1_000));
    read(engine, "key", 5_000).unwrap();
    engine.replicate_leases(LogTime(5_100));
    let lease = pair.mirror.peek(b"key", |object| object.replicated_lease).result;
    assert_eq!(lease, Ok(LogTime(6_000)));
}

#[test]
fn what_is_lost_with_its_segment_does_not_hold_readers_up() {
    let pair = Pair::new(eager(1.0));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    put(engine, "key", 64, &plain(), 100);
    engine.sequencer(LogTime(200)).unmount(uuid(1)).result.unwrap();
    // Not swept yet. A removal of everything finds nothing that is still there, and must leave nothing half done.
    assert_eq!(engine.remove_all(false, LogTime(300)).0, 0);
    let waits = AtomicBool::new(true);
    let doomed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = engine.exist(b"key", LogTime(400));
            waits.store(false, Ordering::Release);
        });
        (0..200).for_each(|_| {
            if waits.load(Ordering::Acquire) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let doomed = waits.load(Ordering::Acquire);
        engine.sweep(LogTime(500));
        doomed
    });
    assert!(!doomed, "a reader waited for an object that nobody removes");
    pair.assert_same("in the end");
}

/// Reads a key whenever promises are written down: between the look at a candidate and the rule that evicts.
#[derive(Debug)]
struct ReadsInBetween {
    engine: Arc<OnceLock<Weak<Engine>>>,
    key: &'static str,
    at: u64,
}

impl Log for ReadsInBetween {
    fn append(&self, _: Format, _: SequenceId, _: LogTime, record: &Record<'_>) {
        let engine = self.engine.get().and_then(Weak::upgrade);
        if let (Record::RenewLeases { .. }, Some(engine)) = (record, engine) {
            read(&engine, self.key, self.at).unwrap();
        }
    }
}

/// Two members of a group with a lone object between them, all in one step of the order of eviction. The older member
/// was read again a little later, which no record says yet: when that is written down, the older member is the one
/// whose lease is the last of the group.
fn group_around_another(engine: &Engine) {
    mount(engine, 1, 1, HUGE, 1);
    put(engine, "older", 64, &in_group("group"), 100);
    put(engine, "between", 64, &plain(), 100);
    put(engine, "newer", 64, &in_group("group"), 100);
    for (key, at) in [("between", 5_340), ("older", 5_341), ("newer", 5_350)] {
        read(engine, key, at).unwrap();
    }
    engine.replicate_leases(LogTime(5_360));
    read(engine, "older", 5_390).unwrap();
}

/// A group that was spared was once named by the rule all the same: it stood at the place of the member with the last
/// lease, which may be an older one than before.
#[test]
fn a_group_that_is_spared_is_not_named_by_the_rule() {
    let pair = Pair::new(eager(0.5));
    let engine = &pair.primary;
    group_around_another(engine);
    assert_eq!(engine.evict(LogTime(7_000)), 3, "the group went unseen");
    pair.assert_same("in the end");

    let told = Arc::new(OnceLock::new());
    let reader = ReadsInBetween { engine: Arc::clone(&told), key: "newer", at: 7_000 };
    let engine = Arc::new(Engine::with_log(eager(0.5), Box::new(reader)));
    group_around_another(&engine);
    told.set(Arc::downgrade(&engine)).unwrap();
    assert_eq!(engine.evict(LogTime(7_000)), 1);
    assert!(present(&engine, "newer") && present(&engine, "older"), "promised at 7000 and gone (INV-7)");
}

/// However many soft pins have ended, a record takes a bounded number off, and eviction finds all of them in the end.
#[test]
fn ended_soft_pins_are_taken_off_in_bounded_steps() {
    const PINS: u64 = 10_000;
    for expired in [false, true] {
        let mut pair = Pair::new(eager(1.0));
        mount(&pair.primary, 1, 1, HUGE, 1);
        (0..PINS).for_each(|n| put(&pair.primary, &format!("key-{n}"), 64, &pinned_for(1_000 + n % 7), 100));
        put(&pair.primary, "kept", 64, &pinned_for(1_000_000), 100);
        pair.begin(LogTime(3_000), 0);
        let engine = &pair.primary;
        let now = LogTime(10_000);
        let evicted = if expired { engine.evict_expired(now) } else { engine.evict(now) };
        assert!(present(engine, "kept"));
        assert_eq!(evicted, PINS, "expired: {expired}");
        let most = pair.written(|log| log.most_pins_ended);
        assert!((1..=MAX_VICTIMS as u64).contains(&most), "expired: {expired}: {most} pins by one record");
        pair.assert_same(&format!("expired: {expired}"));
    }
}

/// More than one record should evict, but a group goes whole or not at all.
#[test]
fn a_group_larger_than_a_record_should_evict_goes_by_one() {
    let members = 2 * MAX_VICTIMS + 10;
    let pair = Pair::new(eager(0.01));
    let engine = &pair.primary;
    mount(engine, 1, 1, HUGE, 1);
    (0..members).for_each(|number| put(engine, &format!("key-{number}"), 64, &in_group("group"), 100));
    (0..10).for_each(|number| put(engine, &format!("later-{number}"), 64, &plain(), 1_000));
    assert_eq!(engine.evict(LogTime(10_000)), members as u64);
    assert_eq!(pair.written(|log| log.evictions), 1);
    assert_eq!(engine.len(), 10);
    pair.assert_same("in the end");
}

/// What the reference does: `tests/suites/differential/test_pushed_aside.py`.
#[test]
fn a_soft_pin_outlives_a_write_that_is_pushed_aside() {
    for size in [64, 128] {
        let pair = Pair::new(EngineSettings { evict_soft_pinned: false, ..eager(1.0) });
        let engine = &pair.primary;
        mount(engine, 1, 1, HUGE, 1);
        let hard = WriteConfig { hard_pin: true, ..plain() };
        for (key, config) in [("soft", pinned_for(1_000_000)), ("grouped", in_group("group")), ("hard", hard)]
        {
            put(engine, key, 64, &config, 100);
            for size in [size, 64] {
                let mut sequencer = engine.sequencer(LogTime(200));
                sequencer.upsert_start(uuid(1), key.as_bytes(), size, &plain()).result.unwrap();
            }
            end(engine, key, 300).unwrap();
        }
        let group = engine.peek(b"grouped", |object| object.group().is_some()).result;
        assert_eq!(group, Ok(false), "a group has to be named again");
        assert_eq!(engine.evict(LogTime(10_000)), 2, "size {size}");
        assert!(present(engine, "soft"), "size {size}");
        pair.assert_same(&format!("size {size}"));
    }
}

/// Sizes that no machine has, but that a client can name.
#[test]
fn absurd_sizes_are_counted_without_a_panic() {
    const ABSURD: u64 = 3 << 62;
    let pair = Pair::new(EngineSettings { release_timeout_ms: 1_000, ..eager(1.0) });
    let engine = &pair.primary;
    (1..=2).for_each(|number| mount(engine, number, 1, ABSURD, 1));
    let twice = WriteConfig { replicas: 2, ..plain() };
    put(engine, "key", ABSURD, &twice, 100);
    assert_eq!(engine.evict(LogTime(10_000)), 1);
    start(engine, "key", ABSURD, &twice, 20_000).unwrap();
    assert_eq!(
        engine.sequencer(LogTime(20_000)).upsert_start(uuid(1), b"key", 64, &plain()).result.err(),
        Some(ErrorCode::NO_AVAILABLE_HANDLE)
    );
    assert_eq!(engine.sequencer(LogTime(20_000)).reading().discarded_bytes, u64::MAX);
    engine.upkeep(LogTime(100_000));
    assert_eq!(engine.sequencer(LogTime(100_000)).reading().discarded_bytes, 0);
    pair.assert_same("in the end");
}

/// Readers and removals at the same time: whoever is promised an object has it until the promise ends.
#[test]
fn a_reader_that_races_a_removal_keeps_what_it_was_promised() {
    const KEYS: u64 = 3_000;
    const TTL: u64 = 40;
    let rounds = crate::support::cases(6);
    let mut kept = 0;
    for round in 0..rounds {
        let pair = Pair::new(EngineSettings { lease_ttl_ms: TTL, ..eager(0.3) });
        let engine = &pair.primary;
        mount(engine, 1, 1, HUGE, 1);
        let groups: Vec<String> = (0..KEYS / 30).map(|number| format!("group-{number}")).collect();
        // A third are in groups, whose members lie among the others.
        let config = |number: u64| match number % 3 {
            0 => in_group(&groups[(number / 3) as usize % groups.len()]),
            _ => plain(),
        };
        for number in 0..KEYS {
            put(engine, &format!("key-{number}"), 64, &config(number), 100 + number / 10);
        }
        let clock = AtomicU64::new(1_000);
        let done = AtomicBool::new(false);
        let promises = AtomicU64::new(0);
        let reader = |seed: u64| {
            let mut rng = Rng::new(seed);
            while !done.load(Ordering::Acquire) {
                let key = format!("key-{}", rng.below(KEYS));
                let now = clock.load(Ordering::Acquire);
                let promised = if rng.percent(50) {
                    engine.get(key.as_bytes(), LogTime(now), |_| ()).result.is_ok()
                } else {
                    engine.exist(key.as_bytes(), LogTime(now)).result == Ok(true)
                };
                if !promised {
                    continue;
                }
                promises.fetch_add(1, Ordering::Relaxed);
                for _ in 0..20 {
                    let there = engine.peek(key.as_bytes(), |_| ()).result.is_ok();
                    // The clock is read after the look: had the lease ended by then, the object may be gone.
                    if clock.load(Ordering::Acquire) >= now + TTL {
                        break;
                    }
                    assert!(there, "round {round}: {key} was promised at {now} and is gone (INV-7)");
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3).map(|nth| scope.spawn(move || reader(round * 10 + nth))).collect();
            let mut rng = Rng::new(round);
            for step in 0..150 {
                let now = LogTime(clock.fetch_add(rng.below(25), Ordering::AcqRel));
                match rng.below(20) {
                    0..12 => drop(engine.evict(now)),
                    12..15 => drop(engine.replicate_leases(now)),
                    15 => drop(engine.remove_all(false, now)),
                    _ => {
                        let keys: Vec<String> = (0..50).map(|_| format!("key-{}", rng.below(KEYS))).collect();
                        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
                        engine.sequencer(now).batch_remove(&keys, false, |_| ());
                    }
                }
                if step % 10 == 9 || engine.is_empty() {
                    for number in 0..KEYS {
                        let key = format!("key-{number}");
                        if !present(engine, &key) {
                            let at = clock.load(Ordering::Acquire);
                            let _ = start(engine, &key, 64, &config(number), at);
                            let _ = end(engine, &key, at);
                        }
                    }
                }
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        kept += promises.load(Ordering::Relaxed);
        pair.assert_same(&format!("round {round}"));
    }
    assert!(kept > 0, "nobody was promised anything");
}
