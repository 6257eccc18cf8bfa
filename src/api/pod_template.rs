//! What a user adds to the pods of the masters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;

/// What is added to the pods of the masters. Passed on to Kubernetes, which says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PodTemplate {
    /// More labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "x-kubernetes-validations" = [{
            "rule": "self.all(key, !key.startsWith('moonkeeper.dev/') && !key.startsWith('app.kubernetes.io/'))",
            "message": "labels that begin with moonkeeper.dev/ and app.kubernetes.io/ are the operator's own",
        }],
    ))]
    pub labels: BTreeMap<String, String>,
    /// More annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "x-kubernetes-validations" = [{
            "rule": "self.all(key, !key.startsWith('moonkeeper.dev/'))",
            "message": "annotations that begin with moonkeeper.dev/ are the operator's own",
        }],
    ))]
    pub annotations: BTreeMap<String, String>,
    /// The security context of the pods, as in a pod: fsGroup for a volume of your own, for instance. Where it says
    /// nothing, the pods are not root and have the seccomp profile RuntimeDefault.
    #[serde(skip_serializing_if = "schema::is_empty")]
    #[schemars(schema_with = "schema::passed_on")]
    pub security_context: Value,
    /// More variables for the master. MOONKEEPER_FLAG sets any flag of `moonkeeper master` that has no field here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::named_list", extend("x-kubernetes-validations" = [{
        "rule": "self.all(one, !(one.name in ['POD_IP', 'POD_NAME', 'MOONKEEPER_ETCD_USER']))",
        "message": "POD_IP, POD_NAME and MOONKEEPER_ETCD_USER are set by the operator",
    }]))]
    pub env: Vec<Value>,
    /// More volumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::named_list", extend("x-kubernetes-validations" = [{
        "rule": "self.all(one, !(one.name in ['config', 'data', 'admin', 'admin-tls', 'etcd-tls', 'etcd-credentials']))",
        "message": "config, data, admin, admin-tls, etcd-tls and etcd-credentials are volumes of the operator's own",
    }]))]
    pub volumes: Vec<Value>,
    /// Where the master has volumes mounted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::passed_on_list")]
    pub volume_mounts: Vec<Value>,
    /// More containers beside the master.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::named_list", extend("x-kubernetes-validations" = [{
        "rule": "self.all(one, one.name != 'master')",
        "message": "the container called master is the operator's own",
    }]))]
    pub containers: Vec<Value>,
    /// Secrets with which the image is pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::named_list")]
    pub image_pull_secrets: Vec<Value>,
}

impl Default for PodTemplate {
    fn default() -> Self {
        Self {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            security_context: Value::Object(serde_json::Map::new()),
            env: Vec::new(),
            volumes: Vec::new(),
            volume_mounts: Vec::new(),
            containers: Vec::new(),
            image_pull_secrets: Vec::new(),
        }
    }
}
