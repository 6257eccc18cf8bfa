//! What status and metrics show is there without the sequencer.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{mount, plain, put, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::term_state::Primary;
use moonkeeper::engine::types::{LogTime, Term};

#[test]
fn status_does_not_wait_for_the_sequencer() {
    let engine = Engine::new(EngineSettings::default());
    let primary = Primary { name: b"master-0", boot_id: 1, leader_ttl: 5_000 };
    engine.sequencer(LogTime(1)).begin_term(Term(7), &primary, 0);
    mount(&engine, 1, 1, 1 << 20, 1);
    put(&engine, "key", 64, &plain(), 1);
    let digest = engine.sequencer(LogTime(0)).digest();
    let sequencer = engine.sequencer(LogTime(1));
    // All of this would wait for ever.
    assert_eq!((engine.term(), engine.resigned(), engine.hold_until()), (Term(7), false, LogTime(0)));
    assert_eq!(engine.reading().sequence_id, engine.applied());
    assert_eq!(engine.reading().digest, digest);
    assert_eq!(
        (engine.faults(), engine.divergence(), engine.last_visible()),
        (0, Default::default(), engine.applied())
    );
    assert_eq!(engine.term_report().term, Term(7));
    drop(sequencer);
}

#[test]
fn a_sequence_id_and_its_digest_belong_together() {
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 1 << 40, 1);
    let digests = parking_lot::Mutex::new(std::collections::HashMap::new());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..2_000 {
                let mut sequencer = engine.sequencer(LogTime(1));
                let key = format!("key-{number}");
                sequencer.put_start(uuid(1), key.as_bytes(), 64, &plain()).result.unwrap();
                let reading = sequencer.reading();
                digests.lock().insert(reading.sequence_id, reading.digest);
            }
        });
        let mut seen = Vec::new();
        while !writer.is_finished() {
            let reading = engine.reading();
            seen.push((reading.sequence_id, reading.digest));
        }
        writer.join().unwrap();
        let digests = digests.lock();
        let told = |(id, digest): &(_, _)| digests.get(id).is_none_or(|told| told == digest);
        assert!(seen.iter().all(told));
    });
}

#[test]
fn a_clock_is_read_when_the_sequencer_is_held() {
    let (engine, clock) = (Engine::new(EngineSettings::default()), AtomicU64::new(1));
    let sequencer = engine.sequencer(LogTime(1));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| engine.sequencer(|| LogTime(clock.load(Ordering::SeqCst))).now);
        // Time for the other thread to reach the sequencer, where it waits.
        std::thread::sleep(std::time::Duration::from_millis(100));
        clock.store(5_000, Ordering::SeqCst);
        drop(sequencer);
        assert_eq!(late.join().unwrap(), LogTime(5_000), "R4: a write counts from when its client is told");
    });
}

#[test]
fn lost_writes_are_counted_as_they_come_and_go() {
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 1 << 20, 1);
    for number in 0..10 {
        start(&engine, &format!("key-{number}"), 64, &plain(), 1).unwrap();
    }
    assert_eq!((engine.reading().writing, engine.reading().lost_writes), (10, 0));
    let _ = engine.sequencer(LogTime(2)).unmount(uuid(1));
    assert_eq!((engine.reading().writing, engine.reading().lost_writes), (10, 10));
    engine.upkeep(LogTime(700_000));
    assert_eq!((engine.reading().writing, engine.reading().lost_writes), (0, 0));
}

#[test]
fn a_state_can_be_dropped_on_another_thread() {
    fn anywhere<T: Send + Sync + 'static>(_: &T) {}
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 1 << 20, 1);
    put(&engine, "key", 64, &plain(), 1);
    anywhere(&engine);
    std::thread::spawn(move || drop(engine)).join().unwrap();
}
