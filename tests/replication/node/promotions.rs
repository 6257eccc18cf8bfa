//! Promotions that take long, fail or are not needed, and what a node reports of them; and watches that etcd refuses.

use moonkeeper::coordination::types::Request;
use moonkeeper::replication::node::Input;

use super::world::{World, seconds};
use super::{settled, standby};

/// Two masters after a switchover from the first to the second, which another process keeps from its port: the first waits
/// for it, because it was named, and leads again.
fn handed_over_in_vain() -> (World, usize, usize) {
    let (mut world, _) = settled(2, 5);
    let (from, to) = (world.primary(), standby(&world));
    world.processes[to].cannot_open = true;
    world.switchover(from, Some(&format!("m{to}")));
    world.run(seconds(4));
    assert_eq!(world.serving(), [from]);
    (world, from, to)
}

#[test]
fn a_master_that_cannot_open_its_port_leaves_the_lead_to_others() {
    let (mut world, from, to) = handed_over_in_vain();
    world.processes[from].ended = true;
    // The key of a process outlives it by up to ten seconds.
    world.run(seconds(8));
    let elected = world.processes[to].not_opened;
    assert!((1..5).contains(&elected), "elected {elected} times in 12 s without a port");
    world.processes[to].cannot_open = false;
    world.run(seconds(10));
    assert_eq!(world.serving(), [to]);
}

/// There is no other master that it could keep from the lead.
#[test]
fn a_lone_master_that_cannot_open_its_port_tries_each_second() {
    let mut world = World::new(1);
    world.processes[0].cannot_open = true;
    let revoke = Request::LeaseRevoke { lease: world.leader_lease() };
    world.carry_out(&revoke).unwrap();
    world.run(seconds(12));
    let tried = world.processes[0].not_opened;
    assert!((7..14).contains(&tried), "tried {tried} times in 12 s");
    world.processes[0].cannot_open = false;
    world.run(seconds(2));
    assert_eq!(world.serving(), [0]);
}

/// The transaction that creates the election key is under way when the process is told to end: it arrives before the end of
/// the lease, or after it.
#[test]
fn f7_a_stop_in_an_election_leaves_no_key() {
    for late in [false, true] {
        let (mut world, _) = settled(2, 5);
        let (first, candidate) = (world.primary(), standby(&world));
        world.holds_elections = true;
        world.processes[first].ended = true;
        let revoke = Request::LeaseRevoke { lease: world.leader_lease() };
        world.carry_out(&revoke).unwrap();
        world.run(seconds(1));
        let election = world.held_elections.pop().expect("no candidate");
        if !late {
            world.carry_out(&election).unwrap();
            assert!(world.has_leader());
        }
        world.input(candidate, Input::Stop);
        assert!(world.processes[candidate].ended);
        if late {
            assert!(world.carry_out(&election).is_err(), "the lease has ended");
        }
        assert!(!world.has_leader(), "late: {late}");
    }
}

/// What a hand-over that was given up has left on another thread is not taken for the work of the next one.
#[test]
fn leases_of_a_handover_that_was_given_up_do_not_close_the_port() {
    let (mut world, _) = settled(2, 5);
    let (from, to) = (world.primary(), standby(&world));
    world.holds_flushes = true;
    world.switchover(from, None);
    world.run(seconds(11));
    assert!(world.processes[from].handed_over[0].is_err());
    world.switchover(from, None);
    let [old, new] = world.held_flushes[..] else { panic!("{:?}", world.held_flushes) };
    let flushed = |flush| Input::LeasesFlushed { flush, written: 0, complete: true };
    world.input(from, flushed(old));
    assert!(world.processes[from].open.is_some(), "the port was closed before the leases were written");
    world.holds_flushes = false;
    world.input(from, flushed(new));
    world.run(seconds(2));
    assert_eq!(world.serving(), [to]);
}

/// A target that stalls while the live leases of millions of reads are written is noticed before clients have to wait.
#[test]
fn the_port_stays_open_until_the_target_has_applied_the_leases_that_were_written() {
    let (mut world, _) = settled(2, 5);
    let (from, to) = (world.primary(), standby(&world));
    world.holds_flushes = true;
    world.switchover(from, None);
    world.processes[to].stopped = true;
    // The primary writes a record each second.
    world.run(seconds(2));
    let flush = world.held_flushes.pop().expect("no leases are written");
    world.input(from, Input::LeasesFlushed { flush, written: 0, complete: true });
    world.run(seconds(2));
    assert!(world.processes[from].open.is_some(), "the port was closed before the target had everything");
    world.run(seconds(2));
    let given_up = world.processes[from].handed_over.pop().expect("the hand-over goes on").unwrap_err();
    assert!(given_up.to_string().contains("did not catch up"), "{given_up}");
    assert_eq!(world.primary(), from);
    assert!(world.processes[from].open.is_some());
    // And with a target that goes on, the port closes.
    world.processes[to].stopped = false;
    world.holds_flushes = false;
    world.run(seconds(3));
    world.switchover(from, None);
    world.run(seconds(2));
    assert_eq!(world.serving(), [to]);
}

#[test]
fn f16_the_time_without_a_primary_is_not_the_time_of_the_promotion() {
    let (world, from, _) = handed_over_in_vain();
    let promotion = world.status(from).promotion.unwrap();
    assert!(promotion.total >= seconds(2) && promotion.took < seconds(1), "{promotion:?}");
}

#[test]
fn f16_a_handover_that_is_given_up_is_no_promotion() {
    let (mut world, _) = settled(2, 5);
    let (from, to) = (world.primary(), standby(&world));
    let before = world.status(from).promotion;
    world.switchover(from, Some(&format!("m{to}")));
    world.processes[to].stopped = true;
    world.run(seconds(12));
    assert_eq!(world.primary(), from);
    assert!(world.processes[from].handed_over[0].is_err());
    assert_eq!(world.status(from).promotion, before, "nothing was promoted");
}

#[test]
fn f16_a_watch_that_etcd_refuses_is_no_loop_of_reads() {
    let (mut world, _) = settled(2, 5);
    let standby = standby(&world);
    world.processes[standby].watch_refused = true;
    world.break_watches(standby);
    world.run(seconds(10));
    let begun = world.processes[standby].watches_begun;
    assert!((20..=120).contains(&begun), "{begun} watches of the log in 10 s");
    world.processes[standby].watch_refused = false;
    world.change("after");
    world.run(seconds(2));
    assert_eq!(world.digests().len(), 1);
}
