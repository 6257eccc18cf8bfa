//! What masters do when a recovery has begun a new log, and that nothing else makes them give up what they know.

use bytes::Bytes;
use moonkeeper::cluster::log_end::{History, Latest, LogId};
use moonkeeper::cluster::recovered::Recovered;
use moonkeeper::coordination::types::{KeyRange, LeaseId, Op, Request, Response, Txn};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::types::{ErrorCode, LogTime, SequenceId, Term, Uuid};
use moonkeeper::replication::node::{Input, SnapshotJob};
use moonkeeper::replication::recovery::{Commit, NewLog, Replay, chunks, create_election, fenced};
use moonkeeper::replication::snapshot::{Restored, Wanted};
use moonkeeper::replication::time::Monotonic;

use super::snapshots::{Kept, announced, ask, next_job, origin};
use super::world::{World, seconds};
use super::{settled, standby};

const NEW: LogId = LogId(0xabcd);

/// How long no bytes are given to writers after a recovery.
const HELD_MS: u64 = 60_000;

fn call(world: &mut World, txn: Txn) -> (bool, u64) {
    match world.carry_out(&Request::Txn(txn)) {
        Ok(Response::Txn { succeeded, revision, .. }) => (succeeded, revision),
        other => panic!("{other:?}"),
    }
}

/// The keys of the log by name: `latest`, the format and the batches of this log.
fn read(world: &mut World, log: Option<LogId>) -> (Option<Bytes>, bool, Vec<Bytes>) {
    let (latest, format) = (world.keys.latest(), world.keys.format());
    let of_log = log.map(|log| world.keys.batches_of(log));
    let entries = world.log_keys();
    let value = |key: &Bytes| entries.iter().find(|it| it.key == *key).map(|it| it.value.clone());
    let in_log = |key: &[u8]| of_log.as_ref().is_some_and(|range| range.contains(key));
    let batches = entries.iter().filter(|it| in_log(&it.key)).map(|it| it.value.clone()).collect();
    (value(&latest), value(&format).is_some(), batches)
}

/// The term of a recovery: `None` if a master leads.
fn begin(world: &mut World) -> Option<Term> {
    let lease = match world.carry_out(&Request::LeaseGrant { ttl_seconds: 15 }) {
        Ok(Response::LeaseGranted { lease, .. }) => lease,
        other => panic!("{other:?}"),
    };
    let (latest, ..) = read(world, None);
    let value = Bytes::from_static(br#"{"name":"recovery","boot_id":"0000000000000001","lease_ms":15000,"rpc_address":"","http_address":"","peer_address":"","admin_address":""}"#);
    let keys = world.keys.clone();
    let (succeeded, revision) = call(world, create_election(&keys, latest.as_ref(), value, lease));
    succeeded.then_some(Term(revision))
}

/// Does what the command does, with a new log that is kept up to a record. It may end before its last transaction.
fn recover(
    world: &mut World,
    base: Option<&Kept>,
    keep: u64,
    supersedes: Vec<LogId>,
    whole: bool,
) -> Recovered {
    let term = begin(world).expect("no master leads");
    let keys = world.keys.clone();
    let (latest, has_format, batches) = {
        let (latest, ..) = read(world, None);
        let log = latest.as_deref().map(|value| Latest::from_bytes(value).unwrap().log);
        read(world, log)
    };
    let base = base.map(|kept| (kept.header, origin(kept).restored.unwrap().incarnation.engine.log_time()));
    let (mut new, mut replay) =
        (NewLog::new(keys.clone(), NEW, term, base.map(|(it, _)| it.at).as_ref()), Replay::default());
    let mut copies = Vec::new();
    let (digest, at) = match base {
        Some((header, at)) => (header.digest, at),
        None => {
            for value in &batches {
                let batch = replay.open(value).unwrap();
                replay.apply(&batch, SequenceId(keep));
                copies.extend(new.copy(&batch, SequenceId(keep)).unwrap());
                if batch.header.last.0 >= keep {
                    break;
                }
            }
            let contents = replay.contents();
            assert_eq!(contents.last.0, keep);
            (contents.digest, if keep == 0 { LogTime(1_700_000_000_000) } else { contents.log_time })
        }
    };
    for chunk in chunks(copies) {
        let txn = fenced(&keys, term, chunk);
        assert!(call(world, txn).0);
        // Masters see the batches of a log that is not theirs yet.
        world.run(std::time::Duration::from_millis(40));
    }
    let began = SequenceId(new.end().last.0 + 1);
    let recovered = Recovered {
        log: NEW,
        base: base.map(|(it, _)| it.at),
        began,
        supersedes,
        no_starts_before: at.plus(HELD_MS),
    };
    let batches = new.begin(Format::NEWEST, at, digest, &[]);
    let commit = Commit {
        term,
        latest_before: latest.as_ref(),
        recovered_before: None,
        batches,
        end: new.end(),
        recovered: &recovered,
        format: (!has_format).then_some(Format::NEWEST),
    };
    if whole {
        assert!(call(world, commit.txn(&keys)).0);
    }
    recovered
}

/// Three masters with some changes, then more of them. All are stopped until none leads. Returns the record in between,
/// and the histories.
fn in_the_dark() -> (World, Vec<String>, Vec<String>, u64, Vec<Option<History>>) {
    let (mut world, keys) = settled(3, 20);
    let primary = world.primary();
    let last = world.processes[primary].node.incarnation().gate.durable().0;
    let later: Vec<String> = (0..20).map(|nth| format!("later-{nth}")).collect();
    later.iter().for_each(|key| world.change(key));
    world.run(seconds(2));
    let histories = (0..3).map(|index| world.status(index).history).collect();
    world.processes.iter_mut().for_each(|process| process.stopped = true);
    world.run(seconds(12));
    assert!(!world.has_leader());
    (world, keys, later, last, histories)
}

fn wake(world: &mut World) {
    world.processes.iter_mut().for_each(|process| process.stopped = false);
}

fn log_of(history: Option<History>) -> LogId {
    history.unwrap().0.log
}

#[test]
fn masters_that_know_more_follow_a_log_that_supersedes_theirs() {
    let (mut world, keys, later, last, histories) = in_the_dark();
    let old = log_of(histories[0]);
    recover(&mut world, None, last, vec![old], true);
    wake(&mut world);
    world.run(seconds(10));
    let primary = world.primary();
    for index in 0..3 {
        assert_eq!((world.has(index, &keys), world.has(index, &later)), (20, 0), "m{index}");
        assert_eq!(log_of(world.status(index).history), NEW);
        assert_eq!(world.status(index).trouble, None);
    }
    world.change("after");
    world.run(seconds(3));
    assert_eq!(world.digests().len(), 1);
    // It is the crash of the old primary: promises that it made may not be in the log (R6).
    let engine = world.processes[primary].node.incarnation().engine.clone();
    assert!(engine.hold_until() > LogTime(0));
    // What was written to the old log is there to be looked at, and no master reads it.
    assert!(!read(&mut world, Some(old)).2.is_empty());
}

#[test]
fn a_master_that_comes_later_with_a_superseded_history_follows_as_well() {
    let (mut world, keys, later, last, histories) = in_the_dark();
    recover(&mut world, None, last, vec![log_of(histories[0])], true);
    wake(&mut world);
    world.processes[1].stopped = true;
    world.run(seconds(10));
    world.restart(1, histories[1]);
    world.run(seconds(5));
    assert_eq!((world.has(1, &keys), world.has(1, &later)), (20, 0));
    assert!(world.status(1).caught_up);
    // The next primary has all of it.
    let primary = world.primary();
    world.switchover(primary, Some("m1"));
    world.run(seconds(3));
    assert_eq!(world.primary(), 1);
}

#[test]
fn a_log_that_does_not_supersede_theirs_is_followed_by_no_master() {
    for named in [vec![], vec![LogId(77)]] {
        let (mut world, _, _, last, histories) = in_the_dark();
        recover(&mut world, None, last, named, true);
        wake(&mut world);
        world.run(seconds(20));
        assert_eq!(world.serving(), Vec::<usize>::new());
        for (index, history) in histories.iter().enumerate() {
            let status = world.status(index);
            assert_eq!(status.history, *history, "m{index}");
            assert!(status.trouble.unwrap().contains("another history"), "m{index}");
        }
    }
}

/// A bug on purpose: masters would go on with a log that is shorter than what they know, without a word.
#[cfg(feature = "planted")]
#[test]
fn planted_a_log_that_supersedes_nothing_would_be_followed() {
    use moonkeeper::planted::{Bug, plant};
    let (mut world, _, later, last, _) = in_the_dark();
    recover(&mut world, None, last, vec![], true);
    plant(Some(Bug::FollowUnasked));
    wake(&mut world);
    world.run(seconds(10));
    plant(None);
    let primary = world.primary();
    assert_eq!(world.has(primary, &later), 0);
    assert_eq!(log_of(world.status(primary).history), NEW);
}

#[test]
fn a_recovery_that_ends_in_the_middle_has_changed_nothing() {
    let (mut world, keys, later, last, histories) = in_the_dark();
    // They run meanwhile, and see what it writes.
    wake(&mut world);
    recover(&mut world, None, last, vec![log_of(histories[0])], false);
    assert_eq!(world.serving(), Vec::<usize>::new());
    world.run(seconds(25));
    let primary = world.primary();
    assert_eq!((world.has(primary, &keys), world.has(primary, &later)), (20, 20));
    assert_eq!(log_of(world.status(primary).history), log_of(histories[0]));
    for index in 0..3 {
        assert_eq!(world.status(index).trouble, None, "m{index}");
    }
    // But for the old primary, which was stopped in the middle of its term, none has dropped its state.
    assert!((0..3).map(|index| world.status(index).rebuilds).sum::<u32>() <= 1);
    assert!(begin(&mut world).is_none(), "a master leads");
}

/// A late transaction of the old primary does not touch the new log.
#[test]
fn a_recovery_fences_what_was_on_its_way() {
    let (mut world, _, _, last, histories) = in_the_dark();
    let keys = world.keys.clone();
    let old = Term(histories[0].unwrap().0.term.0);
    recover(&mut world, None, last, vec![log_of(histories[0])], true);
    let put = Op::Put { key: keys.latest(), value: Bytes::from_static(b"late"), lease: LeaseId(0) };
    assert!(!call(&mut world, fenced(&keys, old, vec![put])).0);
}

/// Puts an object on the primary at its own time. The error is the code of the answer.
fn put(world: &World, key: &str) -> Result<(), ErrorCode> {
    let (incarnation, clock) = world.processes[world.primary()].open.clone().unwrap();
    let mut sequencer = incarnation.engine.sequencer(clock.at(Monotonic(world.now)));
    let config = WriteConfig { replicas: 1, ..WriteConfig::default() };
    sequencer.put_start(Uuid { first: 1, second: 1 }, key.as_bytes(), 4096, &config).result.map(|_| ())
}

/// The client offers its memory, or offers it again.
fn mount(world: &World) {
    let (incarnation, clock) = world.processes[world.primary()].open.clone().unwrap();
    let client = Uuid { first: 1, second: 1 };
    let segment = SegmentSpec {
        id: Uuid { first: 5, second: 5 },
        name: b"segment",
        base: 0x1000_0000,
        size: 1 << 20,
        te_endpoint: b"host:1",
        protocol: b"tcp",
        host_id: b"",
    };
    assert!(incarnation.engine.remount(&[segment], client, clock.at(Monotonic(world.now))).result.is_ok());
}

/// An empty log: its masters know nothing of the Starts that were told, so no bytes are given away for as long as writers
/// may go on.
fn emptied() -> World {
    let (mut world, _, _, _, histories) = in_the_dark();
    recover(&mut world, None, 0, vec![log_of(histories[0])], true);
    wake(&mut world);
    world.run(seconds(10));
    mount(&world);
    world
}

#[test]
fn no_bytes_are_given_to_a_writer_until_writers_from_before_have_ended() {
    let mut world = emptied();
    assert_eq!(put(&world, "early"), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    // Another primary has to wait as well, and no longer.
    let primary = world.primary();
    world.switchover(primary, None);
    world.run(seconds(3));
    assert_ne!(world.primary(), primary);
    mount(&world);
    assert_eq!(put(&world, "early"), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    world.run(seconds(HELD_MS / 1000));
    assert_eq!(put(&world, "later"), Ok(()));
}

/// A bug on purpose: bytes that a writer of the dropped records still writes to are given to another one.
#[cfg(feature = "planted")]
#[test]
fn planted_bytes_would_be_given_away_at_once() {
    use moonkeeper::planted::{Bug, plant};
    let world = emptied();
    plant(Some(Bug::StartAfterRecovery));
    let given = put(&world, "early");
    plant(None);
    assert_eq!(given, Ok(()));
}

/// The snapshot that a master asks its host for.
fn restore(world: &mut World, index: usize, kept: &Kept) -> Wanted {
    let Some(SnapshotJob::Restore { id, wanted, .. }) = next_job(world, index) else {
        panic!("m{index} asks for no snapshot: {:?}", world.status(index).trouble)
    };
    let at = Latest { log: wanted.log, term: Term(0), ..kept.header.at };
    let restored = origin(kept).restored.map(|restored| Restored { at, ..restored });
    world.input(index, Input::SnapshotRestored { id, restored });
    wanted
}

#[test]
fn a_log_in_another_etcd_continues_from_a_snapshot_of_the_old_one() {
    let (mut world, mut keys) = super::snapshots::settled(3);
    let taker = standby(&world);
    // The first one is from before the changes.
    announced(&mut world, taker);
    ask(&mut world, taker);
    let kept = announced(&mut world, taker);
    keys.push("later".to_owned());
    world.change("later");
    world.run(seconds(2));
    let old = kept.header.at.log;
    // etcd is lost, and made anew: terms begin at 1 again.
    world.delete(KeyRange::prefix(&b"mooncake-store/"[..]));
    world.run(seconds(8));
    assert_eq!(world.serving(), Vec::<usize>::new());
    world.processes.iter_mut().for_each(|process| process.jobs.clear());
    let recovered = recover(&mut world, Some(&kept), 0, vec![old], true);
    world.run(seconds(2));
    for index in 0..3 {
        let wanted = restore(&mut world, index, &kept);
        let first = SequenceId(kept.header.at.last.0 + 1);
        assert_eq!((wanted.log, wanted.first, wanted.base), (NEW, first, recovered.base), "m{index}");
    }
    world.run(seconds(8));
    world.primary();
    for index in 0..3 {
        assert_eq!(world.has(index, &keys), 20, "all but the last one: m{index}");
        let status = world.status(index);
        assert!(status.caught_up && status.trouble.is_none(), "{status:?}");
        assert_eq!(log_of(status.history), NEW);
    }
    world.change("after");
    world.run(seconds(2));
    assert_eq!(world.digests().len(), 1);
}
