//! Labels, failovers and switchovers, from one pass to the next.

use super::*;

#[test]
fn a_failover_is_recorded_from_its_first_moment_on() {
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    // The primary is gone, and its key with it.
    change(&mut seen, |view| {
        view.leader = None;
        view.serving = None;
        view.members.remove("demo-0");
    });
    let (plan, mut seen) = pass(&plain(), &seen);
    assert_eq!(
        plan.labels.iter().map(|label| (label.pod.as_str(), label.role)).collect::<Vec<_>>(),
        [("demo-0", "unknown")]
    );
    assert_eq!(seen.status.leader, None);
    assert_eq!(seen.status.last_failover.as_ref().unwrap().from.as_deref(), Some("demo-0"));
    // Another one takes over, and is asked how.
    let EtcdKeys::Current(next) = healthy(1, 20).etcd else { unreachable!() };
    change(&mut seen, |view| {
        view.leader = next.leader.clone();
        view.serving = next.serving.clone();
    });
    let (plan, mut seen) = pass(&plain(), &seen);
    assert_eq!(plan.labels[0].pod, "demo-1");
    assert_eq!(plan.chores, [Chore::AskPromotion { term: 20, address: "10.0.0.1:9003".to_owned() }]);
    let report = PromotionReport {
        term: 20,
        reason: PromotionReason::ProcessDied,
        total_ms: 52,
        inherited_clients: 2,
        ..PromotionReport::default()
    };
    seen.promotion = Some(PromotionAnswer { term: 20, report: Ok(report) });
    let before = seen.status.clone();
    let (plan, seen) = pass(&plain(), &seen);
    assert!(plan.chores.is_empty());
    let record = seen.status.last_failover.clone().unwrap();
    assert_eq!(
        (record.from.as_deref(), record.to.as_str(), record.reason.as_str()),
        (Some("demo-0"), "demo-1", "ProcessDied")
    );
    assert_eq!((record.duration_milliseconds, record.cleaned.unwrap().clients), (Some(52), 2));
    assert_eq!(happenings(&before, &seen.status)[0].reason, "FailedOver");
}

/// Its key outlives a process for some seconds.
#[test]
fn a_dead_primary_is_no_standby() {
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    let EtcdKeys::Current(next) = healthy(1, 20).etcd else { unreachable!() };
    change(&mut seen, |view| {
        view.leader = next.leader.clone();
        view.serving = next.serving.clone();
        view.members.insert("demo-1".to_owned(), next.members["demo-1"].clone());
    });
    let (plan, seen) = pass(&plain(), &seen);
    assert_eq!(
        plan.labels.iter().map(|label| (label.pod.as_str(), label.role)).collect::<Vec<_>>(),
        [("demo-0", "unknown"), ("demo-1", "primary")]
    );
    assert_eq!(caught_up_standbys(&seen).iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["demo-2"]);
    assert_eq!(seen.status.phase, Some(Phase::Degraded));
}

#[test]
fn a_switchover_is_recorded_then_asked_for_then_seen() {
    let (_, seen) = pass(&plain(), &healthy(0, 10));
    let wanted = spec(3, Switchover { request_id: "a".into(), target: "demo-2".into() }, false, false);
    let (plan, seen) = pass(&wanted, &seen);
    assert_eq!(plan.act, None);
    let (plan, mut seen) = pass(&wanted, &seen);
    let asked = Act::Switchover {
        request_id: "a".into(),
        to: Some("demo-2".into()),
        address: "10.0.0.0:9004".into(),
    };
    assert_eq!(plan.act, Some(asked.clone()));
    // An operator that was restarted meanwhile asks again, as long as it has not happened.
    let (plan, _) = pass(&wanted, &seen);
    assert_eq!(plan.act, Some(asked));
    // It has, and nobody knows how long it took.
    let EtcdKeys::Current(next) = healthy(2, 20).etcd else { unreachable!() };
    change(&mut seen, |view| *view = (*next).clone());
    let (plan, seen) = pass(&wanted, &seen);
    assert_eq!((plan.act, plan.labels.last().unwrap().pod.as_str()), (None, "demo-2"));
    let record = seen.status.last_switchover.clone().unwrap();
    assert_eq!((record.result, record.to.as_deref()), (SwitchoverResult::Succeeded, Some("demo-2")));
    assert_eq!(seen.status.last_failover, None);
    let (plan, _) = pass(&wanted, &seen);
    assert_eq!((plan.act, plan.labels.len()), (None, 0));
}

#[test]
fn a_pod_that_was_made_again_does_not_inherit_the_role() {
    let mut seen = healthy(0, 10);
    seen.pods[0].ip = Some("10.9.9.9".to_owned());
    seen.pods[0].role = None;
    let (plan, _) = pass(&plain(), &seen);
    assert_eq!(plan.labels.iter().map(|label| label.role).collect::<Vec<_>>(), ["unknown"]);
}

#[test]
fn a_refusal_changes_the_status_and_not_the_leader() {
    let wanted = spec(3, Switchover { request_id: "a".into(), target: String::new() }, false, false);
    let (_, seen) = pass(&wanted, &healthy(0, 10));
    let (_, mut seen) = pass(&wanted, &seen);
    let refusal = |code: &str| {
        Call::Done(
            "a".to_owned(),
            Err(CallError::Refused { code: code.to_owned(), message: "not now".to_owned() }),
        )
    };
    // A standby may catch up, and a master that restarts is no member until it has registered again.
    for code in ["no_target", "no_such_member"] {
        seen.switchover = refusal(code);
        let (plan, _) = pass(&wanted, &seen);
        assert!(plan.act.is_some(), "{code} may pass");
    }
    seen.switchover = refusal("bad_request");
    let (plan, seen) = pass(&wanted, &seen);
    assert_eq!((plan.act, plan.labels.len()), (None, 0));
    let record = seen.status.last_switchover.unwrap();
    assert_eq!((record.result, record.message.as_deref()), (SwitchoverResult::Failed, Some("not now")));
}
