//! Collects the input of a pass from caches and watchers.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::caches::Caches;
use super::claim_trouble;
use super::etcd_session::{Calls, EtcdSession};
use super::keys_watch::WatchedKeys;
use super::observation::{
    ClaimFacts, ClaimPhase, ClaimShape, EtcdKeys, Observation, PodFacts, PodTrouble, StatefulSetFacts,
};
use crate::api::MasterCluster;
use crate::api::names::{
    COMPANION, CONTAINER, DATA, FINALIZER, MAX_REQUEST_CHARS, ROLE_LABEL, SNAPSHOT_REQUEST,
};
use crate::cluster::etcd_health::EtcdHealth;

/// Label of pods with the revision of the StatefulSet, written by its controller.
const REVISION_LABEL: &str = "controller-revision-hash";

/// Collects what is known. `etcd` is the session with the cluster's etcd, or why there is none.
#[must_use]
pub fn observe(
    cluster: &MasterCluster,
    caches: &Caches,
    etcd: &Result<Arc<EtcdSession>, EtcdKeys>,
    now: Timestamp,
) -> Observation {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let set = caches.stateful_sets.named(&namespace, &name);
    let claims: Vec<ClaimFacts> =
        caches.claims.of_cluster(&namespace, &name).iter().map(|claim| claim_facts(claim)).collect();
    let calls =
        etcd.as_ref().map_or_else(|_| Calls::default(), |etcd_session| etcd_session.calls.lock().clone());
    Observation {
        now,
        generation: cluster.metadata.generation,
        deleted_at: cluster.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        finalizer: cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        status: cluster.status.clone().unwrap_or_default(),
        etcd: match etcd {
            Ok(etcd_session) => match etcd_session.watched_keys() {
                WatchedKeys::NotYet => EtcdKeys::NotYet,
                WatchedKeys::Current { view, .. } => EtcdKeys::Current(view),
                WatchedKeys::Lost { why } => EtcdKeys::Lost { why },
            },
            Err(unusable) => unusable.clone(),
        },
        endpoints_unverified: etcd
            .as_ref()
            .is_ok_and(|etcd_session| !etcd_session.leads_to(&cluster.spec.etcd.endpoints)),
        etcd_health: etcd
            .as_ref()
            .map_or_else(|_| EtcdHealth::default(), |etcd_session| etcd_session.etcd_health()),
        stateful_set: set.as_deref().map(set_facts),
        pods: caches
            .pods
            .of_cluster(&namespace, &name)
            .iter()
            .map(|pod| claim_trouble::with_claim(pod_facts(pod), &claims, now))
            .collect(),
        claims,
        switchover: calls.switchover,
        snapshot_request: snapshot_request(cluster),
        snapshot: calls.snapshot,
        promotion: calls.promotion,
        deletion: calls.deletion,
        deletion_attempts: calls.deletion_attempts,
    }
}

fn snapshot_request(cluster: &MasterCluster) -> Option<String> {
    let value = cluster.annotations().get(SNAPSHOT_REQUEST)?;
    let id: String = value.chars().take(MAX_REQUEST_CHARS).collect();
    (!id.is_empty()).then_some(id)
}

fn set_facts(set: &StatefulSet) -> StatefulSetFacts {
    // Until its controller has seen the newest generation, the status is about an older one.
    let said = set.status.as_ref().filter(|status| status.observed_generation >= set.metadata.generation);
    StatefulSetFacts {
        // The API server fills it in; its default is 1.
        replicas: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        existing: said.map(|status| status.replicas),
        update_revision: said.and_then(|status| status.update_revision.clone()),
        deleted: set.metadata.deletion_timestamp.is_some(),
        uid: set.uid().unwrap_or_default(),
        claim: set
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_claim_templates.as_ref()?.first()?.spec.as_ref())
            .map(claim_shape),
    }
}

fn claim_shape(spec: &PersistentVolumeClaimSpec) -> ClaimShape {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    ClaimShape {
        size: requests
            .and_then(|requests| requests.get("storage"))
            .map_or_else(String::new, |it| it.0.clone()),
        storage_class: spec.storage_class_name.clone().filter(|name| !name.is_empty()),
    }
}

fn claim_facts(claim: &PersistentVolumeClaim) -> ClaimFacts {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    ClaimFacts {
        name: claim.name_any(),
        phase: match phase {
            Some("Bound") => ClaimPhase::Bound,
            Some("Lost") => ClaimPhase::Lost,
            _ => ClaimPhase::Pending,
        },
        shape: claim.spec.as_ref().map_or_else(ClaimShape::default, claim_shape),
        uid: claim.uid().unwrap_or_default(),
        deleted: claim.metadata.deletion_timestamp.is_some(),
    }
}

fn pod_facts(pod: &Pod) -> PodFacts {
    let status = pod.status.as_ref();
    let condition = |kind: &str| {
        status
            .and_then(|it| it.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind).cloned())
    };
    let unscheduled = condition("PodScheduled").filter(|condition| condition.status == "False");
    PodFacts {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        ip: status.and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        role: pod.labels().get(ROLE_LABEL).cloned(),
        ready: condition("Ready").is_some_and(|condition| condition.status == "True"),
        deleted: pod.metadata.deletion_timestamp.is_some(),
        revision: pod.labels().get(REVISION_LABEL).cloned(),
        claim: data_claim(pod),
        unscheduled_since: unscheduled.as_ref().and_then(|_| Some(pod.creation_timestamp()?.0)),
        trouble: containers(pod).find_map(container_trouble).or_else(|| {
            let unscheduled = unscheduled?;
            Some(PodTrouble {
                reason: unscheduled.reason.unwrap_or_else(|| "Unschedulable".to_owned()),
                message: unscheduled.message.unwrap_or_else(|| "no node can run this pod".to_owned()),
                stalled: false,
            })
        }),
    }
}

/// Returns the claim of the volume with the master's own files.
fn data_claim(pod: &Pod) -> Option<String> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let data = volumes.iter().find(|volume| volume.name == DATA)?;
    data.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone())
}

/// Returns the status of the master's container and then of its companion, which is an init container: the master waits
/// for it to start.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let masters = status.and_then(|status| status.container_statuses.as_ref());
    let companions = status.and_then(|status| status.init_container_statuses.as_ref());
    let masters = masters.into_iter().flatten().filter(|container| container.name == CONTAINER);
    masters.chain(companions.into_iter().flatten().filter(|container| container.name == COMPANION))
}

/// Returns why a container does not run, as its kubelet reports.
fn container_trouble(container: &ContainerStatus) -> Option<PodTrouble> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone()?;
    let said = waiting.message.clone().unwrap_or_default();
    let (stalled, message) = match reason.as_str() {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable" => (true, format!("the image {} cannot be pulled: {said}", container.image)),
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            (true, format!("the container cannot be started: {said}"))
        }
        "CrashLoopBackOff" => (true, last_words(container, &said)),
        _ => return None,
    };
    // The kubelet alternates between these two while it retries: a condition that did the same would be written all the
    // time (INV-9).
    let reason = match reason.as_str() {
        "ErrImagePull" => "ImagePullBackOff".to_owned(),
        _ => reason,
    };
    Some(PodTrouble { reason, message, stalled })
}

/// Returns exit code and last message of a container in a crash loop.
fn last_words(container: &ContainerStatus, said: &str) -> String {
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    match last {
        Some(last) => {
            let words = last.message.as_deref().map(str::trim).filter(|words| !words.is_empty());
            format!(
                "crash-looping, last exit code {}{}",
                last.exit_code,
                words.map_or_else(String::new, |words| format!(": {words}"))
            )
        }
        None => format!("crash-looping: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_controller_said_counts_when_it_has_seen_the_newest_generation() {
        let set = |seen: i64| -> StatefulSet {
            serde_json::from_value(json!({
                "metadata": {"name": "demo", "generation": 2},
                "spec": {"replicas": 0, "selector": {}, "serviceName": "demo", "template": {}},
                "status": {"observedGeneration": seen, "replicas": 0, "updateRevision": "r"},
            }))
            .unwrap()
        };
        let said = |seen| {
            let facts = set_facts(&set(seen));
            (facts.existing, facts.update_revision)
        };
        assert_eq!(said(2), (Some(0), Some("r".to_owned())));
        assert_eq!(said(1), (None, None));
    }
}
