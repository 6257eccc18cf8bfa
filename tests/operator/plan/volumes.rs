//! Volumes of masters: a StatefulSet that has to be replaced, pods and claims that are not as the spec has them, and
//! claims that wait for a volume.

use moonkeeper::api::{Ephemeral, SnapshotStore, VolumeClaim};
use moonkeeper::operator::claim_trouble::CLAIM_PENDING;
use moonkeeper::operator::observation::PodTrouble;

use super::*;

fn ephemeral() -> MasterClusterSpec {
    let mut spec = plain();
    spec.snapshots.store = SnapshotStore { volume_claim: None, ephemeral: Some(Ephemeral {}) };
    spec
}

fn claims(size: &str, class: &str) -> MasterClusterSpec {
    let mut spec = plain();
    let claim = VolumeClaim { size: size.to_owned(), storage_class_name: class.to_owned() };
    spec.snapshots.store = SnapshotStore { volume_claim: Some(claim), ephemeral: None };
    spec
}

/// The cluster of `healthy`, from before masters had volumes.
fn without_volumes() -> Observation {
    let mut seen = healthy(0, 10);
    seen.claims.clear();
    seen.pods.iter_mut().for_each(|pod| pod.claim = None);
    seen.stateful_set.as_mut().unwrap().claim = None;
    seen
}

fn replaces(plan: &Plan) -> bool {
    plan.act == Some(Act::ReplaceStatefulSet { uid: "set".to_owned() })
}

#[test]
fn a_statefulset_with_other_volumes_is_replaced_around_its_pods() {
    let (first, seen) = pass(&plain(), &without_volumes());
    assert!(replaces(&first), "{:?}", first.act);
    // The template must not be written into the one that goes.
    assert_eq!(first.objects, Objects::KeepMasters);
    assert_eq!(condition(&seen, "Progressing").1, "Waiting");
    // While Kubernetes takes the owner off the pods.
    let mut going = without_volumes();
    going.stateful_set.as_mut().unwrap().deleted = true;
    let (second, _) = pass(&plain(), &going);
    assert_eq!((second.objects, second.act), (Objects::KeepMasters, None));
    // It is gone.
    let (third, _) = pass(&plain(), &seen);
    assert_eq!((third.objects, third.act), (Objects::Apply { replicas: 3 }, None));
}

#[test]
fn only_another_volume_replaces_a_statefulset() {
    for (spec, replaced) in [
        (plain(), false),
        (ephemeral(), true),
        // As the API server writes it.
        (claims("8192Mi", ""), false),
        (claims("9Gi", ""), true),
        (claims("8Gi", "fast"), true),
    ] {
        let first = plan(NAME, &spec, &healthy(0, 10));
        assert_eq!(replaces(&first), replaced, "{:?}", spec.snapshots);
    }
    assert!(!replaces(&plan(NAME, &ephemeral(), &without_volumes())));
    let mut suspended = ephemeral();
    suspended.suspend = true;
    assert!(!replaces(&plan(NAME, &suspended, &healthy(0, 10))));
}

/// A new StatefulSet with fewer masters than there are pods would end some of them, whatever they are.
#[test]
fn a_statefulset_that_is_created_around_pods_ends_none_of_them() {
    let mut seen = healthy(2, 10);
    seen.stateful_set = None;
    let fewer = spec(1, Switchover::default(), false, false);
    let (plan, after) = pass(&fewer, &seen);
    assert_eq!(plan.objects, Objects::Apply { replicas: 3 });
    assert!(condition(&after, "Progressing").2.contains("you to switch over"));
    seen.pods.clear();
    assert_eq!(pass(&fewer, &seen).0.objects, Objects::Apply { replicas: 1 });
}

#[test]
fn a_switchover_waits_until_the_statefulset_is_replaced() {
    let asked = spec(3, Switchover { request_id: "a".into(), target: String::new() }, false, false);
    let mut seen = without_volumes();
    seen = pass(&asked, &Observation { stateful_set: healthy(0, 10).stateful_set, ..seen }).1;
    seen.stateful_set = without_volumes().stateful_set;
    let (plan, _) = pass(&asked, &seen);
    assert!(replaces(&plan));
    assert!(plan.waits.iter().any(|what| what.contains("before the switchover")), "{:?}", plan.waits);
}

/// Kubernetes stops at the first pod whose volumes it cannot change, so the order is that of the ordinals.
#[test]
fn pods_without_a_volume_are_named_in_the_order_in_which_kubernetes_can_replace_them() {
    let mut seen = healthy(0, 10);
    seen.pods[0].claim = None;
    seen.pods[2].claim = None;
    let (_, after) = pass(&plain(), &seen);
    let (value, reason, message) = condition(&after, "UpToDate");
    assert_eq!((value.as_str(), reason.as_str()), ("False", "NoVolumeYet"));
    assert!(message.starts_with("pods without a volume: demo-0 and demo-2; "), "{message}");
    assert!(message.contains("Until demo-0 has its volume"), "{message}");
    // Without claims in the spec there is nothing to miss.
    assert_eq!(condition(&pass(&ephemeral(), &seen).1, "UpToDate").0, "True");
}

#[test]
fn claims_that_differ_from_the_spec_are_named() {
    let mut seen = healthy(0, 10);
    seen.stateful_set.as_mut().unwrap().claim = Some(shape("9Gi"));
    let (_, after) = pass(&claims("9Gi", ""), &seen);
    let (value, reason, message) = condition(&after, "UpToDate");
    assert_eq!((value.as_str(), reason.as_str()), ("False", "OtherClaims"));
    assert!(message.contains("data-demo-0 (8Gi, no StorageClass), "), "{message}");
    // The default StorageClass is filled in, and a claim that no pod uses does not count.
    seen.claims = (0..3).map(claim).collect();
    seen.claims.iter_mut().for_each(|claim| claim.shape.storage_class = Some("standard".to_owned()));
    seen.claims.push(ClaimFacts { shape: shape("1Gi"), ..claim(5) });
    assert_eq!(condition(&pass(&plain(), &seen).1, "UpToDate").0, "True");
}

#[test]
fn a_claim_that_stays_pending_is_named_by_progressing_and_then_by_stalled() {
    let waiting = |stalled| {
        let mut seen = healthy(0, 10);
        change(&mut seen, |view| *view = ClusterView::default());
        for pod in &mut seen.pods {
            let message = format!("the volume claim data-{} is Pending", pod.name);
            pod.trouble = Some(PodTrouble { reason: CLAIM_PENDING.to_owned(), message, stalled });
        }
        pass(&plain(), &seen)
    };
    let (plan, after) = waiting(false);
    assert!(plan.again.is_some(), "no watch tells that it has waited for too long");
    let (value, reason, message) = condition(&after, "Progressing");
    assert_eq!((value.as_str(), reason.as_str()), ("True", "ClaimPending"));
    assert!(message.contains("data-demo-0 is Pending"), "{message}");
    assert_eq!(condition(&after, "Stalled").0, "False");
    let (_, after) = waiting(true);
    let (value, reason, _) = condition(&after, "Stalled");
    assert_eq!((value.as_str(), reason.as_str()), ("True", "ClaimPending"));
}
