//! Passes over clusters: their deadline, their back-off after failures, and what outlives them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::apply::{WriteError, Writer};
use super::caches::{Caches, Wake};
use super::etcd_session::EtcdSession;
use super::metrics::Write;
use super::observation::Observation;
use super::plan::Plan;
use super::report::events::{Happening, happenings};
use super::report::{Applied, is_news, is_stale, status};
use super::scope::Others;
use super::write_status::write_status;
use crate::api::{MasterCluster, MasterClusterStatus};

/// Deadline of a pass. Each call in it has a shorter one; this one is for all of them together, so that one hanging
/// call cannot keep a cluster from being reconciled.
pub(super) const PASS_DEADLINE: Duration = Duration::from_secs(30);

/// Back-off after the first failed pass, and its maximum after many in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// State that all passes share.
pub struct Context {
    pub writer: Arc<Writer>,
    pub caches: Caches,
    pub wake: Wake,
    pub recorder: Recorder,
    /// Namespace in which the operator runs.
    pub namespace: String,
    /// Leases of other operators, which decide whose clusters a namespace has.
    pub others: Arc<Others>,
    /// Clusters that were left to another operator, and have the event about that.
    pub left: Mutex<HashSet<Resource>>,
    /// Since when this process holds the Lease.
    pub since: Instant,
    /// Deadline of a pass: [`PASS_DEADLINE`], and less in tests.
    pub deadline: Duration,
    /// The operator's own image, for masters whose spec names none.
    pub image: String,
    /// Whether the platform gives pods the group of their volumes: OpenShift.
    pub platform_sets_group: bool,
    /// Sessions with the etcd of each cluster.
    pub etcd_sessions: Mutex<HashMap<Resource, Arc<EtcdSession>>>,
    /// The status of each cluster as last written, and the resource version after that write.
    pub written: Mutex<HashMap<Resource, (u64, MasterClusterStatus)>>,
    /// How many passes over each cluster have failed since the last successful one.
    pub failures: Mutex<HashMap<Resource, u32>>,
}

/// Identity of a resource. It includes the uid, so that a resource that was deleted and recreated under the same name
/// inherits nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Name and namespace.
    pub reference: ObjectRef<MasterCluster>,
    pub uid: String,
}

impl Resource {
    /// Returns the identity of a resource that was read.
    #[must_use]
    pub fn of(cluster: &MasterCluster) -> Self {
        Self { reference: ObjectRef::from_obj(cluster), uid: cluster.uid().unwrap_or_default() }
    }
}

/// Why a pass over a resource failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Something could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It did not finish in time.
    #[error("this reconciliation took longer than {} s", PASS_DEADLINE.as_secs())]
    Deadline,
}

/// Runs one pass with a deadline and records its result.
pub async fn reconcile(cluster: Arc<MasterCluster>, context: Arc<Context>) -> Result<Action, PassError> {
    let begun = Instant::now();
    let under_way = context.writer.metrics.begin_pass();
    let pass = tokio::time::timeout(context.deadline, context.pass(&cluster)).await;
    drop(under_way);
    let result = pass.unwrap_or(Err(PassError::Deadline));
    let label = match &result {
        Ok(_) => "ok",
        Err(PassError::Write(WriteError::NotHolder)) => "not_holder",
        Err(PassError::Write(_)) => "failed",
        Err(PassError::Deadline) => "timed_out",
    };
    context.writer.metrics.reconciled(label, begun.elapsed());
    if result.is_ok() {
        context.failures.lock().remove(&Resource::of(&cluster));
    }
    result
}

/// Returns when a failed pass is retried.
pub fn after_failure(cluster: Arc<MasterCluster>, error: &PassError, context: Arc<Context>) -> Action {
    let failures = {
        let mut failures = context.failures.lock();
        let count = failures.entry(Resource::of(&cluster)).or_default();
        *count = count.saturating_add(1);
        *count
    };
    let pause = pause(failures, getrandom::u32().unwrap_or(u32::MAX / 2));
    tracing::warn!(cluster = %ObjectRef::from_obj(&*cluster), %error, failures, ?pause, "a pass failed");
    Action::requeue(pause)
}

/// Returns the back-off after `failures` in a row: doubled each time, with a jitter of up to a quarter, so that
/// clusters which failed together are not retried together.
fn pause(failures: u32, random: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    pause.mul_f64(0.75 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

impl Context {
    /// Leaves the cluster to another operator, and publishes one event about that.
    pub(super) async fn leave_to_another(&self, cluster: &MasterCluster, why: String) {
        let resource = Resource::of(cluster);
        self.etcd_sessions.lock().remove(&resource);
        self.written.lock().remove(&resource);
        if self.left.lock().insert(resource) {
            tracing::warn!(cluster = %ObjectRef::from_obj(cluster), why, "managed by another operator");
            let note = format!(
                "another operator manages this cluster, not the one in namespace {}: {why}",
                self.namespace
            );
            self.tell(cluster, vec![Happening { reason: "OtherOperator", note, warning: true }]).await;
        }
    }

    /// Writes the status if it has changed, and publishes events about the changes.
    pub(super) async fn report(
        &self,
        cluster: &MasterCluster,
        observed: &Observation,
        plan: &Plan,
        applied: &Applied,
    ) -> Result<(), WriteError> {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        self.writer.metrics.etcd(&namespace, &name, observed.etcd.view().is_some());
        let status = status(&name, &cluster.spec, observed, plan, applied);
        if !is_news(&observed.status, &status) && !is_stale(&observed.status, &status, self.since.elapsed()) {
            return Ok(());
        }
        if let Some(written) = write_status(&self.writer, cluster, &status).await? {
            self.written.lock().insert(Resource::of(&written), (version(&written), status.clone()));
        }
        self.tell(cluster, happenings(&observed.status, &status)).await;
        Ok(())
    }

    /// Returns the status that was written last, if the watch has not delivered it yet: with an older one this pass
    /// would repeat what the last one did.
    pub(super) fn newer_status(&self, cluster: &MasterCluster) -> Option<MasterClusterStatus> {
        let resource = Resource::of(cluster);
        let mut written = self.written.lock();
        let (at, status) = written.get(&resource)?;
        if version(cluster) < *at {
            return Some(status.clone());
        }
        written.remove(&resource);
        None
    }

    /// Publishes events. One that cannot be published is lost: the status has the same information.
    pub(super) async fn tell(&self, cluster: &MasterCluster, happenings: Vec<Happening>) {
        for happening in happenings {
            if self.writer.permit().is_err() {
                return;
            }
            let event = Event {
                type_: if happening.warning { EventType::Warning } else { EventType::Normal },
                reason: happening.reason.to_owned(),
                note: Some(shortened(happening.note)),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            match self.recorder.publish(&event, &cluster.object_ref(&())).await {
                Ok(()) => self.writer.metrics.wrote(Write::Event),
                Err(error) => {
                    let note = event.note.as_deref().unwrap_or_default();
                    tracing::warn!(%error, reason = happening.reason, note, "cannot publish an event");
                }
            }
        }
    }

    fn exists(&self, resource: &Resource) -> bool {
        let found = self.caches.clusters.store().get(&resource.reference);
        found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&resource.uid))
    }

    /// Drops the state of clusters whose resource is gone.
    pub(super) fn forget_the_gone(&self) {
        self.etcd_sessions.lock().retain(|resource, _| {
            let there = self.exists(resource);
            if !there {
                let namespace = resource.reference.namespace.as_deref().unwrap_or_default();
                self.writer.metrics.forget(namespace, &resource.reference.name);
            }
            there
        });
        self.written.lock().retain(|resource, _| self.exists(resource));
        self.failures.lock().retain(|resource, _| self.exists(resource));
        self.left.lock().retain(|resource| self.exists(resource));
    }
}

/// Returns the resource version as a number. Kubernetes guarantees that those of one resource can be compared.
fn version(cluster: &MasterCluster) -> u64 {
    cluster.resource_version().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

/// Truncates a note: an event takes 1 kB.
fn shortened(mut note: String) -> String {
    const MOST: usize = 1000;
    if note.len() > MOST {
        let end = (0..=MOST).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
        note.truncate(end);
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_made_again_inherits_nothing() {
        let resource = |uid: &str| {
            let text = r#"{"etcd": {"endpoints": ["http://e:1"]}}"#;
            let mut cluster = MasterCluster::new("demo", serde_json::from_str(text).unwrap());
            cluster.metadata.namespace = Some("team".to_owned());
            cluster.metadata.uid = Some(uid.to_owned());
            Resource::of(&cluster)
        };
        let kept = HashMap::from([(resource("first"), ())]);
        assert!(kept.contains_key(&resource("first")) && !kept.contains_key(&resource("second")));
    }

    #[test]
    fn pauses_grow_and_differ() {
        let seconds = |failures, random| pause(failures, random).as_secs_f64();
        assert!(seconds(1, 0) >= 0.75 && seconds(1, u32::MAX) <= 1.25);
        assert!((seconds(3, u32::MAX / 2) - 4.0).abs() < 0.01);
        assert!(seconds(1000, u32::MAX) <= 75.0 && seconds(1000, 0) >= 45.0);
        assert!(seconds(5, 0) < seconds(5, u32::MAX));
    }
}
