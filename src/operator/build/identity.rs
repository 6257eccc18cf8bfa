//! What all objects of a cluster have in common: namespace, labels, owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;

use super::BuildError;
use crate::api::MasterCluster;
use crate::api::names::{APP, CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, MASTER_COMPONENT};

/// The cluster that objects are built for.
pub(super) struct Identity {
    pub name: String,
    pub namespace: String,
    owner: OwnerReference,
}

impl Identity {
    pub(super) fn of(cluster: &MasterCluster) -> Result<Self, BuildError> {
        let name = cluster.metadata.name.clone().ok_or(BuildError::NoIdentity("name"))?;
        let namespace = cluster.metadata.namespace.clone().ok_or(BuildError::NoIdentity("namespace"))?;
        let owner = cluster.controller_owner_ref(&()).ok_or(BuildError::NoIdentity("uid"))?;
        Ok(Self { name, namespace, owner })
    }

    /// Builds the metadata of the object with this name.
    pub(super) fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }

    /// Returns the labels of every object, pods included. No version label: with it every new operator would change
    /// every object.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector_labels();
        labels.insert("app.kubernetes.io/component".to_owned(), MASTER_COMPONENT.to_owned());
        labels.insert("app.kubernetes.io/instance".to_owned(), self.name.clone());
        labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
        labels
    }

    /// Returns the labels that distinguish the pods of this cluster from all others. They can never change: the
    /// selector of a StatefulSet is immutable.
    pub(super) fn selector_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("app.kubernetes.io/name".to_owned(), APP.to_owned()),
            (CLUSTER_LABEL.to_owned(), self.name.clone()),
        ])
    }

    /// Returns [`Self::selector_labels`] as a selector.
    pub(super) fn selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(self.selector_labels()), ..LabelSelector::default() }
    }
}
