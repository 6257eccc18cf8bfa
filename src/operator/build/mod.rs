//! Builds the Kubernetes objects of a cluster from the spec and a few facts. Pure: no client, no clock, no random
//! numbers, so that the same input always gives the same objects and an operator that was restarted writes nothing
//! (INV-9).
//!
//! Nothing here depends on the operator's own version: otherwise every new operator would restart every master.

mod access;
mod budget;
mod companion;
mod config;
mod folders;
mod identity;
pub mod image;
mod pod;
mod services;
mod stateful_set;
mod storage;
mod typed;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::api::MasterCluster;
use crate::api::duration::NotADuration;

/// What the objects of a cluster depend on besides its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The complete image reference of the masters: see [`image::resolve`].
    pub image: String,
    /// The namespace of the operator, which alone may reach the admin port.
    pub operator_namespace: String,
    /// What the admin Secret holds.
    pub admin: AdminCredentials,
    /// Whether the Secret of `etcd.tlsSecretName` has a client certificate, or only authorities.
    pub etcd_client_certificate: bool,
    /// Whether the platform gives pods the group that their volumes belong to, and refuses any other: OpenShift.
    pub platform_sets_group: bool,
}

/// Credentials of the admin API: the operator's token and the masters' certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminCredentials {
    /// The token that changes need.
    pub token: String,
    /// The certificate of the admin API; none if `admin.tlsSecretName` names another one.
    pub certificate: Option<Certificate>,
}

/// A certificate that the operator made; texts in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The authority to check it with.
    pub ca: String,
    pub cert: String,
    pub key: String,
}

// Secrets are never printed, not even while debugging.
impl std::fmt::Debug for AdminCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminCredentials").field("tls", &self.certificate.is_some()).finish_non_exhaustive()
    }
}

/// All objects of a cluster. `apply` destructures it without `..`, so that a new object cannot be forgotten there.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// The account of the masters, which has no rights and no token.
    pub service_account: ServiceAccount,
    pub config_map: ConfigMap,
    pub admin_secret: Secret,
    /// Gives pods their names in DNS.
    pub headless_service: Service,
    /// Leads to the primary.
    pub leader_service: Service,
    /// Leads to every ready master.
    pub masters_service: Service,
    /// Lets one master be evicted at a time.
    pub pod_disruption_budget: PodDisruptionBudget,
    /// Which sources may reach the masters; `None` if it was turned off, and then an existing one is deleted.
    pub network_policy: Option<NetworkPolicy>,
    pub stateful_set: StatefulSet,
}

/// Why no objects can be built for a resource. A retry will not help; another spec will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The resource has no name, namespace or uid: it did not come from an API server.
    #[error("the resource has no {0}")]
    NoIdentity(&'static str),
    /// The cluster id is invalid.
    #[error(
        "'{0}' cannot be the cluster id, which is 1 to 63 of a-z, 0-9, - and _, and not oplog: delete this resource and \
         create it again under another name, or with spec.clusterId set"
    )]
    ClusterId(String),
    #[error("spec.{field}: {why}")]
    Duration { field: &'static str, why: NotADuration },
    #[error("spec.{field}: '{text}' is not a number between 0 and 1")]
    Ratio { field: &'static str, text: String },
    /// A field that is passed on to Kubernetes does not have the type that Kubernetes expects.
    #[error("spec.{field}: {why}")]
    PassedOn { field: String, why: String },
    /// The settings file cannot be written.
    #[error("cannot write the settings file: {0}")]
    Settings(String),
}

/// Builds all objects of a cluster.
pub fn objects(cluster: &MasterCluster, facts: &Facts) -> Result<Objects, BuildError> {
    let identity = identity::Identity::of(cluster)?;
    let settings = config::settings_file(cluster, facts)?;
    Ok(Objects {
        service_account: access::service_account(&identity),
        config_map: config::config_map(&identity, &settings),
        admin_secret: access::admin_secret(&identity, &facts.admin),
        headless_service: services::headless(&identity, &cluster.spec),
        leader_service: services::leader(&identity, &cluster.spec),
        masters_service: services::masters(&identity),
        pod_disruption_budget: budget::pod_disruption_budget(&identity),
        network_policy: access::network_policy(&identity, cluster, facts)?,
        stateful_set: stateful_set::stateful_set(&identity, cluster, facts, &settings)?,
    })
}
