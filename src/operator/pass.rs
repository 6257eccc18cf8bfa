//! One pass over a cluster, in this order: observe, plan, label, build and apply, act, report, release.
//!
//! Labels come before everything else that is written, because clients of the leader Service wait for them. The status is
//! written even if applying or acting fails, but not after the deadline of the pass.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};

use super::admin_client::Credentials;
use super::apply::{AppliedObjects, WriteError, failed};
use super::etcd_access::{self, AccessError};
use super::etcd_session::EtcdSession;
use super::keys_watch::{WatchedKeys, log_end};
use super::observation::{EtcdKeys, Observation};
use super::plan::{Finalizer, Objects, Plan, RETRY_INTERVAL, plan};
use super::reconcile::{Context, PassError, Resource};
use super::report::events::farewell;
use super::report::{Applied, Failure};
use super::way_to_etcd::WayToEtcd;
use super::{act, build, credentials};
use crate::api::MasterCluster;
use crate::api::names::admin_secret;
use crate::cluster::log_end::Latest;

/// Resync interval of a settled cluster: Secrets are not watched.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

/// Requeue delay of a cluster that another operator looks after.
const OTHERS: Duration = Duration::from_secs(15);

/// Requeue delay after a conflict with a concurrent write to the resource.
const SOON: Duration = Duration::from_millis(200);

/// Timeout of reading the end of the log, which is only shown in the status.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);

/// What was observed, and the way to the cluster's etcd.
struct Observing {
    observed: Observation,
    /// The session with etcd, if the keys there are this cluster's.
    etcd_session: Option<Arc<EtcdSession>>,
    /// A problem to report although the session works.
    complaint: Option<Failure>,
}

/// Progress of a pass that has begun to write.
struct Work {
    /// The first thing that went wrong, for the status.
    failure: Option<Failure>,
    /// The objects, once the API server has taken them.
    objects: Option<AppliedObjects>,
    /// The first write that failed: the pass is retried after a pause.
    error: Option<WriteError>,
}

impl Work {
    /// Keeps the first error for the retry, and for the status unless a cause is named there already.
    fn record(&mut self, result: Result<(), WriteError>) {
        let Err(error) = result else { return };
        self.failure.get_or_insert_with(|| Failure {
            reason: error.reason(),
            message: error.to_string(),
            stalled: error.stalled(),
        });
        self.error.get_or_insert(error);
    }
}

impl Context {
    /// Runs one pass. Returns when the next one is due.
    pub(super) async fn pass(&self, cluster: &MasterCluster) -> Result<Action, PassError> {
        self.writer.permit()?;
        self.forget_the_gone();
        if let Some(why) = self.others.owner_of(&cluster.namespace().unwrap_or_default()) {
            self.leave_to_another(cluster, why).await;
            return Ok(Action::requeue(OTHERS));
        }
        self.left.lock().remove(&Resource::of(cluster));
        let Observing { observed, etcd_session, complaint } = self.observation(cluster).await;
        let etcd_session = etcd_session.as_deref();
        let plan = plan(&cluster.name_any(), &cluster.spec, &observed);
        let mut work = Work { failure: complaint, objects: None, error: None };
        self.label(cluster, &plan, etcd_session, &mut work).await;
        let Some(credentials) = self.apply(cluster, &plan, &observed, etcd_session, &mut work).await else {
            // A concurrent write to the resource came first; the next pass sees its result.
            return Ok(Action::requeue(SOON));
        };
        self.act(cluster, &plan, etcd_session, credentials.as_ref(), &mut work).await;
        let log = self.read_log_end(&observed, etcd_session).await;
        let Work { failure, objects, error } = work;
        let applied = Applied {
            failure,
            durable_prefix: log.as_ref().map(|end| end.last.0),
            log: log.map(|end| end.log),
            objects,
        };
        self.report(cluster, &observed, &plan, &applied).await?;
        if !self.release(cluster, &plan).await? {
            return Ok(Action::requeue(SOON));
        }
        match error {
            Some(error) => Err(error.into()),
            // The cause may be a missing Secret, and Secrets are not watched.
            None if applied.failure.is_some() => Ok(Action::requeue(RETRY_INTERVAL)),
            None => Ok(Action::requeue(next(&plan, &observed))),
        }
    }

    /// Observes the cluster in Kubernetes and in etcd.
    async fn observation(&self, cluster: &MasterCluster) -> Observing {
        let WayToEtcd { etcd, refused, complaint } = self.way_to_etcd(cluster).await;
        let mut observed = self.observed(cluster, &etcd);
        observed.endpoints_unverified |= refused;
        let mut etcd_session = etcd.ok();
        if let Some(foreign) = self.foreign(cluster, &observed, etcd_session.as_deref()).await {
            observed.etcd = foreign;
            etcd_session = None;
        }
        Observing { observed, etcd_session, complaint }
    }

    /// Writes the labels of pods.
    async fn label(
        &self,
        cluster: &MasterCluster,
        plan: &Plan,
        etcd_session: Option<&EtcdSession>,
        work: &mut Work,
    ) {
        let namespace = cluster.namespace().unwrap_or_default();
        let labelled = act::relabel(&self.writer, &namespace, &plan.labels).await;
        self.measure(plan, etcd_session, &labelled);
        work.record(labelled);
    }

    /// Builds the objects and applies them, after the finalizer: without it, keys of masters that are created now might
    /// never be deleted. Returns the credentials for the admin API if they were applied, and nothing if the resource has
    /// changed meanwhile.
    async fn apply(
        &self,
        cluster: &MasterCluster,
        plan: &Plan,
        observed: &Observation,
        etcd_session: Option<&EtcdSession>,
        work: &mut Work,
    ) -> Option<Option<Credentials>> {
        if matches!(plan.finalizer, Finalizer::Add | Finalizer::Withdraw) {
            match act::finalize(&self.writer, cluster, &plan.finalizer).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    work.record(Err(error));
                    if plan.finalizer == Finalizer::Add {
                        return Some(None);
                    }
                }
            }
        }
        let replicas = match plan.objects {
            Objects::Leave => return Some(None),
            Objects::KeepMasters => None,
            Objects::Apply { replicas } => Some(replicas),
        };
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let set = self.caches.stateful_sets.named(&namespace, &name);
        let in_use = observed.status.image.as_deref();
        let in_use = in_use.or_else(|| set.as_deref().and_then(build::image::of_template));
        let image = build::image::resolve(&cluster.spec.image, in_use, &self.image);
        match self.make(cluster, replicas, image, etcd_session).await {
            Ok((objects, credentials)) => {
                work.objects = Some(objects);
                return Some(Some(credentials));
            }
            Err(MakeError::Failed(error)) => work.record(Err(error)),
            Err(MakeError::Unbuildable(failure)) => work.failure = Some(failure),
        }
        Some(None)
    }

    /// Starts the chores of the plan, and takes its action.
    async fn act(
        &self,
        cluster: &MasterCluster,
        plan: &Plan,
        etcd_session: Option<&EtcdSession>,
        credentials: Option<&Credentials>,
        work: &mut Work,
    ) {
        if let Some(etcd_session) = etcd_session {
            act::chores(&self.writer, etcd_session, plan.chores.clone());
        }
        if let Some(act) = plan.act.clone() {
            work.record(act::act(&self.writer, cluster, etcd_session, credentials, act).await);
        }
    }

    /// Reads the end of the log, which the status shows. Not part of observing, because labels must not wait for it.
    async fn read_log_end(
        &self,
        observed: &Observation,
        etcd_session: Option<&EtcdSession>,
    ) -> Option<Latest> {
        observed.etcd.view()?;
        let etcd_session = etcd_session?;
        log_end(&etcd_session.etcd, &etcd_session.keys, LOG_TIMEOUT).await.ok().flatten()
    }

    /// Removes the finalizer if the plan says so: the last step, because the resource is gone after it. Returns false if
    /// the resource has changed meanwhile.
    async fn release(&self, cluster: &MasterCluster, plan: &Plan) -> Result<bool, WriteError> {
        let Finalizer::Remove(_) = &plan.finalizer else { return Ok(true) };
        if let Some(happening) = farewell(&plan.finalizer, &cluster.cluster_id()) {
            // Logged as well, because no event can be written in a namespace that is being deleted.
            tracing::info!(cluster = %ObjectRef::from_obj(cluster), "{}: {}", happening.reason, happening.note);
            self.tell(cluster, vec![happening]).await;
        }
        let removed = act::finalize(&self.writer, cluster, &plan.finalizer).await?;
        if removed {
            self.etcd_sessions.lock().remove(&Resource::of(cluster));
        }
        Ok(removed)
    }

    /// Builds the objects and applies them, without `replicas` all but those that new masters are made from. Returns
    /// what was applied, and the credentials for the admin API.
    async fn make(
        &self,
        cluster: &MasterCluster,
        replicas: Option<i32>,
        image: String,
        etcd_session: Option<&EtcdSession>,
    ) -> Result<(AppliedObjects, Credentials), MakeError> {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let secrets: Api<Secret> = Api::namespaced(self.writer.client.clone(), &namespace);
        let secret = admin_secret(&name);
        let there = secrets.get_opt(&secret).await.map_err(|source| failed("Secret", &secret, source))?;
        let unbuildable =
            |reason, message| MakeError::Unbuildable(Failure { reason, message, stalled: true });
        let host = admin_host(cluster);
        let own = cluster.spec.admin.tls_secret_name.is_empty().then_some(host.as_str());
        let admin = credentials::keep_or_make(there.as_ref(), own)
            .map_err(|why| unbuildable("NoCredentials", why.to_string()))?;
        let shown = self.credentials(cluster, &admin, &host).await?;
        let facts = build::Facts {
            image,
            operator_namespace: self.namespace.clone(),
            admin: admin.clone(),
            etcd_client_certificate: etcd_session.is_some_and(EtcdSession::shows_certificate),
            platform_sets_group: self.platform_sets_group,
        };
        let mut objects =
            build::objects(cluster, &facts).map_err(|why| unbuildable("InvalidSpec", why.to_string()))?;
        if let Some(spec) = &mut objects.stateful_set.spec {
            spec.replicas = replicas;
        }
        let applied = self.writer.apply(&namespace, objects, replicas.is_none(), &self.caches).await?;
        Ok((applied, shown))
    }

    /// Returns the operator's token and the authority that the admin API's certificate is verified with.
    async fn credentials(
        &self,
        cluster: &MasterCluster,
        admin: &build::AdminCredentials,
        host: &str,
    ) -> Result<Credentials, MakeError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let unusable = |reason, message| MakeError::Unbuildable(Failure { reason, message, stalled: true });
        let (secret, ca) = match &admin.certificate {
            Some(own) => (admin_secret(&cluster.name_any()), own.ca.clone().into_bytes()),
            None => {
                let secret = &cluster.spec.admin.tls_secret_name;
                let ca = etcd_access::authorities(&self.writer.client, &namespace, secret).await;
                let ca = ca.map_err(|error| match error {
                    AccessError::None(none) => unusable(none.reason, none.message),
                    AccessError::Read { ref source, .. } => MakeError::Unbuildable(Failure {
                        reason: "SecretUnreadable",
                        message: error.to_string(),
                        stalled: matches!(source, kube::Error::Api(status) if status.code == 403),
                    }),
                })?;
                (secret.clone(), ca)
            }
        };
        Credentials::new(admin.token.clone(), &ca, host).map_err(|why| {
            unusable(
                "CertificateUnusable",
                format!("the Secret {secret} has no usable certificate authority: {why}"),
            )
        })
    }

    /// Records the time from the change in etcd to the written label of a new primary.
    fn measure(&self, plan: &Plan, etcd_session: Option<&EtcdSession>, labelled: &Result<(), WriteError>) {
        let primary = plan.labels.iter().any(|label| label.role == crate::api::names::ROLE_PRIMARY);
        if let (true, true, Some(WatchedKeys::Current { since, .. })) =
            (primary, labelled.is_ok(), etcd_session.map(EtcdSession::watched_keys))
        {
            self.writer.metrics.relabelled(since.elapsed());
        }
    }
}

/// Returns the server name in the certificate of the admin API. All masters share the certificate, because they are
/// reached at their addresses.
fn admin_host(cluster: &MasterCluster) -> String {
    format!("{}.{}.svc", cluster.name_any(), cluster.namespace().unwrap_or_default())
}

/// Why objects were not applied.
enum MakeError {
    /// They could not be written.
    Failed(WriteError),
    /// They cannot be built from this spec or these Secrets.
    Unbuildable(Failure),
}

impl From<WriteError> for MakeError {
    fn from(error: WriteError) -> Self {
        Self::Failed(error)
    }
}

/// Returns the delay until the next pass.
fn next(plan: &Plan, observed: &Observation) -> Duration {
    // Progress of members that catch up is no news that wakes the controller.
    let behind = observed.etcd.view().is_some_and(|view| {
        view.members.values().any(|member| member.value.as_ref().is_none_or(|value| !value.caught_up))
    });
    // Secrets are not watched, and etcd may be lost because a password was changed.
    let lost = matches!(observed.etcd, EtcdKeys::Lost { .. });
    let usual = if behind || lost { RETRY_INTERVAL } else { RESYNC_INTERVAL };
    plan.again.map_or(usual, |again| again.min(usual))
}
