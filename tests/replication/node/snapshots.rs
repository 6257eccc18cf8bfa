//! When a standby takes a snapshot, when the file counts, and what a master does that starts from one.

use std::sync::Arc;
use std::time::Duration;

use moonkeeper::cluster::log_end::{Checksum, History};
use moonkeeper::cluster::snapshot::{HeldSnapshot, SnapshotRefused, SnapshotStage};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::{Input, SnapshotId, SnapshotJob, SnapshotRequest};
use moonkeeper::replication::snapshot::{
    Header, Origin, Progress, Restored, begin, describe, read_from, write_to,
};

use super::standby;
use super::trust::log_wrong_digest;
use super::world::{World, seconds};

/// Longer than any test: every snapshot but a standby's first is taken on request.
pub(super) const SELDOM: Duration = Duration::from_secs(100_000);

/// A snapshot as a test keeps it.
pub(super) struct Kept {
    pub header: Header,
    bytes: Vec<u8>,
    pub held: HeldSnapshot,
}

/// Masters with some changes, whose standbys want to take their first snapshot.
pub(super) fn settled(masters: usize) -> (World, Vec<String>) {
    let mut world = World::with_snapshots(masters, SELDOM);
    world.run(seconds(4));
    let keys: Vec<String> = (0..20).map(|nth| format!("key-{nth}")).collect();
    keys.iter().for_each(|key| world.change(key));
    (world, keys)
}

pub(super) fn next_job(world: &mut World, index: usize) -> Option<SnapshotJob> {
    world.processes[index].jobs.pop_front()
}

/// Does the writing that a master has asked for.
fn write(world: &mut World, index: usize) -> (SnapshotId, Result<Kept, String>) {
    let Some(SnapshotJob::Write { id, capture, progress }) = next_job(world, index) else {
        panic!("nothing is to be written")
    };
    let (mut bytes, objects) = (Vec::new(), capture.objects());
    let written = write_to(&mut bytes, *capture, &progress).map_err(|why| why.to_string());
    let kept = written.map(|header| {
        let held = describe(&header, bytes.len() as u64, Some(objects), 5);
        // As the directory of the masters is.
        let held = HeldSnapshot { durable: true, ..held };
        Kept { header, bytes, held }
    });
    (id, kept)
}

/// The same, and tells the master.
fn write_and_tell(world: &mut World, index: usize) -> (SnapshotId, Kept) {
    let (id, kept) = write(world, index);
    let kept = kept.unwrap();
    world.input(index, Input::SnapshotWritten { id, result: Ok(kept.held.clone()) });
    (id, kept)
}

/// A standby takes a snapshot and announces it.
pub(super) fn announced(world: &mut World, index: usize) -> Kept {
    let (id, kept) = write_and_tell(world, index);
    world.run(seconds(2));
    let last = kept.header.at.last;
    let job = next_job(world, index);
    assert!(matches!(job, Some(SnapshotJob::Announce { last: of, .. }) if of == last), "{job:?}");
    world.input(index, Input::SnapshotAnnounced { id, result: Ok(()) });
    kept
}

/// A standby that has announced a snapshot begins another one, right after a digest: the next one comes in a second.
fn begin_another(world: &mut World, index: usize) -> HeldSnapshot {
    let first = announced(world, index);
    world.change("another");
    let engine = Arc::clone(world.processes[index].node.incarnation());
    let before = engine.engine.digest_matched();
    while engine.engine.digest_matched() == before {
        world.run(Duration::from_millis(20));
    }
    ask(world, index);
    first.held
}

pub(super) fn origin(kept: &Kept) -> Origin {
    let incarnation = Incarnation::restore(1 << 20, |log| {
        read_from(&mut &kept.bytes[..], EngineSettings::default(), Some(log)).map(|(_, engine)| engine)
    });
    let restored = Restored { incarnation: incarnation.unwrap(), at: kept.header.at };
    Origin { restored: Some(restored), held: vec![kept.held.clone()] }
}

pub(super) fn ask(world: &mut World, index: usize) {
    world.input(index, Input::TakeSnapshot { id: SnapshotRequest(1) });
}

#[test]
fn a_snapshot_counts_once_a_later_digest_has_matched() {
    let (mut world, _) = settled(3);
    let (primary, taker) = (world.primary(), standby(&world));
    assert!(world.processes[primary].jobs.is_empty(), "a primary takes none");
    let (id, kept) = write(&mut world, taker);
    let kept = kept.unwrap();
    let snapshots = |world: &World| world.status(taker).snapshots.unwrap().status;
    assert_eq!(snapshots(&world).running.unwrap().stage, SnapshotStage::Writing);
    // A digest that matches while the file is written is enough.
    world.run(seconds(2));
    assert!(world.processes[taker].jobs.is_empty(), "the file is not complete");
    world.input(taker, Input::SnapshotWritten { id, result: Ok(kept.held.clone()) });
    let job = next_job(&mut world, taker);
    assert!(matches!(job, Some(SnapshotJob::Announce { .. })), "{job:?}");
    assert_eq!(snapshots(&world).held, []);
    world.input(taker, Input::SnapshotAnnounced { id, result: Ok(()) });
    assert_eq!(snapshots(&world).held, std::slice::from_ref(&kept.held));
    assert_eq!(snapshots(&world).running, None);
    // It is announced to others, too.
    world.run(seconds(3));
    assert_eq!(world.member(taker).snapshots, [kept.held]);
    assert!(world.processes[taker].jobs.is_empty(), "the next one is not due");
}

#[test]
fn a_cluster_in_which_nothing_changes_takes_no_other_snapshot() {
    let mut world = World::with_snapshots(2, seconds(4));
    world.run(seconds(4));
    let taker = standby(&world);
    announced(&mut world, taker);
    world.run(seconds(30));
    assert!(world.processes[taker].jobs.is_empty(), "only digests have come");
    assert_eq!(world.status(taker).snapshots.unwrap().status.error, None);
    world.change("something");
    world.run(seconds(7));
    announced(&mut world, taker);
    // A request is about the state as it is, heartbeats included.
    world.run(seconds(20));
    ask(&mut world, taker);
    announced(&mut world, taker);
}

#[test]
fn two_standbys_take_theirs_half_an_interval_apart() {
    let interval = 20;
    let mut world = World::with_snapshots(3, seconds(interval));
    world.run(seconds(4));
    let primary = world.primary();
    let standbys: Vec<usize> = (0..3).filter(|index| *index != primary).collect();
    let mut began = vec![Vec::new(); 3];
    for second in 0..200 {
        world.change("something");
        world.run(seconds(1));
        for index in &standbys {
            let Some(job) = world.processes[*index].jobs.pop_front() else { continue };
            let input = match job {
                SnapshotJob::Write { id, capture, progress } => {
                    began[*index].push(second);
                    let (mut bytes, objects) = (Vec::new(), capture.objects());
                    let header = write_to(&mut bytes, *capture, &progress).unwrap();
                    let held = describe(&header, 1, Some(objects), 5);
                    Input::SnapshotWritten { id, result: Ok(held) }
                }
                SnapshotJob::Announce { id, .. } => Input::SnapshotAnnounced { id, result: Ok(()) },
                _ => continue,
            };
            world.input(*index, input);
        }
    }
    assert_eq!(began[primary], Vec::<u64>::new());
    for index in &standbys {
        assert!((9..=11).contains(&began[*index].len()), "{began:?}");
    }
    // But for the first ones, which both take as soon as they can.
    let (one, other) = (&began[standbys[0]], &began[standbys[1]]);
    for at in &one[1..] {
        let nearest = other[1..].iter().map(|other| at.abs_diff(*other)).min().unwrap();
        assert!((interval / 2 - 2..=interval / 2 + 2).contains(&nearest), "{began:?}");
    }
}

#[test]
fn a_primary_takes_snapshots_while_it_is_alone() {
    let mut world = World::with_snapshots(1, seconds(4));
    world.run(seconds(3));
    let keys: Vec<String> = (0..20).map(|nth| format!("key-{nth}")).collect();
    keys.iter().for_each(|key| world.change(key));
    assert!(world.processes[0].jobs.is_empty(), "it has not been alone for long");
    // Records that are not durable yet are part of it as well: their batch ends with the last of them.
    world.run(seconds(6));
    let (id, kept) = write_and_tell(&mut world, 0);
    let at = kept.header.at;
    let batch = world.log_keys().into_iter().find_map(|entry| {
        let batch = moonkeeper::replication::batch::Batch::open(&entry.value).ok()?;
        (batch.header.last == at.last).then_some((batch.header.log, batch.header.term, batch.checksum))
    });
    assert_eq!(batch, Some((at.log, at.term, at.checksum)));
    // The log has a digest after it.
    world.run(seconds(2));
    assert!(matches!(next_job(&mut world, 0), Some(SnapshotJob::Announce { .. })));
    world.input(0, Input::SnapshotAnnounced { id, result: Ok(()) });
    assert_eq!(world.status(0).snapshots.unwrap().status.held, std::slice::from_ref(&kept.held));
    // A master that starts from it has everything, and does not read the log before it.
    let first = world.log_keys().into_iter().find(|entry| entry.key.ends_with(b"/00000000000000000001"));
    let mut first = first.unwrap();
    first.value = bytes::Bytes::from_static(b"damaged");
    world.put(&[first]);
    world.delete(moonkeeper::coordination::types::KeyRange::key(world.keys.election()));
    world.restart_from(0, None, origin(&kept));
    world.run(seconds(9));
    assert_eq!(world.serving(), [0]);
    assert_eq!(world.status(0).rebuilds, 0);
    assert_eq!(world.has(0, &keys), keys.len());
}

#[test]
fn a_primary_with_a_standby_takes_no_snapshot_and_one_on_request_only_while_it_is_alone() {
    let mut world = World::with_snapshots(2, SELDOM);
    world.run(seconds(4));
    let (primary, standby) = (world.primary(), standby(&world));
    world.change("something");
    world.run(seconds(100));
    assert!(world.processes[primary].jobs.is_empty());
    world.processes[standby].stopped = true;
    ask(&mut world, primary);
    let refused = world.processes[primary].taken.pop().unwrap();
    assert!(matches!(refused, Err(SnapshotRefused::NotStandby(_))), "{refused:?}");
    // Its key is gone.
    world.run(seconds(15));
    assert!(world.processes[primary].jobs.is_empty());
    ask(&mut world, primary);
    announced(&mut world, primary);
    assert!(world.processes[primary].taken.pop().unwrap().is_ok());
    // After a minute it takes one by itself, if anything has changed since.
    world.run(seconds(70));
    assert!(world.processes[primary].jobs.is_empty());
    world.processes[standby].stopped = false;
    world.run(seconds(5));
    assert!(world.status(standby).caught_up);
}

#[test]
fn a_primary_whose_role_changes_gives_its_snapshot_up() {
    for how in ["hand-over", "deposed"] {
        let mut world = World::with_snapshots(1, seconds(2));
        world.run(seconds(3));
        world.change("something");
        world.run(seconds(4));
        let (id, kept) = write(&mut world, 0);
        if how == "deposed" {
            let lease = world.leader_lease();
            let now = Duration::from_micros(world.now);
            let revoke = moonkeeper::coordination::types::Request::LeaseRevoke { lease };
            world.model.call(now, &revoke).unwrap();
            world.run(Duration::from_millis(400));
        } else {
            world.add_master();
            world.run(seconds(2));
            world.switchover(0, Some("m1"));
            world.run(seconds(1));
            assert_eq!(world.primary(), 1);
        }
        assert!(world.processes[0].jobs.is_empty(), "{how}");
        // Whatever this master is now, it was complete too late.
        world.input(0, Input::SnapshotWritten { id, result: Ok(kept.unwrap().held) });
        let job = next_job(&mut world, 0);
        assert!(matches!(job, Some(SnapshotJob::Discard { .. })), "{how}: {job:?}");
        assert_eq!(world.status(0).snapshots.unwrap().cancelled, 1);
    }
}

#[test]
fn a_primary_whose_log_is_not_written_gives_its_snapshot_up() {
    let mut world = World::with_snapshots(1, SELDOM);
    world.run(seconds(3));
    world.refused = Some("database space exceeded");
    world.change("something");
    ask(&mut world, 0);
    world.run(seconds(9));
    let report = world.status(0).snapshots.unwrap();
    assert_eq!((report.failed, report.status.running.is_some()), (0, true));
    world.run(seconds(2));
    assert_eq!(world.status(0).snapshots.unwrap().failed, 1);
    let refused = world.processes[0].taken.pop().unwrap().unwrap_err();
    assert!(refused.to_string().contains("was not written"), "{refused}");
    // Nothing of it is left: the next one can begin.
    world.refused = None;
    world.run(seconds(3));
    ask(&mut world, 0);
    announced(&mut world, 0);
}

#[test]
fn a_snapshot_waits_for_a_digest_that_comes_after_it() {
    let (mut world, _) = settled(2);
    let taker = standby(&world);
    begin_another(&mut world, taker);
    let (_, kept) = write_and_tell(&mut world, taker);
    let pending = world.status(taker).snapshots.unwrap().status.running.unwrap();
    assert_eq!((pending.stage, pending.of), (SnapshotStage::WaitingForDigest, 0));
    assert!(world.processes[taker].jobs.is_empty());
    // Records that are no digests confirm nothing.
    world.change("more");
    world.run(Duration::from_millis(100));
    assert!(world.status(taker).applied > kept.header.at.last);
    world.run(seconds(2));
    assert!(matches!(next_job(&mut world, taker), Some(SnapshotJob::Announce { .. })));
}

#[test]
fn so_many_are_kept_and_the_oldest_is_removed() {
    let (mut world, _) = settled(2);
    let taker = standby(&world);
    let first = announced(&mut world, taker);
    for nth in 0..2 {
        world.change(&format!("more-{nth}"));
        world.run(seconds(1));
        ask(&mut world, taker);
        let (id, kept) = write_and_tell(&mut world, taker);
        world.run(seconds(2));
        let Some(SnapshotJob::Announce { remove, .. }) = next_job(&mut world, taker) else { panic!() };
        let oldest = vec![first.header.at.last];
        assert_eq!(remove, if nth == 0 { Vec::new() } else { oldest });
        world.input(taker, Input::SnapshotAnnounced { id, result: Ok(()) });
        let held = world.status(taker).snapshots.unwrap().status.held;
        assert_eq!((held.len(), &held[0]), (2, &kept.held));
    }
}

#[test]
fn a_standby_that_is_promoted_gives_its_snapshot_up() {
    for pending in [false, true] {
        let (mut world, keys) = settled(2);
        let (primary, taker) = (world.primary(), standby(&world));
        let first = begin_another(&mut world, taker);
        let written = pending.then(|| write_and_tell(&mut world, taker));
        world.switchover(primary, None);
        world.run(seconds(1));
        assert_eq!(world.primary(), taker);
        match written {
            Some((_, kept)) => {
                let job = next_job(&mut world, taker);
                let last = kept.header.at.last;
                assert!(matches!(job, Some(SnapshotJob::Discard { last: of }) if of == last), "{job:?}");
            }
            None => {
                let (id, kept) = write(&mut world, taker);
                let why = kept.err().unwrap();
                assert!(why.contains("cancelled"), "{why}");
                world.input(taker, Input::SnapshotWritten { id, result: Err(why) });
            }
        }
        world.run(seconds(3));
        let report = world.status(taker).snapshots.unwrap();
        assert_eq!((report.status.held, report.cancelled, report.failed), (vec![first], 1, 0));
        let refused = world.processes[taker].taken.pop().unwrap();
        assert!(matches!(refused, Err(SnapshotRefused::Failed(_))), "{refused:?}");
        assert!(world.processes[taker].jobs.is_empty());
        assert_eq!(world.has(taker, &keys), keys.len());
    }
}

#[test]
fn a_file_that_is_complete_when_it_was_given_up_is_discarded() {
    let (mut world, _) = settled(2);
    let (primary, taker) = (world.primary(), standby(&world));
    let (id, kept) = write(&mut world, taker);
    world.switchover(primary, None);
    world.run(seconds(1));
    world.input(taker, Input::SnapshotWritten { id, result: Ok(kept.unwrap().held) });
    assert!(matches!(next_job(&mut world, taker), Some(SnapshotJob::Discard { .. })));
    world.run(seconds(3));
    assert_eq!(world.status(taker).snapshots.unwrap().status.held, []);
}

#[test]
fn a_digest_that_does_not_match_discards_a_pending_snapshot() {
    let (mut world, _) = settled(2);
    let taker = standby(&world);
    begin_another(&mut world, taker);
    let (_, kept) = write_and_tell(&mut world, taker);
    world.processes[taker].taken.clear();
    log_wrong_digest(&mut world);
    world.run(seconds(5));
    let last = kept.header.at.last;
    let job = next_job(&mut world, taker);
    assert!(matches!(job, Some(SnapshotJob::Discard { last: of }) if of == last), "{job:?}");
    // The state was rebuilt and is right, but no snapshot is taken in the term of a primary that was wrong.
    let status = world.status(taker);
    assert!(status.caught_up && status.against.is_some() && status.rebuilds == 1, "{status:?}");
    assert!(world.processes[taker].jobs.is_empty());
    ask(&mut world, taker);
    let refused = world.processes[taker].taken.pop().unwrap().unwrap_err();
    assert!(refused.to_string().contains("wrong digest"), "{refused}");
}

#[test]
fn a_disk_that_is_full_stops_no_standby_and_is_tried_again_later_and_later() {
    let (mut world, keys) = settled(2);
    let taker = standby(&world);
    let mut waits = Vec::new();
    for nth in 0..5 {
        let (id, _) = write(&mut world, taker);
        let result = Err("no space left on device".to_owned());
        world.input(taker, Input::SnapshotWritten { id, result });
        let status = world.status(taker);
        assert!(status.caught_up, "{status:?}");
        let report = status.snapshots.unwrap();
        assert_eq!(report.failed, nth + 1);
        assert!(report.status.error.unwrap().contains("no space"));
        let since = world.now;
        while world.processes[taker].jobs.is_empty() {
            world.run(Duration::from_millis(100));
        }
        waits.push((world.now - since) / 1_000_000);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16]);
    announced(&mut world, taker);
    let report = world.status(taker).snapshots.unwrap();
    assert_eq!((report.status.error, report.announced, report.status.held.len()), (None, 1, 1));
    assert_eq!(world.has(taker, &keys), keys.len());
}

#[test]
fn a_request_is_answered_with_the_snapshot_or_with_the_reason_against_it() {
    let (mut world, _) = settled(2);
    let (primary, taker) = (world.primary(), standby(&world));
    ask(&mut world, primary);
    let refused = world.processes[primary].taken.pop().unwrap();
    assert!(matches!(refused, Err(SnapshotRefused::NotStandby(_))), "{refused:?}");
    announced(&mut world, taker);
    world.change("more");
    world.run(Duration::from_millis(200));
    let applied = world.status(taker).applied;
    ask(&mut world, taker);
    assert!(world.processes[taker].taken.is_empty());
    let kept = announced(&mut world, taker);
    let taken = world.processes[taker].taken.pop().unwrap().unwrap();
    assert_eq!(taken, kept.held);
    assert!(taken.sequence_id >= applied.0);
    // A standby that hears nothing of the primary does not know whether it is caught up.
    world.processes[primary].stopped = true;
    world.processes[taker].deaf = true;
    world.run(seconds(2));
    world.processes[taker].jobs.clear();
    world.etcd_stopped = true;
    world.run(seconds(4));
    ask(&mut world, taker);
    let refused = world.processes[taker].taken.pop().unwrap();
    assert!(matches!(refused, Err(SnapshotRefused::NotCaughtUp(_))), "{refused:?}");
    // Without a directory there are none.
    let mut world = World::new(2);
    world.run(seconds(4));
    let taker = standby(&world);
    ask(&mut world, taker);
    assert_eq!(world.processes[taker].taken.pop(), Some(Err(SnapshotRefused::NoDataDir)));
}

#[test]
fn a_master_that_starts_from_a_snapshot_reads_only_what_comes_after_it() {
    let (mut world, mut keys) = settled(2);
    let taker = standby(&world);
    let kept = announced(&mut world, taker);
    for nth in 0..10 {
        keys.push(format!("later-{nth}"));
        world.change(&format!("later-{nth}"));
    }
    world.run(seconds(2));
    // What the log has before the snapshot is not needed: a batch there could not be read.
    let damaged = world.log_keys().into_iter().find(|entry| entry.key.ends_with(b"/00000000000000000001"));
    let mut damaged = damaged.unwrap();
    damaged.value = bytes::Bytes::from_static(b"damaged");
    world.put(&[damaged]);
    world.restart_from(taker, None, origin(&kept));
    world.run(seconds(3));
    let status = world.status(taker);
    assert!(status.caught_up && status.rebuilds == 0, "{status:?}");
    let snapshots = status.snapshots.unwrap().status;
    assert_eq!(snapshots.started_from, Some(kept.header.at.last.0));
    assert_eq!(snapshots.held, [kept.held]);
    assert_eq!(world.digests().len(), 1);
    world.switchover(world.primary(), None);
    world.run(seconds(1));
    assert_eq!(world.primary(), taker);
    assert_eq!(world.has(taker, &keys), keys.len());
}

/// A snapshot of another state that says that it was taken after this batch.
pub(super) fn forged(kept: &Kept, world: &mut World) -> Kept {
    let mut batches: Vec<_> = world.log_keys();
    batches.retain(|entry| moonkeeper::replication::batch::Batch::open(&entry.value).is_ok());
    let batch = batches.iter().find_map(|entry| {
        let batch = moonkeeper::replication::batch::Batch::open(&entry.value).ok()?;
        (batch.header.first.0 == kept.header.at.last.0 + 1).then_some((batch.header, batch.checksum))
    });
    let (next, checksum) = batch.unwrap();
    let at =
        moonkeeper::cluster::log_end::Latest { term: next.term, last: next.last, checksum, ..kept.header.at };
    let (_, engine) = read_from(&mut &kept.bytes[..], EngineSettings::default(), None).unwrap();
    let engine = Arc::new(engine);
    let mut sequencer = engine.sequencer(LogTime(0));
    while sequencer.next_id() <= at.last {
        let (id, now) = (sequencer.next_id(), sequencer.now);
        sequencer.apply(Format::NEWEST, id, now, &Record::MetadataPut { key: b"bit", value: b"1" });
    }
    drop(sequencer);
    let mut bytes = Vec::new();
    let header = write_to(&mut bytes, begin(&engine, &at).unwrap(), &Progress::default()).unwrap();
    let held = describe(&header, bytes.len() as u64, Some(0), 5);
    Kept { header, bytes, held }
}

#[test]
fn a_wrong_snapshot_is_never_taken_for_the_log() {
    let (mut world, keys) = settled(2);
    let (primary, taker) = (world.primary(), standby(&world));
    let kept = announced(&mut world, taker);
    world.change("later");
    world.run(seconds(3));
    let wrong = forged(&kept, &mut world);
    world.restart_from(taker, None, origin(&wrong));
    // Nobody else can lead meanwhile.
    world.processes[primary].stopped = true;
    world.run(seconds(10));
    let status = world.status(taker);
    assert_eq!((status.rebuilds, &status.against), (1, &None), "the primary was right");
    assert!(world.serving().contains(&taker));
    assert_eq!(world.has(taker, &keys), keys.len());
    assert_eq!(world.has(taker, &["bit".to_owned()]), 0);
    world.processes[primary].stopped = false;
    world.run(seconds(5));
    assert_eq!(world.digests().len(), 1);
}

#[test]
fn a_snapshot_at_the_end_of_the_log_has_to_be_confirmed_or_the_log_is_read() {
    let (mut world, keys) = settled(1);
    world.run(seconds(1));
    // Of a state that is right, but that no digest in the log comes after.
    let engine = Arc::clone(&world.processes[0].node.incarnation().engine);
    let at = world.status(0).history.unwrap().0;
    assert_eq!(engine.applied(), at.last);
    let mut bytes = Vec::new();
    let header = write_to(&mut bytes, begin(&engine, &at).unwrap(), &Progress::default()).unwrap();
    let held = describe(&header, bytes.len() as u64, Some(0), 5);
    world.delete(moonkeeper::coordination::types::KeyRange::key(world.keys.election()));
    world.restart_from(0, None, origin(&Kept { header, bytes, held }));
    world.run(seconds(8));
    assert_eq!(world.serving(), [0]);
    assert_eq!(world.status(0).rebuilds, 1);
    assert_eq!(world.has(0, &keys), keys.len());
}

#[test]
fn no_master_follows_another_history_than_that_of_its_snapshot() {
    for kind in ["another log", "a shorter log", "another batch"] {
        let (mut world, _) = settled(2);
        let (primary, taker) = (world.primary(), standby(&world));
        let mut kept = announced(&mut world, taker);
        world.run(seconds(1));
        let mut origin = origin(&kept);
        let at = &mut kept.header.at;
        match kind {
            "another log" => at.log.0 ^= 1,
            "a shorter log" => at.last = SequenceId(at.last.0 + 1_000),
            _ => at.checksum = Checksum(at.checksum.0 ^ 1),
        }
        if let Some(restored) = &mut origin.restored {
            restored.at = *at;
        }
        world.restart_from(taker, None, origin);
        world.processes[primary].stopped = true;
        world.run(seconds(20));
        assert!(!world.serving().contains(&taker), "{kind}");
        let status = world.status(taker);
        assert!(status.trouble.is_some() && !status.caught_up, "{kind}: {status:?}");
        if kind != "another batch" {
            assert_eq!(status.history, Some(History(*at)), "{kind}");
        }
    }
}
