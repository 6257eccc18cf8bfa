//! Where each master keeps its own files: a claim that outlives the pod, or a folder that goes with it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimSpec, Volume, VolumeMount,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::folders::DATA_FOLDER;
use super::identity::Identity;
use crate::api::MasterClusterSpec;
use crate::api::names::DATA;

/// The group that the volume of a claim is given: the one of the image. It is added to the groups of whatever user the
/// container runs as.
pub(super) const GROUP: i64 = 65532;

/// Builds the template of the claims; `None` if there are none. Claims have the labels of every object, so that the
/// operator sees them.
pub(super) fn claim_templates(
    identity: &Identity,
    spec: &MasterClusterSpec,
) -> Option<Vec<PersistentVolumeClaim>> {
    let claim = spec.snapshots.store.volume_claim.as_ref()?;
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(claim.size.clone()))]);
    let class = Some(claim.storage_class_name.clone()).filter(|name| !name.is_empty());
    Some(vec![PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(DATA.to_owned()),
            labels: Some(identity.labels()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: class,
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }])
}

/// Returns what Kubernetes does with the claims: it keeps them. Those of masters that are scaled away may have one of
/// the two copies of a snapshot; those of a StatefulSet that was deleted by mistake are needed by the next one. With
/// `deletionPolicy: Delete` the operator deletes them, after the keys in etcd.
pub(super) fn retention() -> StatefulSetPersistentVolumeClaimRetentionPolicy {
    StatefulSetPersistentVolumeClaimRetentionPolicy {
        when_deleted: Some("Retain".to_owned()),
        when_scaled: Some("Retain".to_owned()),
    }
}

/// Builds the volume that goes with the pod; `None` if there is a claim, whose volume Kubernetes adds.
pub(super) fn volume(spec: &MasterClusterSpec) -> Option<Volume> {
    spec.snapshots.store.volume_claim.is_none().then(|| Volume {
        name: DATA.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    })
}

/// Builds the mount for the container of the master.
pub(super) fn mount() -> VolumeMount {
    VolumeMount { name: DATA.to_owned(), mount_path: DATA_FOLDER.to_owned(), ..VolumeMount::default() }
}
