//! R6: what the old primary promised to readers holds under the new one, whether it is in the log or not.

use crate::support::{Pair, end, mount, plain, present, put, read, rejoin, remove, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::record::{CopyOrMove, DynamicLease, SoftPin};
use moonkeeper::engine::settings::{EngineSettings, Expired};
use moonkeeper::engine::types::{ErrorCode, LogTime, ObjectId};
use moonkeeper::engine::walk::Cursor;

const SIZE: u64 = 1 << 20;
const LEASE: u64 = 1_000;

fn settings() -> EngineSettings {
    EngineSettings { lease_ttl_ms: LEASE, release_timeout_ms: 0, ..EngineSettings::default() }
}

/// Evicts all that may go, whenever it is asked to.
fn eager() -> EngineSettings {
    EngineSettings { high_watermark: 0.0, eviction_ratio: 1.0, ..settings() }
}

fn store(settings: EngineSettings) -> Pair {
    let mut pair = Pair::with(settings.clone(), settings);
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, SIZE, 1);
    mount(&pair.primary, 2, 2, SIZE, 1);
    pair
}

fn on(pair: &Pair, number: u64) -> u64 {
    pair.primary.segments().iter().find(|segment| segment.id == uuid(number)).unwrap().used()
}

fn in_first<'a>() -> WriteConfig<'a> {
    WriteConfig { preferred: &[b"segment-1"], ..plain() }
}

fn ids(engine: &Engine) -> Vec<ObjectId> {
    let mut cursor = Cursor::default();
    std::iter::from_fn(|| engine.keys(&mut cursor)).flatten().map(|(id, _)| id).collect()
}

#[test]
fn nothing_is_removed_unless_forced_until_the_hold_ends() {
    let mut pair = store(settings());
    for key in ["one", "two", "three", "four"] {
        put(&pair.primary, key, 64, &in_first(), 100_000);
    }
    pair.promote(LogTime(101_000), 500);
    assert_eq!(pair.primary.hold_until(), LogTime(102_500));
    let engine = &pair.primary;
    let try_all = |now: u64| {
        let mut batch = Vec::new();
        engine.sequencer(LogTime(now)).batch_remove(&[b"two"], false, |each| batch.push(each));
        let matching = engine.remove_matching(&ids(engine), false, LogTime(now)).0;
        let cleared = engine.sequencer(LogTime(now)).replica_clear(uuid(1), b"three", b"").result;
        let of_segment = engine.sequencer(LogTime(now)).replica_clear(uuid(1), b"three", b"segment-1").result;
        let all = engine.remove_all(false, LogTime(now)).0;
        (remove(engine, "one", false, now), batch, matching, cleared, of_segment, all)
    };
    let last = engine.applied();
    let held = Err(ErrorCode::OBJECT_HAS_LEASE);
    assert_eq!(try_all(102_499), (held, vec![held], 0, Ok(false), Ok(false), 0));
    assert_eq!(engine.applied(), last, "a refusal writes nothing");
    assert_eq!(remove(engine, "four", true, 102_499), Ok(()));
    assert_eq!(remove(engine, "one", false, 102_500), Ok(()));
    assert_eq!(engine.remove_all(false, LogTime(102_500)).0, 2);
    pair.assert_same("in the end");
}

#[test]
fn nothing_is_evicted_until_the_hold_ends_and_who_found_no_memory_is_remembered() {
    // Only for want of memory, which only a write finds out.
    let mut pair = store(EngineSettings { high_watermark: 1.0, eviction_ratio: 1.0, ..settings() });
    put(&pair.primary, "old", 64, &in_first(), 100_000);
    pair.promote(LogTime(101_000), 500);
    rejoin(&pair, 101_000);
    let engine = &pair.primary;
    let refused = start(engine, "large", 2 * SIZE, &plain(), 101_000).err();
    assert_eq!(refused, Some(ErrorCode::NO_AVAILABLE_HANDLE));
    assert_eq!(engine.evict(LogTime(102_499)), 0);
    assert!(present(engine, "old"));
    assert_eq!(engine.evict(LogTime(102_500)), 1);
    pair.assert_same("in the end");
}

/// A witness says that the old primary answered its last read some time ago.
#[test]
fn a_hold_counts_from_when_the_old_primary_is_known_to_have_ended() {
    let mut pair = store(settings());
    put(&pair.primary, "key", 64, &plain(), 100_000);
    pair.promote(LogTime(101_000), -400);
    assert_eq!(pair.primary.hold_until(), LogTime(101_600));
    pair.promote(LogTime(102_000), -5_000);
    assert_eq!(pair.primary.hold_until(), LogTime(101_600), "long over");
}

#[test]
fn bytes_that_leave_an_object_are_kept_until_the_hold_ends() {
    let mut pair = store(settings());
    put(&pair.primary, "written again", 4096, &in_first(), 100_000);
    put(&pair.primary, "moved", 8192, &in_first(), 100_000);
    pair.promote(LogTime(101_000), 5_000);
    rejoin(&pair, 101_000);
    assert_eq!(pair.primary.hold_until(), LogTime(107_000));
    let none = DynamicLease::default();
    {
        let elsewhere = WriteConfig { preferred: &[b"segment-2"], ..plain() };
        let mut sequencer = pair.primary.sequencer(LogTime(101_000));
        sequencer.upsert_start(uuid(1), b"written again", 64, &elsewhere).result.unwrap();
        sequencer.move_start(uuid(1), b"moved", b"segment-1", b"segment-2").result.unwrap();
        sequencer.end_copy_or_move(uuid(1), b"moved", CopyOrMove::Move, none).result.unwrap();
    }
    end(&pair.primary, "written again", 101_000).unwrap();
    // The old primary may have promised them until just now.
    pair.primary.upkeep(LogTime(106_999));
    assert_eq!(on(&pair, 1), 4096 + 8192, "INV-7");
    pair.primary.upkeep(LogTime(107_000));
    assert_eq!(on(&pair, 1), 0);
    pair.assert_same("in the end");
}

#[test]
fn the_longest_promise_that_the_old_primary_gave_counts() {
    let patient = EngineSettings { lease_ttl_ms: 60_000, ..settings() };
    let mut pair = Pair::with(patient, settings());
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, SIZE, 1);
    put(&pair.primary, "key", 64, &plain(), 100_000);
    read(&pair.primary, "key", 100_000).unwrap();
    pair.promote(LogTime(101_000), 0);
    assert_eq!(remove(&pair.primary, "key", false, 159_999), Err(ErrorCode::OBJECT_HAS_LEASE), "INV-7");
    assert_eq!(pair.primary.hold_until(), LogTime(161_000));
    // The next one is followed by one with shorter promises.
    pair.promote(LogTime(200_000), 0);
    assert_eq!(pair.primary.hold_until(), LogTime(260_000), "its own are longer");
    pair.promote(LogTime(300_000), 0);
    assert_eq!(pair.primary.hold_until(), LogTime(360_000));
}

#[test]
fn a_hold_outlives_the_primary_that_has_to_keep_it() {
    let mut pair = store(settings());
    put(&pair.primary, "key", 64, &plain(), 100_000);
    pair.promote(LogTime(101_000), 5_000);
    pair.primary.flush_leases(LogTime(101_000));
    pair.primary.resign(LogTime(101_000), true);
    pair.promote(LogTime(101_000), 5_000);
    assert_eq!(pair.primary.hold_until(), LogTime(107_000));
    assert_eq!(remove(&pair.primary, "key", false, 106_999), Err(ErrorCode::OBJECT_HAS_LEASE));
    assert_eq!(remove(&pair.primary, "key", false, 107_000), Ok(()));
}

#[test]
fn after_a_hand_over_there_is_nothing_to_wait_for_and_every_promise_is_known() {
    let mut pair = store(eager());
    let grouped = WriteConfig { group: Some(b"group"), ..in_first() };
    put(&pair.primary, "read", 64, &in_first(), 100_000);
    put(&pair.primary, "read twice", 64, &in_first(), 100_000);
    put(&pair.primary, "member", 64, &grouped, 100_000);
    put(&pair.primary, "other member", 64, &grouped, 100_000);
    put(&pair.primary, "never read", 64, &in_first(), 100_000);
    read(&pair.primary, "read twice", 100_100).unwrap();
    pair.primary.replicate_leases(LogTime(100_100));
    // Less than half a lease later: on no list.
    read(&pair.primary, "read twice", 100_500).unwrap();
    read(&pair.primary, "read", 100_500).unwrap();
    read(&pair.primary, "member", 100_500).unwrap();
    pair.primary.flush_leases(LogTime(100_500));
    pair.primary.resign(LogTime(100_500), true);
    assert!(pair.primary.resigned() && pair.mirror.resigned());
    pair.promote(LogTime(100_500), 5_000);
    assert!(!pair.primary.resigned());
    assert!(pair.primary.hold_until() <= LogTime(100_500));
    assert_eq!(pair.primary.evict(LogTime(101_499)), 1);
    assert!(!present(&pair.primary, "never read"));
    for key in ["read", "read twice", "member", "other member"] {
        let refused = remove(&pair.primary, key, false, 101_499);
        assert_eq!(refused, Err(ErrorCode::OBJECT_HAS_LEASE), "INV-7: {key}");
    }
    assert_eq!(pair.primary.evict(LogTime(101_600)), 4);
    pair.assert_same("in the end");
}

#[test]
fn whoever_goes_on_after_a_resign_is_not_taken_at_its_word() {
    let mut pair = store(settings());
    put(&pair.primary, "key", 64, &plain(), 100_000);
    pair.primary.flush_leases(LogTime(100_000));
    pair.primary.resign(LogTime(100_000), true);
    // The hand-over failed; the old primary says so and goes on.
    pair.primary.sequencer(LogTime(100_100)).commit_digest();
    assert!(!pair.mirror.resigned());
    read(&pair.primary, "key", 100_200).unwrap();
    pair.promote(LogTime(100_300), 500);
    assert_eq!(remove(&pair.primary, "key", false, 101_199), Err(ErrorCode::OBJECT_HAS_LEASE), "INV-7");
    assert_eq!(pair.primary.hold_until(), LogTime(101_800));
}

#[test]
fn the_first_primary_has_nothing_to_wait_for() {
    let mut pair = Pair::new(settings());
    pair.begin(LogTime(100_000), 5_000);
    assert_eq!(pair.primary.hold_until(), LogTime(0));
}

/// Half of a lease is never in the log; the hold makes up for it.
#[test]
fn a_promise_that_was_not_worth_a_record_is_kept() {
    let mut pair = store(eager());
    put(&pair.primary, "key", 64, &plain(), 100_000);
    read(&pair.primary, "key", 100_000).unwrap();
    pair.primary.replicate_leases(LogTime(100_000));
    read(&pair.primary, "key", 100_499).unwrap();
    assert_eq!(pair.primary.replicate_leases(LogTime(100_499)), 0);
    // The log says 101_000; the reader was promised 101_499.
    pair.promote(LogTime(100_499), 0);
    assert_eq!(pair.primary.evict(LogTime(101_498)), 0, "INV-7");
    assert_eq!(pair.primary.evict(LogTime(101_600)), 1);
}

#[test]
fn a_promotion_does_not_make_fresh_objects_the_first_victims() {
    let mut pair = store(EngineSettings { eviction_ratio: 0.4, ..eager() });
    for key in ["old", "older"] {
        put(&pair.primary, key, 64, &plain(), 100_000);
        read(&pair.primary, key, 101_000).unwrap();
    }
    pair.primary.replicate_leases(LogTime(101_000));
    put(&pair.primary, "fresh", 64, &plain(), 190_000);
    put(&pair.primary, "fresher", 64, &plain(), 191_000);
    pair.promote(LogTime(200_000), 0);
    assert_eq!(pair.primary.evict(LogTime(201_000)), 2);
    assert!(present(&pair.primary, "fresh") && present(&pair.primary, "fresher"));
    pair.assert_same("in the end");
}

#[test]
fn expired_objects_of_earlier_terms_go_when_the_hold_ends() {
    let mut pair = store(EngineSettings { expired: Expired::Evict, ..settings() });
    for key in ["never read", "read before", "read since", "pinned"] {
        let pin = WriteConfig { hard_pin: key == "pinned", ..plain() };
        put(&pair.primary, key, 64, &pin, 100_000);
    }
    assert_eq!(pair.primary.evict_expired(LogTime(150_000)), 0, "there was no earlier term");
    read(&pair.primary, "read before", 199_900).unwrap();
    pair.promote(LogTime(200_000), 500);
    rejoin(&pair, 200_000);
    put(&pair.primary, "fresh", 64, &plain(), 200_100);
    put(&pair.primary, "fresh and read", 64, &plain(), 200_100);
    read(&pair.primary, "fresh and read", 200_100).unwrap();
    assert_eq!(pair.primary.evict_expired(LogTime(201_499)), 0, "R6");
    read(&pair.primary, "read since", 201_000).unwrap();
    assert_eq!(pair.primary.evict_expired(LogTime(201_600)), 2);
    for key in ["read since", "pinned", "fresh", "fresh and read"] {
        assert!(present(&pair.primary, key), "{key}");
    }
    assert_eq!(pair.primary.evict_expired(LogTime(300_000)), 0, "what was spared stays");
    pair.assert_same("in the end");
}

#[test]
fn a_soft_pin_spares_an_expired_object_until_it_ends() {
    let mut pair = store(EngineSettings { expired: Expired::Evict, ..settings() });
    let pin = WriteConfig { soft_pin: SoftPin::Enable(150_000), ..plain() };
    put(&pair.primary, "pinned", 64, &pin, 100_000);
    pair.promote(LogTime(200_000), 500);
    assert_eq!(pair.primary.evict_expired(LogTime(249_999)), 0);
    assert_eq!(pair.primary.evict_expired(LogTime(250_100)), 1);
    pair.assert_same("in the end");
}

/// Both leases end in the same step of the order of eviction, one before the hold and one after.
#[test]
fn a_step_that_the_end_of_the_hold_cuts_is_looked_at_whole() {
    let mut pair = store(EngineSettings { expired: Expired::Evict, ..settings() });
    put(&pair.primary, "first", 64, &plain(), 100_000);
    put(&pair.primary, "second", 64, &plain(), 100_000);
    pair.promote(LogTime(200_000), 500);
    assert_eq!(pair.primary.hold_until(), LogTime(201_500));
    read(&pair.primary, "second", 200_500).unwrap();
    read(&pair.primary, "first", 200_530).unwrap();
    pair.primary.replicate_leases(LogTime(200_530));
    read(&pair.primary, "first", 201_990).unwrap();
    assert_eq!(pair.primary.evict_expired(LogTime(202_000)), 1);
    assert!(present(&pair.primary, "first"), "INV-7");
    pair.assert_same("in the end");
}

#[test]
fn many_expired_objects_go_in_few_records() {
    let mut pair = store(EngineSettings { expired: Expired::Evict, ..settings() });
    mount(&pair.primary, 3, 3, 1 << 40, 1);
    let many = 10_000;
    for number in 0..many {
        put(&pair.primary, &format!("key-{number}"), 64, &plain(), 100_000 + number / 8);
    }
    pair.promote(LogTime(200_000), 0);
    assert_eq!(pair.primary.evict_expired(LogTime(201_064)), many);
    assert!(pair.written(|log| log.evictions) <= 10);
    assert!(pair.primary.is_empty());
    pair.assert_same("in the end");
}

#[test]
fn an_object_is_written_down_at_most_once_in_half_a_lease() {
    let pair = store(settings());
    put(&pair.primary, "key", 64, &plain(), 100_000);
    let mut logged = Vec::new();
    for now in (100_000..120_000).step_by(10) {
        read(&pair.primary, "key", now).unwrap();
        if pair.primary.replicate_leases(LogTime(now)) > 0 {
            logged.push(now);
        }
    }
    assert_eq!(logged.len(), 40, "each half of a lease: {logged:?}");
    assert!(logged.windows(2).all(|pair| pair[1] - pair[0] >= LEASE / 2), "{logged:?}");
    pair.assert_same("in the end");
}

#[test]
fn every_promise_is_flushed_once() {
    let pair = store(settings());
    mount(&pair.primary, 3, 3, 1 << 40, 1);
    for number in 0..3_000 {
        put(&pair.primary, &format!("key-{number}"), 64, &plain(), 100_000);
        if number % 3 != 0 {
            read(&pair.primary, &format!("key-{number}"), 100_000 + number % 7).unwrap();
        }
    }
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 2_000);
    assert_eq!(pair.written(|log| log.renewals), 2_000);
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 0);
    assert_eq!(pair.primary.replicate_leases(LogTime(100_100)), 0, "they are off the list");
    for shard in 0..SHARDS {
        pair.mirror.walk(shard, |object| assert!(!object.owes_renewal()));
        pair.primary.walk(shard, |object| assert!(!object.owes_renewal()));
    }
    // A lease that is over is nothing to flush.
    read(&pair.primary, "key-0", 101_000).unwrap();
    assert_eq!(pair.primary.flush_leases(LogTime(102_000)), 0);
}
