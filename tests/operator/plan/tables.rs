//! Sequences of passes, each checked step by step: a settled cluster, switchovers, failovers, fewer masters, a standby
//! that does not run.

use moonkeeper::operator::observation::PodTrouble;
use moonkeeper::operator::report::events::Happening;

use super::*;

#[test]
fn a_settled_cluster_needs_nothing() {
    let (_, settled) = pass(&plain(), &healthy(0, 10));
    let (plan, after) = pass(&plain(), &settled);
    assert_eq!((plan.labels.len(), plan.chores.len(), plan.act, plan.again), (0, 0, None, None));
    assert!(!is_news(&settled.status, &after.status));
    let conditions: Vec<(&str, &str)> =
        after.status.conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
    assert_eq!(
        conditions,
        [
            ("Ready", "True"),
            ("Available", "True"),
            ("Redundant", "True"),
            ("Progressing", "False"),
            ("Stalled", "False"),
            ("EtcdHealthy", "True"),
            ("SnapshotFresh", "True"),
            ("UpToDate", "True")
        ]
    );
}

/// What fails and may pass by itself keeps a cluster waiting; what needs somebody stops it.
#[test]
fn a_failure_before_the_first_primary_is_pending_or_stalled() {
    let mut seen = healthy(0, 10);
    change(&mut seen, |view| *view = ClusterView::default());
    let plan = plan(NAME, &plain(), &seen);
    for (stalled, phase) in [(false, Phase::Pending), (true, Phase::Stalled)] {
        let failure = Failure { reason: "ApplyFailed", message: "not now".to_owned(), stalled };
        let applied = Applied { failure: Some(failure), ..Applied::default() };
        let after = status(NAME, &plain(), &seen, &plan, &applied);
        assert_eq!(after.phase, Some(phase));
        let ready = after.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        assert_eq!(ready.status, "False");
    }
}

/// The same cluster with another primary.
fn led_by(observed: &Observation, leader: u8, term: u64) -> Observation {
    let next = healthy(leader, term);
    Observation { etcd: next.etcd, pods: next.pods, now: observed.now, ..observed.clone() }
}

/// The same cluster without a primary.
fn without_primary(observed: &Observation) -> Observation {
    let mut seen = observed.clone();
    change(&mut seen, |view| {
        view.leader = None;
        view.serving = None;
    });
    seen
}

fn asks_for(request_id: &str, target: &str) -> MasterClusterSpec {
    spec(3, Switchover { request_id: request_id.into(), target: target.into() }, false, false)
}

/// A cluster whose switchover from demo-0 to demo-1 has succeeded, with the spec that asked for it.
fn switched() -> (MasterClusterSpec, Observation) {
    let wanted = asks_for("a", "demo-1");
    let (_, seen) = pass(&plain(), &healthy(0, 10));
    let (_, seen) = pass(&wanted, &seen);
    let (_, seen) = pass(&wanted, &seen);
    let (_, seen) = pass(&wanted, &led_by(&seen, 1, 20));
    assert_eq!(seen.status.last_switchover.as_ref().unwrap().result, SwitchoverResult::Succeeded);
    assert_eq!(seen.status.last_failover, None);
    (wanted, seen)
}

fn warnings(before: &Observation, after: &Observation) -> Vec<&'static str> {
    let all: Vec<Happening> = happenings(&before.status, &after.status);
    all.into_iter().filter(|it| it.warning).map(|it| it.reason).collect()
}

/// A failover is recorded although it goes the way that an older switchover went.
#[test]
fn a_switchover_hides_no_later_failover() {
    for gap in [false, true] {
        let (wanted, mut seen) = switched();
        let mut recorded = Vec::new();
        for (leader, term) in [(0, 30), (1, 40)] {
            if gap {
                seen = pass(&wanted, &without_primary(&seen)).1;
            }
            seen = pass(&wanted, &led_by(&seen, leader, term)).1;
            let record = seen.status.last_failover.clone().expect("no record of the failover");
            recorded.push((record.from.unwrap(), record.to));
        }
        // Back by a switchover, and the same failover again: the term distinguishes them.
        let back = asks_for("b", "demo-0");
        seen = pass(&back, &seen).1;
        seen = pass(&back, &seen).1;
        seen = pass(&back, &led_by(&seen, 0, 50)).1;
        assert_eq!(seen.status.last_switchover.as_ref().unwrap().result, SwitchoverResult::Succeeded);
        let first = seen.status.last_failover.clone().unwrap();
        seen.now += SignedDuration::from_secs(60);
        seen = pass(&back, &led_by(&seen, 1, 60)).1;
        let record = seen.status.last_failover.clone().unwrap();
        assert_ne!(first.at, record.at, "gap: {gap}");
        recorded.push((record.from.unwrap(), record.to));
        let expected = [("demo-1", "demo-0"), ("demo-0", "demo-1"), ("demo-0", "demo-1")];
        assert_eq!(recorded, expected.map(|(from, to)| (from.to_owned(), to.to_owned())), "gap: {gap}");
    }
}

/// The old primary's answer arrives before etcd tells of the new one.
#[test]
fn a_switchover_is_no_failover_even_if_the_master_tells_first() {
    let wanted = asks_for("a", "demo-1");
    let (_, seen) = pass(&plain(), &healthy(0, 10));
    let (_, seen) = pass(&wanted, &seen);
    let (_, mut seen) = pass(&wanted, &seen);
    let done = SwitchoverDone { to: "demo-1".into(), term: 20, ..SwitchoverDone::default() };
    seen.switchover = Call::Done("a".into(), Ok(done));
    let (_, seen) = pass(&wanted, &seen);
    assert_eq!(seen.status.last_switchover.as_ref().unwrap().result, SwitchoverResult::Succeeded);
    let (_, seen) = pass(&wanted, &without_primary(&seen));
    let (_, seen) = pass(&wanted, &led_by(&seen, 1, 20));
    assert_eq!(seen.status.last_failover, None);
}

/// A request that is taken back, replaced by another or stopped by a suspension has an end.
#[test]
fn a_withdrawn_switchover_fails() {
    let mut suspended = asks_for("a", "");
    suspended.suspend = true;
    for (case, later) in [("reset", plain()), ("replaced", asks_for("b", "")), ("suspended", suspended)] {
        let wanted = asks_for("a", "");
        let (_, seen) = pass(&plain(), &healthy(0, 10));
        let (_, seen) = pass(&wanted, &seen);
        assert_eq!(seen.status.phase, Some(Phase::SwitchingOver));
        let (plan, seen) = pass(&later, &seen);
        let record = seen.status.last_switchover.clone().unwrap();
        assert_eq!((record.request_id.as_str(), record.result), ("a", SwitchoverResult::Failed), "{case}");
        assert!(record.message.unwrap().contains("withdrawn"), "{case}");
        assert_eq!(plan.act, None, "{case}");
        // What comes after it is a failover.
        let (_, seen) = pass(&plain(), &led_by(&seen, 1, 20));
        assert!(seen.status.last_failover.is_some(), "{case}");
    }
}

/// A hand-over that the primary has already begun is waited for, and told as it ended.
#[test]
fn a_withdrawn_switchover_that_happened_succeeds() {
    let wanted = asks_for("a", "");
    let (_, seen) = pass(&plain(), &healthy(0, 10));
    let (_, seen) = pass(&wanted, &seen);
    let (_, mut seen) = pass(&wanted, &seen);
    seen.switchover = Call::Running("a".into());
    let (plan, mut seen) = pass(&plain(), &seen);
    assert_eq!(seen.status.last_switchover.as_ref().unwrap().result, SwitchoverResult::Pending);
    assert_eq!((plan.act, plan.waits.len()), (None, 1));
    let done = SwitchoverDone { to: "demo-1".into(), term: 20, ..SwitchoverDone::default() };
    seen.switchover = Call::Done("a".into(), Ok(done));
    let (_, seen) = pass(&plain(), &seen);
    let record = seen.status.last_switchover.unwrap();
    assert_eq!((record.result, record.to.as_deref()), (SwitchoverResult::Succeeded, Some("demo-1")));
}

fn lags(observed: &mut Observation, behind: &[&str]) {
    change(observed, |view| {
        for name in behind {
            view.members.get_mut(*name).unwrap().value.as_mut().unwrap().caught_up = false;
        }
    });
}

/// Of the standbys that are caught up, one at least stays.
#[test]
fn fewer_masters_never_end_the_last_caught_up_standby() {
    let fewer = |replicas: i32, behind: &[&str]| {
        let (_, mut seen) = pass(&plain(), &healthy(0, 10));
        lags(&mut seen, behind);
        let (plan, _) = pass(&spec(replicas, Switchover::default(), false, false), &seen);
        (plan.objects, plan.waits)
    };
    let (objects, waits) = fewer(2, &["demo-1"]);
    assert_eq!(objects, Objects::Apply { replicas: 3 });
    assert!(waits[0].contains("demo-1") && waits[0].contains("demo-2"), "{waits:?}");
    assert_eq!(fewer(2, &[]), (Objects::Apply { replicas: 2 }, Vec::new()));
    assert_eq!(fewer(2, &["demo-2"]), (Objects::Apply { replicas: 2 }, Vec::new()));
    // No standby is caught up, so none is lost.
    assert_eq!(fewer(2, &["demo-1", "demo-2"]), (Objects::Apply { replicas: 2 }, Vec::new()));
    // One master is what was asked for: it has no standby.
    assert_eq!(fewer(1, &["demo-1"]), (Objects::Apply { replicas: 1 }, Vec::new()));
}

/// One standby in a crash loop does not make a cluster unready that could still fail over.
#[test]
fn a_stuck_standby_leaves_a_redundant_cluster_ready() {
    let value = |seen: &Observation, kind: &str| {
        let found = seen.status.conditions.iter().find(|it| it.type_ == kind).unwrap();
        (found.status.clone(), found.reason.clone())
    };
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    seen.pods[2].trouble = Some(PodTrouble {
        reason: "CrashLoopBackOff".into(),
        message: "crash-looping, last exit code 2".into(),
        stalled: true,
    });
    change(&mut seen, |view| drop(view.members.remove("demo-2")));
    let (_, mut seen) = pass(&plain(), &seen);
    assert_eq!(value(&seen, "Ready").0, "True");
    assert_eq!(value(&seen, "Stalled").0, "False");
    assert_eq!(seen.status.phase, Some(Phase::Degraded));
    let progressing = seen.status.conditions.iter().find(|it| it.type_ == "Progressing").unwrap();
    assert!(progressing.message.contains("demo-2: crash-looping"), "{}", progressing.message);
    // Without the other standby it is in the way.
    lags(&mut seen, &["demo-1"]);
    let (_, seen) = pass(&plain(), &seen);
    assert_eq!(value(&seen, "Ready"), ("False".to_owned(), "CrashLoopBackOff".to_owned()));
    assert_eq!(value(&seen, "Stalled").0, "True");
}

/// The members with these names report that they cannot use the log.
fn troubled(observed: &mut Observation, names: &[&str]) {
    change(observed, |view| {
        for name in names {
            let value = view.members.get_mut(*name).unwrap().value.as_mut().unwrap();
            (value.caught_up, value.role) = (false, Role::Standby);
            value.trouble = Some("the log ends at record 4, it was shortened".into());
        }
    });
}

/// A log that was shortened or restored from a backup has the same id; only the masters can say so.
#[test]
fn a_log_that_no_master_can_use_stalls() {
    let all = ["demo-0", "demo-1", "demo-2"];
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    // With a primary it is one standby that waits, and nobody's order.
    troubled(&mut seen, &all[2..]);
    let (_, mut seen) = pass(&plain(), &seen);
    assert_eq!(condition(&seen, "Stalled").0, "False");
    let progressing = condition(&seen, "Progressing").2;
    assert!(progressing.contains("demo-2: the log ends at record 4"), "{progressing}");
    // Between two primaries one that can use the log leads soon.
    seen = pass(&plain(), &without_primary(&seen)).1;
    assert_eq!(condition(&seen, "Stalled").0, "False");
    troubled(&mut seen, &all);
    let before = seen.clone();
    let (_, seen) = pass(&plain(), &seen);
    let (value, reason, message) = condition(&seen, "Stalled");
    assert_eq!((value.as_str(), reason.as_str()), ("True", "LogUnusable"));
    assert!(message.contains("demo-0 reports: the log ends at record 4"), "{message}");
    assert!(message.contains("put the newest data of etcd back"), "{message}");
    assert_eq!(condition(&seen, "Available").1, "NoPrimary");
    assert_eq!(condition(&seen, "Ready").1, "LogUnusable");
    assert_eq!(seen.status.phase, Some(Phase::Stalled));
    assert_eq!(warnings(&before, &seen), ["Stalled"]);
    // It was put back.
    let (_, seen) = pass(&plain(), &led_by(&seen, 1, 20));
    assert_eq!(condition(&seen, "Stalled").0, "False");
}

/// A standby has rebuilt its state from the log, and a digest of the present primary contradicts it.
#[test]
fn a_primary_that_contradicts_the_log_is_named() {
    for (term, named) in [(10, true), (9, false)] {
        let mut seen = healthy(0, 10);
        change(&mut seen, |view| {
            let value = view.members.get_mut("demo-2").unwrap().value.as_mut().unwrap();
            value.digest_at = Some(DigestAt { term, record: 77, digest: "0bad".into() });
        });
        let (_, seen) = pass(&plain(), &seen);
        let (value, reason, message) = condition(&seen, "Redundant");
        assert_eq!((value.as_str(), reason.as_str()), ("True", "CaughtUp"));
        let says = message.contains("demo-2 rebuilt its state") && message.contains("record 77");
        assert_eq!(says, named, "{message}");
    }
}

/// A warning is for what was not asked for.
#[test]
fn a_planned_hand_over_warns_of_nothing() {
    let wanted = asks_for("a", "demo-1");
    let (_, seen) = pass(&plain(), &healthy(0, 10));
    let (_, seen) = pass(&wanted, &seen);
    let (_, seen) = pass(&wanted, &seen);
    let (_, between) = pass(&wanted, &without_primary(&seen));
    assert_eq!(warnings(&seen, &between), Vec::<&str>::new());
    let (_, after) = pass(&wanted, &led_by(&between, 1, 20));
    assert_eq!(warnings(&between, &after), Vec::<&str>::new());
    // The same loss later, which was not asked for.
    let (_, lost) = pass(&wanted, &without_primary(&after));
    assert_eq!(warnings(&after, &lost), ["PrimaryLost"]);
}
