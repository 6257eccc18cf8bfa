//! How the primary moves the floor and deletes what is below it: one schedule each. The simulator kills masters at every
//! step of the same code.

use std::collections::BTreeMap;
use std::time::Duration;

use moonkeeper::cluster::log_end::LogId;
use moonkeeper::cluster::log_floor::{LogFloor, LogNeed};
use moonkeeper::cluster::member::{BootId, MemberValue};
use moonkeeper::cluster::snapshot::HeldSnapshot;
use moonkeeper::coordination::types::{KeyRange, LeaseId, Op, Request, Response, Txn};
use moonkeeper::engine::types::SequenceId;
use moonkeeper::replication::batch::Batch;
use moonkeeper::replication::node::{Input, SnapshotJob};
use moonkeeper::replication::snapshot::describe;
use moonkeeper::replication::snapshot::write_to;

use super::standby;
use super::world::{World, seconds};

/// Does what masters want to be done with snapshots, without a disk.
struct Host {
    /// Copies are read back; else the storage hangs.
    proves: bool,
    /// What a copy that is read back has for a digest, if not what its writer has.
    wrong: bool,
    digests: BTreeMap<u64, String>,
    changes: usize,
}

impl Host {
    fn new() -> Self {
        Self { proves: true, wrong: false, digests: BTreeMap::new(), changes: 0 }
    }

    /// Time passes, with a change ten times in each second.
    fn run(&mut self, world: &mut World, duration: Duration) -> Vec<String> {
        let end = world.now + duration.as_micros() as u64;
        let mut keys = Vec::new();
        while world.now < end {
            if world.serving().len() == 1 {
                let key = format!("change-{}", self.changes);
                world.change(&key);
                keys.push(key);
                self.changes += 1;
            }
            world.run(Duration::from_millis(100));
            for index in 0..world.processes.len() {
                self.work(world, index);
            }
        }
        keys
    }

    fn work(&mut self, world: &mut World, index: usize) {
        while let Some(job) = world.processes[index].jobs.pop_front() {
            let answer = match job {
                SnapshotJob::Write { id, capture, progress } => {
                    let objects = capture.objects();
                    let mut bytes = Vec::new();
                    let header = write_to(&mut bytes, *capture, &progress).unwrap();
                    let held = describe(&header, bytes.len() as u64, Some(objects), 5);
                    self.digests.insert(held.sequence_id, held.digest.clone());
                    Input::SnapshotWritten { id, result: Ok(held) }
                }
                SnapshotJob::Announce { id, .. } => Input::SnapshotAnnounced { id, result: Ok(()) },
                SnapshotJob::Share { last, .. } => Input::SnapshotShared { last, result: Ok(()) },
                SnapshotJob::Prove { last, by, .. } if self.proves => {
                    let digest = if self.wrong { "bad".to_owned() } else { self.digests[&last.0].clone() };
                    Input::SnapshotProven { last, by, result: Ok(digest) }
                }
                SnapshotJob::Restore { id, .. } => Input::SnapshotRestored { id, restored: None },
                SnapshotJob::Discard { .. } | SnapshotJob::Prove { .. } => continue,
            };
            world.input(index, answer);
        }
    }
}

/// Three masters that take snapshots often, and have cut the log off.
fn truncated() -> (World, Host, Vec<String>) {
    let mut world = World::with_snapshots(3, seconds(3));
    let mut host = Host::new();
    world.run(seconds(3));
    let keys = host.run(&mut world, seconds(30));
    assert!(floor(&mut world) > 20, "{:?}", world.status(world.primary()).floor);
    (world, host, keys)
}

fn floor(world: &mut World) -> u64 {
    let key = world.keys.floor();
    let entry = world.log_keys().into_iter().find(|entry| entry.key == key);
    entry.map_or(0, |entry| LogFloor::from_bytes(&entry.value).unwrap().last.0)
}

/// The first and the last record of each batch that the log has.
fn batches(world: &mut World) -> Vec<(u64, u64)> {
    let entries = world.log_keys();
    let open = entries.iter().filter_map(|entry| Batch::open(&entry.value).ok());
    open.map(|batch| (batch.header.first.0, batch.header.last.0)).collect()
}

fn held_by(world: &World) -> String {
    world.status(world.primary()).floor.unwrap().held_by.unwrap_or_default()
}

/// A member key of a process that is not there.
fn member(world: &mut World, needs: Option<u64>, snapshots: Vec<HeldSnapshot>) {
    let needs = needs.map(|after| LogNeed { log: String::new(), after });
    let value = MemberValue {
        name: "late".to_owned(),
        boot_id: BootId(99),
        needs,
        snapshots,
        ..MemberValue::default()
    };
    let value = serde_json::to_vec(&value).unwrap().into();
    let put = Op::Put { key: world.keys.member("late"), value, lease: LeaseId(0) };
    world.carry_out(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
}

#[test]
fn the_log_is_cut_off_behind_two_snapshots_and_nothing_is_lost() {
    let (mut world, _, keys) = truncated();
    let (floor, batches) = (floor(&mut world), batches(&mut world));
    assert_eq!(batches[0].0, floor + 1, "{batches:?}");
    assert!(batches.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "nothing above it is missing");
    let status = world.status(world.primary());
    assert_eq!(status.floor.unwrap().floor, floor);
    assert!(status.batches_deleted > 0 && world.status(standby(&world)).floor.is_none());
    for index in 0..3 {
        assert_eq!(world.has(index, &keys), keys.len());
        // Each could start again: without shared storage the primary takes snapshots, too.
        let held = world.status(index).snapshots.unwrap().status.held;
        assert!(held.iter().any(|held| held.sequence_id >= floor), "m{index}: {held:?}");
    }
}

#[test]
fn a_standby_writes_its_need_before_it_reads_the_log() {
    let mut world = World::new(2);
    world.run(seconds(3));
    let index = standby(&world);
    world.refused = Some("no space");
    world.restart(index, None);
    world.run(Duration::from_millis(500));
    assert_eq!(world.status(index).applied, SequenceId(0), "etcd does not have its need");
    // A store that takes no writes can be read all the same.
    world.run(seconds(2));
    assert!(world.status(index).applied > SequenceId(0));
    world.refused = None;
    world.run(seconds(5));
    let need = world.member(index).needs.unwrap();
    assert!(need.after > 0 && need.log == world.processes[index].node.log().unwrap().to_string());
    assert_eq!(world.member(world.primary()).needs, None);
}

/// The primary decides, and then a standby starts: what the primary knew of the members when it decided is too old.
#[test]
fn a_need_that_is_written_before_the_floor_keeps_the_batches() {
    let (mut world, mut host, _) = truncated();
    let before = batches(&mut world)[0].0;
    world.holds_floors = true;
    while world.held_floors.is_empty() {
        host.run(&mut world, Duration::from_millis(100));
    }
    world.holds_floors = false;
    member(&mut world, Some(before - 1), Vec::new());
    world.release_floor();
    let moved = floor(&mut world);
    assert!(moved >= before, "the floor was decided before the need was there");
    assert_eq!(batches(&mut world)[0].0, before, "{}", held_by(&world));
    assert!(held_by(&world).contains("late still has to read the log"), "{}", held_by(&world));
    world.delete(KeyRange::key(world.keys.member("late")));
    host.run(&mut world, seconds(4));
    assert!(batches(&mut world)[0].0 > moved);
}

#[test]
fn a_need_that_is_never_satisfied_is_cancelled_and_named() {
    let (mut world, mut host, _) = truncated();
    let held = world.status(world.primary()).snapshots.unwrap().status.held;
    let newer = |(nth, held)| HeldSnapshot { sequence_id: u64::MAX / 2 - nth, ..held };
    let held: Vec<HeldSnapshot> = (0..).zip(held).map(newer).collect();
    let before = floor(&mut world);
    member(&mut world, Some(before), held);
    host.run(&mut world, seconds(20));
    assert_eq!(floor(&mut world), before);
    assert!(held_by(&world).contains("late still has to read the log"), "{}", held_by(&world));
    world.run(seconds(600));
    host.run(&mut world, seconds(5));
    assert!(floor(&mut world) > before, "{}", held_by(&world));
}

#[test]
fn a_late_deletion_touches_no_other_log_and_nothing_above_its_floor() {
    let (mut world, mut host, _) = truncated();
    world.holds_deletions = true;
    while world.held_deletions.is_empty() {
        host.run(&mut world, Duration::from_millis(100));
    }
    let (log, other) = (world.processes[world.primary()].node.log().unwrap(), LogId(1));
    let late = world.held_deletions[0].clone();
    let Request::Txn(txn) = &late else { panic!("{late:?}") };
    let [Op::Delete(range)] = txn.success.as_slice() else { panic!("{txn:?}") };
    let floor = floor(&mut world);
    let of = |log, first| world.keys.batch(log, SequenceId(first));
    assert!(range.contains(&of(log, floor)) && !range.contains(&of(log, floor + 1)));
    assert!(!range.contains(&of(other, 1)) && !range.contains(&of(LogId(u64::MAX), 1)));
    assert!(!range.contains(&world.keys.latest()) && !range.contains(&world.keys.floor()));
    // Another log has replaced this one.
    let value = LogFloor { log: other, last: SequenceId(floor) }.to_bytes();
    let put = Op::Put { key: world.keys.floor(), value, lease: LeaseId(0) };
    world.carry_out(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
    let there = batches(&mut world);
    let done = world.carry_out(&late);
    assert!(matches!(done, Ok(Response::Txn { succeeded: false, .. })), "{done:?}");
    assert_eq!(batches(&mut world), there);
}

#[test]
fn the_next_primary_deletes_what_the_last_one_has_left() {
    let (mut world, mut host, mut keys) = truncated();
    let first = world.primary();
    world.holds_deletions = true;
    while world.held_deletions.is_empty() {
        keys.extend(host.run(&mut world, Duration::from_millis(100)));
    }
    let (floor, left) = (floor(&mut world), batches(&mut world)[0].0);
    assert!(left <= floor, "the floor is written, and the batches are there");
    world.processes[first].stopped = true;
    world.holds_deletions = false;
    world.run(seconds(8));
    world.processes[first].ended = true;
    let primary = world.primary();
    assert_ne!(primary, first);
    keys.extend(host.run(&mut world, seconds(4)));
    assert!(batches(&mut world)[0].0 > floor, "{}", held_by(&world));
    assert_eq!(world.has(primary, &keys), keys.len());
}

#[test]
fn directories_that_are_lost_with_their_machines_move_nothing_and_say_so() {
    let mut world = World::with_snapshots(0, seconds(3));
    world.ephemeral = true;
    (0..3).for_each(|_| world.add_master());
    let mut host = Host::new();
    world.run(seconds(3));
    host.run(&mut world, seconds(30));
    let state = world.status(world.primary()).floor.unwrap();
    assert_eq!((floor(&mut world), state.floor, state.can_move), (0, 0, false));
    assert!(held_by(&world).contains("lost with their machines"), "{}", held_by(&world));
    assert_eq!(batches(&mut world)[0].0, 1);
}

#[test]
fn a_cluster_without_snapshots_or_with_too_few_members_says_why_its_log_grows() {
    let mut world = World::new(2);
    let mut host = Host::new();
    world.run(seconds(3));
    host.run(&mut world, seconds(5));
    assert!(held_by(&world).contains("--data_dir"), "{}", held_by(&world));
    for (copies, moves) in [(2, false), (1, true)] {
        let mut world = World::with_snapshots(0, seconds(3));
        world.snapshot_copies = copies;
        world.add_master();
        world.run(seconds(8));
        host.run(&mut world, seconds(30));
        assert_eq!(floor(&mut world) > 0, moves, "{}", held_by(&world));
        let told = held_by(&world).contains("1 of the 2 members that --snapshot_copies asks for");
        assert_eq!(told, !moves, "{}", held_by(&world));
    }
}

#[test]
fn copies_in_shared_storage_count_once_a_second_member_has_read_them() {
    let mut world = World::with_snapshots(0, seconds(3));
    (world.ephemeral, world.has_store) = (true, true);
    let mut host = Host { proves: false, ..Host::new() };
    for _ in 0..3 {
        world.add_master();
        world.run(seconds(1));
        (0..world.processes.len()).for_each(|index| host.work(&mut world, index));
    }
    host.run(&mut world, seconds(20));
    assert_eq!(floor(&mut world), 0, "their writers alone have read them");
    // The storage that hung answers for a state that is not the writer's.
    (host.proves, host.wrong) = (true, true);
    for index in 0..3 {
        world.restart(index, None);
        world.run(seconds(8));
        host.work(&mut world, index);
    }
    host.run(&mut world, seconds(20));
    assert_eq!(floor(&mut world), 0);
    let report = world.status(standby(&world)).snapshots.unwrap();
    assert!(report.status.proof_error.unwrap().contains("its state has the digest bad"));
    host.wrong = false;
    host.run(&mut world, seconds(120));
    assert!(floor(&mut world) > 0, "{}", held_by(&world));
}

#[test]
fn what_a_member_reads_and_what_is_nearest_above_the_floor_is_not_pruned() {
    let (mut world, mut host, _) = truncated();
    let index = standby(&world);
    let held = |world: &World| -> Vec<u64> {
        let held = world.status(index).snapshots.unwrap().status.held;
        held.iter().map(|held| held.sequence_id).collect()
    };
    let oldest = *held(&world).last().unwrap();
    // The floor stays, and a member continues from this snapshot.
    member(&mut world, Some(oldest), Vec::new());
    let before = floor(&mut world);
    host.run(&mut world, seconds(20));
    assert_eq!(floor(&mut world), before, "{}", held_by(&world));
    let after = held(&world);
    assert!(after.contains(&oldest) && (3..=4).contains(&after.len()), "{oldest} of {after:?}");
    world.delete(KeyRange::key(world.keys.member("late")));
    host.run(&mut world, seconds(20));
    assert!(!held(&world).contains(&oldest) && held(&world).len() <= 3, "{:?}", held(&world));
}
