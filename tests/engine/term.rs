//! A change of primary as clients see it: who has to tell its segments again, and what becomes of them.

use crate::support::{Pair, end, mount, plain, present, put, read, start, uuid};
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::record::DynamicLease;
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::task::TaskStatus;
use moonkeeper::engine::types::{ErrorCode, LogTime, SegmentNumber, Term};

const SIZE: u64 = 1 << 20;

/// The segment that `mount` of the same number makes.
fn spec<'a>(number: u64, name: &'a str, endpoint: &'a str) -> SegmentSpec<'a> {
    SegmentSpec {
        id: uuid(number),
        name: name.as_bytes(),
        base: 0x1000_0000,
        size: SIZE,
        te_endpoint: endpoint.as_bytes(),
        protocol: b"tcp",
        host_id: b"host",
    }
}

fn one<'a>() -> SegmentSpec<'a> {
    spec(1, "segment-1", "host:1")
}

fn two<'a>() -> SegmentSpec<'a> {
    spec(2, "segment-2", "host:2")
}

fn on_first<'a>() -> WriteConfig<'a> {
    WriteConfig { preferred: &[b"segment-1"], ..plain() }
}

/// A store of one client with two segments and one that only reads.
fn store() -> Pair {
    let mut pair = Pair::with(EngineSettings::default(), EngineSettings::default());
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, SIZE, 1);
    mount(&pair.primary, 2, 1, SIZE, 1);
    assert_eq!(tell(&pair, &[one(), two()], 1), Ok(()));
    assert_eq!(tell(&pair, &[], 9), Ok(()));
    pair
}

fn tell(pair: &Pair, specs: &[SegmentSpec<'_>], client: u64) -> Result<(), ErrorCode> {
    pair.primary.remount(specs, uuid(client), LogTime(0)).result
}

fn joined(pair: &Pair, client: u64) -> bool {
    pair.primary.is_joined(uuid(client)).result == Ok(true)
}

fn numbers(pair: &Pair) -> Vec<u32> {
    pair.primary.segments().iter().map(|segment| segment.number.0).collect()
}

#[test]
fn known_clients_are_asked_once_and_nothing_is_placed_with_them_until_then() {
    let mut pair = store();
    put(&pair.primary, "key", 64, &on_first(), 100_000);
    assert!(joined(&pair, 1) && joined(&pair, 9));
    let began = pair.promote(LogTime(101_000), 0);

    for client in [1, 9] {
        let asked = pair.primary.is_joined(uuid(client));
        assert_eq!((asked.result, asked.depends_on), (Ok(false), began), "the answer rests on the new term");
    }
    assert_eq!(read(&pair.primary, "key", 101_000), Ok(()), "its objects can be read");
    let no_room = start(&pair.primary, "new", 64, &plain(), 101_000).err();
    assert_eq!(no_room, Some(ErrorCode::NO_AVAILABLE_HANDLE));
    let copy = |pair: &Pair| {
        let mut sequencer = pair.primary.sequencer(LogTime(101_000));
        let none = DynamicLease::default();
        sequencer.copy_start(uuid(1), b"key", b"segment-1", &[b"segment-2"], none).result.map(|_| ())
    };
    assert_eq!(copy(&pair), Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    pair.assert_same("inherited");

    tell(&pair, &[], 9).unwrap();
    assert!(joined(&pair, 9) && !joined(&pair, 1));
    tell(&pair, &[one(), two()], 1).unwrap();
    assert!(joined(&pair, 1));
    assert_eq!(numbers(&pair), [0, 1], "what is told as it was stays as it is");
    assert_eq!(read(&pair.primary, "key", 101_000), Ok(()));
    put(&pair.primary, "new", 64, &on_first(), 101_000);
    assert_eq!(copy(&pair), Ok(()));
    pair.assert_same("joined");

    // Asked once a term: telling again changes nothing.
    let last = pair.primary.applied();
    tell(&pair, &[one(), two()], 1).unwrap();
    assert_eq!(pair.primary.applied(), last);
    pair.promote(LogTime(102_000), 0);
    assert!(!joined(&pair, 1) && !joined(&pair, 9), "and again in the next term");
    pair.assert_same("in the end");
}

#[test]
fn a_client_that_only_mounted_is_inherited_too() {
    let mut pair = Pair::new(EngineSettings::default());
    mount(&pair.primary, 1, 1, SIZE, 1);
    put(&pair.primary, "key", 64, &plain(), 100_000);
    pair.promote(LogTime(100_000), 0);
    assert_eq!(pair.primary.inherited(), [uuid(1)]);
    assert_eq!(
        start(&pair.primary, "new", 64, &plain(), 100_000).err(),
        Some(ErrorCode::NO_AVAILABLE_HANDLE)
    );
    // What a client mounts under this primary is its word that it is there.
    mount(&pair.primary, 3, 1, SIZE, 100_000);
    let started = start(&pair.primary, "new", 64, &plain(), 100_000).unwrap();
    assert_eq!(started.replicas[0].segment.number, SegmentNumber(1));
    pair.assert_same("in the end");
}

#[test]
fn segments_that_are_told_no_more_are_gone_and_new_ones_are_mounted() {
    let mut pair = store();
    put(&pair.primary, "stays", 64, &on_first(), 100_000);
    put(&pair.primary, "goes", 64, &WriteConfig { preferred: &[b"segment-2"], ..plain() }, 100_000);
    pair.promote(LogTime(101_000), 0);
    // The third has the memory that the second had.
    let third = SegmentSpec { id: uuid(3), ..two() };
    tell(&pair, &[one(), third], 1).unwrap();
    assert_eq!(numbers(&pair), [0, 2]);
    assert!(present(&pair.primary, "stays") && !present(&pair.primary, "goes"));
    assert!(joined(&pair, 1));
    pair.assert_same("in the end");
}

#[test]
fn a_segment_told_otherwise_is_another_one() {
    let mut pair = store();
    put(&pair.primary, "key", 64, &on_first(), 100_000);
    pair.promote(LogTime(101_000), 0);
    let larger = SegmentSpec { size: 2 * SIZE, ..one() };
    tell(&pair, &[larger, two()], 1).unwrap();
    assert_eq!(numbers(&pair), [1, 2]);
    assert!(!present(&pair.primary, "key"));
    pair.assert_same("in the end");
}

#[test]
fn nobody_takes_the_segments_of_another() {
    let mut pair = store();
    pair.promote(LogTime(101_000), 0);
    let last = pair.primary.applied();
    assert_eq!(tell(&pair, &[one()], 9), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(pair.primary.applied(), last);
    assert!(!joined(&pair, 9));
}

#[test]
fn what_was_mounted_since_is_not_missed() {
    let mut pair = store();
    pair.promote(LogTime(101_000), 0);
    // The client made its list, then mounted a third, then told the list.
    mount(&pair.primary, 3, 1, SIZE, 101_000);
    tell(&pair, &[one(), two()], 1).unwrap();
    assert_eq!(numbers(&pair), [0, 1, 2]);
    // But a list that contradicts it is refused.
    pair.promote(LogTime(102_000), 0);
    mount(&pair.primary, 4, 1, SIZE, 102_000);
    let last = pair.primary.applied();
    let other = SegmentSpec { size: 2 * SIZE, ..spec(4, "segment-4", "host:4") };
    assert_eq!(tell(&pair, &[one(), two(), other], 1), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(pair.primary.applied(), last);
}

#[test]
fn a_segment_that_is_being_drained_goes_on_being_drained() {
    let mut pair = store();
    put(&pair.primary, "key", 64, &on_first(), 100_000);
    pair.primary.sequencer(LogTime(100_000)).graceful_unmount(uuid(1), uuid(1), 5_000).result.unwrap();
    pair.promote(LogTime(101_000), 0);
    tell(&pair, &[one(), two()], 1).unwrap();
    assert!(joined(&pair, 1) && present(&pair.primary, "key"));
    let started = start(&pair.primary, "new", 64, &on_first(), 101_000).unwrap();
    assert_eq!(started.replicas[0].segment.number, SegmentNumber(1), "nothing new is placed there");
    pair.primary.upkeep(LogTime(104_999));
    assert!(present(&pair.primary, "key"));
    pair.primary.upkeep(LogTime(105_000));
    assert!(!present(&pair.primary, "key"));
    pair.assert_same("in the end");
}

#[test]
fn memory_mounted_anew_before_the_list_was_told_takes_the_place_of_the_old() {
    let mut pair = store();
    pair.promote(LogTime(101_000), 0);
    // The same memory under another name: the old mount can only be gone.
    let again = SegmentSpec { id: uuid(3), ..one() };
    let mounted = |pair: &Pair| pair.primary.sequencer(LogTime(101_000)).mount(&again, uuid(1)).result;
    assert_eq!(mounted(&pair), Ok(()));
    assert_eq!(numbers(&pair), [1, 2]);
    // Once told, the client is confused.
    tell(&pair, &[two(), again], 1).unwrap();
    let confused = SegmentSpec { id: uuid(4), ..one() };
    let answer = pair.primary.sequencer(LogTime(101_000)).mount(&confused, uuid(1)).result;
    assert_eq!(answer, Err(ErrorCode::INVALID_PARAMS));
    pair.assert_same("in the end");
}

#[test]
fn an_inherited_client_that_is_never_heard_from_expires_like_others() {
    let mut pair = store();
    put(&pair.primary, "key", 64, &on_first(), 100_000);
    pair.promote(LogTime(101_000), 0);
    for client in pair.primary.inherited() {
        pair.primary.expire_client(client, LogTime(300_000));
    }
    assert!(pair.primary.inherited().is_empty() && pair.primary.segments().is_empty());
    assert!(!present(&pair.primary, "key"));
    assert!(pair.primary.client(uuid(9)).is_none());
    pair.assert_same("in the end");
}

#[test]
fn writes_under_way_end_under_the_new_primary() {
    let mut pair = store();
    let started = start(&pair.primary, "key", 4096, &on_first(), 100_000).unwrap();
    pair.promote(LogTime(101_000), 0);
    assert_eq!(pair.primary.segments()[0].used(), 4096, "R4");
    assert_eq!(end(&pair.primary, "key", 101_000), Ok(()), "its client need not tell its segments first");
    let found = pair.primary.peek(b"key", |object| object.replicas().next().map(|replica| replica.id()));
    assert_eq!(found.result, Ok(Some(started.replicas[0].id())));
}

#[test]
fn the_report_says_what_was_found() {
    let mut pair = store();
    put(&pair.primary, "written", 4096, &on_first(), 100_000);
    start(&pair.primary, "writing", 64, &on_first(), 100_000).unwrap();
    pair.primary.sequencer(LogTime(100_000)).upsert_start(uuid(1), b"written", 128, &plain()).result.unwrap();
    let began = pair.promote(LogTime(101_000), 5_000);
    let report = pair.primary.term_report();
    assert_eq!((report.term, report.began), (Term(2), began));
    assert_eq!((report.clients, report.segments), (2, 2));
    assert_eq!((report.objects, report.bytes), (2, 4096 + 64 + 128));
    assert_eq!(report.reservations, 3, "two writes, and the bytes of one that was replaced");
    assert_eq!(report.hold_ms, 5_000 + EngineSettings::default().lease_ttl_ms);
    assert_eq!(pair.mirror.term_report(), report);
}

#[test]
fn ended_tasks_are_forgotten_everywhere() {
    let settings = EngineSettings { max_finished_tasks: 2, ..EngineSettings::default() };
    let mut pair = Pair::new(settings);
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, SIZE, 1);
    mount(&pair.primary, 2, 1, SIZE, 1);
    put(&pair.primary, "key", 64, &on_first(), 1);
    let mut sequencer = pair.primary.sequencer(LogTime(2));
    for id in 50..55 {
        sequencer.create_copy_task(uuid(id), b"key", b"", &[b"segment-2"]).result.unwrap();
        sequencer.complete_task(uuid(1), uuid(id), true, b"").result.unwrap();
    }
    drop(sequencer);
    for engine in [&pair.primary, &pair.mirror] {
        let status = |id| engine.sequencer(LogTime(2)).query_task(uuid(id)).result.map(|task| task.status);
        assert_eq!(status(52), Err(ErrorCode::TASK_NOT_FOUND));
        assert_eq!(status(53), Ok(TaskStatus::Success));
        assert_eq!(status(54), Ok(TaskStatus::Success));
    }
}

#[test]
fn a_task_that_fits_into_no_record_is_refused() {
    let pair = store();
    put(&pair.primary, "key", 64, &on_first(), 1);
    let long = "n".repeat(4096);
    pair.primary.sequencer(LogTime(1)).mount(&spec(7, &long, "host:7"), uuid(7)).result.unwrap();
    let last = pair.primary.applied();
    let targets = vec![long.as_bytes(); 100];
    let create = |targets: &[&[u8]]| {
        pair.primary.sequencer(LogTime(1)).create_copy_task(uuid(50), b"key", b"", targets).result
    };
    assert_eq!(create(&targets), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(pair.primary.applied(), last);
    assert_eq!(create(&targets[..50]), Ok(uuid(50)));
}
