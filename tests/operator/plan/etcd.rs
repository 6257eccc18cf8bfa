//! What a pass does and says about etcd: its space, its alarms, and its endpoints.

use moonkeeper::operator::plan::RETRY_INTERVAL;

use super::*;

#[test]
fn space_and_alarms_of_etcd_are_named() {
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    // Each is observed after the one before: what is published, and in words.
    for (health, value, reason, message, event) in [
        (
            etcd_health(20 << 20, &[]),
            "True",
            "Answers",
            "etcd answers; 20.0 MiB of 100.0 MiB in use (20 %)",
            None,
        ),
        (etcd_health(81 << 20, &[]), "False", "SpaceLow", "full in about 2 h", Some("EtcdSpaceLow")),
        (etcd_health(76 << 20, &[]), "False", "SpaceLow", "76.0 MiB of 100.0 MiB", None),
        (EtcdHealth::default(), "False", "SpaceLow", "little space left", None),
        (
            etcd_health(99 << 20, &[Alarm::NoSpace]),
            "False",
            "NoSpace",
            "no other master can be elected",
            Some("EtcdOutOfSpace"),
        ),
        (etcd_health(82 << 20, &[]), "False", "SpaceLow", "82.0 MiB", Some("EtcdSpaceLow")),
        (etcd_health(9 << 20, &[]), "True", "Answers", "9.0 MiB", Some("EtcdRecovered")),
        (etcd_health(9 << 20, &[Alarm::Corrupt]), "False", "Corrupt", "CORRUPT", Some("EtcdCorrupt")),
        (etcd_health(9 << 20, &[]), "True", "Answers", "9.0 MiB", Some("EtcdRecovered")),
    ] {
        seen.etcd_health = health;
        let before = seen.status.clone();
        let (_, after) = pass(&plain(), &seen);
        let etcd = condition(&after, "EtcdHealthy");
        assert_eq!((etcd.0.as_str(), etcd.1.as_str()), (value, reason), "{etcd:?}");
        assert!(etcd.2.contains(message), "{etcd:?}");
        let events: Vec<&str> = happenings(&before, &after.status).iter().map(|it| it.reason).collect();
        assert_eq!(events, event.into_iter().collect::<Vec<_>>(), "{etcd:?}");
        // Reads go on.
        assert_eq!(condition(&after, "Available").0, "True");
        seen = after;
    }
}

#[test]
fn sizes_of_etcd_are_in_the_status_and_are_no_news() {
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    change(&mut seen, |view| view.store = Some(StoreId(7)));
    let (_, mut seen) = pass(&plain(), &seen);
    let etcd = seen.status.etcd.clone().unwrap();
    assert_eq!((etcd.in_use_bytes, etcd.quota_bytes), (Some(10 << 20), Some(100 << 20)));
    assert_eq!(
        (etcd.time_left_seconds, etcd.alarms, etcd.silent_endpoints.len()),
        (Some(7200), Some(vec![]), 0)
    );
    let mut is_news_after = |health: EtcdHealth| {
        seen.etcd_health = health;
        let (_, after) = pass(&plain(), &seen);
        (is_news(&seen.status, &after.status), after.status.etcd.unwrap())
    };
    // It grows; growth is not known yet after a restart of the operator; nothing is; a member does not answer.
    assert_eq!(is_news_after(etcd_health(11 << 20, &[])).1.in_use_bytes, Some(11 << 20));
    assert!(!is_news_after(etcd_health(11 << 20, &[])).0);
    let mut young = etcd_health(11 << 20, &[]);
    (young.fullest.growth_bytes_per_second, young.fullest.time_left_seconds) = (None, None);
    assert!(!is_news_after(young).0);
    let (news, kept) = is_news_after(EtcdHealth::default());
    assert_eq!((news, kept.in_use_bytes), (false, Some(10 << 20)));
    let mut silent = etcd_health(11 << 20, &[]);
    silent.members.push(EtcdMember { error: Some("refused".to_owned()), ..EtcdMember::default() });
    let (news, named) = is_news_after(silent);
    assert_eq!((news, named.silent_endpoints.len()), (false, 1));
    // An alarm, another quota and a verdict are news.
    assert!(is_news_after(etcd_health(11 << 20, &[Alarm::NoSpace])).0);
    assert!(is_news_after(etcd_health(81 << 20, &[])).0);
    let mut raised = etcd_health(11 << 20, &[]);
    raised.fullest.quota_bytes = Some(200 << 20);
    assert!(is_news_after(raised).0);
}

#[test]
fn an_etcd_that_cannot_be_read_says_why_and_corrupt_data_is_why() {
    let (_, mut seen) = pass(&plain(), &healthy(0, 10));
    seen.etcd = EtcdKeys::Lost { why: "no answer".to_owned() };
    for (health, reason) in [
        (EtcdHealth::default(), "Unreachable"),
        (etcd_health(99 << 20, &[Alarm::NoSpace]), "Unreachable"),
        (etcd_health(9 << 20, &[Alarm::Corrupt]), "Corrupt"),
        // What was known once says nothing about an etcd that does not answer at all.
        (EtcdHealth::default(), "Unreachable"),
    ] {
        seen.etcd_health = health;
        seen = pass(&plain(), &seen).1;
        assert_eq!(condition(&seen, "EtcdHealthy").1, reason);
    }
}

/// An etcd that does not answer yet may be another one, and pods that were made with its address would create a second
/// log in it.
#[test]
fn endpoints_that_have_not_answered_reach_no_master() {
    let known = |leader: u8, term: u64| {
        let mut seen = healthy(leader, term);
        change(&mut seen, |view| view.store = Some(StoreId(7)));
        seen
    };
    let verified = |seen: &Observation| seen.status.etcd.clone().unwrap().endpoints;
    let (_, mut seen) = pass(&plain(), &known(0, 10));
    assert_eq!(verified(&seen), [ENDPOINT]);
    let mut elsewhere = plain();
    elsewhere.etcd.endpoints = vec!["http://other:2379".to_owned()];
    for silent in [EtcdKeys::NotYet, EtcdKeys::Lost { why: "no answer".to_owned() }] {
        seen.etcd = silent;
        // An outage changes nothing.
        assert_eq!(pass(&plain(), &seen).0.objects, Objects::Apply { replicas: 3 });
        let (plan, after) = pass(&elsewhere, &seen);
        assert_eq!((plan.objects, plan.again), (Objects::KeepMasters, Some(RETRY_INTERVAL)));
        assert!(condition(&after, "Progressing").2.contains("etcd to answer at spec.etcd.endpoints"));
        assert_eq!(verified(&after), [ENDPOINT]);
    }
    // While the connection from before works, the label follows the primary.
    seen.etcd = known(1, 20).etcd;
    seen.endpoints_unverified = true;
    let (plan, mut seen) = pass(&elsewhere, &seen);
    assert_eq!((plan.objects, plan.labels.len()), (Objects::KeepMasters, 2));
    assert_eq!(condition(&seen, "Ready").0, "True");
    assert_eq!(verified(&seen), [ENDPOINT]);
    // It has answered, and is the known one.
    seen.endpoints_unverified = false;
    let (plan, seen) = pass(&elsewhere, &seen);
    assert_eq!(plan.objects, Objects::Apply { replicas: 3 });
    assert_eq!(verified(&seen), elsewhere.etcd.endpoints);
    // The masters of a new cluster wait for etcd themselves.
    let mut new = healthy(0, 10);
    new.etcd = EtcdKeys::NotYet;
    assert_eq!(pass(&elsewhere, &new).0.objects, Objects::Apply { replicas: 3 });
}
