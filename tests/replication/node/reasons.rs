//! Why a new primary says that it took over: whether the lease of the one before ran out, or its process was found dead.

use moonkeeper::cluster::promotion::PromotionReason;
use moonkeeper::coordination::types::Request;
use moonkeeper::replication::node::Input;

use super::settled;
use super::world::{World, seconds};

/// Longer than a leader lease.
const OUTAGE: u64 = 8;

/// An outage of etcd, in which the process of `gone` ends.
fn outage(world: &mut World, gone: Option<usize>) {
    world.etcd_stopped = true;
    world.run(seconds(OUTAGE));
    if let Some(index) = gone {
        world.processes[index].ended = true;
    }
    world.etcd_stopped = false;
    world.run(seconds(3));
}

fn reason(world: &World) -> PromotionReason {
    world.status(world.primary()).promotion.unwrap().reason
}

#[test]
fn a_primary_that_leads_again_after_an_outage_of_etcd_has_not_died() {
    let (mut world, _) = settled(1, 5);
    let term = world.status(0).term;
    outage(&mut world, None);
    assert!(world.status(0).term > term);
    assert_eq!(reason(&world), PromotionReason::LeaseEnded);
}

/// The last batch before an outage of etcd is told to the standbys after it.
#[test]
fn a_batch_that_is_told_after_an_outage_of_etcd_is_an_old_one() {
    let (mut world, _) = settled(3, 5);
    let old = world.primary();
    for index in 0..3 {
        world.processes[index].deaf = index != old;
    }
    world.change("last");
    world.run(seconds(1));
    // From here on nothing is told because etcd is away.
    world.etcd_stopped = true;
    world.processes.iter_mut().for_each(|process| process.deaf = false);
    outage(&mut world, Some(old));
    assert_ne!(world.primary(), old);
    assert_eq!(reason(&world), PromotionReason::LeaseEnded);
}

/// A standby finds the primary dead, and another standby is elected.
#[test]
fn a_process_that_was_found_dead_long_ago_is_not_the_one_that_led_last() {
    let (mut world, _) = settled(3, 5);
    let first = world.primary();
    let (boot_id, lease) = (world.processes[first].boot_id, world.leader_lease());
    world.processes[first].ended = true;
    for index in (0..3).filter(|index| *index != first) {
        world.input(index, Input::PeerDead { boot_id, lease });
    }
    world.run(seconds(3));
    assert_eq!(reason(&world), PromotionReason::ProcessDied);
    let second = world.primary();
    outage(&mut world, Some(second));
    assert_ne!(world.primary(), second);
    assert_eq!(reason(&world), PromotionReason::LeaseEnded);
}

#[test]
fn a_lease_that_was_revoked_right_after_a_batch_was_that_of_a_dead_process() {
    let (mut world, _) = settled(3, 5);
    let old = world.primary();
    world.processes[old].ended = true;
    let revoke = Request::LeaseRevoke { lease: world.leader_lease() };
    world.model.call(std::time::Duration::from_micros(world.now), &revoke).unwrap();
    world.run(seconds(2));
    assert_eq!(reason(&world), PromotionReason::ProcessDied);
}
