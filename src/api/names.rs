//! The names that everything of a cluster is found by: labels, annotations, objects, ports.

/// The API group of `MasterCluster`.
pub const GROUP: &str = "moonkeeper.dev";
/// Who writes objects, for server-side apply.
pub const FIELD_MANAGER: &str = "moonkeeper-operator";
/// Keeps a resource until its keys in etcd are taken care of.
pub const FINALIZER: &str = "moonkeeper.dev/etcd-keys";

/// On a MasterCluster: another value asks for a snapshot.
pub const SNAPSHOT_REQUEST: &str = "moonkeeper.dev/snapshot-requested";
/// Most characters of the value of [`SNAPSHOT_REQUEST`] that count: the status repeats it.
pub const MAX_REQUEST_CHARS: usize = 63;

/// On every object of a cluster: the name of the cluster.
pub const CLUSTER_LABEL: &str = "moonkeeper.dev/cluster";
/// On pods, written by the operator only: who leads.
pub const ROLE_LABEL: &str = "moonkeeper.dev/role";
/// On every object: what made it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`], and what a watch selects by.
pub const MANAGED_BY: &str = "moonkeeper-operator";
/// The value of `app.kubernetes.io/name` everywhere.
pub const APP: &str = "moonkeeper";
/// The value of `app.kubernetes.io/component` on masters.
pub const MASTER_COMPONENT: &str = "master";
/// The value of `app.kubernetes.io/component` on the operator's own pods.
pub const OPERATOR_COMPONENT: &str = "operator";

/// The label value of the primary.
pub const ROLE_PRIMARY: &str = "primary";
/// The label value of standbys.
pub const ROLE_STANDBY: &str = "standby";
/// The role of a pod of which nothing is known.
pub const ROLE_UNKNOWN: &str = "unknown";

/// The container of the master in each pod.
pub const CONTAINER: &str = "master";
/// The container beside it, and the volume that they share.
pub const COMPANION: &str = "companion";

/// The volume of a master's own files, and so the beginning of the names of the claims.
pub const DATA: &str = "data";

/// The file of the token in the admin Secret.
pub const TOKEN_KEY: &str = "token";
/// The certificate authorities in a Secret.
pub const CA_KEY: &str = "ca.crt";
/// The certificate in a Secret.
pub const CERT_KEY: &str = "tls.crt";
/// The private key in a Secret.
pub const PRIVATE_KEY_KEY: &str = "tls.key";
/// The user in the Secret with etcd's credentials.
pub const USERNAME_KEY: &str = "username";
/// The password in the Secret with etcd's credentials.
pub const PASSWORD_KEY: &str = "password";

/// The port for Mooncake clients.
pub const RPC_PORT: u16 = 50051;
/// The port for metrics, health and reading.
pub const HTTP_PORT: u16 = 9003;
/// The port of the admin API, for changes.
pub const ADMIN_PORT: u16 = 9004;
/// The port for other masters.
pub const PEER_PORT: u16 = 9005;

/// The port of the metadata server for transfer engines.
pub const METADATA_PORT: u16 = 8080;

/// The headless Service, which the StatefulSet is governed by. The StatefulSet, the ServiceAccount, the
/// PodDisruptionBudget and the NetworkPolicy have the same name: that of the cluster.
#[must_use]
pub fn headless_service(cluster: &str) -> String {
    cluster.to_owned()
}

/// The Service that leads to the primary.
#[must_use]
pub fn leader_service(cluster: &str) -> String {
    format!("{cluster}-leader")
}

/// The Service that leads to every ready master.
#[must_use]
pub fn masters_service(cluster: &str) -> String {
    format!("{cluster}-masters")
}

/// The Secret with what the operator shows to the admin API.
#[must_use]
pub fn admin_secret(cluster: &str) -> String {
    format!("{cluster}-admin")
}

/// The pod with this ordinal.
#[must_use]
pub fn pod(cluster: &str, ordinal: i32) -> String {
    format!("{cluster}-{ordinal}")
}

/// What selects the pods of a cluster, as text.
#[must_use]
pub fn pod_selector(cluster: &str) -> String {
    format!("{CLUSTER_LABEL}={cluster}")
}
