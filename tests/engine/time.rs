//! What time brings, to the millisecond. Time is what callers say it is.

use crate::support::{Pair, end, mount, plain, present, put, read, remove, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{ReplicaTypes, Upkeep, WriteConfig};
use moonkeeper::engine::record::{CopyOrMove, DynamicLease, SoftPin};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::task::TaskStatus;
use moonkeeper::engine::types::{ErrorCode, LogTime};

const SIZE: u64 = 1 << 20;

fn settings() -> EngineSettings {
    EngineSettings {
        lease_ttl_ms: 1_000,
        discard_timeout_ms: 5_000,
        release_timeout_ms: 20_000,
        pending_task_timeout_ms: 3_000,
        processing_task_timeout_ms: 7_000,
        ..EngineSettings::default()
    }
}

fn store() -> Pair {
    let pair = Pair::new(settings());
    mount(&pair.primary, 1, 1, SIZE, 1);
    pair
}

fn used(engine: &Engine) -> u64 {
    engine.segments().iter().map(|segment| segment.used()).sum()
}

#[test]
fn another_writer_may_take_a_stuck_key_over_after_the_discard_timeout() {
    let pair = store();
    let engine = &pair.primary;
    let first = start(engine, "key", 4096, &plain(), 100_000).unwrap();
    assert_eq!(start(engine, "key", 4096, &plain(), 105_000).err(), Some(ErrorCode::OBJECT_ALREADY_EXISTS));
    let second = start(engine, "key", 4096, &plain(), 105_001).unwrap();
    assert_ne!(first.replicas[0].offset, second.replicas[0].offset);
    assert_eq!(used(engine), 2 * 4096);
    // The first writer's bytes are held for as long as it may write, counted from its start.
    assert_eq!(engine.upkeep(LogTime(119_999)), Upkeep::default());
    assert_eq!(engine.upkeep(LogTime(120_000)).released, 1);
    assert_eq!(used(engine), 4096);
    assert_eq!(end(engine, "key", 120_000), Ok(()));
    pair.assert_same("in the end");
}

#[test]
fn a_stuck_write_is_given_up_after_the_release_timeout() {
    let pair = store();
    let engine = &pair.primary;
    start(engine, "key", 4096, &plain(), 100_000).unwrap();
    assert_eq!(engine.upkeep(LogTime(120_000)), Upkeep::default());
    assert_eq!(used(engine), 4096);
    assert_eq!(engine.upkeep(LogTime(120_001)).released, 1);
    assert_eq!(used(engine), 0);
    assert!(!present(engine, "key"));
    assert_eq!(end(engine, "key", 120_001), Err(ErrorCode::OBJECT_NOT_FOUND));
    pair.assert_same("in the end");
}

#[test]
fn replaced_bytes_are_held_for_the_release_timeout() {
    let pair = store();
    let engine = &pair.primary;
    put(engine, "key", 4096, &plain(), 100_000);
    engine.sequencer(LogTime(101_000)).upsert_start(uuid(1), b"key", 64, &plain()).result.unwrap();
    end(engine, "key", 101_000).unwrap();
    assert_eq!(engine.upkeep(LogTime(120_999)), Upkeep::default());
    assert_eq!(used(engine), 4096 + 64);
    assert_eq!(engine.upkeep(LogTime(121_000)).released, 1);
    assert_eq!(used(engine), 64);
    pair.assert_same("in the end");
}

#[test]
fn replaced_bytes_outlive_a_lease_that_is_longer_than_the_release_timeout() {
    let pair = Pair::new(EngineSettings { lease_ttl_ms: 50_000, ..settings() });
    let engine = &pair.primary;
    mount(engine, 1, 1, SIZE, 1);
    put(engine, "key", 4096, &plain(), 100_000);
    read(engine, "key", 100_500).unwrap();
    engine.sequencer(LogTime(101_000)).upsert_start(uuid(1), b"key", 64, &plain()).result.unwrap();
    end(engine, "key", 101_000).unwrap();
    engine.upkeep(LogTime(150_499));
    assert_eq!(used(engine), 4096 + 64, "INV-7");
    engine.upkeep(LogTime(151_000));
    assert_eq!(used(engine), 64);
}

#[test]
fn a_moved_source_and_a_stuck_copy_are_held_for_the_release_timeout() {
    let pair = store();
    let engine = &pair.primary;
    mount(engine, 2, 2, SIZE, 1);
    let on_first = WriteConfig { preferred: &[b"segment-1"], ..plain() };
    put(engine, "moved", 4096, &on_first, 100_000);
    put(engine, "copied", 64, &on_first, 100_000);
    let none = DynamicLease::default();
    {
        let mut sequencer = engine.sequencer(LogTime(100_000));
        sequencer.move_start(uuid(1), b"moved", b"segment-1", b"segment-2").result.unwrap();
        sequencer.copy_start(uuid(1), b"copied", b"segment-1", &[b"segment-2"], none).result.unwrap();
        sequencer.end_copy_or_move(uuid(1), b"moved", CopyOrMove::Move, none).result.unwrap();
    }
    assert_eq!(used(engine), 2 * 4096 + 2 * 64);
    assert_eq!(engine.upkeep(LogTime(119_999)), Upkeep::default());
    assert_eq!(engine.upkeep(LogTime(120_000)).released, 1);
    assert_eq!(used(engine), 4096 + 2 * 64);
    assert_eq!(engine.upkeep(LogTime(120_001)).released, 1);
    assert_eq!(used(engine), 4096 + 64);
    let late =
        engine.sequencer(LogTime(120_001)).end_copy_or_move(uuid(1), b"copied", CopyOrMove::Copy, none);
    assert_eq!(late.result, Err(ErrorCode::OBJECT_NO_REPLICATION_TASK));
    pair.assert_same("in the end");
}

/// A stuck write has the number of the record that also discarded the bytes before it.
#[test]
fn a_shorter_release_timeout_does_not_cut_short_what_is_held_already() {
    let pair = store();
    put(&pair.primary, "key", 4096, &plain(), 100_000);
    pair.primary.sequencer(LogTime(100_000)).upsert_start(uuid(1), b"key", 64, &plain()).result.unwrap();
    // The mirror takes over with other settings.
    let Pair { primary, mirror, .. } = pair;
    drop(primary);
    let mut next = std::sync::Arc::into_inner(mirror).unwrap();
    next.settings = EngineSettings { release_timeout_ms: 2_000, ..settings() };
    next.upkeep(LogTime(110_000));
    assert!(used(&next) >= 4096, "bytes were promised until 120000 and are free at 110000");
    next.upkeep(LogTime(120_000));
    assert_eq!(used(&next), 0);
    crate::support::assert_sound(&next, "in the end");
}

#[test]
fn a_lease_ends_when_its_time_has_passed() {
    let pair = store();
    let engine = &pair.primary;
    put(engine, "key", 64, &plain(), 100_000);
    read(engine, "key", 100_500).unwrap();
    assert_eq!(remove(engine, "key", false, 101_499), Err(ErrorCode::OBJECT_HAS_LEASE));
    assert_eq!(remove(engine, "key", false, 101_500), Ok(()));
    put(engine, "key", 64, &plain(), 102_000);
    read(engine, "key", 102_000).unwrap();
    assert_eq!(remove(engine, "key", true, 102_000), Ok(()));
    pair.assert_same("in the end");
}

#[test]
fn a_drained_segment_goes_when_its_grace_period_ends() {
    let pair = store();
    let engine = &pair.primary;
    put(engine, "key", 64, &plain(), 100_000);
    engine.sequencer(LogTime(100_000)).graceful_unmount(uuid(1), uuid(1), 4_000).result.unwrap();
    assert_eq!(start(engine, "new", 64, &plain(), 100_000).err(), Some(ErrorCode::NO_AVAILABLE_HANDLE));
    assert_eq!(engine.upkeep(LogTime(103_999)), Upkeep::default());
    assert_eq!(read(engine, "key", 103_999), Ok(()));
    assert_eq!(engine.upkeep(LogTime(104_000)).unmounted, 1);
    assert_eq!(read(engine, "key", 104_000), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert!(engine.segments().is_empty());
    assert_eq!(engine.sweep(LogTime(104_000)), 1);
    assert!(engine.is_empty());
    pair.assert_same("in the end");
}

#[test]
fn tasks_time_out() {
    let pair = store();
    let engine = &pair.primary;
    mount(engine, 2, 2, SIZE, 1);
    put(engine, "key", 64, &WriteConfig { preferred: &[b"segment-1"], ..plain() }, 100_000);
    {
        let mut sequencer = engine.sequencer(LogTime(100_000));
        sequencer.create_copy_task(uuid(50), b"key", b"", &[b"segment-2"]).result.unwrap();
        sequencer.create_copy_task(uuid(51), b"key", b"", &[b"segment-2"]).result.unwrap();
        assert_eq!(sequencer.fetch_tasks(uuid(1), 1).result.unwrap().len(), 1);
    }
    let status =
        |id| engine.sequencer(LogTime(0)).query_task(uuid(id)).result.map(|task| (task.status, task.message));
    assert_eq!(engine.upkeep(LogTime(103_000)), Upkeep::default());
    assert_eq!(engine.upkeep(LogTime(103_001)).tasks_failed, 1);
    assert_eq!(status(51), Ok((TaskStatus::Failed, b"pending timeout"[..].into())));
    assert_eq!(engine.upkeep(LogTime(107_000)), Upkeep::default());
    assert_eq!(status(50), Ok((TaskStatus::Processing, Box::default())));
    assert_eq!(engine.upkeep(LogTime(107_001)).tasks_failed, 1);
    assert_eq!(status(50), Ok((TaskStatus::Failed, b"processing timeout"[..].into())));
    pair.assert_same("in the end");
}

#[test]
fn a_soft_pin_counts_from_the_end_of_the_write_and_ends_on_time() {
    let pair = Pair::new(EngineSettings {
        high_watermark: 0.0,
        eviction_ratio: 1.0,
        evict_soft_pinned: false,
        ..settings()
    });
    let engine = &pair.primary;
    mount(engine, 1, 1, 1 << 50, 1);
    start(engine, "key", 64, &WriteConfig { soft_pin: SoftPin::Enable(8_000), ..plain() }, 100_000).unwrap();
    end(engine, "key", 102_000).unwrap();
    assert_eq!(engine.evict(LogTime(109_999)), 0);
    assert!(present(engine, "key"));
    assert_eq!(engine.evict(LogTime(110_000)), 1);
    assert!(!present(engine, "key"));
    pair.assert_same("in the end");
}

#[test]
fn an_expired_client_loses_its_segments_and_nobody_elses() {
    let pair = store();
    let engine = &pair.primary;
    let spec = SegmentSpec {
        id: uuid(2),
        name: b"segment-2",
        base: 0x1000,
        size: SIZE,
        te_endpoint: b"host:2",
        protocol: b"tcp",
        host_id: b"host",
    };
    engine.remount(&[spec], uuid(2), LogTime(1)).result.unwrap();
    put(engine, "stays", 64, &WriteConfig { preferred: &[b"segment-1"], ..plain() }, 100_000);
    put(engine, "goes", 64, &WriteConfig { preferred: &[b"segment-2"], ..plain() }, 100_000);
    assert_eq!(engine.is_joined(uuid(2)).result, Ok(true));
    engine.expire_client(uuid(2), LogTime(100_001));
    assert_eq!(engine.is_joined(uuid(2)).result, Ok(false));
    assert_eq!(engine.segments().len(), 1);
    assert!(present(engine, "stays") && !present(engine, "goes"));
    let last = engine.applied();
    assert_eq!(engine.expire_client(uuid(2), LogTime(100_002)), last, "nothing was left to expire");
    pair.assert_same("in the end");
}

#[test]
fn a_write_outlives_its_client() {
    let pair = store();
    let engine = &pair.primary;
    let started = engine.sequencer(LogTime(100_000)).put_start(uuid(9), b"key", 4096, &plain());
    assert!(started.result.is_ok());
    engine.expire_client(uuid(9), LogTime(100_001));
    assert_eq!(used(engine), 4096, "R4: its bytes may still be written");
    let ended = engine.sequencer(LogTime(100_002)).end(uuid(9), b"key", ReplicaTypes::Memory, None);
    assert_eq!(ended.result, Ok(()));
}

#[test]
fn log_time_never_goes_back() {
    let pair = store();
    let engine = &pair.primary;
    put(engine, "one", 64, &plain(), 100_000);
    // The mirror refuses records that go back in time, so it would tell.
    put(engine, "two", 64, &plain(), 90_000);
    assert_eq!(engine.sequencer(LogTime(0)).now, LogTime(100_000));
    start(engine, "three", 64, &plain(), 50_000).unwrap();
    assert_eq!(engine.upkeep(LogTime(120_000)), Upkeep::default(), "the write counts from log time");
    assert_eq!(engine.upkeep(LogTime(120_001)).released, 1);
    pair.assert_same("in the end");
}
