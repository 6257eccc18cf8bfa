//! Writing promises down costs as much as there are promises, and none is forgotten.

use crate::support::{Pair, mount, plain, put, read, remove};
use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::record::SoftPin;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::LogTime;

fn store() -> Pair {
    let settings = EngineSettings { lease_ttl_ms: 1_000, release_timeout_ms: 0, ..EngineSettings::default() };
    let mut pair = Pair::with(settings.clone(), settings);
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, 1 << 40, 1);
    pair
}

#[test]
fn a_flush_finds_what_was_promised_right_after_it_was_written_down() {
    let pair = store();
    put(&pair.primary, "key", 64, &plain(), 100_000);
    read(&pair.primary, "key", 100_000).unwrap();
    assert_eq!(pair.primary.replicate_leases(LogTime(100_000)), 1);
    // Too soon for the list that is drained each second, not for a hand-over.
    read(&pair.primary, "key", 100_100).unwrap();
    assert_eq!(pair.primary.replicate_leases(LogTime(100_100)), 0);
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 1);
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 0);
    pair.assert_same("in the end");
}

#[test]
fn a_flush_finds_every_member_of_a_group_that_was_read() {
    let pair = store();
    let group = WriteConfig { group: Some(b"group"), ..plain() };
    let pinned = WriteConfig { soft_pin: SoftPin::Enable(1 << 40), ..group };
    for number in 0..5_000 {
        let config = if number % 3 == 0 { &pinned } else { &group };
        put(&pair.primary, &format!("key-{number}"), 64, config, 100_000);
    }
    read(&pair.primary, "key-7", 100_000).unwrap();
    // The reader's own object is written down and gone; the promise to the others goes on.
    assert_eq!(pair.primary.replicate_leases(LogTime(100_000)), 1);
    remove(&pair.primary, "key-7", true, 100_001).unwrap();
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 4_999);
    for shard in 0..SHARDS {
        pair.primary.walk(shard, |object| assert!(!object.owes_renewal(), "{:?}", object.key));
    }
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 0);
    pair.assert_same("in the end");
}

#[test]
fn a_flush_that_is_called_off_loses_no_promise() {
    let pair = store();
    for number in 0..5_000 {
        put(&pair.primary, &format!("key-{number}"), 64, &plain(), 100_000);
        read(&pair.primary, &format!("key-{number}"), 100_000).unwrap();
    }
    let mut records = 0;
    let flushed = pair.primary.flush_leases_while(LogTime(100_100), &mut || {
        records += 1;
        records <= 2
    });
    let written = pair.written(|log| log.renewals);
    assert!(written > 0 && written < 5_000, "{written}");
    assert_eq!(flushed, (written, false));
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 5_000 - written);
    pair.assert_same("in the end");
}

#[test]
fn promises_are_written_down_record_by_record_and_the_next_sync_finds_the_rest() {
    let pair = store();
    for number in 0..3_000 {
        put(&pair.primary, &format!("key-{number}"), 64, &plain(), 100_000);
        read(&pair.primary, &format!("key-{number}"), 100_000).unwrap();
    }
    let mut asked = 0;
    let mut go_on = || {
        asked += 1;
        asked <= 1
    };
    let synced = pair.primary.replicate_leases_while(LogTime(100_100), &mut go_on, &|| false);
    let written = pair.written(|log| log.renewals);
    assert!(written > 0 && written <= 1_024, "{written} promises in one record");
    assert_eq!((synced, asked), ((written, false), 2));
    let before = pair.primary.applied().0;
    let rest = pair.primary.replicate_leases_while(LogTime(100_100), &mut || true, &|| false);
    assert_eq!(rest, (3_000 - written, true));
    assert_eq!(pair.primary.applied().0 - before, 2, "they are still on the list of each second");
    pair.assert_same("in the end");
}

#[test]
fn a_sync_that_is_cancelled_while_it_looks_for_leases_loses_no_promise() {
    let pair = store();
    for number in 0..3_000 {
        put(&pair.primary, &format!("key-{number}"), 64, &plain(), 100_000);
        read(&pair.primary, &format!("key-{number}"), 100_000).unwrap();
    }
    let asked = std::cell::Cell::new(0);
    let cancelled = || {
        asked.set(asked.get() + 1);
        asked.get() > 200
    };
    let synced = pair.primary.replicate_leases_while(LogTime(100_100), &mut || true, &cancelled);
    assert_eq!(synced, (0, false), "it was cancelled before it wrote a record");
    assert_eq!(pair.primary.flush_leases(LogTime(100_100)), 3_000);
    pair.assert_same("in the end");
}

#[test]
fn lists_of_promises_stay_in_proportion_to_what_is_promised() {
    let pair = store();
    let mut now = 100_000;
    // One key, and so one shard: each object has the slot of the one before it.
    for _ in 0..2_000 {
        put(&pair.primary, "key", 64, &plain(), now);
        read(&pair.primary, "key", now).unwrap();
        pair.primary.replicate_leases(LogTime(now));
        read(&pair.primary, "key", now + 1).unwrap();
        remove(&pair.primary, "key", true, now + 1).unwrap();
        now += 2;
    }
    assert!(pair.primary.listed_promises() < 1_000, "{}", pair.primary.listed_promises());
    pair.assert_same("in the end");
}
