//! Golden logs, one for each format: replayed by this binary they give, after every batch, the digest that they gave to
//! the binary that wrote them. What applying a record does in one format never changes (INV-8): a test that fails here
//! means a new format, not a new golden log.

use std::sync::Arc;

use crate::records;
use crate::support::recording::Recording;
use crate::support::world::World;
use crate::support::{Pair, assert_sound, mount, plain, put, read, start, uuid};
use moonkeeper::engine::divergence::Divergence;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
use moonkeeper::engine::record::{CopyOrMove, DynamicLease, EvictRule, Record};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::replication::batch::Batch;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::log_position::{Offered, Position};

/// The log of a format: a line for each batch, with the digest after it and its bytes in hex.
fn golden(format: Format) -> &'static str {
    match format {
        Format::One => include_str!("golden/format-1.txt"),
        Format::Two => include_str!("golden/format-2.txt"),
    }
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// Settings shape records and never enter `apply`, so those of the reader are others than those of the writer.
#[test]
fn golden_logs_give_the_digests_that_they_gave() {
    for format in Format::READABLE {
        let incarnation = Incarnation::new(
            EngineSettings { lease_ttl_ms: 1, release_timeout_ms: 1, ..EngineSettings::default() },
            1 << 20,
        );
        let (mut position, mut kinds) = (Position::default(), [0; records::KINDS]);
        let mut confined = [0; 2];
        for (nth, line) in golden(*format).lines().enumerate() {
            let (digest, batch) = line.split_once(' ').unwrap();
            let batch = from_hex(batch);
            let opened = Batch::open(&batch).unwrap();
            assert_eq!(opened.header.format, *format);
            opened.each(|_, _, record| {
                kinds[records::kind(record)] += 1;
                confined[usize::from(matches!(record, Record::Evict(_)))] += u32::from(is_confined(record));
            });
            assert_eq!(
                position.offer(&batch, &incarnation),
                Offered::Applied,
                "{format:?}, line {}",
                nth + 1
            );
            let found = incarnation.engine.sequencer(LogTime(0)).digest();
            assert_eq!(
                format!("{:016x}", found.0),
                digest,
                "{format:?}, line {}: applying a record of this format has changed its meaning",
                nth + 1
            );
        }
        assert!(
            kinds.iter().all(|count| *count > 0),
            "{format:?}: some kind of record is missing: {kinds:?}"
        );
        let says_so = *format >= Format::Two;
        assert_eq!(confined.map(|rules| rules > 0), [says_so; 2], "{format:?}: {confined:?}");
        let engine = &incarnation.engine;
        assert_eq!((engine.divergence(), engine.faults()), (Divergence::default(), 0));
        assert_sound(engine, "after a golden log");
    }
}

/// Whether a rule spares what was reserved before a record.
fn is_confined(record: &Record<'_>) -> bool {
    match *record {
        Record::Evict(EvictRule { reserved_since, .. }) | Record::RemoveAll { reserved_since, .. } => {
            reserved_since != SequenceId(0)
        }
        _ => false,
    }
}

/// What random use seldom comes to, once each.
fn rare_steps(pair: &mut Pair) {
    let engine = Arc::clone(&pair.primary);
    let (owner, key) = (uuid(1), b"golden");
    // Later than any lease, hold or time limit of what was before.
    let mut now = engine.sequencer(LogTime(0)).now;
    let mut later = || {
        now = now.plus(10_000_000);
        now
    };
    engine.upkeep(later());
    for number in 901..=903 {
        mount(&engine, number, 1, 100_000, later().0);
    }
    let preferred: [&[u8]; 2] = [b"segment-901", b"segment-902"];
    let config = WriteConfig { replicas: 2, preferred: &preferred, ..plain() };
    put(&engine, "golden", 100, &config, later().0);
    assert_eq!(engine.sequencer(later()).replica_clear(owner, key, b"segment-901").result, Ok(true));
    let plain_copy = DynamicLease::default();
    let targets: [&[u8]; 1] = [b"segment-901"];
    engine.sequencer(later()).copy_start(owner, key, b"segment-902", &targets, plain_copy).result.unwrap();
    engine.sequencer(later()).end_copy_or_move(owner, key, CopyOrMove::Copy, plain_copy).result.unwrap();
    engine.sequencer(later()).move_start(owner, key, b"segment-901", b"segment-903").result.unwrap();
    engine.sequencer(later()).revoke_copy_or_move(owner, key, CopyOrMove::Move, plain_copy).result.unwrap();
    engine.sequencer(later()).create_copy_task(uuid(7), key, b"", &[b"segment-903"]).result.unwrap();
    let _ = engine.sequencer(later()).fetch_tasks(owner, 1);
    engine.sequencer(later()).complete_task(owner, uuid(7), true, b"done").result.unwrap();
    start(&engine, "given up", 64, &plain(), later().0).unwrap();
    start(&engine, "given up", 64, &plain(), later().0).unwrap();
    engine.sequencer(later()).revoke(owner, b"given up", ReplicaTypes::Memory).result.unwrap();
    engine.upkeep(later());
    engine.sequencer(later()).put_metadata(b"name", b"value", |_, _, _| Ok::<_, ()>(())).unwrap();
    engine.sequencer(later()).delete_metadata(b"name").unwrap();
    let read_at = later();
    read(&engine, "golden", read_at.0).unwrap();
    engine.replicate_leases(read_at);
    engine.sequencer(later()).graceful_unmount(uuid(901), owner, 5).result.unwrap();
    engine.upkeep(later());
    engine.sweep(later());
    engine.expire_client(owner, later());
    engine.resign(later(), true);
    pair.begin(later(), 1_000);
    engine.remove_all(false, later());
    // A term after a crash: of two objects one was reserved before it.
    mount(&engine, 904, 1, 100_000, later().0);
    let spread = WriteConfig { preferred: &[b"segment-904"], ..plain() };
    put(&engine, "promised perhaps", 100, &spread, later().0);
    engine.sequencer(later()).commit_digest();
    let crash = later();
    pair.begin(crash, 1_000);
    mount(&engine, 905, 2, 100_000, crash.0);
    for key in ["fresh", "fresher"] {
        put(&engine, key, 100, &plain(), crash.0);
        assert!(start(&engine, "too large", 1_000_000, &plain(), crash.0).is_err());
        let held = crash.plus(200);
        if key == "fresh" {
            assert_eq!(engine.evict(held), 1);
        } else {
            assert_eq!(engine.remove_all(false, held).0, 1);
        }
    }
    let batches = || pair.written(|log| log.recording.as_ref().unwrap().batches.len());
    let before = batches();
    while batches() == before {
        engine.sequencer(later()).commit_digest();
    }
}

/// Writes the golden log of the newest format: `MOONKEEPER_GOLDEN_LOG=tests/replication/golden/format-N.txt cargo test
/// --test replication make_a_golden_log -- --ignored`, once, when a format comes to be.
#[test]
#[ignore = "writes a file"]
fn make_a_golden_log() {
    let path = std::env::var("MOONKEEPER_GOLDEN_LOG").expect("MOONKEEPER_GOLDEN_LOG names the file to write");
    let mut world = World::recorded(1, Recording::new(32));
    (0..2_000).for_each(|_| world.step());
    world.check("the golden log");
    rare_steps(&mut world.pair);
    let batches = world.pair.written(|log| log.recording.as_ref().unwrap().batches.clone());
    let mut kinds = [0; records::KINDS];
    for (batch, _) in &batches {
        Batch::open(batch).unwrap().each(|_, _, record| kinds[records::kind(record)] += 1);
    }
    assert!(kinds.iter().all(|count| *count > 0), "some kind of record is missing: {kinds:?}");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines = batches.iter().map(|(batch, digest)| format!("{:016x} {}\n", digest.0, hex(batch)));
    std::fs::write(path, lines.collect::<String>()).unwrap();
}
