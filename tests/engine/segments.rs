//! Mounting and unmounting: what is refused, and what it costs.

use crate::support::{assert_sound, mount, plain, put, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{MAX_MOUNTED, MAX_TOLD, WriteConfig};
use moonkeeper::engine::record::DynamicLease;
use moonkeeper::engine::segment::{SegmentSpec, SegmentStatus};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{ErrorCode, LogTime};

/// Memory of one process, of which every number is another piece.
fn piece(number: u64) -> SegmentSpec<'static> {
    SegmentSpec {
        id: uuid(number),
        name: b"name",
        base: (1 + number) << 35,
        size: 1 << 35,
        te_endpoint: b"host:1",
        protocol: b"tcp",
        host_id: b"host",
    }
}

#[test]
fn nobody_can_mount_without_end() {
    let engine = Engine::new(EngineSettings::default());
    let pieces: Vec<SegmentSpec<'_>> = (0..MAX_MOUNTED as u64 + 1).map(piece).collect();
    let now = LogTime(1_000);
    let too_many = engine.remount(&pieces[..=MAX_TOLD], uuid(1), now);
    assert_eq!(too_many.result, Err(ErrorCode::INVALID_PARAMS));
    assert!(engine.segments().is_empty());
    for (nth, told) in pieces[..MAX_MOUNTED].chunks(MAX_TOLD).enumerate() {
        engine.remount(told, uuid(100 + nth as u64), now).result.unwrap();
    }
    let last = engine.sequencer(now).mount(&pieces[MAX_MOUNTED], uuid(1));
    assert_eq!(last.result, Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(last.depends_on, engine.applied(), "INV-3: it rests on those that are mounted");
    // What is mounted already stays so, and is so when it is told again.
    engine.sequencer(now).mount(&pieces[0], uuid(100)).result.unwrap();
    engine.expire_client(uuid(101), now);
    engine.sequencer(now).mount(&pieces[MAX_MOUNTED], uuid(1)).result.unwrap();
    assert_eq!(engine.segments().len(), MAX_MOUNTED - MAX_TOLD + 1);
    assert_sound(&engine, "mounted");
}

#[test]
fn a_grace_period_may_last_for_ever() {
    let engine = Engine::new(EngineSettings::default());
    mount(&engine, 1, 1, 1 << 20, 1_000);
    put(&engine, "object", 1000, &plain(), 1_000);
    let grace = |ms| engine.sequencer(LogTime(2_000)).graceful_unmount(uuid(1), uuid(1), ms).result;
    let before = engine.sequencer(LogTime(0)).digest();
    assert_eq!(grace(u64::MAX), Ok(()));
    assert_ne!(engine.sequencer(LogTime(0)).digest(), before, "a drain is part of the digest");
    engine.upkeep(LogTime(u64::MAX >> 1));
    assert!(crate::support::present(&engine, "object"));
    assert_sound(&engine, "drained");
}

#[test]
fn answers_that_a_dead_segment_decided_rest_on_its_unmount() {
    let engine = Engine::new(EngineSettings::default());
    (1..=3).for_each(|number| mount(&engine, number, number, 1 << 20, 1_000));
    let both: &[&[u8]] = &[b"segment-1", b"segment-2"];
    put(&engine, "object", 1000, &WriteConfig { replicas: 2, preferred: both, ..plain() }, 2_000);
    let unmounted = engine.sequencer(LogTime(3_000)).unmount(uuid(1)).depends_on;
    // Another segment of that name keeps the name known.
    let same_name = SegmentSpec { name: b"segment-1", ..piece(9) };
    engine.sequencer(LogTime(3_000)).mount(&same_name, uuid(9)).result.unwrap();
    let mut sequencer = engine.sequencer(LogTime(4_000));
    let (source, target): (&[u8], &[u8]) = (b"segment-1", b"segment-3");
    let copy = sequencer.copy_start(uuid(1), b"object", source, &[target], DynamicLease::default());
    assert_eq!(copy.result.unwrap_err(), ErrorCode::REPLICA_NOT_FOUND);
    assert!(copy.depends_on >= unmounted, "INV-3: {:?}", copy.depends_on);
    let task = sequencer.create_move_task(uuid(99), b"object", b"", source, target);
    assert_eq!(task.result, Err(ErrorCode::INVALID_PARAMS));
    assert!(task.depends_on >= unmounted, "INV-3: {:?}", task.depends_on);
}

#[test]
fn the_status_of_a_name_rests_on_the_unmount_of_another_segment_of_that_name() {
    let engine = Engine::new(EngineSettings::default());
    let mount = |number| {
        let owner = uuid(100 + number);
        engine.sequencer(LogTime(1_000)).mount(&piece(number), owner).result.unwrap();
    };
    mount(1);
    mount(2);
    let unmounted = engine.sequencer(LogTime(2_000)).unmount(uuid(2)).depends_on;
    let status = engine.segment_status(b"name");
    assert_eq!(status.result, Ok(SegmentStatus::Ok));
    assert!(status.depends_on >= unmounted, "INV-3: {:?}", status.depends_on);
}
