//! One pass over a cluster: observe → plan → build → apply → act → report. The status is written on every way out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt};
use parking_lot::Mutex;
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
use super::same_etcd::other_etcd;
use super::scope::Others;
use super::sight::{Sight, log_end};
use super::way_to_etcd::WayToEtcd;
use super::write_status::write_status;
use super::{act, build, credentials};
use crate::api::names::admin_secret;
use crate::api::{MasterCluster, MasterClusterStatus};

/// A settled cluster is looked at so often although nothing was heard: Secrets are not watched.
const NOW_AND_THEN: Duration = Duration::from_secs(300);

/// How long a pass may take. Each call in it has a shorter deadline; this one is for all of them together, so that a
/// cluster is looked at again whatever hangs.
const PASS_DEADLINE: Duration = Duration::from_secs(30);

/// After the first failed pass, and the longest pause after many in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Requeue delay of a cluster that another operator looks after.
const OTHERS: Duration = Duration::from_secs(15);

/// After somebody else has written in the middle of a pass.
const SOON: Duration = Duration::from_millis(200);

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
    pub left: Mutex<HashSet<Resource>>,
    /// Since when this process leads.
    pub since: Instant,
    /// The operator's own image, for masters whose spec names none.
    pub image: String,
    /// Those who look after clusters.
    pub attendants: Mutex<HashMap<Resource, Arc<Attendant>>>,
    /// The status of each as last written, and the version of the resource that came of it.
    pub written: Mutex<HashMap<Resource, (u64, MasterClusterStatus)>>,
    /// How many passes over each have failed since the last good one.
    pub failures: Mutex<HashMap<Resource, u32>>,
}

/// One resource. With its uid: one that was deleted and made again under the same name inherits nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Its name.
    pub reference: ObjectRef<MasterCluster>,
    /// Which one of that name.
    pub uid: String,
}

impl Resource {
    /// The one that was read.
    #[must_use]
    pub fn of(cluster: &MasterCluster) -> Self {
        Self { reference: ObjectRef::from_obj(cluster), uid: cluster.uid().unwrap_or_default() }
    }
}

/// Why a pass came to no good end. The status says so, too.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Something could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It did not come to its end in time.
    #[error("nothing came of it within {PASS_DEADLINE:?}")]
    Deadline,
}

/// One pass.
pub async fn reconcile(cluster: Arc<MasterCluster>, context: Arc<Context>) -> Result<Action, PassError> {
    let begun = Instant::now();
    let under_way = context.writer.metrics.begin_pass();
    let pass = tokio::time::timeout(PASS_DEADLINE, context.pass(&cluster)).await;
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

/// How soon a failed pass is made again.
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

/// The pause after so many failures in a row: twice as long each time, and up to a quarter longer or shorter, so that
/// clusters which failed together do not come back together.
fn pause(failures: u32, random: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    pause.mul_f64(0.75 + 0.5 * f64::from(random) / f64::from(u32::MAX))
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
        self.left.lock().remove(&Resource::of(cluster));
        let WayToEtcd { etcd, complaint } = self.way_to_etcd(cluster).await;
        let mut observed = observe(cluster, &self.caches, &etcd, Timestamp::now());
        if let Some(status) = self.newer_status(cluster) {
            observed.status = status;
        }
        let mut attendant = etcd.ok();
        let mut unusable = other_etcd(&observed).or_else(|| self.rival(cluster, &observed));
        if unusable.is_none() {
            unusable = self.another_log(&observed, attendant.as_deref()).await;
        }
        if let Some(unusable) = unusable {
            observed.etcd = unusable;
            attendant = None;
        }
        let plan = plan(&name, &cluster.spec, &observed);

        // Labels first: clients of the leader Service wait for nothing else.
        let mut failure: Option<WriteError> = None;
        let labelled = act::relabel(&self.writer, &namespace, &plan.labels).await;
        self.measure(&plan, attendant.as_deref(), &labelled);
        failure = failure.or(labelled.err());

        let mut cleaned_up = true;
        if matches!(plan.finalizer, Finalizer::Add | Finalizer::Withdraw) {
            match act::finalize(&self.writer, cluster, &plan.finalizer).await {
                Ok(true) => {}
                // Somebody was quicker, and the next pass sees what they wrote.
                Ok(false) => return Ok(Action::requeue(SOON)),
                Err(error) => {
                    cleaned_up = plan.finalizer != Finalizer::Add;
                    failure = failure.or(Some(error));
                }
            }
        }
        let mut outcome = Outcome { failure: complaint, ..Outcome::default() };
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
            let end = log_end(&attendant.etcd, &attendant.keys, LOG_TIMEOUT).await.ok().flatten();
            outcome.durable_prefix = end.as_ref().map(|end| end.last.0);
            outcome.log = end.map(|end| end.log);
        }
        self.report(cluster, &observed, &plan, &outcome).await?;
        if let Finalizer::Remove(_) = &plan.finalizer {
            if let Some(happening) = farewell(&plan.finalizer, &cluster.cluster_id()) {
                // In a namespace that is being deleted no event can be written.
                tracing::info!(cluster = %ObjectRef::from_obj(cluster), "{}: {}", happening.reason, happening.note);
                self.tell(cluster, vec![happening]).await;
            }
            if !act::finalize(&self.writer, cluster, &plan.finalizer).await? {
                return Ok(Action::requeue(SOON));
            }
            self.attendants.lock().remove(&Resource::of(cluster));
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
        let resource = Resource::of(cluster);
        self.attendants.lock().remove(&resource);
        self.written.lock().remove(&resource);
        if self.left.lock().insert(resource) {
            tracing::warn!(cluster = %ObjectRef::from_obj(cluster), why, "left to another operator");
            let note = format!("the operator in namespace {} leaves it alone: {why}", self.namespace);
            self.tell(cluster, vec![Happening { reason: "OtherOperator", note, warning: true }]).await;
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
        if let Some(written) = write_status(&self.writer, cluster, &status).await? {
            self.written.lock().insert(Resource::of(&written), (version(&written), status.clone()));
        }
        self.tell(cluster, happenings(&observed.status, &status)).await;
        Ok(())
    }

    /// The status that was written last, if the watch has not told of it yet: an older one would make this pass do again
    /// what the last one did.
    fn newer_status(&self, cluster: &MasterCluster) -> Option<MasterClusterStatus> {
        let resource = Resource::of(cluster);
        let mut written = self.written.lock();
        let (at, status) = written.get(&resource)?;
        if version(cluster) < *at {
            return Some(status.clone());
        }
        written.remove(&resource);
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
                Err(error) => {
                    let note = event.note.as_deref().unwrap_or_default();
                    tracing::warn!(%error, reason = happening.reason, note, "cannot publish an event");
                }
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

    fn exists(&self, resource: &Resource) -> bool {
        let found = self.caches.clusters.store().get(&resource.reference);
        found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&resource.uid))
    }

    /// Nobody looks after a cluster whose resource is gone.
    fn forget_the_gone(&self) {
        self.attendants.lock().retain(|resource, _| {
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
    // Secrets are not watched, and etcd may be lost because a password was changed.
    let lost = matches!(observed.etcd, EtcdSight::Lost { .. });
    let usual = if behind || lost { LOOK_AGAIN } else { NOW_AND_THEN };
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
