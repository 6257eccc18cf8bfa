//! Segments: many of them go and come in small steps, and a full pool says so at once.

use crate::support::{Pair, assert_sound, mount, plain, put, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::rules::Rules;
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::types::{ErrorCode, LogTime};

/// Pieces of the memory of one process.
fn pieces(count: u64) -> Vec<SegmentSpec<'static>> {
    let piece = |number| SegmentSpec {
        id: uuid(number),
        name: b"name",
        base: (1 + number) << 30,
        size: 1 << 20,
        te_endpoint: b"host:1",
        protocol: b"tcp",
        host_id: b"host",
    };
    (0..count).map(piece).collect()
}

fn pair() -> Pair {
    let mut pair = Pair::new(Rules::default());
    pair.begin(LogTime(1), 0);
    pair
}

#[test]
fn a_client_with_many_segments_expires_in_small_records() {
    let pair = pair();
    pair.primary.remount(&pieces(1_000), uuid(5), LogTime(1)).result.unwrap();
    mount(&pair.primary, 5_000, 6, 1 << 20, 1);
    let expired = pair.primary.expire_client(uuid(5), LogTime(2));
    assert_eq!(expired, pair.primary.applied());
    assert_eq!(pair.primary.segments().len(), 1);
    assert!(pair.primary.client(uuid(5)).is_none());
    let most = pair.written(|log| log.most_unmounted);
    assert!(most <= 64, "one record unmounted {most} segments");
    pair.assert_same("expired");
}

#[test]
fn an_inherited_client_that_tells_other_segments_has_the_old_ones_unmounted() {
    let mut pair = pair();
    let all = pieces(500);
    pair.primary.remount(&all[..300], uuid(5), LogTime(1)).result.unwrap();
    pair.promote(LogTime(10), 0);
    pair.primary.remount(&all[200..], uuid(5), LogTime(20)).result.unwrap();
    let told: Vec<_> = pair.primary.segments().iter().map(|segment| segment.id.first).collect();
    assert_eq!(told, (200..500).collect::<Vec<u64>>());
    assert!(pair.primary.inherited().is_empty());
    pair.assert_same("told");
}

#[test]
fn a_remount_joins_a_client_only_with_all_its_segments() {
    // Another client takes the memory of each piece as soon as it is there.
    let engine = Engine::new(Rules::default());
    let all = pieces(200);
    std::thread::scope(|scope| {
        let thief = scope.spawn(|| {
            for _ in 0..200 {
                engine.expire_client(uuid(5), LogTime(2));
                std::thread::yield_now();
            }
        });
        while !thief.is_finished() {
            let joined = engine.remount(&all, uuid(5), LogTime(1));
            assert!(joined.result.is_ok() || joined.result == Err(ErrorCode::INTERNAL_ERROR));
        }
    });
    engine.remount(&all, uuid(5), LogTime(1)).result.unwrap();
    assert_eq!(engine.segments().len(), 200);
    assert_sound(&engine, "joined");
}

#[test]
fn a_full_pool_of_many_segments_is_not_searched() {
    let engine = Engine::new(Rules::default());
    let names: Vec<String> = (0..300).map(|number| format!("segment-{number}")).collect();
    (0..300).for_each(|number| mount(&engine, number, 1, 4_096, 1));
    for (nth, name) in names.iter().enumerate() {
        let name = name.as_bytes();
        put(&engine, &format!("key-{nth}"), 4_096, &WriteConfig { preferred: &[name], ..plain() }, 1);
    }
    assert_eq!(start(&engine, "more", 64, &plain(), 1).unwrap_err(), ErrorCode::NO_AVAILABLE_HANDLE);
    // One piece becomes free: it is found wherever the search begins, and by any strategy's fallback.
    crate::support::remove(&engine, "key-123", true, 1).unwrap();
    for round in 0..50 {
        let placed = start(&engine, &format!("more-{round}"), 64, &plain(), 1).unwrap();
        assert_eq!(placed.replicas[0].segment.id, uuid(123));
    }
    assert_sound(&engine, "full");
}
