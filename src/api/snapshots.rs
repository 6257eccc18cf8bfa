//! What a user asks for about snapshots: how often, how many, and where they are kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// When masters take snapshots of their state, and where they keep them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "duration(self.interval) >= duration('10s') && duration(self.interval) <= duration('24h')",
    "message": "interval is 10s to 24h",
    "fieldPath": ".interval",
}]))]
pub struct Snapshots {
    /// Time between two snapshots of a standby, if anything has changed.
    pub interval: GoDuration,
    /// How many each master keeps.
    #[schemars(range(min = 2, max = 8))]
    pub keep: i32,
    /// Where each master keeps its snapshots, and what it knows of the log.
    pub store: SnapshotStore,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self { interval: "10m".into(), keep: 2, store: SnapshotStore::default() }
    }
}

/// Where each master keeps its snapshots: exactly one of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    // Server-side apply replaces one choice by the other.
    "x-kubernetes-map-type" = "atomic",
    "x-kubernetes-validations" = [{
        "rule": "has(self.volumeClaim) != has(self.ephemeral)",
        "message": "store is either volumeClaim, which is the default, or ephemeral; set the other one to null",
    }],
))]
pub struct SnapshotStore {
    /// A PersistentVolumeClaim for each master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<VolumeClaim>,
    /// A folder that is lost with the pod. A master that starts reads the log from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Ephemeral>,
}

impl Default for SnapshotStore {
    fn default() -> Self {
        Self { volume_claim: Some(VolumeClaim::default()), ephemeral: None }
    }
}

/// The PersistentVolumeClaim of each master. A change is for claims that are created later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeClaim {
    /// How much to ask for. A million objects with keys of 30 bytes take some 36 MB in each snapshot.
    #[schemars(extend(
        "maxLength" = 32,
        "pattern" = r"^[0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?$",
        "x-kubernetes-validations" = [{
            "rule": "quantity(self).isGreaterThan(quantity('0'))",
            "message": "size must be greater than 0",
        }],
    ))]
    pub size: String,
    /// The StorageClass; the default one of the Kubernetes cluster if empty.
    #[schemars(extend("maxLength" = 253))]
    pub storage_class_name: String,
}

impl Default for VolumeClaim {
    fn default() -> Self {
        Self { size: "8Gi".to_owned(), storage_class_name: String::new() }
    }
}

/// A folder that is lost with the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ephemeral {}
