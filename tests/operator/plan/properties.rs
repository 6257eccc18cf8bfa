//! Properties of `plan`, over clusters in every state that can be observed, sensible or not: the same input gives the same
//! plan, and what was done is not done again; at most one disruption in a pass; the pod that serves is not ended while no
//! standby could take over; what was not observed changes nothing.

use proptest::prelude::*;

use super::*;

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
        prop::bool::weighted(0.8),
    )
        .prop_map(move |(role, ready, deleted, ip, another, has_claim)| PodFacts {
            claim: has_claim.then(|| claim_name(ordinal)),
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

fn etcd_keys() -> impl Strategy<Value = EtcdKeys> {
    prop_oneof![
        6 => view().prop_map(|view| EtcdKeys::Current(Arc::new(view))),
        1 => Just(EtcdKeys::NotYet),
        1 => Just(EtcdKeys::Lost { why: "away".to_owned() }),
        1 => Just(EtcdKeys::Unusable { reason: "SecretNotFound", message: "no secret".to_owned() }),
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
    // Endpoints of the spec, and others.
    let etcd = prop::option::of(prop_oneof![Just(ENDPOINT), Just("http://before:2379")]);
    (leader, prop::option::of(5i64..45), switchover, failover, etcd, last_snapshot()).prop_map(
        |(leader, term, switchover, failover, etcd, last_snapshot)| MasterClusterStatus {
            last_snapshot,
            etcd: etcd.map(|endpoint| EtcdStatus {
                cluster_id: Some("7".to_owned()),
                endpoints: vec![endpoint.to_owned()],
                ..EtcdStatus::default()
            }),
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

fn snapshot_call() -> impl Strategy<Value = Call<Result<SnapshotBegun, CallError>>> {
    let result = prop_oneof![
        (0u64..100, any::<bool>()).prop_map(|(sequence_id, complete)| {
            Ok(SnapshotBegun { member: pod_name(1), sequence_id, complete })
        }),
        Just(Err(CallError::NoAnswer("silence".to_owned()))),
    ];
    prop_oneof![
        Just(Call::Idle),
        request().prop_map(Call::Running),
        (request(), result).prop_map(|(id, result)| Call::Done(id, result)),
    ]
}

fn last_snapshot() -> impl Strategy<Value = Option<SnapshotReport>> {
    let result = prop_oneof![
        Just(SnapshotResult::Pending),
        Just(SnapshotResult::Succeeded),
        Just(SnapshotResult::Failed)
    ];
    prop::option::of((request(), prop::option::of(0i64..100), result, at()).prop_map(
        |(request_id, sequence_id, result, at)| SnapshotReport {
            request_id,
            member: sequence_id.map(|_| pod_name(1)),
            sequence_id,
            result,
            message: None,
            at,
        },
    ))
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
        etcd in etcd_keys(),
        endpoints_unverified in prop::bool::weighted(0.1),
        claims in prop::bool::weighted(0.8),
        set in prop::option::weighted(0.8, (0i32..6, any::<bool>(), prop::option::of(0i32..6))),
        pods in pods(),
        switchover in call(),
        snapshot_request in prop::option::of(prop_oneof![Just("a".to_owned()), Just("b".to_owned())]),
        snapshot in snapshot_call(),
        promotion in prop::option::of((10u64..40, any::<bool>())),
        deletion in deletion(),
        deletion_attempts in 0u32..5,
    ) -> Observation {
        Observation {
            now: now(),
            generation: Some(3),
            deleted_at: deleted.map(|age| now() - SignedDuration::from_secs(age)),
            finalizer,
            status,
            etcd,
            endpoints_unverified,
            etcd_health: EtcdHealth::default(),
            stateful_set: set.map(|(replicas, deleted, existing)| StatefulSetFacts {
                replicas,
                existing,
                update_revision: Some("r1".to_owned()),
                deleted,
                uid: "set".to_owned(),
                claim: claims.then(|| shape("8Gi")),
            }),
            pods,
            claims: (0..3).map(claim).collect(),
            switchover,
            snapshot_request,
            snapshot,
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

fn serving(observed: &Observation) -> Option<&str> {
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
        // A snapshot that a master has begun is recorded once more before it has a result.
        let later = done(&spec, &later, &plan(NAME, &spec, &later));
        let last = done(&spec, &later, &plan(NAME, &spec, &later));
        prop_assert!(!is_news(&later.status, &last.status), "{:#?}\n{:#?}", later.status, last.status);
        prop_assert!(happenings(&later.status, &last.status).is_empty());
    }

    /// No master is asked for a snapshot while the primary is being changed, or while that is unknown.
    #[test]
    fn a_snapshot_waits_for_the_primary(spec in wanted(), observed in observed()) {
        let plan = plan(NAME, &spec, &observed);
        if let Some(Act::TakeSnapshot { request_id, .. }) = &plan.act {
            let view = observed.etcd.view().unwrap();
            prop_assert!(view.leader.is_some() && view.serving.is_some() && view.successor.is_none());
            for report in [&plan.last_switchover, &observed.status.last_switchover].into_iter().flatten() {
                prop_assert!(report.result != SwitchoverResult::Pending);
            }
            prop_assert_eq!(Some(request_id), observed.snapshot_request.as_ref());
            prop_assert!(observed.deleted_at.is_none() && !spec.suspend);
            prop_assert!(!observed.snapshot.is_running() || observed.snapshot != Call::Running(request_id.clone()));
        }
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
        if matches!(plan.act, Some(Act::EndMasters | Act::DeleteKeys { .. } | Act::DeleteClaims { .. })) {
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

    /// Masters get the endpoints of the spec only when these have led to the known etcd.
    #[test]
    fn unverified_endpoints_reach_no_master(spec in wanted(), observed in observed()) {
        if let Objects::Apply { .. } = plan(NAME, &spec, &observed).objects {
            let known = observed.status.etcd.as_ref();
            let led_there = known.is_none_or(|known| known.endpoints == spec.etcd.endpoints);
            prop_assert!(!observed.endpoints_unverified && (led_there || observed.etcd.view().is_some()));
        }
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
        // Those that are to be deleted are being deleted by now.
        observed.claims.iter_mut().for_each(|claim| claim.deleted = true);
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
