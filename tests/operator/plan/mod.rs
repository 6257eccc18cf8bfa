//! Properties of the operator's `plan`, over clusters in every state that can be observed, sensible or not: the same
//! input gives the same plan, and what was done is not done again; at most one disruption in a pass; the pod that serves
//! is not ended while nobody could take over; what was not observed changes nothing.

mod tables;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use moonkeeper::api::{
    DeletionPolicy, FailoverReport, LeaderStatus, MasterClusterSpec, MasterClusterStatus, Phase, Switchover,
    SwitchoverReport, SwitchoverResult,
};
use moonkeeper::cluster::etcd_health::{Alarm, EtcdHealth, EtcdMember, Usage};
use moonkeeper::cluster::member::{Addresses, DigestAt, ElectionValue, MemberValue};
use moonkeeper::cluster::promotion::{PromotionReason, PromotionReport};
use moonkeeper::cluster::role::Role;
use moonkeeper::cluster::switchover::SwitchoverDone;
use moonkeeper::cluster::view::{ClusterView, Leader, Member, Serving, Stamp, StoreId, Successor};
use moonkeeper::coordination::types::LeaseId;
use moonkeeper::engine::types::Term;
use moonkeeper::operator::observed::{
    Call, CallError, EtcdSight, KeysLeft, Observed, PodFacts, PromotionAnswer, StatefulSetFacts,
};
use moonkeeper::operator::plan::deletion::Farewell;
use moonkeeper::operator::plan::{Act, Chore, Finalizer, Objects, Plan, plan};
use moonkeeper::operator::report::conditions::caught_up_standbys;
use moonkeeper::operator::report::events::happenings;
use moonkeeper::operator::report::{Applied, Failure, is_news, status};
use proptest::prelude::*;

const NAME: &str = "demo";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn spec(replicas: i32, switchover: Switchover, suspend: bool, delete: bool) -> MasterClusterSpec {
    let mut spec: MasterClusterSpec =
        serde_json::from_value(serde_json::json!({"etcd": {"endpoints": ["http://etcd:2379"]}})).unwrap();
    spec.replicas = replicas;
    spec.switchover = switchover;
    spec.suspend = suspend;
    spec.deletion_policy = if delete { DeletionPolicy::Delete } else { DeletionPolicy::Retain };
    spec
}

fn pod_name(ordinal: u8) -> String {
    format!("{NAME}-{ordinal}")
}

fn address(ordinal: u8) -> String {
    format!("10.0.0.{ordinal}")
}

fn addresses(ordinal: u8) -> Addresses {
    let at = |port: u16| format!("{}:{port}", address(ordinal));
    Addresses { rpc: at(50051), http: at(9003), peer: at(9005), admin: at(9004) }
}

fn role() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        Just(Some("primary".to_owned())),
        Just(Some("standby".to_owned())),
        Just(Some("unknown".to_owned())),
    ]
}

fn pod(ordinal: u8) -> impl Strategy<Value = PodFacts> {
    (
        role(),
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.8, Just(())),
        prop::bool::weighted(0.2),
    )
        .prop_map(move |(role, ready, deleted, ip, another)| PodFacts {
            name: pod_name(ordinal),
            uid: format!("uid-{ordinal}"),
            // Another address: a pod that was made again under the name of the one before.
            ip: ip.map(|()| if another { "10.9.9.9".to_owned() } else { address(ordinal) }),
            role,
            ready,
            deleted,
            revision: Some("r1".to_owned()),
            ..PodFacts::default()
        })
}

fn pods() -> impl Strategy<Value = Vec<PodFacts>> {
    prop::collection::btree_set(0u8..5, 0..5).prop_flat_map(|ordinals| {
        ordinals.into_iter().map(|ordinal| pod(ordinal).boxed()).collect::<Vec<_>>()
    })
}

fn client_address(ordinal: u8) -> Serving {
    Serving { address: addresses(ordinal).rpc, create_revision: 9 }
}

fn member(ordinal: u8) -> impl Strategy<Value = (String, Member)> {
    let log =
        (prop::option::weighted(0.3, Just("shortened".to_owned())), prop::option::weighted(0.2, 10u64..40));
    (
        any::<bool>(),
        any::<bool>(),
        0u64..100,
        prop_oneof![Just(0i64), Just(7)],
        prop::bool::weighted(0.9),
        log,
    )
        .prop_map(move |(primary, caught_up, applied, lease, readable, (trouble, contradicted))| {
            let value = MemberValue {
                name: pod_name(ordinal),
                role: if primary { Role::Primary } else { Role::Standby },
                addresses: addresses(ordinal),
                applied,
                caught_up,
                trouble,
                digest_at: contradicted.map(|term| DigestAt { term, record: 5, digest: String::new() }),
                version: "0.1.0".to_owned(),
                ..MemberValue::default()
            };
            let stamp = Stamp { mod_revision: 50 + u64::from(ordinal), lease: LeaseId(lease) };
            (pod_name(ordinal), Member { value: readable.then_some(value), stamp })
        })
}

fn view() -> impl Strategy<Value = ClusterView> {
    let members = prop::collection::btree_set(0u8..5, 0..5).prop_flat_map(|ordinals| {
        ordinals.into_iter().map(|ordinal| member(ordinal).boxed()).collect::<Vec<_>>()
    });
    let leader = prop::option::weighted(0.8, (0u8..5, 10u64..40));
    (members, leader, any::<bool>(), prop::option::of(1u64..60)).prop_map(
        |(members, leader, serves, successor)| ClusterView {
            revision: 100,
            serving: leader.filter(|_| serves).map(|(ordinal, _)| client_address(ordinal)),
            leader: leader.map(|(ordinal, term)| Leader {
                term: Term(term),
                lease: LeaseId(5),
                value: ElectionValue {
                    name: pod_name(ordinal),
                    addresses: addresses(ordinal),
                    ..ElectionValue::default()
                },
            }),
            successor: successor.map(|mod_revision| Successor {
                name: None,
                stamp: Stamp { mod_revision, lease: LeaseId(3) },
            }),
            members: members.into_iter().collect(),
            ..ClusterView::default()
        },
    )
}

fn sight() -> impl Strategy<Value = EtcdSight> {
    prop_oneof![
        6 => view().prop_map(|view| EtcdSight::Current(Arc::new(view))),
        1 => Just(EtcdSight::NotYet),
        1 => Just(EtcdSight::Lost { why: "away".to_owned() }),
        1 => Just(EtcdSight::Unusable { reason: "SecretNotFound", message: "no secret".to_owned() }),
    ]
}

fn at() -> impl Strategy<Value = Option<Time>> {
    prop::option::weighted(0.9, 0i64..1000)
        .prop_map(|age| age.map(|age| Time(now() - SignedDuration::from_secs(age))))
}

fn last_status() -> impl Strategy<Value = MasterClusterStatus> {
    let leader = prop::option::of(0u8..5);
    let result = prop_oneof![
        Just(SwitchoverResult::Pending),
        Just(SwitchoverResult::Succeeded),
        Just(SwitchoverResult::Failed)
    ];
    let switchover =
        prop::option::of((request(), prop::option::of(0u8..5), prop::option::of(5i64..45), result, at()));
    let failover = prop::option::of((prop::option::of(0u8..5), any::<bool>(), at()));
    (leader, prop::option::of(5i64..45), switchover, failover).prop_map(
        |(leader, term, switchover, failover)| MasterClusterStatus {
            leader: leader.map(|ordinal| LeaderStatus { name: pod_name(ordinal), ..LeaderStatus::default() }),
            term,
            last_switchover: switchover.map(|(request_id, from, term, result, at)| SwitchoverReport {
                request_id,
                from: from.map(pod_name),
                to: None,
                term,
                result,
                message: None,
                duration_milliseconds: None,
                at,
            }),
            last_failover: failover.map(|(to, told, at)| FailoverReport {
                from: None,
                to: to.map(pod_name).unwrap_or_default(),
                reason: if told { "ProcessDied" } else { "Unknown" }.to_owned(),
                at,
                ..FailoverReport::default()
            }),
            ..MasterClusterStatus::default()
        },
    )
}

fn request() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("a".to_owned()), Just("b".to_owned())]
}

fn call() -> impl Strategy<Value = Call<Result<SwitchoverDone, CallError>>> {
    let refused = |code: &str| CallError::Refused { code: code.to_owned(), message: "no".to_owned() };
    let result = prop_oneof![
        (0u8..5).prop_map(|to| Ok(SwitchoverDone { to: pod_name(to), ..SwitchoverDone::default() })),
        Just(Err(refused("no_target"))),
        Just(Err(refused("no_such_member"))),
        Just(Err(refused("bad_request"))),
        Just(Err(CallError::NoAnswer("silence".to_owned()))),
    ];
    prop_oneof![
        Just(Call::Idle),
        request().prop_map(Call::Running),
        (request(), result).prop_map(|(id, result)| Call::Done(id, result)),
    ]
}

fn deletion() -> impl Strategy<Value = Call<Result<(), KeysLeft>>> {
    prop_oneof![
        Just(Call::Idle),
        Just(Call::Running(String::new())),
        Just(Call::Done(String::new(), Ok(()))),
        Just(Call::Done(String::new(), Err(KeysLeft::Failed("away".to_owned())))),
        Just(Call::Done(String::new(), Err(KeysLeft::InUse("a-0 at 10.9.9.9:50051 leads".to_owned())))),
        Just(Call::Done(String::new(), Err(KeysLeft::OtherLog("another log".to_owned())))),
    ]
}

prop_compose! {
    fn observed()(
        deleted in prop::option::weighted(0.2, 0i64..1000),
        finalizer in any::<bool>(),
        status in last_status(),
        etcd in sight(),
        set in prop::option::weighted(0.8, (0i32..6, any::<bool>(), prop::option::of(0i32..6))),
        pods in pods(),
        switchover in call(),
        promotion in prop::option::of((10u64..40, any::<bool>())),
        deletion in deletion(),
        deletion_attempts in 0u32..5,
    ) -> Observed {
        Observed {
            now: now(),
            generation: Some(3),
            deleted_at: deleted.map(|age| now() - SignedDuration::from_secs(age)),
            finalizer,
            status,
            etcd,
            etcd_health: EtcdHealth::default(),
            stateful_set: set.map(|(replicas, deleted, existing)| StatefulSetFacts {
                replicas,
                existing,
                update_revision: Some("r1".to_owned()),
                deleted,
            }),
            pods,
            switchover,
            promotion: promotion.map(|(term, told)| PromotionAnswer {
                term,
                report: if told {
                    Ok(PromotionReport { term, reason: PromotionReason::ProcessDied, ..PromotionReport::default() })
                } else {
                    Err("silence".to_owned())
                },
            }),
            deletion,
            deletion_attempts,
        }
    }
}

prop_compose! {
    fn wanted()(
        replicas in 1i32..6,
        request_id in request(),
        target in prop::option::of(0u8..6),
        suspend in prop::bool::weighted(0.2),
        delete in any::<bool>(),
    ) -> MasterClusterSpec {
        let switchover = Switchover { request_id, target: target.map(pod_name).unwrap_or_default() };
        spec(replicas, switchover, suspend, delete)
    }
}

/// What would be observed after everything in the plan has been done, and nothing else has happened.
fn done(spec: &MasterClusterSpec, observed: &Observed, plan: &Plan) -> Observed {
    let mut after = observed.clone();
    for label in &plan.labels {
        let pod = after.pods.iter_mut().find(|pod| pod.uid == label.uid).unwrap();
        pod.role = Some(label.role.to_owned());
    }
    match &plan.finalizer {
        Finalizer::Leave => {}
        Finalizer::Add => after.finalizer = true,
        Finalizer::Withdraw | Finalizer::Remove(_) => after.finalizer = false,
    }
    if let (Objects::Apply { replicas }, Some(set)) = (plan.objects, &mut after.stateful_set) {
        set.replicas = replicas;
    }
    after.status = status(NAME, spec, observed, plan, &Applied::default());
    after
}

fn serving(observed: &Observed) -> Option<&str> {
    observed.etcd.view()?.leader.as_ref().map(|leader| leader.value.name.as_str())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// What a pass has done is not done again by the next one, and the status settles.
    #[test]
    fn what_was_done_is_not_done_again(spec in wanted(), observed in observed()) {
        let first = plan(NAME, &spec, &observed);
        let after = done(&spec, &observed, &first);
        if observed.deleted_at.is_none() {
            // Only one whose deletion has something to do waits for the operator.
            prop_assert_eq!(after.finalizer, spec.deletion_policy == DeletionPolicy::Delete);
        }
        let second = plan(NAME, &spec, &after);
        prop_assert_eq!(&second.labels, &vec![]);
        if observed.deleted_at.is_none() {
            prop_assert_eq!(&second.finalizer, &Finalizer::Leave);
        }
        // The request before is ended in one pass, a new one recorded in the next and acted on in the third.
        let third = done(&spec, &after, &second);
        let later = done(&spec, &third, &plan(NAME, &spec, &third));
        let last = done(&spec, &later, &plan(NAME, &spec, &later));
        prop_assert!(!is_news(&later.status, &last.status), "{:#?}\n{:#?}", later.status, last.status);
        prop_assert!(happenings(&later.status, &last.status).is_empty());
    }

    #[test]
    fn at_most_one_disruption_in_a_pass(spec in wanted(), observed in observed()) {
        prop_assert!(plan(NAME, &spec, &observed).disruptions(&observed) <= 1);
    }

    /// The pod that serves is ended by nothing but the deletion of the whole cluster.
    #[test]
    fn the_serving_pod_stays(spec in wanted(), observed in observed()) {
        let plan = plan(NAME, &spec, &observed);
        if let (Objects::Apply { replicas }, Some(set)) = (plan.objects, &observed.stateful_set)
            && replicas < set.replicas
        {
            let primary = serving(&observed);
            let ordinal = primary.and_then(|name| name.rsplit_once('-')?.1.parse::<i32>().ok());
            let stays = ordinal.is_some_and(|ordinal| ordinal < replicas);
            // Before the first primary of all nobody serves.
            let nobody = observed.etcd.view().is_some_and(|view| view.leader.is_none());
            prop_assert!(stays || (nobody && observed.status.term.is_none()), "{primary:?} with {replicas}");
        }
        // Of the standbys that are caught up, one at least stays, unless none is wanted.
        if let (Objects::Apply { replicas }, Some(set)) = (plan.objects, &observed.stateful_set)
            && replicas < set.replicas
            && replicas > 1
            // Before the first primary of all there is nothing to take over.
            && serving(&observed).is_some()
        {
            let ordinal = |pod: &PodFacts| pod.name.rsplit_once('-').unwrap().1.parse::<i32>().unwrap();
            let ready = caught_up_standbys(&observed);
            let stays = ready.iter().any(|pod| ordinal(pod) < replicas);
            prop_assert!(stays || ready.is_empty(), "{replicas} masters, {:?} caught up", ready);
        }
        if matches!(plan.act, Some(Act::EndMasters | Act::DeleteKeys { .. })) {
            prop_assert!(observed.deleted_at.is_some() && spec.deletion_policy == DeletionPolicy::Delete);
        }
    }

    /// Keys go only when no master is left that could write them again.
    #[test]
    fn keys_outlive_the_masters(spec in wanted(), observed in observed()) {
        let plan = plan(NAME, &spec, &observed);
        if let Some(Act::DeleteKeys { log }) = plan.act {
            prop_assert!(observed.pods.is_empty());
            let gone = observed.stateful_set.is_none_or(|set| set.deleted || set.existing == Some(0));
            prop_assert!(gone, "the StatefulSet still has masters");
            // Only the log that the status names.
            prop_assert_eq!(log, observed.status.oplog.and_then(|oplog| oplog.log_id));
        }
    }

    /// While etcd does not say who leads, nobody is relabelled, asked to hand over or counted as caught up, and no
    /// failover is recorded.
    #[test]
    fn unknown_is_not_zero(spec in wanted(), observed in observed()) {
        if observed.etcd.view().is_some() {
            return Ok(());
        }
        let plan = plan(NAME, &spec, &observed);
        prop_assert!(plan.labels.is_empty());
        let asked = matches!(plan.act, Some(Act::Switchover { .. }));
        prop_assert!(!asked);
        prop_assert_eq!(&plan.last_failover, &observed.status.last_failover);
        if let (Objects::Apply { replicas }, Some(set)) = (plan.objects, &observed.stateful_set) {
            prop_assert!(replicas >= set.replicas);
        }
        let status = status(NAME, &spec, &observed, &plan, &Applied::default());
        prop_assert_eq!(status.caught_up_replicas, None);
        prop_assert_eq!(status.lag, None);
        prop_assert_eq!(&status.leader, &observed.status.leader);
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        prop_assert!(ready.status != "True");
    }

    /// At no moment do two pods carry the label of the primary, however many of the writes have been made.
    #[test]
    fn never_two_primaries(spec in wanted(), observed in observed()) {
        let primaries = |pods: &[PodFacts]| pods.iter().filter(|pod| pod.role.as_deref() == Some("primary")).count();
        let before = primaries(&observed.pods);
        let mut pods = observed.pods.clone();
        for label in plan(NAME, &spec, &observed).labels {
            pods.iter_mut().find(|pod| pod.uid == label.uid).unwrap().role = Some(label.role.to_owned());
            prop_assert!(primaries(&pods) <= before.max(1));
        }
        if observed.etcd.view().is_some() {
            prop_assert!(primaries(&pods) <= 1);
        }
    }

    /// A suspended cluster is left alone: objects, requests, keys.
    #[test]
    fn suspended_is_left_alone(spec in wanted(), observed in observed()) {
        if !spec.suspend || observed.deleted_at.is_some() {
            return Ok(());
        }
        let plan = plan(NAME, &spec, &observed);
        prop_assert_eq!(plan.objects, Objects::Leave);
        prop_assert_eq!(&plan.act, &None);
        let only_asks = plan.chores.iter().all(|chore| matches!(chore, Chore::AskPromotion { .. }));
        prop_assert!(only_asks);
    }

    /// However masters and etcd behave, a deleted resource is let go in the end.
    #[test]
    fn deletion_ends(spec in wanted(), mut observed in observed()) {
        observed.deleted_at = Some(now() - SignedDuration::from_secs(3600));
        observed.finalizer = true;
        observed.deletion_attempts = 1000;
        let no_answer = || Call::Done(String::new(), Err(KeysLeft::Failed("no answer".to_owned())));
        if observed.deletion.is_running() {
            // A call has a deadline.
            observed.deletion = no_answer();
        }
        let mut passes = 0;
        loop {
            let plan = plan(NAME, &spec, &observed);
            match (&plan.finalizer, &plan.act) {
                (Finalizer::Remove(Farewell::Kept), _) => {
                    prop_assert_eq!(spec.deletion_policy, DeletionPolicy::Retain);
                    break;
                }
                (Finalizer::Remove(_), _) => break,
                (_, Some(Act::EndMasters)) => observed.stateful_set.as_mut().unwrap().replicas = 0,
                (_, Some(Act::DeleteKeys { .. })) => observed.deletion = no_answer(),
                stuck => prop_assert!(false, "{stuck:?} waits for {:?}", plan.waits),
            }
            passes += 1;
            prop_assert!(passes < 5, "no end");
        }
    }

    /// Only those that say so, run where they say and are not on their way out count as caught up.
    #[test]
    fn caught_up_is_what_members_say(observed in observed()) {
        for pod in caught_up_standbys(&observed) {
            let view = observed.etcd.view().unwrap();
            let said = view.members[&pod.name].value.as_ref().unwrap();
            prop_assert!(said.caught_up && !pod.deleted);
            prop_assert!(serving(&observed) != Some(pod.name.as_str()));
        }
    }
}

/// Three pods of which `leader` leads in `term`; all others are caught up.
fn healthy(leader: u8, term: u64) -> Observed {
    let member = |ordinal: u8| {
        let value = MemberValue {
            name: pod_name(ordinal),
            role: if ordinal == leader { Role::Primary } else { Role::Standby },
            addresses: addresses(ordinal),
            caught_up: true,
            ..MemberValue::default()
        };
        (
            pod_name(ordinal),
            Member { value: Some(value), stamp: Stamp { mod_revision: 9, lease: LeaseId(7) } },
        )
    };
    let pod = |ordinal: u8| PodFacts {
        name: pod_name(ordinal),
        uid: format!("uid-{ordinal}"),
        ip: Some(address(ordinal)),
        role: Some(if ordinal == leader { "primary" } else { "standby" }.to_owned()),
        ready: true,
        revision: Some("r1".to_owned()),
        ..PodFacts::default()
    };
    Observed {
        now: now(),
        generation: Some(1),
        deleted_at: None,
        finalizer: false,
        status: MasterClusterStatus::default(),
        etcd: EtcdSight::Current(Arc::new(ClusterView {
            revision: 100,
            leader: Some(Leader {
                term: Term(term),
                lease: LeaseId(5),
                value: ElectionValue {
                    name: pod_name(leader),
                    addresses: addresses(leader),
                    ..ElectionValue::default()
                },
            }),
            serving: Some(client_address(leader)),
            members: (0..3).map(member).collect(),
            ..ClusterView::default()
        })),
        etcd_health: etcd_health(10 << 20, &[]),
        stateful_set: Some(StatefulSetFacts {
            replicas: 3,
            existing: Some(3),
            update_revision: Some("r1".to_owned()),
            deleted: false,
        }),
        pods: (0..3).map(pod).collect(),
        switchover: Call::Idle,
        promotion: None,
        deletion: Call::Idle,
        deletion_attempts: 0,
    }
}

fn change(observed: &mut Observed, change: impl FnOnce(&mut ClusterView)) {
    let mut view = observed.etcd.view().unwrap().clone();
    change(&mut view);
    observed.etcd = EtcdSight::Current(Arc::new(view));
}

/// One pass, and what is observed after it.
fn pass(spec: &MasterClusterSpec, observed: &Observed) -> (Plan, Observed) {
    let plan = plan(NAME, spec, observed);
    let after = done(spec, observed, &plan);
    (plan, after)
}

fn plain() -> MasterClusterSpec {
    spec(3, Switchover::default(), false, false)
}

/// What one member reports that has a quota of 100 MiB.
fn etcd_health(in_use_bytes: u64, alarms: &[Alarm]) -> EtcdHealth {
    let usage = Usage {
        db_bytes: Some(in_use_bytes),
        in_use_bytes: Some(in_use_bytes),
        quota_bytes: Some(100 << 20),
        growth_bytes_per_second: Some(1 << 10),
        time_left_seconds: Some(7200),
    };
    let member = EtcdMember { endpoint: "http://etcd:2379".to_owned(), usage, error: None };
    EtcdHealth { fullest: usage, alarms: Some(alarms.to_vec()), members: vec![member] }
}

fn condition(observed: &Observed, kind: &str) -> (String, String, String) {
    let found = observed.status.conditions.iter().find(|it| it.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

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
    seen.etcd = EtcdSight::Lost { why: "no answer".to_owned() };
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
            ("UpToDate", "True")
        ]
    );
}

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
    let EtcdSight::Current(next) = healthy(1, 20).etcd else { unreachable!() };
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
    let EtcdSight::Current(next) = healthy(1, 20).etcd else { unreachable!() };
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
    let EtcdSight::Current(next) = healthy(2, 20).etcd else { unreachable!() };
    change(&mut seen, |view| *view = (*next).clone());
    let (plan, seen) = pass(&wanted, &seen);
    assert_eq!((plan.act, plan.labels.last().unwrap().pod.as_str()), (None, "demo-2"));
    let record = seen.status.last_switchover.clone().unwrap();
    assert_eq!((record.result, record.to.as_deref()), (SwitchoverResult::Succeeded, Some("demo-2")));
    assert_eq!(seen.status.last_failover, None);
    let (plan, _) = pass(&wanted, &seen);
    assert_eq!((plan.act, plan.labels.len()), (None, 0));
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
