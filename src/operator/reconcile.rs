//! One pass over a cluster: observe → plan → build → apply → act → report. The status is written on every way out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::access::{self, AccessError};
use super::apply::{WriteError, Writer, failed};
use super::attendant::Attendant;
use super::caches::{Caches, Wake};
use super::masters::Credentials;
use super::metrics::Write;
use super::observe::observe;
use super::observed::{EtcdSight, Observed};
use super::plan::{Finalizer, LOOK_AGAIN, Objects, Plan, plan};
use super::report::events::{Happening, farewell, happenings};
use super::report::{Failure, Outcome, is_news, is_stale, status};
use super::rival::rival;
use super::scope::Others;
use super::sight::{Sight, durable_prefix};
use super::{act, build, credentials};
use crate::api::names::{FIELD_MANAGER, admin_secret};
use crate::api::{MasterCluster, MasterClusterStatus};

/// A settled cluster is looked at so often although nothing was heard: Secrets are not watched.
const NOW_AND_THEN: Duration = Duration::from_secs(300);

/// How soon a cluster that is another operator's is looked at again.
const OTHERS: Duration = Duration::from_secs(15);

/// After a failed pass.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// After somebody else has written in the middle of a pass.
const SOON: Duration = Duration::from_millis(200);

/// How long a new watcher of etcd has to see something. What it sees decides what the status says.
const FIRST_SIGHT: Duration = Duration::from_secs(5);

/// How long etcd has to say where the log ends. It is only shown.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);

/// What passes need.
pub struct Context {
    /// Writes to Kubernetes.
    pub writer: Arc<Writer>,
    /// What is there.
    pub caches: Caches,
    /// Wakes the controller.
    pub wake: Wake,
    /// Publishes events.
    pub recorder: Recorder,
    /// Where the operator runs.
    pub namespace: String,
    /// Which clusters are another operator's.
    pub others: Arc<Others>,
    /// Clusters that were left to another operator, and told so.
    pub left: Mutex<HashSet<ObjectRef<MasterCluster>>>,
    /// Since when this process leads.
    pub since: Instant,
    /// The operator's own image, for masters whose spec names none.
    pub image: String,
    /// Those who look after clusters.
    pub attendants: Mutex<HashMap<ObjectRef<MasterCluster>, Arc<Attendant>>>,
    /// The status of each as last written, and the version of the resource that came of it.
    pub written: Mutex<HashMap<ObjectRef<MasterCluster>, (u64, MasterClusterStatus)>>,
}

/// Why a pass came to no good end. The status says so, too.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Something could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// One pass.
pub async fn reconcile(cluster: Arc<MasterCluster>, context: Arc<Context>) -> Result<Action, PassError> {
    let begun = Instant::now();
    let result = context.pass(&cluster).await;
    let label = match &result {
        Ok(_) => "ok",
        Err(PassError::Write(WriteError::NotHolder)) => "not_holder",
        Err(PassError::Write(_)) => "failed",
    };
    context.writer.metrics.reconciled(label, begun.elapsed());
    result
}

/// How soon a failed pass is made again.
pub fn after_failure(cluster: Arc<MasterCluster>, error: &PassError, _: Arc<Context>) -> Action {
    tracing::warn!(cluster = %ObjectRef::from_obj(&*cluster), %error, "a pass failed");
    Action::requeue(AFTER_FAILURE)
}

impl Context {
    async fn pass(&self, cluster: &MasterCluster) -> Result<Action, PassError> {
        self.writer.permit()?;
        let namespace = cluster.namespace().unwrap_or_default();
        let name = cluster.name_any();
        self.forget_the_gone();
        if let Some(why) = self.others.owner_of(&namespace) {
            self.leave_to_another(cluster, why).await;
            return Ok(Action::requeue(OTHERS));
        }
        self.left.lock().remove(&ObjectRef::from_obj(cluster));
        let etcd = self.way_to_etcd(cluster).await;
        let mut observed = observe(cluster, &self.caches, &etcd, Timestamp::now());
        if let Some(status) = self.newer_status(cluster) {
            observed.status = status;
        }
        let plan = plan(&name, &cluster.spec, &observed);
        let attendant = etcd.ok();

        // Labels first: clients of the leader Service wait for nothing else.
        let mut failure: Option<WriteError> = None;
        let labelled = act::relabel(&self.writer, &namespace, &plan.labels).await;
        self.measure(&plan, attendant.as_deref(), &labelled);
        failure = failure.or(labelled.err());

        let mut cleaned_up = true;
        if plan.finalizer == Finalizer::Add {
            match act::finalize(&self.writer, cluster, &plan.finalizer).await {
                Ok(true) => {}
                // Somebody was quicker, and the next pass sees what they wrote.
                Ok(false) => return Ok(Action::requeue(SOON)),
                Err(error) => {
                    cleaned_up = false;
                    failure = failure.or(Some(error));
                }
            }
        }
        let mut outcome = Outcome::default();
        let mut shown: Option<Credentials> = None;
        // Nothing is made before it is sure that it will be cleaned up.
        if let (Objects::Apply { replicas }, true) = (plan.objects, cleaned_up) {
            let set = self.caches.stateful_sets.named(&namespace, &name);
            let in_use = observed.status.image.as_deref();
            let in_use = in_use.or_else(|| set.as_deref().and_then(build::image::of_template));
            let image = build::image::resolve(&cluster.spec.image, in_use, &self.image);
            match self.make(cluster, replicas, image.clone(), attendant.as_deref()).await {
                Ok(credentials) => {
                    outcome.image = Some(image);
                    shown = Some(credentials);
                }
                Err(Made::Failed(error)) => failure = failure.or(Some(error)),
                Err(Made::Unbuildable(failure)) => outcome.failure = Some(failure),
            }
        }
        if let Some(attendant) = attendant.as_deref() {
            act::chores(&self.writer, attendant, plan.chores.clone());
        }
        if let Some(act) = plan.act.clone() {
            let done = act::act(&self.writer, cluster, attendant.as_deref(), shown.as_ref(), act).await;
            failure = failure.or(done.err());
        }
        if let Some(error) = &failure {
            outcome.failure.get_or_insert(Failure {
                reason: error.reason(),
                message: error.to_string(),
                stalled: error.stalled(),
            });
        }
        if let (Some(attendant), Some(_)) = (attendant.as_deref(), observed.etcd.view()) {
            let last = durable_prefix(&attendant.etcd, &attendant.keys, LOG_TIMEOUT).await;
            outcome.durable_prefix = last.ok().flatten();
        }
        self.report(cluster, &observed, &plan, &outcome).await?;
        if let Finalizer::Remove(_) = &plan.finalizer {
            if let Some(happening) = farewell(&plan.finalizer, &cluster.cluster_id()) {
                self.tell(cluster, vec![happening]).await;
            }
            if !act::finalize(&self.writer, cluster, &plan.finalizer).await? {
                return Ok(Action::requeue(SOON));
            }
            self.attendants.lock().remove(&ObjectRef::from_obj(cluster));
        }
        match failure {
            Some(error) => Err(error.into()),
            // What is missing may be a Secret, and these are not watched.
            None if outcome.failure.is_some() => Ok(Action::requeue(LOOK_AGAIN)),
            None => Ok(Action::requeue(next(&plan, &observed))),
        }
    }

    /// Leaves the cluster to another operator, and says so once.
    async fn leave_to_another(&self, cluster: &MasterCluster, why: String) {
        let reference = ObjectRef::from_obj(cluster);
        self.attendants.lock().remove(&reference);
        self.written.lock().remove(&reference);
        if self.left.lock().insert(reference.clone()) {
            tracing::warn!(cluster = %reference, why, "left to another operator");
            let note = format!("the operator in namespace {} leaves it alone: {why}", self.namespace);
            self.tell(cluster, vec![Happening { reason: "OtherOperator", note, warning: true }]).await;
        }
    }

    /// The one who looks after the cluster's etcd, or why there is none.
    async fn way_to_etcd(&self, cluster: &MasterCluster) -> Result<Arc<Attendant>, EtcdSight> {
        let reference = ObjectRef::from_obj(cluster);
        if let Some(taken) = rival(cluster, &self.caches.clusters.store().state()) {
            self.attendants.lock().remove(&reference);
            return Err(taken);
        }
        let there = self.attendants.lock().get(&reference).cloned();
        let access = match access::resolve(&self.writer.client, cluster).await {
            Ok(access) => access,
            // Whoever is there already goes on.
            Err(error @ AccessError::Read { .. }) => {
                let message = error.to_string();
                return there.ok_or(EtcdSight::Unusable { reason: "SecretUnreadable", message });
            }
            Err(AccessError::None(none)) => {
                self.attendants.lock().remove(&reference);
                return Err(EtcdSight::Unusable { reason: none.reason, message: none.message });
            }
        };
        if let Some(there) = there.filter(|there| there.goes(&access)) {
            return Ok(there);
        }
        let (wake, target) = (self.wake.clone(), reference.clone());
        // Nobody listens any more only when everything ends.
        let wake = move || _ = wake.send(target.clone());
        match Attendant::start(access, Arc::new(wake)) {
            Ok(attendant) => {
                let attendant = Arc::new(attendant);
                self.attendants.lock().insert(reference, Arc::clone(&attendant));
                self.writer.metrics.clusters(self.attendants.lock().len());
                attendant.first_sight(FIRST_SIGHT).await;
                Ok(attendant)
            }
            Err(why) => Err(EtcdSight::Unusable { reason: "EtcdUnusable", message: why.to_string() }),
        }
    }

    /// Builds the objects and applies them.
    async fn make(
        &self,
        cluster: &MasterCluster,
        replicas: i32,
        image: String,
        attendant: Option<&Attendant>,
    ) -> Result<Credentials, Made> {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let secrets: Api<Secret> = Api::namespaced(self.writer.client.clone(), &namespace);
        let secret = admin_secret(&name);
        let there = secrets.get_opt(&secret).await.map_err(|source| failed("Secret", &secret, source))?;
        let unbuildable = |reason, message| Made::Unbuildable(Failure { reason, message, stalled: true });
        let host = admin_host(cluster);
        let own = cluster.spec.admin.tls_secret_name.is_empty().then_some(host.as_str());
        let admin = credentials::keep_or_make(there.as_ref(), own)
            .map_err(|why| unbuildable("NoCredentials", why.to_string()))?;
        let shown = self.credentials(cluster, &admin, &host).await?;
        let facts = build::Facts {
            image,
            operator_namespace: self.namespace.clone(),
            admin: admin.clone(),
            etcd_client_certificate: attendant.is_some_and(Attendant::shows_certificate),
        };
        let mut objects =
            build::objects(cluster, &facts).map_err(|why| unbuildable("InvalidSpec", why.to_string()))?;
        if let Some(spec) = &mut objects.stateful_set.spec {
            spec.replicas = Some(replicas);
        }
        self.writer.apply(&namespace, objects, &self.caches).await?;
        Ok(shown)
    }

    /// How to be let in by the admin API, and to know that it is ours.
    async fn credentials(
        &self,
        cluster: &MasterCluster,
        admin: &build::AdminCredentials,
        host: &str,
    ) -> Result<Credentials, Made> {
        let namespace = cluster.namespace().unwrap_or_default();
        let unusable = |reason, message| Made::Unbuildable(Failure { reason, message, stalled: true });
        let (secret, ca) = match &admin.certificate {
            Some(own) => (admin_secret(&cluster.name_any()), own.ca.clone().into_bytes()),
            None => {
                let secret = &cluster.spec.admin.tls_secret_name;
                let ca = access::authorities(&self.writer.client, &namespace, secret).await;
                let ca = ca.map_err(|error| match error {
                    AccessError::None(none) => unusable(none.reason, none.message),
                    AccessError::Read { ref source, .. } => Made::Unbuildable(Failure {
                        reason: "SecretUnreadable",
                        message: error.to_string(),
                        stalled: matches!(source, kube::Error::Api(status) if status.code == 403),
                    }),
                })?;
                (secret.clone(), ca)
            }
        };
        Credentials::new(admin.token.clone(), &ca, host)
            .map_err(|why| unusable("CertificateUnusable", format!("the Secret {secret}: {why}")))
    }

    /// Writes the status if it is news, and tells what has happened.
    async fn report(
        &self,
        cluster: &MasterCluster,
        observed: &Observed,
        plan: &Plan,
        outcome: &Outcome,
    ) -> Result<(), WriteError> {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        self.writer.metrics.etcd(&namespace, &name, observed.etcd.view().is_some());
        let status = status(&name, &cluster.spec, observed, plan, outcome);
        if !is_news(&observed.status, &status) && !is_stale(&observed.status, &status, self.since.elapsed()) {
            return Ok(());
        }
        self.write_status(&namespace, &name, &status).await?;
        self.tell(cluster, happenings(&observed.status, &status)).await;
        Ok(())
    }

    async fn write_status(
        &self,
        namespace: &str,
        name: &str,
        status: &MasterClusterStatus,
    ) -> Result<(), WriteError> {
        self.writer.permit()?;
        let api: Api<MasterCluster> = Api::namespaced(self.writer.client.clone(), namespace);
        let patch = json!({
            "apiVersion": MasterCluster::api_version(&()),
            "kind": MasterCluster::kind(&()),
            "metadata": {"name": name},
            "status": status,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch_status(name, &params, &Patch::Apply(patch)).await {
            Ok(written) => {
                self.writer.metrics.wrote(Write::Status);
                let version = version(&written);
                self.written.lock().insert(ObjectRef::from_obj(&written), (version, status.clone()));
                Ok(())
            }
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(failed("the status of MasterCluster", name, source)),
        }
    }

    /// The status that was written last, if the watch has not told of it yet: an older one would make this pass do again
    /// what the last one did.
    fn newer_status(&self, cluster: &MasterCluster) -> Option<MasterClusterStatus> {
        let reference = ObjectRef::from_obj(cluster);
        let mut written = self.written.lock();
        let (at, status) = written.get(&reference)?;
        if version(cluster) < *at {
            return Some(status.clone());
        }
        written.remove(&reference);
        None
    }

    /// Publishes events. One that cannot be published is lost: the status says the same.
    async fn tell(&self, cluster: &MasterCluster, happenings: Vec<Happening>) {
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
                Err(error) => tracing::warn!(%error, reason = happening.reason, "cannot publish an event"),
            }
        }
    }

    /// Measures how long after etcd's word the label of a new primary was written.
    fn measure(&self, plan: &Plan, attendant: Option<&Attendant>, labelled: &Result<(), WriteError>) {
        let primary = plan.labels.iter().any(|label| label.role == crate::api::names::ROLE_PRIMARY);
        if let (true, true, Some(Sight::Current { since, .. })) =
            (primary, labelled.is_ok(), attendant.map(Attendant::sight))
        {
            self.writer.metrics.relabelled(since.elapsed());
        }
    }

    fn exists(&self, reference: &ObjectRef<MasterCluster>) -> bool {
        self.caches.clusters.store().get(reference).is_some()
    }

    /// Nobody looks after a cluster whose resource is gone.
    fn forget_the_gone(&self) {
        self.attendants.lock().retain(|reference, _| {
            let there = self.exists(reference);
            if !there {
                let namespace = reference.namespace.as_deref().unwrap_or_default();
                self.writer.metrics.forget(namespace, &reference.name);
            }
            there
        });
        self.written.lock().retain(|reference, _| self.exists(reference));
        self.left.lock().retain(|reference| self.exists(reference));
    }
}

/// The name in the certificate of the admin API. Masters are reached at their addresses, and all have one certificate.
fn admin_host(cluster: &MasterCluster) -> String {
    format!("{}.{}.svc", cluster.name_any(), cluster.namespace().unwrap_or_default())
}

/// Why objects were not made.
enum Made {
    /// They could not be written.
    Failed(WriteError),
    /// There is nothing to write.
    Unbuildable(Failure),
}

impl From<WriteError> for Made {
    fn from(error: WriteError) -> Self {
        Self::Failed(error)
    }
}

/// The version of a resource. Kubernetes promises that those of one resource can be compared as numbers.
fn version(cluster: &MasterCluster) -> u64 {
    cluster.resource_version().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

/// How soon the next pass has to be.
fn next(plan: &Plan, observed: &Observed) -> Duration {
    // Members that catch up do not tell of every record.
    let behind = observed.etcd.view().is_some_and(|view| {
        view.members.values().any(|member| member.value.as_ref().is_none_or(|value| !value.caught_up))
    });
    let usual = if behind { Duration::from_secs(5) } else { NOW_AND_THEN };
    plan.again.map_or(usual, |again| again.min(usual))
}

/// Events take 1 kB.
fn shortened(mut note: String) -> String {
    const MOST: usize = 1000;
    if note.len() > MOST {
        let end = (0..=MOST).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
        note.truncate(end);
    }
    note
}
