//! Snapshots: those in the status, the condition `SnapshotFresh`, and requests.

use moonkeeper::operator::plan::snapshot::Candidate;

use super::*;

/// Changes what the member in this pod says.
fn say(observed: &mut Observation, ordinal: u8, what: impl FnOnce(&mut MemberValue)) {
    change(observed, |view| what(view.members.get_mut(&pod_name(ordinal)).unwrap().value.as_mut().unwrap()));
}

fn fresh(observed: &Observation) -> (String, String, String) {
    condition(&pass(&plain(), observed).1, "SnapshotFresh")
}

#[test]
fn the_status_lists_snapshots_with_their_holders() {
    let mut seen = healthy(0, 10);
    say(&mut seen, 1, |said| said.snapshots.insert(0, held(900)));
    say(&mut seen, 2, |said| {
        said.snapshots[0].taken_at_ms -= 5000;
        said.snapshots.push(HeldSnapshot { log: "another".to_owned(), ..held(7) });
    });
    seen.status.oplog =
        Some(moonkeeper::api::OplogStatus { durable_prefix: None, log_id: Some("log".to_owned()) });
    let (_, after) = pass(&plain(), &seen);
    let entry = |id: &str, sequence_id, holders: &[u8], earlier| SnapshotEntry {
        id: id.to_owned(),
        sequence_id,
        bytes: 12 << 20,
        holders: holders.iter().map(|ordinal| pod_name(*ordinal)).collect(),
        at: Some(Time(now() - SignedDuration::from_secs(earlier))),
    };
    assert_eq!(after.status.snapshots, [entry("s-900", 900, &[1], 0), entry("s-800", 800, &[0, 1, 2], 5)]);
    // What is unknown stays as it was.
    let lost = Observation { etcd: EtcdKeys::Lost { why: "away".to_owned() }, ..after.clone() };
    assert_eq!(pass(&plain(), &lost).1.status.snapshots, after.status.snapshots);
}

#[test]
fn changes_that_no_snapshot_has_for_three_intervals_are_too_old() {
    let with = |age: [Option<u64>; 3]| {
        let mut seen = healthy(0, 10);
        for (ordinal, age) in (0..3).zip(age) {
            say(&mut seen, ordinal, |said| said.unsaved_ms = age);
        }
        let (value, reason, _) = fresh(&seen);
        (value, reason)
    };
    let minutes = |minutes: u64| Some(minutes * 60_000);
    let said = |value: &str, reason: &str| (value.to_owned(), reason.to_owned());
    // One master with a fresh snapshot is enough: the primary takes none.
    assert_eq!(with([minutes(500), minutes(30), None]), said("True", "Fresh"));
    assert_eq!(with([minutes(500), minutes(31), minutes(40)]), said("False", "TooOld"));
    assert_eq!(with([None; 3]), said("False", "NoDirectory"));
    // A standby that is behind does not know of the newest changes.
    let mut seen = healthy(0, 10);
    say(&mut seen, 0, |said| said.unsaved_ms = minutes(40));
    for ordinal in [1, 2] {
        say(&mut seen, ordinal, |said| said.caught_up = false);
    }
    assert_eq!(fresh(&seen).1, "TooOld");
    // Events follow the condition, and it does not change whether the cluster is ready.
    let (_, before) = pass(&plain(), &healthy(0, 10));
    let (_, after) = pass(&plain(), &Observation { status: before.status.clone(), ..seen });
    let events: Vec<&str> = happenings(&before.status, &after.status).iter().map(|it| it.reason).collect();
    assert!(events.contains(&"SnapshotsTooOld"), "{events:?}");
    assert_eq!(condition(&after, "Available").0, "True");
}

#[test]
fn why_no_snapshot_is_taken_is_in_the_message() {
    let mut seen = healthy(0, 10);
    say(&mut seen, 1, |said| said.snapshot_error = Some("no space left on device".to_owned()));
    let (value, _, message) = fresh(&seen);
    assert!(
        value == "True" && message.ends_with("demo-1 cannot take any: no space left on device"),
        "{message}"
    );
    for ordinal in 0..3 {
        say(&mut seen, ordinal, |said| said.unsaved_ms = Some(3_600_000));
    }
    let (value, reason, message) = fresh(&seen);
    assert_eq!((value.as_str(), reason.as_str()), ("False", "Failing"));
    assert!(message.contains("older than 1800 s") && message.contains("no space left"), "{message}");
    for ordinal in 0..3 {
        say(&mut seen, ordinal, |said| {
            said.snapshots.clear();
            (said.unsaved_ms, said.snapshot_error) = (Some(5), None);
        });
    }
    assert_eq!(fresh(&seen).1, "NoneYet");
    seen.etcd = EtcdKeys::Lost { why: "away".to_owned() };
    assert_eq!((fresh(&seen).0, fresh(&seen).1), ("Unknown".to_owned(), "EtcdUnknown".to_owned()));
}

/// A settled cluster in which a snapshot was asked for, and the pass that recorded it.
fn asked(observed: Observation) -> Observation {
    let seen = Observation { snapshot_request: Some("a".to_owned()), ..observed };
    let (plan, seen) = pass(&plain(), &seen);
    assert_eq!(plan.act, None, "it is recorded first");
    assert_eq!(report(&seen).result, SnapshotResult::Pending);
    seen
}

fn report(observed: &Observation) -> SnapshotReport {
    observed.status.last_snapshot.clone().unwrap()
}

fn answered(observed: &Observation, answer: Result<SnapshotBegun, CallError>) -> Observation {
    Observation { snapshot: Call::Done("a".to_owned(), answer), ..observed.clone() }
}

#[test]
fn standbys_are_asked_before_the_primary() {
    let mut seen = healthy(0, 10);
    for (ordinal, applied) in [(0, 9), (1, 7), (2, 8)] {
        say(&mut seen, ordinal, |said| said.applied = applied);
    }
    let (plan, _) = pass(&plain(), &asked(seen.clone()));
    let candidate = |ordinal: u8| Candidate { name: pod_name(ordinal), address: addresses(ordinal).admin };
    let expected = Act::TakeSnapshot {
        request_id: "a".to_owned(),
        candidates: vec![candidate(2), candidate(1), candidate(0)],
    };
    assert_eq!(plan.act, Some(expected));
    // One that is behind is not asked.
    say(&mut seen, 2, |said| said.caught_up = false);
    let Some(Act::TakeSnapshot { candidates, .. }) = pass(&plain(), &asked(seen)).0.act else { panic!() };
    assert_eq!(candidates, [candidate(1), candidate(0)]);
}

#[test]
fn a_snapshot_that_is_answered_early_counts_when_a_member_lists_it() {
    let seen = asked(healthy(0, 10));
    let begun = SnapshotBegun { member: pod_name(1), sequence_id: 850, complete: false };
    let (plan, seen) = pass(&plain(), &answered(&seen, Ok(begun)));
    assert_eq!((plan.act, report(&seen).sequence_id), (None, Some(850)));
    let (plan, seen) = pass(&plain(), &seen);
    assert!(plan.waits.iter().any(|what| what.contains("demo-1 to complete a snapshot up to record 850")));
    // An operator that was restarted knows of no call.
    let mut seen = Observation { snapshot: Call::Idle, ..seen };
    say(&mut seen, 2, |said| said.snapshots.insert(0, held(870)));
    seen = pass(&plain(), &seen).1;
    assert_eq!(report(&seen).result, SnapshotResult::Pending, "another member took that one");
    say(&mut seen, 1, |said| said.snapshots.insert(0, held(860)));
    let before = seen.clone();
    seen = pass(&plain(), &seen).1;
    assert_eq!((report(&seen).result, report(&seen).sequence_id), (SnapshotResult::Succeeded, Some(860)));
    let events = happenings(&before.status, &seen.status);
    assert!(events.iter().any(|it| it.reason == "SnapshotTaken" && !it.warning), "{events:?}");
    // The same value asks for nothing more, another one does.
    assert_eq!(pass(&plain(), &seen).0.act, None);
    seen.snapshot_request = Some("b".to_owned());
    assert_eq!(report(&pass(&plain(), &seen).1).request_id, "b");
}

#[test]
fn requests_end() {
    let seen = asked(healthy(0, 10));
    // At once.
    let taken = SnapshotBegun { member: pod_name(2), sequence_id: 900, complete: true };
    let done = pass(&plain(), &answered(&seen, Ok(taken))).1;
    assert_eq!((report(&done).result, report(&done).sequence_id), (SnapshotResult::Succeeded, Some(900)));
    // A refusal is tried again for a while.
    let refused = answered(&seen, Err(CallError::NoAnswer("disk full".to_owned())));
    assert!(matches!(pass(&plain(), &refused).0.act, Some(Act::TakeSnapshot { .. })));
    let late = Observation { now: now() + SignedDuration::from_secs(61), ..refused };
    let failed = report(&pass(&plain(), &late).1);
    assert_eq!((failed.result, failed.message.as_deref()), (SnapshotResult::Failed, Some("disk full")));
    // Taken back, and a cluster that is suspended.
    let gone = Observation { snapshot_request: None, ..seen.clone() };
    assert!(report(&pass(&plain(), &gone).1).message.unwrap().starts_with("withdrawn"));
    let suspended = spec(3, Switchover::default(), true, false);
    assert!(report(&pass(&suspended, &seen).1).message.unwrap().starts_with("withdrawn"));
    // Begun and never complete.
    let begun = SnapshotBegun { member: pod_name(1), sequence_id: 850, complete: false };
    let begun = pass(&plain(), &answered(&seen, Ok(begun))).1;
    let late = Observation { now: now() + SignedDuration::from_secs(601), ..begun };
    assert_eq!(report(&pass(&plain(), &late).1).result, SnapshotResult::Failed);
}

#[test]
fn a_snapshot_waits_for_a_switchover_and_for_a_primary() {
    let asks = spec(3, Switchover { request_id: "s".into(), target: String::new() }, false, false);
    let seen = asked(healthy(0, 10));
    let (plan, seen) = pass(&asks, &seen);
    assert_eq!(plan.act, None, "the switchover is recorded in this pass");
    let (plan, _) = pass(&asks, &seen);
    assert!(matches!(plan.act, Some(Act::Switchover { .. })));
    assert!(
        plan.waits.iter().any(|what| what.contains("switchover to end before a snapshot")),
        "{:?}",
        plan.waits
    );
    let mut seen = asked(healthy(0, 10));
    change(&mut seen, |view| view.leader = None);
    let (plan, _) = pass(&plain(), &seen);
    assert_eq!(plan.act, None);
    assert!(plan.waits.iter().any(|what| what.contains("a primary before")), "{:?}", plan.waits);
}
