//! Walks over all objects: in pieces, and each object once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{mount, plain, put, remove};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::ObjectId;
use moonkeeper::engine::walk::{Cursor, PIECE};

fn store(objects: u64) -> Engine {
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 1 << 40, 1);
    (0..objects).for_each(|number| put(&engine, &format!("stays-{number}"), 64, &plain(), 1));
    engine
}

#[test]
fn a_walk_holds_a_lock_for_a_piece_at_a_time() {
    // All in one shard: the keys are chosen by their hash.
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 1 << 40, 1);
    let mut number = 0_u64;
    while engine.len() < 5_000 {
        let key = format!("key-{number}");
        if moonkeeper::engine::key::KeyHash::of(key.as_bytes()).shard() == 7 {
            put(&engine, &key, 64, &plain(), 1);
        }
        number += 1;
    }
    let (mut cursor, mut pieces) = (Cursor::of_shard(7), Vec::new());
    while cursor.shard() == 7 {
        pieces.push(engine.keys(&mut cursor).unwrap().len());
    }
    assert_eq!(pieces.iter().sum::<usize>(), 5_000);
    assert!(pieces.iter().all(|piece| *piece < PIECE + 64), "{pieces:?}");
}

#[test]
fn what_is_there_all_the_time_is_seen_once() {
    let (objects, engine) = (20_000, store(20_000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                let key = format!("comes and goes {}", number % 4_000);
                put(&engine, &key, 64, &plain(), 1);
                remove(&engine, &format!("comes and goes {}", (number + 2_000) % 4_000), true, 1).ok();
                remove(&engine, &key, true, 1).ok();
                number += 1;
            }
        });
        for _ in 0..20 {
            let (mut cursor, mut seen) = (Cursor::default(), HashMap::<ObjectId, usize>::new());
            while engine.walk_piece(&mut cursor, |object| {
                if object.key.starts_with(b"stays-") {
                    *seen.entry(object.id).or_default() += 1;
                }
            }) {}
            assert_eq!(seen.len(), objects);
            assert!(seen.values().all(|times| *times == 1));
            assert!(cursor.is_at_end());
        }
        done.store(true, Ordering::Relaxed);
    });
}
