//! A state that is not what the log says: it is in doubt until it was rebuilt, however often that happens in a term, and
//! a primary that was wrong keeps no standby from the lead.

use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::types::{Digest, LogTime, SequenceId};
use moonkeeper::replication::node::Input;
use moonkeeper::replication::time::Monotonic;

use super::world::{World, seconds};
use super::{settled, standby};

#[test]
fn f2_a_standby_whose_state_differs_is_no_candidate_until_it_is_rebuilt() {
    let (mut world, keys) = settled(2, 20);
    let (primary, differs) = (world.primary(), standby(&world));
    // A change that is in no log reaches the state of the standby.
    let engine = std::sync::Arc::clone(&world.processes[differs].node.incarnation().engine);
    let mut sequencer = engine.sequencer(moonkeeper::engine::types::LogTime(0));
    sequencer.put_metadata(b"phantom", b"value", |_, _, _| Ok::<_, ()>(())).unwrap();
    drop(sequencer);
    world.change("next");
    world.run(seconds(3));
    assert_eq!(world.status(differs).rebuilds, 1);
    assert_eq!(world.digests().len(), 1);
    assert_eq!(world.has(differs, &["phantom".to_owned()]), 0);
    assert_eq!(world.has(differs, &keys), keys.len());
    assert!(world.status(differs).caught_up);
    world.switchover(primary, None);
    world.run(seconds(1));
    assert_eq!(world.primary(), differs);
}

/// The primary logs a digest that its state does not have.
pub(super) fn log_wrong_digest(world: &mut World) {
    let primary = world.primary();
    let (incarnation, clock) = world.processes[primary].open.clone().unwrap();
    let now = clock.at(Monotonic(world.now));
    incarnation.engine.sequencer(now).commit(&Record::Digest { digest: Digest(0xbad) });
    let _ = incarnation.engine.take_divergence();
    world.input(primary, Input::Queued);
}

#[test]
fn f3_a_wrong_digest_in_the_log_bars_no_master() {
    let (mut world, keys) = settled(2, 20);
    log_wrong_digest(&mut world);
    world.run(seconds(4));
    let differs = standby(&world);
    let status = world.status(differs);
    assert_eq!(status.rebuilds, 1, "a live mismatch is acted on");
    assert!(status.against.is_some(), "what the log says is right, so the primary was wrong");
    assert!(status.caught_up && status.trouble.is_none(), "{status:?}");
    // A rolling restart: every master reads the wrong digest again.
    for round in 0..2 {
        let standby = standby(&world);
        world.restart(standby, None);
        world.run(seconds(15));
        let primary = world.primary();
        world.switchover(primary, None);
        world.run(seconds(2));
        assert_eq!(world.has(world.primary(), &keys), keys.len(), "round {round}");
    }
    for index in 0..2 {
        world.restart(index, None);
    }
    world.run(seconds(15));
    assert_eq!(world.has(world.primary(), &keys), keys.len());
}

#[test]
fn f3_a_primary_against_whom_two_standbys_agree_steps_down() {
    let (mut world, keys) = settled(3, 20);
    let wrong = world.primary();
    log_wrong_digest(&mut world);
    world.run(seconds(12));
    let primary = world.primary();
    assert_ne!(primary, wrong);
    assert_eq!(world.has(primary, &keys), keys.len());
    world.run(seconds(6));
    assert_eq!(world.digests().len(), 1);
    assert!((0..3).all(|index| world.status(index).caught_up));
}

/// A record that is not the next one reaches the state of a standby, and leaves it in doubt.
fn confuse(world: &World, standby: usize) {
    let mut sequencer = world.processes[standby].node.incarnation().engine.sequencer(LogTime(0));
    let (never, now) = (SequenceId(sequencer.next_id().0 + 5), sequencer.now);
    sequencer.apply(Format::NEWEST, never, now, &Record::Digest { digest: Digest(1) });
}

#[test]
fn a_state_that_is_in_doubt_twice_in_one_term_is_rebuilt_twice() {
    let (mut world, keys) = settled(2, 20);
    let (primary, differs) = (world.primary(), standby(&world));
    let term = world.status(primary).term;
    for rebuilds in 1..=2 {
        confuse(&world, differs);
        world.run(seconds(2));
        let status = world.status(differs);
        if rebuilds == 2 {
            assert!(!status.caught_up, "it is a candidate with a state in doubt: {status:?}");
            // Not at once: a doubt that comes back by itself is no loop of reads.
            assert_eq!(status.rebuilds, 1);
            world.run(seconds(10));
        }
        let status = world.status(differs);
        assert_eq!(status.rebuilds, rebuilds);
        assert!(status.caught_up && status.against.is_none(), "{status:?}");
        assert_eq!(world.digests().len(), 1);
    }
    assert_eq!(world.status(primary).term, term);
    assert_eq!(world.has(differs, &keys), keys.len());
}

/// Without a primary the only candidate does not wait.
#[test]
fn a_state_in_doubt_is_rebuilt_at_once_when_no_primary_leads() {
    let (mut world, keys) = settled(2, 20);
    let (primary, differs) = (world.primary(), standby(&world));
    confuse(&world, differs);
    world.run(seconds(2));
    confuse(&world, differs);
    world.run(seconds(1));
    assert!(world.status(differs).trouble.is_some());
    world.processes[primary].ended = true;
    world.run(seconds(6));
    assert_eq!(world.primary(), differs);
    assert_eq!(world.has(differs, &keys), keys.len());
}

#[test]
fn a_primary_that_goes_on_with_wrong_digests_keeps_no_standby_from_the_lead() {
    let (mut world, _) = settled(2, 20);
    let (primary, differs) = (world.primary(), standby(&world));
    for _ in 0..15 {
        log_wrong_digest(&mut world);
        world.run(seconds(1));
    }
    let status = world.status(differs);
    assert_eq!(status.rebuilds, 1, "{status:?}");
    assert!(status.caught_up && status.against.is_some(), "{status:?}");
    world.processes[primary].ended = true;
    world.run(seconds(8));
    assert_eq!(world.primary(), differs);
}
