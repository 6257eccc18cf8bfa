//! What was observed of a cluster before a pass: plain data, so that `plan` can be run on any of it. What could not be
//! observed is a variant of its own or absent, never a default that looks like an observation.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::view::View;
use crate::api::MasterClusterStatus;
use crate::master::admin_api::{PromotionReport, SwitchoverDone};

/// Everything that a pass starts from.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The wall clock.
    pub now: Timestamp,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// When somebody deleted the resource.
    pub deleted_at: Option<Timestamp>,
    /// Whether the resource carries our finalizer.
    pub finalizer: bool,
    /// What the operator wrote about the cluster before.
    pub status: MasterClusterStatus,
    /// The keys in etcd.
    pub etcd: EtcdSight,
    /// The StatefulSet; `None` if there is none.
    pub stateful_set: Option<StatefulSetFacts>,
    /// The pods, by name.
    pub pods: Vec<PodFacts>,
    /// The call for a switchover.
    pub switchover: Call<Result<SwitchoverDone, CallError>>,
    /// The last answer to the question how a primary took over.
    pub promotion: Option<PromotionAnswer>,
    /// The last attempt to delete the keys in etcd.
    pub deletion: Call<Result<(), KeysLeft>>,
    /// How many such attempts this process has made.
    pub deletion_attempts: u32,
}

/// What is known of the keys in etcd.
#[derive(Clone, Debug)]
pub enum EtcdSight {
    /// It cannot be asked, and that will not change by itself: a Secret is missing, a name is malformed.
    Unusable {
        /// Why, in one CamelCase word.
        reason: &'static str,
        /// Why, for people.
        message: String,
    },
    /// Nothing was heard yet.
    NotYet,
    /// It does not answer.
    Lost {
        /// What happens when it is asked.
        why: String,
    },
    /// It says so now.
    Current(Arc<View>),
}

impl EtcdSight {
    /// The keys, if they are known to be current.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        match self {
            Self::Current(view) => Some(view),
            Self::Unusable { .. } | Self::NotYet | Self::Lost { .. } => None,
        }
    }
}

/// A StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulSetFacts {
    /// How many pods it shall have.
    pub replicas: i32,
    /// How many it has, as its controller says about this very generation; `None` before.
    pub existing: Option<i32>,
    /// The revision that new pods get.
    pub update_revision: Option<String>,
    /// Whether it is being deleted.
    pub deleted: bool,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name, which is the name of the member in it.
    pub name: String,
    /// Which one of that name.
    pub uid: String,
    /// Its address.
    pub ip: Option<String>,
    /// The node that it runs on.
    pub node: Option<String>,
    /// The label of its role.
    pub role: Option<String>,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// The revision of the StatefulSet that it was made from.
    pub revision: Option<String>,
    /// Why it does not run.
    pub trouble: Option<PodTrouble>,
}

/// Why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTrouble {
    /// In one CamelCase word, as Kubernetes says it.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Whether it needs somebody.
    pub stalled: bool,
}

/// Something that a pass started and another one sees the end of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Call<T> {
    /// None was made by this process.
    #[default]
    Idle,
    /// It is under way.
    Running(String),
    /// It has ended.
    Done(String, T),
}

impl<T> Call<T> {
    /// Whether it is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }
}

/// Why a master did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It said no, and nothing has happened.
    Refused {
        /// The word of the admin API.
        code: String,
        /// Why.
        message: String,
    },
    /// There was no answer: what came of it is unknown.
    NoAnswer(String),
}

/// Why the keys in etcd were not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysLeft {
    /// It could not be done, or it is not known whether it was.
    Failed(String),
    /// A master is there that uses them. It may be gone as soon as its lease has ended.
    InUse(String),
    /// The log is not the one that this cluster's masters wrote.
    OtherLog(String),
}

/// How a primary took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionAnswer {
    /// The term that was asked about.
    pub term: u64,
    /// What it said, or why it said nothing.
    pub report: Result<PromotionReport, String>,
}

impl Observed {
    /// The pod in which a member runs that says it is at this address.
    ///
    /// A pod that was made again has the name of the one before it. As long as the key of the old process lasts, the
    /// new one must not be taken for it: the addresses tell them apart, where both are known.
    #[must_use]
    pub fn pod_of(&self, member: &str, address: &str) -> Option<&PodFacts> {
        let pod = self.pods.iter().find(|pod| pod.name == member)?;
        match (host(address), &pod.ip) {
            (Some(said), Some(ip)) if ip.parse() != Ok(said) => None,
            _ => Some(pod),
        }
    }
}

/// The host of an address, if it is an IP address.
fn host(address: &str) -> Option<std::net::IpAddr> {
    let (host, _) = address.rsplit_once(':')?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}
