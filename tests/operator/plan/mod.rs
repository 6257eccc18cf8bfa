//! The operator's `plan` and `report`, over clusters in every state that can be observed (`properties`) and over sequences
//! of passes (`tables`, `leadership`, `etcd`).

mod etcd;
mod leadership;
mod properties;
mod snapshots;
mod tables;
mod volumes;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use moonkeeper::api::{
    DeletionPolicy, EtcdStatus, FailoverReport, LeaderStatus, MasterClusterSpec, MasterClusterStatus, Phase,
    SnapshotEntry, SnapshotReport, SnapshotResult, Switchover, SwitchoverReport, SwitchoverResult,
};
use moonkeeper::cluster::etcd_health::{Alarm, EtcdHealth, EtcdMember, Usage};
use moonkeeper::cluster::member::{Addresses, DigestAt, ElectionValue, MemberValue};
use moonkeeper::cluster::promotion::{PromotionReason, PromotionReport};
use moonkeeper::cluster::role::Role;
use moonkeeper::cluster::snapshot::HeldSnapshot;
use moonkeeper::cluster::switchover::SwitchoverDone;
use moonkeeper::cluster::view::{ClusterView, Leader, Member, Serving, Stamp, StoreId, Successor};
use moonkeeper::coordination::types::LeaseId;
use moonkeeper::engine::types::Term;
use moonkeeper::operator::observation::{
    Call, CallError, ClaimFacts, ClaimPhase, ClaimShape, EtcdKeys, KeysLeft, Observation, PodFacts,
    PromotionAnswer, SnapshotBegun, StatefulSetFacts,
};
use moonkeeper::operator::plan::deletion::Farewell;
use moonkeeper::operator::plan::{Act, Chore, Finalizer, Objects, Plan, plan};
use moonkeeper::operator::report::conditions::caught_up_standbys;
use moonkeeper::operator::report::events::happenings;
use moonkeeper::operator::report::{Applied, Failure, is_news, status};

const NAME: &str = "demo";

const ENDPOINT: &str = "http://etcd:2379";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn spec(replicas: i32, switchover: Switchover, suspend: bool, delete: bool) -> MasterClusterSpec {
    let mut spec: MasterClusterSpec =
        serde_json::from_value(serde_json::json!({"etcd": {"endpoints": [ENDPOINT]}})).unwrap();
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

fn client_address(ordinal: u8) -> Serving {
    Serving { address: addresses(ordinal).rpc, create_revision: 9 }
}

/// What would be observed after everything in the plan has been done, and nothing else has happened.
fn done(spec: &MasterClusterSpec, observed: &Observation, plan: &Plan) -> Observation {
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
    if let Some(Act::ReplaceStatefulSet { .. }) = &plan.act {
        after.stateful_set = None;
    }
    after.status = status(NAME, spec, observed, plan, &Applied::default());
    after
}

/// Three pods of which `leader` leads in `term`; all others are caught up.
fn healthy(leader: u8, term: u64) -> Observation {
    let member = |ordinal: u8| {
        let value = MemberValue {
            name: pod_name(ordinal),
            role: if ordinal == leader { Role::Primary } else { Role::Standby },
            addresses: addresses(ordinal),
            caught_up: true,
            snapshots: vec![held(800)],
            unsaved_ms: Some(0),
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
        claim: Some(claim_name(ordinal)),
        ..PodFacts::default()
    };
    Observation {
        now: now(),
        generation: Some(1),
        deleted_at: None,
        finalizer: false,
        status: MasterClusterStatus::default(),
        etcd: EtcdKeys::Current(Arc::new(ClusterView {
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
        endpoints_unverified: false,
        etcd_health: etcd_health(10 << 20, &[]),
        stateful_set: Some(StatefulSetFacts {
            replicas: 3,
            existing: Some(3),
            update_revision: Some("r1".to_owned()),
            deleted: false,
            uid: "set".to_owned(),
            claim: Some(shape("8Gi")),
        }),
        pods: (0..3).map(pod).collect(),
        claims: (0..3).map(claim).collect(),
        switchover: Call::Idle,
        snapshot_request: None,
        snapshot: Call::Idle,
        promotion: None,
        deletion: Call::Idle,
        deletion_attempts: 0,
    }
}

fn held(sequence_id: u64) -> HeldSnapshot {
    HeldSnapshot {
        log: "log".to_owned(),
        sequence_id,
        bytes: 12 << 20,
        taken_at_ms: 1_800_000_000_250,
        durable: true,
        ..HeldSnapshot::default()
    }
}

fn claim_name(ordinal: u8) -> String {
    format!("data-{NAME}-{ordinal}")
}

/// What the default spec asks for.
fn shape(size: &str) -> ClaimShape {
    ClaimShape { size: size.to_owned(), storage_class: None }
}

fn claim(ordinal: u8) -> ClaimFacts {
    ClaimFacts {
        name: claim_name(ordinal),
        phase: ClaimPhase::Bound,
        shape: shape("8Gi"),
        uid: format!("claim-{ordinal}"),
        deleted: false,
    }
}

fn change(observed: &mut Observation, change: impl FnOnce(&mut ClusterView)) {
    let mut view = observed.etcd.view().unwrap().clone();
    change(&mut view);
    observed.etcd = EtcdKeys::Current(Arc::new(view));
}

/// One pass, and what is observed after it.
fn pass(spec: &MasterClusterSpec, observed: &Observation) -> (Plan, Observation) {
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
    let member = EtcdMember { endpoint: ENDPOINT.to_owned(), usage, error: None };
    EtcdHealth { fullest: usage, alarms: Some(alarms.to_vec()), members: vec![member] }
}

fn condition(observed: &Observation, kind: &str) -> (String, String, String) {
    let found = observed.status.conditions.iter().find(|it| it.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}
