//! Segments: many of them go and come in small steps, and a full pool says so at once.

use std::time::{Duration, Instant};

use crate::support::{Pair, assert_sound, mount, plain, put, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::{EngineSettings, Strategy};
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
    let mut pair = Pair::new(EngineSettings::default());
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
    let engine = Engine::new(EngineSettings::default());
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

const STRATEGIES: [Strategy; 3] = [Strategy::Random, Strategy::FreeRatioFirst, Strategy::LocalFirst];

#[test]
fn a_full_pool_of_many_segments_is_not_searched() {
    for strategy in STRATEGIES {
        let engine = Engine::new(EngineSettings { strategy, ..EngineSettings::default() });
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
            assert_eq!(placed.replicas[0].segment.id, uuid(123), "{strategy:?}");
        }
        assert_sound(&engine, "full");
    }
}

/// So many segments of one host, all but the last one too small for the writes below.
fn nearly_full(strategy: Strategy, segments: u64, name: impl Fn(u64) -> String) -> Engine {
    let engine = Engine::new(EngineSettings { strategy, ..EngineSettings::default() });
    for number in 0..segments {
        let (name, endpoint) = (name(number), format!("host:{number}"));
        let spec = SegmentSpec {
            id: uuid(number),
            name: name.as_bytes(),
            base: 1 << 30,
            size: if number + 1 == segments { 1 << 30 } else { 64 },
            te_endpoint: endpoint.as_bytes(),
            protocol: b"tcp",
            host_id: b"host",
        };
        engine.sequencer(LogTime(1)).mount(&spec, uuid(1)).result.unwrap();
    }
    engine
}

/// The median time that one write takes to find its places, and how many it found.
fn median_start(engine: &Engine, config: &WriteConfig<'_>) -> (Duration, usize) {
    let mut times = Vec::new();
    let mut places = 0;
    for round in 0..31 {
        let began = Instant::now();
        places = start(engine, &format!("key-{round}"), 128, config, 1).unwrap().replicas.len();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    (times[times.len() / 2], places)
}

/// Other writers wait meanwhile, so a place is found in a few hundred tries or by the index of free ranges.
#[test]
fn a_place_among_many_segments_is_found_in_few_steps() {
    const SEGMENTS: u64 = 60_000;
    let most = Duration::from_millis(1);
    for strategy in STRATEGIES {
        let engine = nearly_full(strategy, SEGMENTS, |number| format!("segment-{number}"));
        let local = WriteConfig { host_id: b"host", ..plain() };
        let (took, places) = median_start(&engine, &local);
        println!("{strategy:?}, all but one too small: {took:?}");
        assert_eq!(places, 1);
        assert!(took < most, "{strategy:?}: {took:?}");
    }
    // Several replicas of an object lie in segments of different names.
    for (other, fits) in [(SEGMENTS, false), (0, false), (SEGMENTS / 2, true)] {
        let engine = Engine::new(EngineSettings::default());
        for number in 0..SEGMENTS {
            let (name, endpoint) = (format!("name-{}", number == other), format!("host:{number}"));
            let spec = SegmentSpec {
                id: uuid(number),
                name: name.as_bytes(),
                base: 1 << 30,
                size: if number == other && !fits { 64 } else { 1 << 20 },
                te_endpoint: endpoint.as_bytes(),
                protocol: b"tcp",
                host_id: b"host",
            };
            engine.sequencer(LogTime(1)).mount(&spec, uuid(1)).result.unwrap();
        }
        let (took, places) = median_start(&engine, &WriteConfig { replicas: 3, ..plain() });
        println!("three replicas, all of one name but {other}: {took:?}");
        assert_eq!(places, 1 + usize::from(fits));
        assert!(took < most, "{took:?}");
    }
}
