//! How long a new primary holds what the old one may have promised to readers (R6), and what a witness changes.

use moonkeeper::cluster::member::BootId;
use moonkeeper::coordination::types::Request;
use moonkeeper::replication::node::Input;

use super::settled;
use super::world::{World, seconds};

/// The primary's process is gone, and its lease was revoked. Returns the one that leads after it, and how long it holds
/// what readers may have been promised, in milliseconds from its first record on.
pub fn takeover_after(world: &mut World, before: impl FnOnce(&mut World, BootId)) -> (usize, u64) {
    let dead = world.primary();
    let boot_id = world.processes[dead].boot_id;
    world.processes[dead].ended = true;
    before(world, boot_id);
    world.run(seconds(1));
    let revoke = Request::LeaseRevoke { lease: world.leader_lease() };
    world.model.call(std::time::Duration::from_micros(world.now), &revoke).unwrap();
    world.run(seconds(2));
    let primary = world.primary();
    let term_state = world.processes[primary].node.incarnation().engine.term_state();
    (primary, term_state.hold_until.0 - term_state.since.0)
}

/// A leader lease and a read lease, with the settings of these worlds.
const WITHOUT_WITNESS: std::ops::RangeInclusive<u64> = 14_900..=15_001;

#[test]
fn a_witness_shortens_the_wait_for_the_readers_of_its_process() {
    let (mut world, _) = settled(3, 5);
    let (_, hold) = takeover_after(&mut world, |_, _| ());
    assert!(WITHOUT_WITNESS.contains(&hold), "{hold}");
    let (mut world, _) = settled(3, 5);
    let (_, hold) = takeover_after(&mut world, |world, boot_id| {
        for index in 0..3 {
            world.input(index, Input::ProcessEnded { boot_id });
        }
    });
    // The report arrived a second before: only what is left of the read lease since then is waited for.
    assert!((8_900..=9_000).contains(&hold), "{hold}");
}

#[test]
fn a_report_about_another_process_is_not_believed() {
    let (mut world, _) = settled(3, 5);
    let (_, hold) = takeover_after(&mut world, |world, dead| {
        for index in 0..3 {
            let own = world.processes[index].boot_id;
            // About no process, the receiver itself, a live standby and one that no master knows.
            let others = (0..5).map(BootId).chain([BootId(99), own]).filter(|boot_id| *boot_id != dead);
            for boot_id in others {
                world.input(index, Input::ProcessEnded { boot_id });
            }
        }
    });
    assert!(WITHOUT_WITNESS.contains(&hold), "{hold}");
}

/// A second crash within the hold: what the first primary promised is still waited for.
#[test]
fn a_witness_does_not_shorten_the_hold_of_an_earlier_term() {
    let (mut world, _) = settled(3, 5);
    let (second, hold) = takeover_after(&mut world, |_, _| ());
    assert!(WITHOUT_WITNESS.contains(&hold), "{hold}");
    let first_hold = world.processes[second].node.incarnation().engine.hold_until();
    let (third, _) = takeover_after(&mut world, |world, boot_id| {
        for index in 0..3 {
            world.input(index, Input::ProcessEnded { boot_id });
        }
    });
    let engine = &world.processes[third].node.incarnation().engine;
    assert!(engine.hold_until() >= first_hold, "{:?} before {first_hold:?}", engine.hold_until());
}

/// A report alone changes nothing: the process may be reported by mistake, and leads on.
#[test]
fn a_report_revokes_nothing() {
    let (mut world, _) = settled(3, 5);
    let primary = world.primary();
    let (boot_id, term) = (world.processes[primary].boot_id, world.status(primary).term);
    for index in 0..3 {
        world.input(index, Input::ProcessEnded { boot_id });
    }
    world.run(seconds(10));
    assert_eq!((world.primary(), world.status(primary).term), (primary, term));
}
