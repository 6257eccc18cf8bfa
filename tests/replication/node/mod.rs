//! What a node does when a hand-over stalls, its state is in doubt, the log is not the one that it knows, or etcd
//! refuses to write: one schedule each, in virtual time.

mod compaction;
mod formats;
mod promotions;
mod reasons;
mod recovering;
mod restoring;
mod snapshots;
mod takeover;
mod targets;
mod trust;
mod world;

use std::time::Duration;

use bytes::Bytes;
use moonkeeper::coordination::types::{KeyRange, KeyValue, LeaseId, Request};
use moonkeeper::replication::node::HandoverError;
use world::{World, seconds};

/// Three masters that serve, with so many changes.
fn settled(masters: usize, changes: usize) -> (World, Vec<String>) {
    let mut world = World::new(masters);
    world.run(seconds(3));
    let keys: Vec<String> = (0..changes).map(|nth| format!("key-{nth}")).collect();
    for key in &keys {
        world.change(key);
    }
    world.run(seconds(2));
    (world, keys)
}

fn standby(world: &World) -> usize {
    (0..world.processes.len()).find(|index| *index != world.primary()).unwrap()
}

#[test]
fn a_switchover_moves_the_primary_and_keeps_everything() {
    let (mut world, keys) = settled(3, 20);
    let from = world.primary();
    world.switchover(from, None);
    world.run(seconds(1));
    let to = world.primary();
    assert_ne!(from, to);
    let done = world.processes[from].handed_over.pop().unwrap().unwrap();
    assert_eq!(done.to, format!("m{to}"));
    assert_eq!(world.has(to, &keys), keys.len());
    // The name of the successor does not delay the next election.
    let get = Request::Get(moonkeeper::coordination::types::Get::all(KeyRange::key(world.keys.switchover())));
    let answer = world.model.call(std::time::Duration::from_micros(world.now), &get).unwrap();
    let moonkeeper::coordination::types::Response::Got { page, .. } = answer else { panic!() };
    assert!(page.entries.is_empty());
}

#[test]
fn a_page_of_a_long_log_costs_etcd_no_more_than_its_share() {
    let mut world = World::new(2);
    world.run(seconds(3));
    let keys: Vec<String> = (0..5000).map(|nth| format!("key-{nth}")).collect();
    for key in &keys {
        world.change(key);
        world.run(Duration::from_micros(world::STEP));
    }
    let index = standby(&world);
    world.restart(index, None);
    world.run(seconds(3));
    assert_eq!(world.has(index, &keys), keys.len());
    let batches = world.log_keys().len();
    assert!(world.most_counted > 0 && world.most_counted <= 4096, "{} of {batches}", world.most_counted);
    assert!(batches > 5000, "{batches}");
}

#[test]
fn f1_a_target_that_stalls_in_a_handover_does_not_wedge_the_cluster() {
    for stall in [1, 3, 5, 7, 9, 12, 20] {
        let (mut world, keys) = settled(3, 20);
        let (from, to) = (world.primary(), standby(&world));
        world.switchover(from, Some(&format!("m{to}")));
        world.processes[to].stopped = true;
        world.run(seconds(stall));
        world.processes[to].stopped = false;
        world.run(seconds(6));
        let primary = world.primary();
        assert_eq!(world.has(primary, &keys), keys.len(), "after {stall} s");
        assert_eq!(world.processes[from].handed_over.len(), 1, "the caller is answered");
        world.change("after");
        world.run(seconds(3));
        assert_eq!(world.digests().len(), 1, "after {stall} s");
    }
}

#[test]
fn f1_the_end_of_the_successors_lease_is_an_answer() {
    let (mut world, keys) = settled(2, 20);
    let (from, to) = (world.primary(), standby(&world));
    world.switchover(from, Some(&format!("m{to}")));
    // The lease of the successor's name is the last one that was granted.
    let lease = *world.granted.last().unwrap();
    let now = std::time::Duration::from_micros(world.now);
    world.model.call(now, &Request::LeaseRevoke { lease }).unwrap();
    world.run(seconds(6));
    let primary = world.primary();
    assert_eq!(world.has(primary, &keys), keys.len());
}

#[test]
fn f1_a_handover_whose_last_step_is_not_answered_ends_all_the_same() {
    let (mut world, keys) = settled(2, 20);
    let from = world.primary();
    world.loses_handover = true;
    world.switchover(from, None);
    world.run(seconds(8));
    world.loses_handover = false;
    world.run(seconds(8));
    let primary = world.primary();
    assert_eq!(world.has(primary, &keys), keys.len());
}

#[test]
fn f12_a_port_that_does_not_close_gives_the_lead_to_another_master() {
    let (mut world, keys) = settled(3, 20);
    let from = world.primary();
    world.processes[from].never_closes = true;
    world.switchover(from, None);
    world.run(seconds(17));
    let primary = world.primary();
    assert_ne!(primary, from);
    assert_eq!(world.has(primary, &keys), keys.len());
    assert!(matches!(world.processes[from].handed_over[0], Err(HandoverError::Deposed(_))));
}

#[test]
fn f6_no_master_founds_another_log_when_the_log_is_deleted() {
    let (mut world, keys) = settled(3, 20);
    let kept = world.log_keys();
    world.delete(world.keys.log());
    world.run(seconds(20));
    assert_eq!(world.serving(), Vec::<usize>::new());
    for index in 0..3 {
        let status = world.status(index);
        assert!(status.trouble.as_ref().is_some_and(|why| why.contains("gone")), "{status:?}");
        // The operator reads it there.
        let told = world.member(index).trouble;
        assert!(told.is_some_and(|why| why.contains("gone")), "m{index}");
    }
    world.put(&kept);
    world.run(seconds(10));
    let primary = world.primary();
    assert_eq!(world.has(primary, &keys), keys.len());
    world.change("after");
    world.run(seconds(5));
    assert_eq!(world.digests().len(), 1);
}

#[test]
fn f6_no_master_serves_an_etcd_that_lost_its_data_or_was_restored_from_a_backup() {
    for backup in [false, true] {
        let (mut world, mut keys) = settled(3, 20);
        let older = world.model.clone();
        for nth in 0..20 {
            world.change(&format!("later-{nth}"));
            keys.push(format!("later-{nth}"));
        }
        world.run(seconds(2));
        let newest = world.model.clone();
        world.replace_store(if backup { older } else { Default::default() });
        world.run(seconds(30));
        assert_eq!(world.serving(), Vec::<usize>::new(), "backup {backup}");
        let told = (0..3).filter(|index| world.status(*index).trouble.is_some()).count();
        assert_eq!(told, 3, "backup {backup}");
        // Without a restart, and with one by which a master without a data directory has forgotten everything: the
        // others still remember.
        world.restart(0, None);
        world.run(seconds(20));
        assert_eq!(world.serving(), Vec::<usize>::new(), "backup {backup}");
        world.replace_store(newest);
        world.run(seconds(30));
        let primary = world.primary();
        assert_eq!(world.has(primary, &keys), keys.len(), "backup {backup}");
    }
}

#[test]
fn f6_a_standby_that_knows_no_more_than_the_backup_does_not_take_over() {
    let (mut world, mut keys) = settled(3, 20);
    let behind = standby(&world);
    let older = world.model.clone();
    // It applies nothing of what comes after the backup.
    world.processes[behind].stopped = true;
    for nth in 0..20 {
        world.change(&format!("later-{nth}"));
        keys.push(format!("later-{nth}"));
    }
    world.run(seconds(2));
    let newest = world.model.clone();
    world.replace_store(older);
    world.processes[behind].stopped = false;
    world.run(seconds(30));
    assert_eq!(world.serving(), Vec::<usize>::new());
    world.replace_store(newest);
    world.run(seconds(30));
    assert_eq!(world.has(world.primary(), &keys), keys.len());
}

#[test]
fn f6_a_master_that_is_started_again_knows_its_log() {
    let (mut world, _) = settled(1, 20);
    let history = world.status(0).history;
    assert!(history.is_some());
    world.delete(world.keys.log());
    world.restart(0, history);
    world.run(seconds(20));
    assert_eq!(world.serving(), Vec::<usize>::new());
    // Without a history there is nothing to protect.
    world.restart(0, None);
    world.run(seconds(20));
    assert_eq!(world.serving(), [0]);
}

/// The bug on purpose is shown by the schedule of a master that is alone.
#[cfg(feature = "planted")]
#[test]
fn planted_a_rebuild_that_forgets_the_log_serves_an_empty_one() {
    use moonkeeper::planted::{Bug, plant};
    for (bug, serving) in [(None, vec![]), (Some(Bug::StartOverForgets), vec![0])] {
        plant(bug);
        let (mut world, keys) = settled(1, 20);
        world.delete(world.keys.log());
        world.run(seconds(20));
        assert_eq!((world.serving(), world.has(0, &keys)), (serving, 0), "{bug:?}");
        plant(None);
    }
}

/// F5: a client that joined in this term and falls silent is missed although the port was closed meanwhile.
#[cfg(feature = "planted")]
#[test]
fn planted_deadlines_that_are_forgotten_are_missed_by_a_silent_client() {
    use moonkeeper::engine::client::KnownClient;
    use moonkeeper::engine::types::{LogTime, Uuid};
    use moonkeeper::planted::{Bug, plant};
    use moonkeeper::replication::liveness::Liveness;
    let client = Uuid { first: 1, second: 1 };
    for (bug, silent) in [(None, vec![client]), (Some(Bug::ForgetJoined), vec![])] {
        plant(bug);
        let liveness = Liveness::new(1_000);
        liveness.heard(client, LogTime(0));
        liveness.pause(LogTime(100));
        liveness.resume([KnownClient { id: client, inherited: false }], LogTime(5_100), 180_000);
        assert!(liveness.take_silent(LogTime(6_000)).is_empty());
        assert_eq!(liveness.take_silent(LogTime(7_000)), silent, "{bug:?}");
        plant(None);
    }
}

#[test]
fn f8_a_standby_whose_watch_tells_nothing_knows_that_it_is_behind() {
    let (mut world, _) = settled(2, 5);
    let behind = standby(&world);
    assert_eq!(world.status(behind).lag, Some(0));
    assert!(world.status(behind).caught_up);
    world.processes[behind].deaf = true;
    for nth in 0..200 {
        world.change(&format!("key-{nth}"));
    }
    world.run(seconds(1));
    assert!(world.status(behind).lag.unwrap() >= 200, "{:?}", world.status(behind).lag);
    // A read of the log in the place of the silent watch lets it catch up.
    world.run(seconds(3));
    assert!(world.status(behind).lag.unwrap() < 10);
}

#[test]
fn f13_a_master_does_not_stand_under_a_newer_format() {
    let mut world = World::new(1);
    let key = world.keys.format();
    let value = Bytes::from_static(b"99");
    world.put(&[KeyValue { key, value, create_revision: 0, mod_revision: 0, version: 0, lease: LeaseId(0) }]);
    world.run(seconds(10));
    // It may have stood before the key was written.
    world.restart(0, None);
    world.run(seconds(10));
    assert_eq!(world.serving(), Vec::<usize>::new());
    let why = world.status(0).trouble.unwrap();
    assert!(why.contains("format 99"), "{why}");
}

#[test]
fn a_log_that_etcd_refuses_to_write_is_named_and_goes_on_when_it_is_accepted() {
    let (mut world, _) = settled(2, 5);
    let primary = world.primary();
    world.refused = Some("etcdserver: mvcc: database space exceeded");
    world.change("late");
    world.run(seconds(5));
    assert_eq!(world.serving(), [primary], "reads go on");
    let status = world.status(primary);
    assert!(status.refused.as_ref().is_some_and(|why| why.contains("space exceeded")), "{status:?}");
    assert!(world.processes[primary].node.incarnation().gate.is_log_full());
    // It cannot grant a lease for a hand-over either.
    world.switchover(primary, None);
    let why = world.processes[primary].handed_over.pop().unwrap().unwrap_err().to_string();
    assert!(why.contains("etcd refused") && why.contains("space exceeded"), "{why}");
    world.refused = None;
    world.run(seconds(2));
    assert_eq!(world.status(primary).refused, None);
    assert!(!world.processes[primary].node.incarnation().gate.is_log_full());
    assert_eq!(world.has(standby(&world), &["late".to_owned()]), 1);
}
