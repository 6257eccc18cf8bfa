//! What was observed of a cluster before a pass: plain data, so that tests can run `plan` on any of it. What could not
//! be observed has a variant of its own or is absent; it is never a default that looks like an observation.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::MasterClusterStatus;
use crate::cluster::etcd_health::EtcdHealth;
use crate::cluster::promotion::PromotionReport;
use crate::cluster::switchover::SwitchoverDone;
use crate::cluster::view::ClusterView;

/// The input of a pass besides the spec.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The wall-clock time of the pass.
    pub now: Timestamp,
    pub generation: Option<i64>,
    /// When the deletion of the resource was requested.
    pub deleted_at: Option<Timestamp>,
    /// Whether the resource carries our finalizer.
    pub finalizer: bool,
    /// The status as last written.
    pub status: MasterClusterStatus,
    pub etcd: EtcdKeys,
    /// Whether that is the etcd of an earlier spec: the endpoints of the present one have not answered yet, or lead to
    /// another etcd.
    pub endpoints_unverified: bool,
    /// What the members of that etcd report about size, quota and alarms. Empty until they were asked.
    pub etcd_health: EtcdHealth,
    /// The StatefulSet; `None` if there is none.
    pub stateful_set: Option<StatefulSetFacts>,
    /// The pods, sorted by name.
    pub pods: Vec<PodFacts>,
    /// The volume claims of masters, sorted by name. They may outlive their masters.
    pub claims: Vec<ClaimFacts>,
    /// The last call that asked a primary to hand over.
    pub switchover: Call<Result<SwitchoverDone, CallError>>,
    /// The request for a snapshot in the annotation; `None` without one.
    pub snapshot_request: Option<String>,
    /// The last call that asked for a snapshot.
    pub snapshot: Call<Result<SnapshotBegun, CallError>>,
    /// The last report of a primary about its promotion.
    pub promotion: Option<PromotionAnswer>,
    /// The last attempt to delete the keys in etcd.
    pub deletion: Call<Result<(), KeysLeft>>,
    /// How many such attempts this process has made.
    pub deletion_attempts: u32,
}

/// What is known of the keys in etcd.
#[derive(Clone, Debug)]
pub enum EtcdKeys {
    /// etcd cannot be used, and that will not change by itself: a Secret is missing, a name is malformed.
    Unusable {
        /// The reason, in one CamelCase word.
        reason: &'static str,
        /// The reason as a sentence.
        message: String,
    },
    /// Neither an answer nor a failure yet.
    NotYet,
    Lost {
        /// The failure of the last read.
        why: String,
    },
    /// The keys as they are now.
    Current(Arc<ClusterView>),
}

impl EtcdKeys {
    /// Returns the keys, if they are known to be current.
    #[must_use]
    pub fn view(&self) -> Option<&ClusterView> {
        match self {
            Self::Current(view) => Some(view),
            Self::Unusable { .. } | Self::NotYet | Self::Lost { .. } => None,
        }
    }
}

/// What a pass needs to know of the StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulSetFacts {
    /// Number of pods in its spec.
    pub replicas: i32,
    /// Number of pods that exist, as its controller reports; `None` until that has seen the newest generation.
    pub existing: Option<i32>,
    /// The revision that new pods get.
    pub update_revision: Option<String>,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// Tells it from an earlier one of the same name.
    pub uid: String,
    /// The template of the volume claims; `None` if its pods have none.
    pub claim: Option<ClaimShape>,
}

/// What a volume claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimShape {
    /// A quantity of Kubernetes.
    pub size: String,
    /// The StorageClass; `None` for the default one, and of an existing claim if there was no default one.
    pub storage_class: Option<String>,
}

/// What a pass needs to know of a volume claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    pub name: String,
    pub phase: ClaimPhase,
    pub shape: ClaimShape,
    /// Tells it from an earlier one of the same name.
    pub uid: String,
    /// Whether it is being deleted.
    pub deleted: bool,
}

/// Whether a claim has a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimPhase {
    /// Not yet.
    #[default]
    Pending,
    Bound,
    /// It had one, which is gone.
    Lost,
}

/// What a pass needs to know of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name, which is the name of the member in it.
    pub name: String,
    /// Tells it from an earlier pod of the same name.
    pub uid: String,
    pub ip: Option<String>,
    /// The node that it runs on.
    pub node: Option<String>,
    /// The value of its role label.
    pub role: Option<String>,
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// The revision of the StatefulSet that it was made from.
    pub revision: Option<String>,
    /// The claim of the volume with its own files; `None` if it has no claim.
    pub claim: Option<String>,
    /// Since when no node could be chosen for it; `None` if one was chosen.
    pub unscheduled_since: Option<Timestamp>,
    /// Why it does not run, if it does not.
    pub trouble: Option<PodTrouble>,
}

/// Why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTrouble {
    /// The reason of Kubernetes, in one CamelCase word.
    pub reason: String,
    pub message: String,
    /// Whether it needs a manual action.
    pub stalled: bool,
}

/// A call that one pass starts and a later one sees the result of. The text identifies the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Call<T> {
    /// This process has made no call.
    #[default]
    Idle,
    Running(String),
    Done(String, T),
}

impl<T> Call<T> {
    /// Returns whether the call is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }
}

/// Answer of a master that takes a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotBegun {
    /// Who takes it.
    pub member: String,
    /// The snapshot has at least this record; a complete one ends with it.
    pub sequence_id: u64,
    /// Whether it counts already.
    pub complete: bool,
}

/// Why a call to a master failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The master refused, and nothing has happened.
    Refused {
        /// The error code of the admin API.
        code: String,
        message: String,
    },
    /// There was no answer: the outcome is unknown.
    NoAnswer(String),
}

/// Why the keys in etcd were not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysLeft {
    /// The transaction failed, or its outcome is unknown.
    Failed(String),
    /// A master uses them. It may be gone as soon as its lease has ended.
    InUse(String),
    /// The log is not the one that this cluster's masters wrote.
    OtherLog(String),
}

/// Answer of a primary to the question how it took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionAnswer {
    /// The term that was asked about.
    pub term: u64,
    /// The report, or why there is none.
    pub report: Result<PromotionReport, String>,
}

impl Observation {
    /// Returns the pod in which the member with this name and RPC address runs.
    ///
    /// A recreated pod has the name of its predecessor. As long as the key of the old process exists, it must not be
    /// attributed to the new pod: the addresses tell them apart, where both are known.
    #[must_use]
    pub fn pod_of(&self, member: &str, address: &str) -> Option<&PodFacts> {
        let pod = self.pods.iter().find(|pod| pod.name == member)?;
        match (host(address), &pod.ip) {
            (Some(said), Some(ip)) if ip.parse() != Ok(said) => None,
            _ => Some(pod),
        }
    }
}

/// Returns the host of an address, if it is an IP address.
fn host(address: &str) -> Option<std::net::IpAddr> {
    let (host, _) = address.rsplit_once(':')?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}
