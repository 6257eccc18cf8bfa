//! Mounting and unmounting: what is refused, and what it costs.

#![allow(clippy::unwrap_used)] // clippy knows test functions but not their helpers

mod engine;

use engine::{assert_sound, mount, plain, put, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::rules::Rules;
use moonkeeper::engine::types::LogTime;

#[test]
fn a_grace_period_may_last_for_ever() {
    let engine = Engine::new(Rules::default());
    mount(&engine, 1, 1, 1 << 20, 1_000);
    put(&engine, "object", 1000, &plain(), 1_000);
    let grace = |ms| engine.sequencer(LogTime(2_000)).graceful_unmount(uuid(1), uuid(1), ms).result;
    let before = engine.sequencer(LogTime(0)).digest();
    assert_eq!(grace(u64::MAX), Ok(()));
    assert_ne!(engine.sequencer(LogTime(0)).digest(), before, "a drain is part of the digest");
    engine.upkeep(LogTime(u64::MAX >> 1));
    assert!(engine::present(&engine, "object"));
    assert_sound(&engine, "drained");
}
