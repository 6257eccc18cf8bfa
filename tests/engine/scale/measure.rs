//! How long other clients wait while much is done, in milliseconds. Nothing is asserted: run it by hand, with
//! `--ignored --nocapture`, and OBJECTS for another number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{mount, plain, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::snapshot::{ItemKind, KeyRange, Part, PlannedCapture};
use moonkeeper::engine::types::LogTime;
use moonkeeper::engine::walk::Cursor;
use moonkeeper::replication::snapshot::{self, Progress};

fn key(number: u64) -> Vec<u8> {
    format!("moonkeeper/bench/{number:016x}").into_bytes()
}

/// An engine with so many objects in ten segments, all read.
fn store(objects: u64) -> Engine {
    let engine = Engine::new(EngineSettings { lease_ttl_ms: 10_000, ..EngineSettings::default() });
    (1..=10).for_each(|number| mount(&engine, number, number, 1 << 50, 1));
    for number in 0..objects {
        let name = format!("segment-{}", 1 + number % 10);
        let config = WriteConfig { preferred: &[name.as_bytes()], ..plain() };
        let mut sequencer = engine.sequencer(LogTime(1));
        sequencer.put_start(uuid(1), &key(number), 4_096, &config).result.unwrap();
        sequencer.end(uuid(1), &key(number), ReplicaTypes::Memory, None).result.unwrap();
    }
    engine
}

/// Does something while a probe writes and reads, and prints how long the probe waited at most.
fn during<R>(what: &str, engine: &Engine, work: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            let (mut write, mut read, mut number) = (Duration::ZERO, Duration::ZERO, 0_u64);
            while !done.load(Ordering::Relaxed) {
                number += 1;
                let name = format!("probe-{number}");
                let begun = Instant::now();
                let _ = engine.sequencer(LogTime(1)).put_start(uuid(1), name.as_bytes(), 64, &plain());
                write = write.max(begun.elapsed());
                let _ = engine.sequencer(LogTime(1)).revoke(uuid(1), name.as_bytes(), ReplicaTypes::Memory);
                let begun = Instant::now();
                let _ = engine.exist(&key(number * 7_919), LogTime(1));
                read = read.max(begun.elapsed());
                std::thread::sleep(Duration::from_micros(200));
            }
            (write, read)
        });
        let begun = Instant::now();
        let result = work();
        let took = begun.elapsed();
        done.store(true, Ordering::Relaxed);
        let (write, read) = probe.join().unwrap();
        println!("{what:34} took {took:>12.3?}   longest write {write:>10.3?}   longest read {read:>10.3?}");
        result
    })
}

#[test]
#[ignore = "a measurement"]
fn waits() {
    let objects = std::env::var("OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let engine = store(objects);
    println!("{objects} objects");
    during("nothing", &engine, || std::thread::sleep(Duration::from_secs(2)));
    during("reads of all", &engine, || {
        for number in 0..objects {
            let _ = engine.exist(&key(number), LogTime(10));
        }
    });
    during("flush of all leases", &engine, || engine.flush_leases(LogTime(20)));
    during("second flush", &engine, || engine.flush_leases(LogTime(20)));
    during("walk over all keys", &engine, || {
        let mut cursor = Cursor::default();
        while engine.keys(&mut cursor).is_some() {}
    });
    during("unmount of a tenth", &engine, || {
        let _ = engine.sequencer(LogTime(20)).unmount(uuid(3));
    });
    during("sweep", &engine, || engine.sweep(LogTime(20)));
    during("expiry of four of ten clients", &engine, || {
        (6..10).for_each(|client| _ = engine.expire_client(uuid(client), LogTime(20)));
    });
    during("sweep", &engine, || engine.sweep(LogTime(20)));
    during("removal of a tenth by id", &engine, || {
        let mut cursor = Cursor::default();
        while let Some(keys) = engine.keys(&mut cursor) {
            let ids: Vec<_> = keys.iter().map(|(id, _)| *id).filter(|id| id.0 % 5 == 0).collect();
            engine.remove_matching(&ids, true, LogTime(20));
        }
    });
    during("remove all", &engine, || engine.remove_all(true, LogTime(20)));
}

/// What `moonkeeper verify` costs a primary: it begins with the sequencer held, and then reads all objects.
#[test]
#[ignore = "a measurement"]
fn waits_while_digests_are_computed() {
    let objects = std::env::var("OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let engine = Arc::new(store(objects));
    println!("{objects} objects");
    during("nothing", &engine, || std::thread::sleep(Duration::from_secs(2)));
    let shard = KeyRange::new(ItemKind::Object, 7 << 56, 8);
    for (nth, (what, range)) in [("of everything", None), ("of one shard", shard)].into_iter().enumerate() {
        let from = LogTime(1_000 + nth as u64);
        let part = range.map_or(Part::Whole, KeyRange::part);
        let mut planned = PlannedCapture::new(&engine, from, part).unwrap();
        let begun = Instant::now();
        engine.sequencer(from).commit_digest();
        println!("{:34} took {:>12.3?}", format!("beginning of digests {what}"), begun.elapsed());
        let capture = planned.begun().unwrap().unwrap();
        let found = during(&format!("digests {what}"), &engine, || {
            snapshot::digests(capture, range, &Progress::default()).unwrap()
        });
        assert!(found.computed.is_none_or(|computed| computed == found.kept));
    }
}
