//! Which standby a hand-over is for, and what happens when that one goes meanwhile.

use moonkeeper::replication::node::{HandoverError, Input};

use super::world::{World, seconds};
use super::{settled, standby};

/// A process ends, and the primary notices the end of its connections.
fn disconnect(world: &mut World, gone: usize) {
    let boot_id = world.processes[gone].boot_id;
    world.processes[gone].stopped = true;
    for index in 0..world.processes.len() {
        world.input(index, Input::PeerGone { name: format!("m{gone}"), boot_id });
    }
}

/// The live leases of the hand-over under way are written.
fn written(world: &mut World, primary: usize) {
    world.holds_flushes = false;
    let flush = world.held_flushes.pop().expect("no leases are written");
    world.input(primary, Input::LeasesFlushed { flush, written: 0, complete: true });
}

#[test]
fn f7_a_standby_that_is_gone_is_no_target() {
    let (mut world, keys) = settled(3, 20);
    let from = world.primary();
    let gone = standby(&world);
    world.processes[gone].stopped = true;
    world.run(seconds(3));
    world.switchover(from, Some(&format!("m{gone}")));
    assert!(matches!(world.processes[from].handed_over.pop(), Some(Err(HandoverError::BadTarget(_)))));
    // Without a name the other one is taken, and so it is when the process ends.
    world.input(from, Input::Stop);
    world.run(seconds(1));
    let primary = world.primary();
    assert!(primary != from && primary != gone);
    assert_eq!(world.has(primary, &keys), keys.len());
    assert!(world.processes[from].ended);
}

#[test]
fn f7_a_peer_that_disconnects_is_no_target() {
    let (mut world, _) = settled(2, 5);
    let from = world.primary();
    let gone = standby(&world);
    disconnect(&mut world, gone);
    world.switchover(from, None);
    assert!(matches!(world.processes[from].handed_over.pop(), Some(Err(HandoverError::NoTarget))));
    assert_eq!(world.serving(), [from]);
}

#[test]
fn a_target_that_goes_before_the_port_closes_costs_clients_nothing() {
    let (mut world, _) = settled(2, 5);
    let (from, gone) = (world.primary(), standby(&world));
    world.holds_flushes = true;
    world.switchover(from, None);
    disconnect(&mut world, gone);
    written(&mut world, from);
    let given_up = world.processes[from].handed_over.pop().expect("the hand-over goes on").unwrap_err();
    assert!(given_up.to_string().contains("no other standby"), "{given_up}");
    world.run(seconds(1));
    assert_eq!((world.serving(), world.processes[from].closed), (vec![from], 0));
}

#[test]
fn a_target_that_goes_before_the_port_closes_is_replaced_by_one_that_has_everything() {
    let (mut world, keys) = settled(3, 20);
    let (from, gone) = (world.primary(), standby(&world));
    let other = 3 - from - gone;
    world.holds_flushes = true;
    world.switchover(from, Some(&format!("m{gone}")));
    // It does not apply the digest that the primary logs meanwhile.
    world.processes[other].stopped = true;
    world.run(std::time::Duration::from_millis(1_200));
    disconnect(&mut world, gone);
    written(&mut world, from);
    world.run(std::time::Duration::from_millis(200));
    assert_eq!(world.processes[from].closed, 0, "clients wait for a target that is behind");
    world.processes[other].stopped = false;
    world.run(seconds(1));
    assert_eq!(world.primary(), other);
    assert_eq!(world.processes[from].handed_over.pop().unwrap().unwrap().to, format!("m{other}"));
    assert_eq!(world.has(other, &keys), keys.len());
}

/// The target goes, and the process is told to end: there is nobody to name, and the caller is told.
#[test]
fn a_switchover_that_ends_with_the_process_is_answered() {
    let (mut world, _) = settled(2, 5);
    let (from, gone) = (world.primary(), standby(&world));
    world.holds_flushes = true;
    world.switchover(from, None);
    disconnect(&mut world, gone);
    world.input(from, Input::Stop);
    written(&mut world, from);
    world.run(seconds(1));
    assert!(world.processes[from].ended && !world.has_leader());
    let [Err(HandoverError::Deposed(why))] = &world.processes[from].handed_over[..] else {
        panic!("{:?}", world.processes[from].handed_over)
    };
    assert!(why.contains("stopped"), "{why}");
}
