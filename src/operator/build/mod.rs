//! From what a user asked for and what is known to the objects that Kubernetes shall hold. Pure: no client, no clock,
//! no chance, so that the same input always gives the same objects and an operator that was restarted writes nothing
//! (INV-9).
//!
//! Nothing here names the operator's own version: then every new operator would restart every master.

mod access;
mod budget;
mod companion;
mod config;
mod identity;
pub mod image;
mod pod;
mod services;
mod stateful_set;
mod typed;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::api::MasterCluster;
use crate::api::duration::NotADuration;

/// What is known besides the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The image of the masters, whole: see [`image::resolve`].
    pub image: String,
    /// The namespace of the operator, which alone may reach the admin port.
    pub operator_namespace: String,
    /// What the admin Secret holds.
    pub admin: AdminCredentials,
    /// Whether the Secret of `etcd.tlsSecretName` has a certificate to show, or only authorities to check with.
    pub etcd_client_certificate: bool,
}

/// What the operator shows to the admin API, and the masters to the operator.
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
    /// The certificate itself.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

// Secrets are never printed, not even while debugging.
impl std::fmt::Debug for AdminCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminCredentials").field("tls", &self.certificate.is_some()).finish_non_exhaustive()
    }
}

/// All objects of a cluster. Whoever takes them apart names every one, so that a new one cannot be forgotten.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// Who the masters are to Kubernetes: nobody, they get no token.
    pub service_account: ServiceAccount,
    /// The settings file.
    pub config_map: ConfigMap,
    /// What the admin API needs.
    pub admin_secret: Secret,
    /// Gives pods their names in DNS.
    pub headless_service: Service,
    /// Leads to the primary.
    pub leader_service: Service,
    /// Leads to every ready master.
    pub masters_service: Service,
    /// Lets one master be evicted at a time.
    pub pod_disruption_budget: PodDisruptionBudget,
    /// Who may reach the masters; none if it was turned off, and then there should be none.
    pub network_policy: Option<NetworkPolicy>,
    /// The masters.
    pub stateful_set: StatefulSet,
}

/// Why there are no objects for a resource. Another reconcile will not help; another spec will.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The resource has no name, namespace or uid: it did not come from an API server.
    #[error("the resource has no {0}")]
    NoIdentity(&'static str),
    /// The name of the log is none.
    #[error(
        "'{0}' cannot be the name of a log: set spec.clusterId to 1 to 63 of a-z, 0-9, - and _, and not to oplog"
    )]
    ClusterId(String),
    /// A duration is none.
    #[error("spec.{field}: {why}")]
    Duration {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: NotADuration,
    },
    /// A share is none.
    #[error("spec.{field}: '{text}' is not a number between 0 and 1")]
    Ratio {
        /// The field.
        field: &'static str,
        /// What is there.
        text: String,
    },
    /// Something that is passed on to Kubernetes is not what Kubernetes takes there.
    #[error("spec.{field}: {why}")]
    PassedOn {
        /// The field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// The settings file cannot be written.
    #[error("cannot write the settings file: {0}")]
    Settings(String),
}

/// All objects of a cluster.
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
