//! What all objects of a cluster have in common: namespace, labels, owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;

use super::BuildError;
use crate::api::MasterCluster;
use crate::api::names::{APP, CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, MASTER_COMPONENT};

/// Which cluster objects belong to.
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

    /// The metadata of the object with this name.
    pub(super) fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }

    /// The labels of every object, pods included. No version: it would have to change with every new operator.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector_labels();
        labels.insert("app.kubernetes.io/component".to_owned(), MASTER_COMPONENT.to_owned());
        labels.insert("app.kubernetes.io/instance".to_owned(), self.name.clone());
        labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
        labels
    }

    /// The labels that tell the pods of this cluster from all others. They can never change: the selector of a
    /// StatefulSet is immutable.
    pub(super) fn selector_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("app.kubernetes.io/name".to_owned(), APP.to_owned()),
            (CLUSTER_LABEL.to_owned(), self.name.clone()),
        ])
    }

    /// The same as a selector.
    pub(super) fn selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(self.selector_labels()), ..LabelSelector::default() }
    }
}
