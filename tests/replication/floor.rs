//! The floor of the log: examples, and properties over random holdings that are checked without the function's own
//! reasoning.

use std::collections::BTreeSet;

use moonkeeper::cluster::log_end::LogId;
use moonkeeper::engine::types::SequenceId;
use moonkeeper::replication::floor::{FloorHeld, Holdings, Need, Place, SnapshotCopy, floor};
use proptest::prelude::*;

const LOG: LogId = LogId(7);

fn held(name: &str, last: u64) -> SnapshotCopy {
    SnapshotCopy {
        log: LOG,
        last: SequenceId(last),
        place: Place::Member { name: name.into(), durable: true },
    }
}

fn ephemeral(name: &str, last: u64) -> SnapshotCopy {
    SnapshotCopy { place: Place::Member { name: name.into(), durable: false }, ..held(name, last) }
}

fn shared(last: u64, proven: bool) -> SnapshotCopy {
    SnapshotCopy { place: Place::Shared { proven }, ..held("", last) }
}

fn need(member: &str, after: u64) -> Need {
    Need { member: member.into(), log: LOG, after: SequenceId(after) }
}

fn of(copies: &[SnapshotCopy], needs: &[Need], floor: u64) -> Holdings<'static> {
    let (copies, needs) = (copies.to_vec().leak(), needs.to_vec().leak());
    Holdings { log: LOG, floor: SequenceId(floor), copies, needs, members: &[], wanted: 2 }
}

/// Four snapshots of two members, each with two.
fn two_each() -> Vec<SnapshotCopy> {
    vec![held("a", 100), held("a", 60), held("b", 80), held("b", 40)]
}

#[test]
fn the_floor_is_the_older_of_two_snapshots_that_two_members_hold() {
    assert_eq!(floor(&of(&two_each(), &[], 0)), Ok(SequenceId(40)));
    // One and the same snapshot in two places, as when it was copied.
    let same = [held("a", 100), held("b", 100), held("a", 50), held("b", 50)];
    assert_eq!(floor(&of(&same, &[], 0)), Ok(SequenceId(50)));
    let third = [two_each(), vec![held("c", 90), held("c", 70)]].concat();
    assert_eq!(floor(&of(&third, &[], 0)), Ok(SequenceId(70)));
    assert_eq!(floor(&of(&third, &[], 70)), Err(FloorHeld::AtSnapshot));
}

#[test]
fn one_snapshot_is_not_enough_and_a_copy_held_once_is_none() {
    for (copies, kept) in [
        (vec![], 0),
        (vec![held("a", 100), held("a", 60)], 0),
        (vec![held("a", 100), held("b", 80)], 1),
        (vec![held("a", 100), held("a", 60), held("b", 80)], 1),
        // Of another log.
        (two_each().into_iter().map(|copy| SnapshotCopy { log: LogId(8), ..copy }).collect(), 0),
    ] {
        let held = FloorHeld::TooFewSnapshots { kept, wanted: 2 };
        assert_eq!(floor(&of(&copies, &[], 0)), Err(held), "{copies:?}");
    }
    let alone = [held("a", 100), held("a", 60)];
    assert_eq!(floor(&Holdings { wanted: 1, ..of(&alone, &[], 0) }), Ok(SequenceId(60)));
    // No setting makes a floor without a copy.
    assert!(floor(&Holdings { wanted: 0, ..of(&[], &[], 0) }).is_err());
}

#[test]
fn an_ephemeral_copy_moves_nothing_and_is_named() {
    let copies = [held("a", 100), held("a", 60), ephemeral("b", 80), ephemeral("b", 40)];
    assert_eq!(floor(&of(&copies, &[], 0)), Err(FloorHeld::Ephemeral));
}

#[test]
fn shared_storage_counts_when_a_second_member_has_read_it() {
    assert_eq!(floor(&of(&[shared(100, true), shared(60, true)], &[], 0)), Ok(SequenceId(60)));
    let unproven = [shared(100, true), shared(60, false)];
    assert_eq!(floor(&of(&unproven, &[], 0)), Err(FloorHeld::TooFewSnapshots { kept: 1, wanted: 2 }));
    let mixed = [shared(100, true), held("a", 60), held("b", 50)];
    assert_eq!(floor(&of(&mixed, &[], 0)), Ok(SequenceId(50)));
}

#[test]
fn a_need_stops_the_floor_and_is_named() {
    let copies = two_each();
    assert_eq!(floor(&of(&copies, &[need("c", 30)], 0)), Ok(SequenceId(30)));
    let stopped = FloorHeld::Needed { member: "c".into(), after: SequenceId(30) };
    assert_eq!(floor(&of(&copies, &[need("d", 35), need("c", 30)], 30)), Err(stopped));
    assert_eq!(floor(&of(&copies, &[need("c", 90)], 0)), Ok(SequenceId(40)));
    let other = Need { log: LogId(8), ..need("c", 1) };
    assert_eq!(floor(&of(&copies, &[other], 0)), Ok(SequenceId(40)));
}

#[test]
fn a_member_that_could_not_start_again_stops_the_floor_and_is_named() {
    let of = |copies: Vec<SnapshotCopy>, floor: u64| {
        let members = ["a", "b", "c"].map(str::to_owned).to_vec().leak();
        Holdings { members, ..of(&copies, &[], floor) }
    };
    let cannot = |older| FloorHeld::CannotStart { member: "c".into(), older: SequenceId(older) };
    assert_eq!(floor(&of(two_each(), 0)), Err(cannot(0)));
    // Its newest one may turn out to be damaged.
    assert_eq!(floor(&of([two_each(), vec![held("c", 90)]].concat(), 0)), Err(cannot(0)));
    let old = [two_each(), vec![held("c", 20), held("c", 10)]].concat();
    assert_eq!(floor(&of(old.clone(), 0)), Ok(SequenceId(10)));
    assert_eq!(floor(&of(old.clone(), 10)), Err(cannot(10)));
    // Its own copies have to outlive its machine; one in shared storage has to be proven.
    for other in [ephemeral("c", 90), shared(90, false)] {
        assert_eq!(floor(&of([old.clone(), vec![other]].concat(), 10)), Err(cannot(10)));
    }
    assert_eq!(floor(&of([old.clone(), vec![held("c", 90)]].concat(), 10)), Ok(SequenceId(20)));
    assert!(floor(&of([old.clone(), vec![shared(90, true)]].concat(), 10)).unwrap() >= SequenceId(40));
}

fn any_copy() -> impl Strategy<Value = SnapshotCopy> {
    let place = prop_oneof![
        4 => (0..4_u8, prop::bool::weighted(0.8)).prop_map(|(name, durable)| Place::Member { name: format!("m{name}"), durable }),
        1 => prop::bool::weighted(0.6).prop_map(|proven| Place::Shared { proven }),
    ];
    let log = prop_oneof![9 => Just(LOG), 1 => Just(LogId(8))];
    (log, 1..12_u64, place).prop_map(|(log, last, place)| SnapshotCopy { log, last: SequenceId(last), place })
}

fn any_need() -> impl Strategy<Value = Need> {
    let log = prop_oneof![9 => Just(LOG), 1 => Just(LogId(8))];
    (log, 0..4_u8, 0..12_u64).prop_map(|(log, member, after)| Need {
        member: format!("m{member}"),
        log,
        after: SequenceId(after),
    })
}

/// Whether enough copies of snapshots with these last records are left to start from: one in proven shared storage, or
/// durable ones of so many members.
fn is_covered(copies: &[SnapshotCopy], wanted: usize, records: impl Fn(u64) -> bool) -> bool {
    let of_range = || copies.iter().filter(|copy| copy.log == LOG && records(copy.last.0));
    let in_shared = of_range().any(|copy| copy.place == Place::Shared { proven: true });
    let members: BTreeSet<&str> = of_range()
        .filter_map(|copy| match &copy.place {
            Place::Member { name, durable: true } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    in_shared || members.len() >= wanted.max(1)
}

/// Whether batches up to this record may be deleted: there is a border such that the snapshots above it, and those from
/// the floor up to it, are each enough by themselves.
fn is_safe(copies: &[SnapshotCopy], needs: &[Need], wanted: usize, up_to: u64) -> bool {
    let needed = needs.iter().any(|need| need.log == LOG && need.after.0 < up_to);
    let split = |border: u64| {
        is_covered(copies, wanted, |last| last > border)
            && is_covered(copies, wanted, |last| (up_to..=border).contains(&last))
    };
    !needed && (up_to..12).any(split)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_floor_is_the_highest_safe_record(
        copies in prop::collection::vec(any_copy(), 0..10),
        needs in prop::collection::vec(any_need(), 0..3),
        written in 0..8_u64,
        wanted in 1..4_usize,
    ) {
        let holdings = Holdings { log: LOG, floor: SequenceId(written), copies: &copies, needs: &needs, members: &[], wanted };
        let highest = (written + 1..20).rev().find(|up_to| is_safe(&copies, &needs, wanted, *up_to));
        prop_assert_eq!(floor(&holdings).ok().map(|floor| floor.0), highest);
    }

    #[test]
    fn ephemeral_and_unproven_copies_change_nothing(
        copies in prop::collection::vec(any_copy(), 0..10),
        needs in prop::collection::vec(any_need(), 0..3),
        wanted in 1..4_usize,
    ) {
        let mut fewer = copies.clone();
        fewer.retain(|copy| !matches!(copy.place, Place::Member { durable: false, .. } | Place::Shared { proven: false }));
        let all = Holdings { log: LOG, floor: SequenceId(0), copies: &copies, needs: &needs, members: &[], wanted };
        prop_assert_eq!(floor(&all).ok(), floor(&Holdings { copies: &fewer, ..all }).ok());
    }

    #[test]
    fn another_copy_never_lowers_the_floor_and_another_need_never_raises_it(
        copies in prop::collection::vec(any_copy(), 0..10),
        needs in prop::collection::vec(any_need(), 0..3),
        copy in any_copy(),
        need in any_need(),
        wanted in 1..4_usize,
    ) {
        let before = Holdings { log: LOG, floor: SequenceId(0), copies: &copies, needs: &needs, members: &[], wanted };
        let more_copies = [copies.clone(), vec![copy]].concat();
        let more_needs = [needs.clone(), vec![need]].concat();
        let with_copy = floor(&Holdings { copies: &more_copies, ..before }).ok();
        let with_need = floor(&Holdings { needs: &more_needs, ..before }).ok();
        let before = floor(&before).ok();
        prop_assert!(with_copy >= before && with_need <= before, "{with_copy:?} {before:?} {with_need:?}");
    }
}
