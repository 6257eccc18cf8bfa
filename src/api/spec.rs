//! What a user asks for. Every default stands in the schema, so that `kubectl get -o yaml` shows what is in force.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::MasterClusterStatus;
use super::{GoDuration, PodTemplate, Snapshots, schema};

/// A master for Mooncake Store with standbys.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "moonkeeper.dev",
    version = "v1alpha1",
    kind = "MasterCluster",
    namespaced,
    status = "MasterClusterStatus",
    derive = "PartialEq",
    shortname = "mcl",
    doc = "A master for Mooncake Store with standbys that take over without losing an acknowledged change.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.clusterId) == has(oldSelf.clusterId) && (!has(self.clusterId) || self.clusterId == oldSelf.clusterId)",
    "message": "clusterId names the log in etcd and cannot be changed; make another MasterCluster instead",
    "fieldPath": ".clusterId",
}]))]
pub struct MasterClusterSpec {
    /// How many masters: one serves, the others follow.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 7))]
    pub replicas: i32,
    /// The name of the log in etcd, which clients have in MC_STORE_CLUSTER_ID. The namespace and the name of the
    /// resource, with a dash between them, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "minLength" = 1,
        "maxLength" = 63,
        "pattern" = "^[a-z0-9_-]+$",
        "x-kubernetes-validations" = [{
            "rule": "self != 'oplog'",
            "message": "oplog is the name that logs are kept under in etcd",
        }],
    ))]
    pub cluster_id: Option<String>,
    /// The image of the masters.
    #[serde(default)]
    pub image: Image,
    /// What each master is given and limited to.
    #[serde(default)]
    pub resources: Resources,
    /// Where etcd is and how to get in.
    pub etcd: Etcd,
    /// The store's own settings.
    #[serde(default)]
    pub store: Store,
    /// The metadata server for transfer engines that are set up with http://NAME-leader:8080/metadata.
    #[serde(default)]
    pub metadata_server: MetadataServer,
    /// When a primary is replaced.
    #[serde(default)]
    pub failover: Failover,
    /// What a new primary does.
    #[serde(default)]
    pub promotion: Promotion,
    /// How changes become durable.
    #[serde(default)]
    pub replication: Replication,
    /// Snapshots of the state, with which masters start.
    #[serde(default)]
    pub snapshots: Snapshots,
    /// Asks for another primary.
    #[serde(default)]
    pub switchover: Switchover,
    /// Where the pods run.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// What is added to the pods.
    #[serde(default)]
    pub pod_template: PodTemplate,
    /// The port that changes things.
    #[serde(default)]
    pub admin: Admin,
    /// Who may reach the masters.
    #[serde(default)]
    pub network_policy: NetworkPolicy,
    /// The operator leaves everything as it is. Masters go on, failover included.
    #[serde(default)]
    pub suspend: bool,
    /// What becomes of the keys in etcd and of the volume claims when the resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

fn three() -> i32 {
    3
}

/// The image of the masters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Image {
    /// Without a tag. Empty means the operator's own image when the masters are first made, and that one from then on.
    #[schemars(extend(
        "maxLength" = 255,
        "x-kubernetes-validations" = [{
            "rule": "!self.contains('@') && !self.matches(':[^/]*$')",
            "message": "the tag or digest of an image belongs in image.tag",
        }],
    ))]
    pub repository: String,
    /// A tag, or a digest like sha256:... . Empty means the one of the operator's own image when the masters are first
    /// made, and that one from then on: a new operator does not restart them.
    #[schemars(extend(
        "maxLength" = 128,
        "pattern" = "^([A-Za-z0-9_][A-Za-z0-9_.-]*|sha256:[0-9a-f]{64})?$",
    ))]
    pub tag: String,
    /// When the node fetches the image.
    pub pull_policy: PullPolicy,
}

impl Default for Image {
    fn default() -> Self {
        Self { repository: String::new(), tag: String::new(), pull_policy: PullPolicy::IfNotPresent }
    }
}

/// When a node fetches an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// For every start.
    Always,
    /// When it is not there.
    IfNotPresent,
    /// It must be there.
    Never,
}

/// What each master is given and limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Resources {
    /// What is set aside for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What it may use at most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// Where etcd is and how to get in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.tlsSecretName != '' || !self.endpoints.exists(one, one.startsWith('https://'))",
        "message": "an https:// endpoint needs tlsSecretName, a Secret with the ca.crt that etcd's certificate is checked with",
    },
    {
        "rule": "self.tlsSecretName == '' || !self.endpoints.exists(one, one.startsWith('http://'))",
        "message": "with tlsSecretName every endpoint must begin with https://",
    },
]))]
pub struct Etcd {
    /// URLs like `https://etcd-0.etcd:2379`. Short names are those of the cluster's namespace, for masters and for the
    /// operator.
    #[schemars(extend("minItems" = 1, "maxItems" = 16, "x-kubernetes-list-type" = "set", "items" = {
        "type": "string",
        "maxLength": 300,
        "pattern": "^https?://(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9._-]+):[0-9]{1,5}$",
    }))]
    pub endpoints: Vec<String>,
    /// A Secret with ca.crt, and with tls.crt and tls.key if etcd wants to see a certificate.
    #[serde(default)]
    #[schemars(extend("maxLength" = 253))]
    pub tls_secret_name: String,
    /// A Secret with username and password.
    #[serde(default)]
    #[schemars(extend("maxLength" = 253))]
    pub credentials_secret_name: String,
}

/// The store's own settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "duration(self.softPinTTL) <= duration('24h')",
        "message": "softPinTTL can be at most 24h",
        "fieldPath": ".softPinTTL",
    },
    {
        "rule": "duration(self.clientTTL) >= duration('1s') && duration(self.clientTTL).getMilliseconds() % 1000 == 0",
        "message": "clientTTL is 1s or more, in whole seconds",
        "fieldPath": ".clientTTL",
    },
]))]
pub struct Store {
    /// How long a read protects an object from removal and eviction.
    #[serde(rename = "leaseTTL")]
    pub lease_ttl: GoDuration,
    /// Length of a soft pin that names none.
    #[serde(rename = "softPinTTL")]
    pub soft_pin_ttl: GoDuration,
    /// Evict when more than this share of the memory is in use.
    #[schemars(extend("maxLength" = 8, "pattern" = RATIO))]
    pub eviction_high_watermark: String,
    /// Share of the objects to evict at a time.
    #[schemars(extend("maxLength" = 8, "pattern" = RATIO))]
    pub eviction_ratio: String,
    /// How long a client may be silent before its memory is given up.
    #[serde(rename = "clientTTL")]
    pub client_ttl: GoDuration,
}

const RATIO: &str = r"^(0|1|0\.[0-9]+|1\.0+)$";

impl Default for Store {
    fn default() -> Self {
        Self {
            lease_ttl: "10s".into(),
            soft_pin_ttl: "30m".into(),
            eviction_high_watermark: "0.90".to_owned(),
            eviction_ratio: "0.05".to_owned(),
            client_ttl: "10s".into(),
        }
    }
}

/// The metadata server for transfer engines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MetadataServer {
    /// Whether masters serve it, on port 8080.
    pub enabled: bool,
}

/// When a primary is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "duration(self.leaseTTL) >= duration('2s') && duration(self.leaseTTL) <= duration('60s') && duration(self.leaseTTL).getMilliseconds() % 1000 == 0",
        "message": "leaseTTL is 2s to 60s, in whole seconds, which is what etcd counts leases in",
        "fieldPath": ".leaseTTL",
    },
    {
        "rule": "duration(self.keepAliveInterval) >= duration('1ms')",
        "message": "keepAliveInterval must be greater than 0",
        "fieldPath": ".keepAliveInterval",
    },
    {
        "rule": "duration(self.keepAliveInterval) + duration(self.keepAliveInterval) <= duration(self.leaseTTL) - duration('500ms') && duration(self.keepAliveInterval).getMilliseconds() * 20 <= duration(self.leaseTTL).getMilliseconds() * 9",
        "message": "keepAliveInterval must fit twice into leaseTTL less a tenth of it and less 500ms, or one lost renewal would depose a healthy primary",
        "fieldPath": ".keepAliveInterval",
    },
    {
        "rule": "duration(self.inheritedClientTTL) >= duration('1ms')",
        "message": "inheritedClientTTL must be greater than 0",
        "fieldPath": ".inheritedClientTTL",
    },
]))]
pub struct Failover {
    /// A primary that cannot reach etcd for so long is replaced, and stops answering before.
    #[serde(rename = "leaseTTL")]
    pub lease_ttl: GoDuration,
    /// Time between two renewals of that lease.
    pub keep_alive_interval: GoDuration,
    /// How long a new primary waits to hear from a client of the old one before it gives up the client's memory.
    #[serde(rename = "inheritedClientTTL")]
    pub inherited_client_ttl: GoDuration,
    /// A small container beside each master turns clients away if the master dies, so that their calls fail at once and
    /// not after four seconds.
    pub companion: bool,
}

impl Default for Failover {
    fn default() -> Self {
        Self {
            lease_ttl: "5s".into(),
            keep_alive_interval: "1s".into(),
            inherited_client_ttl: "180s".into(),
            companion: true,
        }
    }
}

/// What a new primary does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Promotion {
    /// Objects whose lease has ended: Keep leaves them to eviction, Evict evicts all of them, which is most of a cache.
    pub expired: Expired,
}

/// What a new primary does to objects whose lease has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Expired {
    /// They stay until memory is short.
    #[default]
    Keep,
    /// They are evicted as soon as no reader can hold a lease on them.
    Evict,
}

/// How changes become durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "duration(self.leaseSyncInterval) >= duration('1ms')",
    "message": "leaseSyncInterval must be greater than 0",
    "fieldPath": ".leaseSyncInterval",
}]))]
pub struct Replication {
    /// Strict: every change is durable in etcd before it is answered. Relaxed: ends of puts, removals and unmounts are
    /// answered before, and a crash may lose the last of them.
    pub durability: Durability,
    /// Time between two records about leases that reads have set.
    pub lease_sync_interval: GoDuration,
}

impl Default for Replication {
    fn default() -> Self {
        Self { durability: Durability::Strict, lease_sync_interval: "1s".into() }
    }
}

/// What is durable before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Durability {
    /// Every change.
    #[default]
    Strict,
    /// Every start of a put; the rest a little later.
    Relaxed,
}

/// Asks for another primary. A requestId that was not there before is what asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.target == '' || self.requestId != ''",
    "message": "a target alone asks for nothing: set requestId to something new as well",
    "fieldPath": ".requestId",
}]))]
pub struct Switchover {
    /// The pod that shall lead; the best placed standby if empty.
    #[schemars(extend("maxLength" = 63))]
    pub target: String,
    /// Any text that was not there before.
    #[schemars(extend("maxLength" = 63, "pattern" = "^[A-Za-z0-9._:-]*$"))]
    pub request_id: String,
}

/// Where the pods run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Scheduling {
    /// Whether masters are spread over what topologyKey tells apart.
    pub spread: Spread,
    /// The label of nodes to spread over.
    #[schemars(extend("minLength" = 1, "maxLength" = 316))]
    pub topology_key: String,
    /// As in a pod.
    #[serde(skip_serializing_if = "schema::is_empty")]
    #[schemars(schema_with = "schema::passed_on")]
    pub affinity: Value,
    /// As in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::passed_on_list")]
    pub tolerations: Vec<Value>,
    /// As in a pod.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// As in a pod.
    #[schemars(extend("maxLength" = 253))]
    pub priority_class_name: String,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            spread: Spread::Preferred,
            topology_key: "kubernetes.io/hostname".to_owned(),
            affinity: Value::Object(serde_json::Map::new()),
            tolerations: Vec::new(),
            node_selector: BTreeMap::new(),
            priority_class_name: String::new(),
        }
    }
}

/// Whether masters are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Spread {
    /// Where possible.
    Preferred,
    /// A master that finds no place of its own waits.
    Required,
    /// No.
    None,
}

/// The port that changes things (switchover).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Admin {
    /// A Secret with tls.crt, tls.key and ca.crt for NAME.NAMESPACE.svc. Empty: the operator makes a certificate with
    /// an authority of its own.
    #[schemars(extend("maxLength" = 253))]
    pub tls_secret_name: String,
}

/// Who may reach the masters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.enabled || !has(self.clients) || self.clients.size() == 0",
    "message": "clients are only let through or kept out when the policy is enabled",
    "fieldPath": ".enabled",
}]))]
pub struct NetworkPolicy {
    /// Whether there is one.
    pub enabled: bool,
    /// Who reaches the port for Mooncake clients and the metadata server, as the peers of a NetworkPolicy; everybody if
    /// there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::passed_on_list")]
    pub clients: Vec<Value>,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self { enabled: true, clients: Vec::new() }
    }
}

/// What becomes of the keys in etcd and of the volume claims when the resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay, and masters that are made again with the same clusterId find the index.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

impl MasterCluster {
    /// The name of the log in etcd.
    #[must_use]
    pub fn cluster_id(&self) -> String {
        match &self.spec.cluster_id {
            Some(id) => id.clone(),
            None => format!(
                "{}-{}",
                self.metadata.namespace.as_deref().unwrap_or("default"),
                self.metadata.name.as_deref().unwrap_or_default()
            ),
        }
    }
}
