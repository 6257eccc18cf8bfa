//! Writes whose memory was unmounted under them: the bytes stay theirs when the same memory is mounted again (R4, INV-5).

use crate::support::{Pair, end, plain, put, restored, start, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
use moonkeeper::engine::record::{CopyOrMove, DynamicLease};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{ErrorCode, LogTime};

const BASE: u64 = 0x1000_0000;
const SIZE: u64 = 64 << 10;
const RELEASE: u64 = 600_000;

/// The memory at `base` of the process that listens at `endpoint`.
fn memory<'a>(id: u64, endpoint: &'a str, base: u64, size: u64) -> SegmentSpec<'a> {
    SegmentSpec {
        id: uuid(id),
        name: endpoint.as_bytes(),
        base,
        size,
        te_endpoint: endpoint.as_bytes(),
        protocol: b"tcp",
        host_id: b"host",
    }
}

fn mount(engine: &Engine, spec: &SegmentSpec<'_>, client: u64, now: u64) {
    engine.remount(&[*spec], uuid(client), LogTime(now)).result.unwrap();
}

fn pair() -> Pair {
    let mut pair = Pair::new(EngineSettings { release_timeout_ms: RELEASE, ..EngineSettings::default() });
    pair.begin(LogTime(1_000), 0);
    mount(&pair.primary, &memory(1, "a:1", BASE, SIZE), 10, 1_000);
    pair
}

/// Takes whatever is free in small pieces, and says where it was.
fn fill(engine: &Engine, now: u64) -> Vec<u64> {
    let fits = |nth: usize| start(engine, &format!("filler-{now}-{nth}"), 64, &plain(), now).ok();
    (0..).map_while(fits).map(|started| started.replicas[0].address()).collect()
}

/// Whether one of these pieces of 64 bytes has a byte of a range.
fn touch(pieces: &[u64], start: u64, size: u64) -> bool {
    pieces.iter().any(|piece| *piece < start + size && start < piece + 64)
}

fn sound(pair: &Pair, what: &str) {
    pair.assert_same(what);
    let restored = restored(&pair.primary);
    let (kept, made) = (pair.primary.segments(), restored.segments());
    for (kept, made) in kept.iter().zip(&made) {
        assert_eq!(kept.used(), made.used(), "{what}: restored");
    }
    crate::support::assert_sound(&restored, what);
    assert_eq!(
        pair.primary.sequencer(LogTime(0)).digest(),
        restored.sequencer(LogTime(0)).digest(),
        "{what}"
    );
}

type Unmount = fn(&Engine);

/// The ways in which memory goes.
const WAYS: [(&str, Unmount); 4] = [
    ("expired", |engine| _ = engine.expire_client(uuid(10), LogTime(12_000))),
    ("unmounted", |engine| {
        _ = engine.sequencer(LogTime(12_000)).unmount(uuid(1));
        _ = engine.expire_client(uuid(10), LogTime(12_000));
    }),
    ("drained", |engine| {
        engine.sequencer(LogTime(11_000)).graceful_unmount(uuid(1), uuid(10), 1_000).result.unwrap();
        engine.upkeep(LogTime(12_000));
        _ = engine.expire_client(uuid(10), LogTime(12_000));
    }),
    // Another process at the same endpoint: the mount itself makes way.
    ("replaced", |_| ()),
];

#[test]
fn bytes_that_are_being_written_stay_reserved_when_their_memory_is_mounted_again() {
    for (way, unmount) in WAYS {
        for swept in [false, true] {
            let pair = pair();
            let engine = &pair.primary;
            let mine = start(engine, "mine", 1000, &plain(), 2_000).unwrap().replicas[0].address();
            unmount(engine);
            if swept {
                engine.sweep(LogTime(12_000));
            }
            sound(&pair, way);
            mount(engine, &memory(2, "a:1", BASE, SIZE), 11, 12_000);
            sound(&pair, way);
            assert_eq!(engine.segments()[0].used(), 1024, "{way}");
            let others = fill(engine, 13_000);
            assert_eq!(others.len() as u64, (SIZE - 1024) / 64, "{way}");
            assert!(!touch(&others, mine, 1000), "{way}: R4: told bytes that somebody may still write");
            sound(&pair, way);

            // When its time has passed, the bytes are free where they are now.
            engine.upkeep(LogTime(2_000 + RELEASE));
            assert!(fill(engine, 2_000 + RELEASE).is_empty(), "{way}: released too early");
            engine.upkeep(LogTime(2_001 + RELEASE));
            assert_eq!(fill(engine, 2_001 + RELEASE).len(), 16, "{way}: never released");
            sound(&pair, way);
        }
    }
}

#[test]
fn a_writer_that_says_it_is_done_gives_the_bytes_back() {
    for revoke in [false, true] {
        let pair = pair();
        let engine = &pair.primary;
        start(engine, "mine", 1000, &plain(), 2_000).unwrap();
        engine.expire_client(uuid(10), LogTime(3_000));
        mount(engine, &memory(1, "a:1", BASE, SIZE), 10, 3_000);
        assert_eq!(engine.segments()[0].used(), 1024);
        let lost = || engine.sequencer(LogTime(0)).reading().lost_writes;
        assert_eq!(lost(), 1, "it is not among the objects that metrics count");
        let late = |client: u64| {
            let mut sequencer = engine.sequencer(LogTime(4_000));
            if revoke {
                sequencer.revoke(uuid(client), b"mine", ReplicaTypes::Memory)
            } else {
                sequencer.end(uuid(client), b"mine", ReplicaTypes::Memory, None)
            }
        };
        // Somebody else cannot say so, and nobody can tell from the answer.
        assert_eq!(late(2).result, Err(ErrorCode::OBJECT_NOT_FOUND));
        assert_eq!(engine.segments()[0].used(), 1024);
        let answer = late(1);
        assert_eq!(answer.result, Err(ErrorCode::OBJECT_NOT_FOUND));
        assert_eq!(answer.depends_on, engine.applied(), "INV-3");
        assert_eq!((engine.segments()[0].used(), lost()), (0, 0));
        sound(&pair, "done");
    }
}

#[test]
fn the_bytes_stay_reserved_when_the_key_is_written_again() {
    for upsert in [false, true] {
        let pair = pair();
        let engine = &pair.primary;
        let mine = start(engine, "mine", 1000, &plain(), 2_000).unwrap().replicas[0].address();
        engine.expire_client(uuid(10), LogTime(3_000));
        mount(engine, &memory(1, "a:1", BASE, SIZE), 10, 3_000);
        let mut sequencer = engine.sequencer(LogTime(4_000));
        let again = if upsert {
            sequencer.upsert_start(uuid(2), b"mine", 1000, &plain())
        } else {
            sequencer.put_start(uuid(2), b"mine", 1000, &plain())
        };
        drop(sequencer);
        assert_ne!(again.result.unwrap().replicas[0].address(), mine);
        sound(&pair, "written again");
        let others = fill(engine, 5_000);
        assert!(!touch(&others, mine, 1000), "R4");
        engine.upkeep(LogTime(2_001 + RELEASE));
        assert_eq!(fill(engine, 2_001 + RELEASE).len(), 16);
        sound(&pair, "released");
    }
}

#[test]
fn discarded_bytes_stay_reserved_when_their_memory_is_mounted_again() {
    let pair = pair();
    let engine = &pair.primary;
    let mine = start(engine, "mine", 1000, &plain(), 2_000).unwrap().replicas[0].address();
    let late = 2_001 + engine.settings.discard_timeout_ms;
    let other = start(engine, "mine", 1000, &plain(), late).unwrap().replicas[0].address();
    assert_ne!(mine, other, "discarded, not given out");
    engine.expire_client(uuid(10), LogTime(late));
    mount(engine, &memory(1, "a:1", BASE, SIZE), 10, late);
    sound(&pair, "mounted again");
    let others = fill(engine, late);
    assert!(!touch(&others, mine, 1000) && !touch(&others, other, 1000), "R4");
    engine.upkeep(LogTime(2_001 + RELEASE));
    assert!(touch(&fill(engine, 2_001 + RELEASE), mine, 1000));
    sound(&pair, "released");
}

#[test]
fn bytes_that_a_copy_is_written_to_stay_reserved() {
    for ending in ["end", "revoke", "release"] {
        let pair = pair();
        let engine = &pair.primary;
        mount(engine, &memory(2, "b:1", BASE, SIZE), 20, 1_000);
        put(engine, "object", 1000, &WriteConfig { preferred: &[b"a:1"], ..plain() }, 2_000);
        let mut sequencer = engine.sequencer(LogTime(3_000));
        let targets: &[&[u8]] = &[b"b:1"];
        let copy = sequencer.copy_start(uuid(1), b"object", b"a:1", targets, DynamicLease::default());
        drop(sequencer);
        let target = copy.result.unwrap().targets[0].address();
        engine.expire_client(uuid(20), LogTime(4_000));
        engine.sweep(LogTime(4_000));
        mount(engine, &memory(3, "b:1", BASE, SIZE), 20, 4_000);
        sound(&pair, "mounted again");
        // Both processes have memory at the same addresses, and the object is in the first one where its copy is in
        // the second.
        assert!(!touch(&fill(engine, 5_000), target, 1000), "{ending}: R4");
        assert_eq!(engine.segments()[1].used(), SIZE, "{ending}");
        let plain_lease = DynamicLease::default();
        let gone = match ending {
            "end" => {
                let mut sequencer = engine.sequencer(LogTime(6_000));
                sequencer.end_copy_or_move(uuid(1), b"object", CopyOrMove::Copy, plain_lease).result
            }
            "revoke" => {
                let mut sequencer = engine.sequencer(LogTime(6_000));
                sequencer.revoke_copy_or_move(uuid(1), b"object", CopyOrMove::Copy, plain_lease).result
            }
            _ => {
                engine.upkeep(LogTime(3_001 + RELEASE));
                Ok(())
            }
        };
        assert_eq!(gone.is_err(), ending == "end", "{gone:?}");
        assert_eq!(engine.segments()[1].used(), SIZE - 1024, "{ending}");
        assert!(crate::support::present(engine, "object"));
        sound(&pair, ending);
    }
}

#[test]
fn an_object_that_is_kept_for_the_writer_of_its_copy_does_not_count() {
    let pair = pair();
    let engine = &pair.primary;
    let counts = || {
        let reading = engine.sequencer(LogTime(0)).reading();
        (engine.len(), reading.lost_writes, reading.lost_copies)
    };
    mount(engine, &memory(2, "b:1", BASE, SIZE), 20, 1_000);
    put(engine, "object", 1000, &WriteConfig { preferred: &[b"a:1"], ..plain() }, 2_000);
    let (targets, lease): (&[&[u8]], _) = (&[b"b:1"], DynamicLease::default());
    engine.sequencer(LogTime(3_000)).copy_start(uuid(1), b"object", b"a:1", targets, lease).result.unwrap();
    engine.expire_client(uuid(20), LogTime(4_000));
    assert_eq!(counts(), (1, 0, 0), "the object is there without its copy");
    engine.expire_client(uuid(10), LogTime(4_000));
    engine.sweep(LogTime(4_000));
    assert_eq!(counts(), (1, 0, 1));
    let mut sequencer = engine.sequencer(LogTime(5_000));
    let answer = sequencer.revoke_copy_or_move(uuid(1), b"object", CopyOrMove::Copy, lease);
    drop(sequencer);
    assert_eq!(answer.depends_on, engine.applied(), "INV-3");
    assert_eq!(counts(), (0, 0, 0));
    sound(&pair, "revoked");
}

#[test]
fn an_object_can_be_cleared_while_it_is_copied_to_memory_that_is_gone() {
    let pair = pair();
    let engine = &pair.primary;
    mount(engine, &memory(2, "b:1", BASE, SIZE), 20, 1_000);
    put(engine, "object", 1000, &WriteConfig { preferred: &[b"a:1"], ..plain() }, 20_000);
    let mut sequencer = engine.sequencer(LogTime(30_000));
    let targets: &[&[u8]] = &[b"b:1"];
    sequencer.copy_start(uuid(1), b"object", b"a:1", targets, DynamicLease::default()).result.unwrap();
    // The copier may be writing there, and the copy does not count for readers.
    assert_eq!(sequencer.replica_clear(uuid(1), b"object", b"").result, Ok(false));
    drop(sequencer);
    engine.expire_client(uuid(20), LogTime(30_000));
    let mut sequencer = engine.sequencer(LogTime(30_000));
    assert_eq!(sequencer.replica_clear(uuid(1), b"object", b"").result, Ok(true));
    drop(sequencer);
    assert!(!crate::support::present(engine, "object"));
    mount(engine, &memory(2, "b:1", BASE, SIZE), 20, 40_000);
    assert_eq!(engine.segments()[1].used(), 1024, "R4");
    sound(&pair, "cleared");
    engine.upkeep(LogTime(30_001 + RELEASE));
    assert_eq!(engine.segments().iter().map(|segment| segment.used()).collect::<Vec<_>>(), [0, 0]);
    sound(&pair, "released");
}

#[test]
fn a_write_that_lost_one_of_two_replicas_gives_its_bytes_back_at_its_end() {
    let pair = pair();
    let engine = &pair.primary;
    mount(engine, &memory(2, "b:1", BASE, SIZE), 20, 1_000);
    start(engine, "mine", 1000, &WriteConfig { replicas: 2, ..plain() }, 2_000).unwrap();
    engine.expire_client(uuid(20), LogTime(3_000));
    engine.sweep(LogTime(3_000));
    mount(engine, &memory(2, "b:1", BASE, SIZE), 20, 3_000);
    sound(&pair, "mounted again");
    assert_eq!(engine.segments()[1].used(), 1024);
    end(engine, "mine", 4_000).unwrap();
    assert_eq!(engine.segments().iter().map(|segment| segment.used()).collect::<Vec<_>>(), [1024, 0]);
    let replicas = engine.peek(b"mine", |object| object.replicas().count()).result;
    assert_eq!(replicas, Ok(1));
    sound(&pair, "ended");
}

#[test]
fn memory_that_begins_elsewhere_leaves_out_what_it_shares_with_a_writer() {
    // Three neighbours of 64 bytes each, seen through mounts whose grain lies across theirs or that begin or end
    // within one of them.
    for (base, size) in [(BASE + 32, SIZE), (BASE - 4096, SIZE), (BASE + 96, SIZE), (BASE - 4096, 4096 + 100)]
    {
        let pair = pair();
        let engine = &pair.primary;
        let first = |key| start(engine, key, 64, &plain(), 2_000).unwrap().replicas[0].address();
        let mine = [first("1"), first("2"), first("3")];
        assert_eq!(mine, [BASE, BASE + 64, BASE + 128]);
        engine.expire_client(uuid(10), LogTime(3_000));
        mount(engine, &memory(1, "a:1", base, size), 10, 3_000);
        sound(&pair, "mounted again");
        // In any order of release, nothing is given out that a neighbour still has, and in the end all is free.
        for (nth, key) in ["2", "1", "3"].into_iter().enumerate() {
            let others = fill(engine, 4_000 + nth as u64);
            let left: Vec<u64> =
                ["2", "1", "3"][nth..].iter().map(|key| mine[key.parse::<usize>().unwrap() - 1]).collect();
            assert!(!left.iter().any(|mine| touch(&others, *mine, 64)), "{base:x} {nth}: R4");
            sound(&pair, key);
            let late = engine.sequencer(LogTime(5_000)).revoke(uuid(1), key.as_bytes(), ReplicaTypes::Memory);
            assert_eq!(late.result, Err(ErrorCode::OBJECT_NOT_FOUND));
            sound(&pair, key);
        }
        fill(engine, 6_000);
        let segment = &engine.segments()[0];
        assert!(
            segment.used() + 64 > segment.size,
            "{base:x}: {} of {} are used",
            segment.used(),
            segment.size
        );
    }
}

#[test]
fn a_mount_and_its_successors_leave_out_the_same_bytes() {
    let pair = pair();
    let engine = &pair.primary;
    let mine = start(engine, "mine", 1000, &plain(), 2_000).unwrap().replicas[0].address();
    for round in 0..5 {
        let now = 3_000 + round * 10;
        engine.expire_client(uuid(10), LogTime(now));
        mount(engine, &memory(1, "a:1", BASE, SIZE), 10, now);
        sound(&pair, "again");
        let got =
            start(engine, &format!("other-{round}"), 2000, &plain(), now).unwrap().replicas[0].address();
        assert!(got >= mine + 1000 || got + 2000 <= mine, "R4");
    }
    // Each of the writes since is left out as well.
    assert_eq!(engine.segments()[0].used(), 1024 + 5 * 2048);
}

#[test]
fn what_was_written_and_what_only_readers_have_is_given_out_again() {
    // R6 excepts unmounts: whoever reads there has lost it.
    let pair = pair();
    let engine = &pair.primary;
    put(engine, "written", 1000, &plain(), 2_000);
    crate::support::read(engine, "written", 2_500).unwrap();
    engine.sequencer(LogTime(3_000)).upsert_start(uuid(1), b"written", 2000, &plain()).result.unwrap();
    end(engine, "written", 3_000).unwrap();
    engine.expire_client(uuid(10), LogTime(3_000));
    mount(engine, &memory(1, "a:1", BASE, SIZE), 10, 3_000);
    sound(&pair, "mounted again");
    assert_eq!(engine.segments()[0].used(), 0);
}

#[test]
fn an_object_that_went_between_a_look_and_a_removal_keeps_its_writer() {
    let pair = pair();
    let engine = &pair.primary;
    start(engine, "mine", 1000, &plain(), 2_000).unwrap();
    let mut cursor = moonkeeper::engine::walk::Cursor::default();
    let ids: Vec<_> = std::iter::from_fn(|| engine.keys(&mut cursor)).flatten().collect();
    let ids: Vec<_> = ids.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1);
    engine.expire_client(uuid(10), LogTime(3_000));
    assert_eq!(engine.remove_matching(&ids, true, LogTime(3_000)).0, 0);
    mount(engine, &memory(1, "a:1", BASE, SIZE), 10, 3_000);
    assert_eq!(engine.segments()[0].used(), 1024);
    sound(&pair, "removed");
}
