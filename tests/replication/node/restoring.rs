//! What a master does whose log does not begin at its first record any more, and one that starts with shared storage.

use std::time::Duration;

use moonkeeper::cluster::snapshot::HeldSnapshot;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::replication::node::{Input, RestoreId, SnapshotJob};
use moonkeeper::replication::snapshot::{Origin, Wanted};

use super::snapshots::{Kept, SELDOM, announced, forged, next_job, origin, settled};
use super::standby;
use super::world::{World, seconds};

/// The state of a master changes without a record.
fn corrupt(world: &World, index: usize) {
    let engine = &world.processes[index].node.incarnation().engine;
    let mut sequencer = engine.sequencer(LogTime(0));
    let (id, now) = (sequencer.next_id(), sequencer.now);
    sequencer.apply(Format::NEWEST, id, now, &Record::MetadataPut { key: b"bit", value: b"1" });
}

/// The snapshot that a master asks its host for.
fn wanted(world: &mut World, index: usize) -> (RestoreId, Wanted) {
    match next_job(world, index) {
        Some(SnapshotJob::Restore { id, wanted, .. }) => (id, wanted),
        other => panic!("it asks for no snapshot: {other:?}"),
    }
}

fn restore(world: &mut World, index: usize, id: RestoreId, kept: &Kept) {
    let restored = origin(kept).restored;
    world.input(index, Input::SnapshotRestored { id, restored });
}

/// Two masters, the standby with an announced snapshot at which the log begins, and a state that is in doubt.
fn in_doubt() -> (World, Vec<String>, usize, Kept) {
    let (mut world, mut keys) = settled(2);
    let taker = standby(&world);
    let kept = announced(&mut world, taker);
    keys.push("later".to_owned());
    world.change("later");
    world.run(seconds(2));
    world.truncate(kept.header.at.last);
    corrupt(&world, taker);
    world.run(seconds(3));
    (world, keys, taker, kept)
}

#[test]
fn a_state_in_doubt_is_built_from_a_snapshot_when_the_log_is_truncated() {
    let (mut world, keys, taker, kept) = in_doubt();
    let (id, wanted) = wanted(&mut world, taker);
    let at = kept.header.at;
    assert_eq!(
        wanted,
        Wanted { log: at.log, first: SequenceId(at.last.0 + 1), base: None, without: Vec::new() }
    );
    assert!(wanted.accepts(at.last) && !wanted.accepts(SequenceId(at.last.0 - 1)));
    assert!(!world.status(taker).caught_up);
    restore(&mut world, taker, id, &kept);
    world.run(seconds(3));
    let status = world.status(taker);
    assert!(status.caught_up && status.rebuilds == 1 && status.trouble.is_none(), "{status:?}");
    assert_eq!(status.snapshots.unwrap().status.started_from, Some(at.last.0));
    assert_eq!(world.digests().len(), 1);
    world.switchover(world.primary(), None);
    world.run(seconds(1));
    assert_eq!(world.primary(), taker);
    assert_eq!((world.has(taker, &keys), world.has(taker, &["bit".to_owned()])), (keys.len(), 0));
}

/// A bug on purpose: the records between such a snapshot and the beginning of the log would be missing for ever.
#[cfg(feature = "planted")]
#[test]
fn planted_a_snapshot_that_does_not_reach_the_log_would_be_used() {
    use moonkeeper::planted::{Bug, plant};
    for bug in [None, Some(Bug::RestoreTooOld)] {
        let (mut world, _, taker, kept) = in_doubt();
        let (_, wanted) = wanted(&mut world, taker);
        plant(bug);
        let used = wanted.accepts(SequenceId(kept.header.at.last.0 - 1));
        plant(None);
        assert_eq!(used, bug.is_some());
    }
}

#[test]
fn without_a_snapshot_the_master_is_stuck_and_says_what_is_missing() {
    let (mut world, _, taker, kept) = in_doubt();
    let (id, _) = wanted(&mut world, taker);
    world.input(taker, Input::SnapshotRestored { id, restored: None });
    let last = kept.header.at.last.0;
    let begins = format!("the log begins at record {}", last + 1);
    let needs = format!("it needs a snapshot that has all up to {last}");
    let trouble = world.status(taker).trouble.unwrap();
    for part in [&begins, &needs, "none in --data_dir", "no other member holds one"] {
        assert!(trouble.contains(part), "{part}: {trouble}");
    }
    // It looks again, but not each time that it reads the log.
    world.run(seconds(8));
    assert!(world.processes[taker].jobs.is_empty());
    world.run(seconds(4));
    let (id, _) = wanted(&mut world, taker);
    restore(&mut world, taker, id, &kept);
    world.run(seconds(3));
    assert!(world.status(taker).caught_up);
}

#[test]
fn a_snapshot_that_the_log_contradicts_is_not_used_again() {
    let (mut world, mut keys) = settled(2);
    let taker = standby(&world);
    let kept = announced(&mut world, taker);
    keys.push("later".to_owned());
    world.change("later");
    world.run(seconds(3));
    let wrong = forged(&kept, &mut world);
    world.truncate(kept.header.at.last);
    corrupt(&world, taker);
    world.run(seconds(3));
    let (id, wanted_first) = wanted(&mut world, taker);
    assert!(wanted_first.accepts(wrong.header.at.last));
    restore(&mut world, taker, id, &wrong);
    // A state that was rebuilt in this term is not rebuilt again at once.
    world.run(seconds(14));
    let (id, then) = wanted(&mut world, taker);
    assert_eq!(then.without, [wrong.header.at.last]);
    restore(&mut world, taker, id, &kept);
    world.run(seconds(3));
    let status = world.status(taker);
    assert!(status.caught_up && status.against.is_none(), "{status:?}");
    assert_eq!((world.has(taker, &keys), world.has(taker, &["bit".to_owned()])), (keys.len(), 0));
}

#[test]
fn a_standby_that_the_log_has_left_behind_is_named_with_those_who_can_help() {
    let (mut world, _) = settled(3);
    let primary = world.primary();
    let others: Vec<usize> = (0..3).filter(|index| *index != primary).collect();
    let kept = announced(&mut world, others[0]);
    world.run(seconds(3));
    world.truncate(kept.header.at.last);
    world.snapshots_every = None;
    world.restart(others[1], None);
    world.run(seconds(3));
    let status = world.status(others[1]);
    let holder = format!("m{} holds one up to record {}", others[0], kept.header.at.last.0);
    let trouble = status.trouble.unwrap();
    assert!(trouble.contains(&holder) && trouble.contains("no --data_dir"), "{trouble}");
    // It never stands, and the others go on.
    world.run(seconds(20));
    assert_eq!(world.serving(), [primary]);
    // One that starts from the snapshot follows.
    world.snapshots_every = Some(SELDOM);
    world.restart_from(others[1], None, origin(&kept));
    world.run(seconds(3));
    assert!(world.status(others[1]).caught_up);
}

#[test]
fn the_beginning_of_the_log_is_found_however_much_is_missing() {
    let mut world = World::new(2);
    world.run(seconds(3));
    for nth in 0..5_000 {
        world.change(&format!("key-{nth}"));
        world.run(std::time::Duration::from_micros(super::world::STEP));
    }
    let left = world.status(world.primary()).durable.0 - 20;
    world.truncate(SequenceId(left));
    let index = standby(&world);
    world.restart(index, None);
    world.run(seconds(3));
    let trouble = world.status(index).trouble.unwrap();
    assert!(trouble.contains("the log begins at record 5") && trouble.contains("no --data_dir"), "{trouble}");
}

/// A primary matches its own digests, whatever its state is, so they confirm nothing that it has written (decision 009).
#[test]
fn a_snapshot_of_a_primary_is_used_in_doubt_only_if_another_primary_has_confirmed_it() {
    for confirmed in [false, true] {
        let mut world = World::with_snapshots(1, seconds(2));
        world.run(seconds(3));
        world.change("something");
        world.run(seconds(4));
        let last = announced(&mut world, 0).header.at.last;
        world.add_master();
        world.run(seconds(3));
        world.switchover(0, Some("m1"));
        for _ in 0..500 {
            if world.serving() == [1] {
                break;
            }
            world.run(Duration::from_millis(20));
        }
        assert_eq!(world.serving(), [1]);
        if confirmed {
            // The new primary writes a digest, which matches here.
            world.run(seconds(3));
        }
        world.truncate(last);
        world.processes[0].jobs.clear();
        corrupt(&world, 0);
        world.run(seconds(3));
        let jobs = std::mem::take(&mut world.processes[0].jobs);
        let wanted = jobs.into_iter().find_map(|job| match job {
            SnapshotJob::Restore { wanted, .. } => Some(wanted),
            _ => None,
        });
        let without = if confirmed { vec![] } else { vec![last] };
        assert_eq!(wanted.map(|wanted| wanted.without), Some(without), "confirmed: {confirmed}");
    }
}

#[test]
fn a_master_without_a_snapshot_looks_in_the_shared_storage_first() {
    for found in [true, false] {
        let (mut world, keys) = settled(2);
        let taker = standby(&world);
        let kept = announced(&mut world, taker);
        world.change("later");
        world.run(seconds(2));
        world.has_store = true;
        world.restart_from(taker, None, Origin::default());
        world.run(seconds(1));
        let (id, wanted) = wanted(&mut world, taker);
        assert_eq!((wanted.log, wanted.first), (kept.header.at.log, SequenceId(1)));
        if found {
            restore(&mut world, taker, id, &kept);
        } else {
            world.input(taker, Input::SnapshotRestored { id, restored: None });
        }
        world.run(seconds(3));
        let status = world.status(taker);
        assert!(status.caught_up && status.rebuilds == 0, "{status:?}");
        let from = status.snapshots.unwrap().status.started_from;
        assert_eq!(from, found.then_some(kept.header.at.last.0));
        assert_eq!(world.has(taker, &keys), keys.len());
    }
}

#[test]
fn a_store_that_hangs_keeps_no_master_from_the_log() {
    let (mut world, keys) = settled(2);
    let taker = standby(&world);
    world.has_store = true;
    world.restart_from(taker, None, Origin::default());
    world.run(seconds(100));
    assert!(!world.status(taker).caught_up);
    world.run(seconds(90));
    assert!(world.status(taker).caught_up);
    assert_eq!(world.has(taker, &keys), keys.len());
}

#[test]
fn announced_snapshots_are_copied_and_a_store_that_fails_is_tried_again_later_and_later() {
    let mut world = World::with_snapshots(0, SELDOM);
    world.has_store = true;
    (0..2).for_each(|_| world.add_master());
    world.run(seconds(4));
    let taker = standby(&world);
    // The storage has nothing to start from yet.
    let (id, _) = wanted(&mut world, taker);
    world.input(taker, Input::SnapshotRestored { id, restored: None });
    world.run(seconds(4));
    let kept = announced(&mut world, taker);
    let last = kept.header.at.last;
    let mut waits = Vec::new();
    for nth in 0..4 {
        let since = world.now;
        while world.processes[taker].jobs.is_empty() {
            world.run(Duration::from_millis(100));
        }
        waits.push((world.now - since) / 1_000_000);
        let job = next_job(&mut world, taker);
        assert!(matches!(job, Some(SnapshotJob::Share { last: of, .. }) if of == last), "{job:?}");
        let result = if nth < 3 { Err("stale file handle".to_owned()) } else { Ok(()) };
        world.input(taker, Input::SnapshotShared { last, result });
        let report = world.status(taker).snapshots.unwrap();
        let error = report.status.store_error.as_deref();
        assert_eq!(error, (nth < 3).then_some("stale file handle"));
        assert_eq!((report.copied, report.copies_failed), (nth / 3, (nth + 1).min(3)));
        assert!(world.status(taker).caught_up);
    }
    assert_eq!(waits, [0, 1, 2, 4]);
    let shared = HeldSnapshot { shared: true, ..kept.held };
    assert_eq!(world.status(taker).snapshots.unwrap().status.held, [shared]);
    world.run(seconds(400));
    assert!(world.processes[taker].jobs.is_empty(), "it is there");
}
