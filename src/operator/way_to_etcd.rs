//! Opens the session with a cluster's etcd, and keeps it from one pass to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::etcd_access::{self, Access, AccessError, NoAccess};
use super::etcd_session::EtcdSession;
use super::id_conflict::{conflict, store_of};
use super::keys_watch::{WatchedKeys, log_end};
use super::observation::{EtcdKeys, Observation};
use super::observe::observe;
use super::reconcile::{Context, Resource};
use super::report::Failure;
use super::same_etcd::{is_log_in_doubt, other_etcd, other_log};
use crate::api::MasterCluster;

/// How long a pass waits for the first read of a new session, because the status depends on it.
const FIRST_READ: Duration = Duration::from_secs(5);

/// Timeout of reading the end of the log.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// The session with a cluster's etcd, or why there is none.
pub(super) struct WayToEtcd {
    /// The session, or why there is none.
    pub(super) etcd: Result<Arc<EtcdSession>, EtcdKeys>,
    /// Whether it is the session from before, because the spec leads to an etcd without this cluster's log.
    pub(super) refused: bool,
    /// A problem to report although the session works.
    pub(super) complaint: Option<Failure>,
}

impl WayToEtcd {
    /// Keeps the session from before although the spec has changed, for this reason. Labels continue to follow the
    /// primary.
    fn kept(there: Arc<EtcdSession>, cluster: &MasterCluster, reason: EtcdKeys) -> Self {
        let why = match reason {
            EtcdKeys::Unusable { reason, message } => {
                let complaint = Some(Failure { reason, message, stalled: true });
                return Self { etcd: Ok(there), refused: true, complaint };
            }
            EtcdKeys::Lost { why } => why,
            EtcdKeys::NotYet | EtcdKeys::Current(_) => "etcd has not answered yet".to_owned(),
        };
        let (reason, changed) = if there.leads_to(&cluster.spec.etcd.endpoints) {
            ("SecretsNotAccepted", "with the changed Secrets")
        } else {
            ("EndpointsUnverified", "at the changed endpoints")
        };
        let message = format!(
            "the operator cannot connect to etcd {changed} and keeps its connection with the earlier ones: {why}. If this \
             does not pass, check that etcd answers there and accepts the password or certificate"
        );
        let complaint = Some(Failure { reason, message, stalled: false });
        Self { etcd: Ok(there), refused: false, complaint }
    }
}

impl From<Result<Arc<EtcdSession>, EtcdKeys>> for WayToEtcd {
    fn from(etcd: Result<Arc<EtcdSession>, EtcdKeys>) -> Self {
        Self { etcd, refused: false, complaint: None }
    }
}

impl Context {
    /// Returns the session with the cluster's etcd; opens one if there is none or if the access has changed.
    pub(super) async fn way_to_etcd(&self, cluster: &MasterCluster) -> WayToEtcd {
        let resource = Resource::of(cluster);
        if let Some(taken) = conflict(cluster, &self.caches.clusters.store().state(), store_of(cluster)) {
            self.etcd_sessions.lock().remove(&resource);
            return Err(taken).into();
        }
        let there = self.etcd_sessions.lock().get(&resource).cloned();
        let access = match etcd_access::resolve(&self.writer.client, cluster).await {
            Ok(access) => access,
            // The Secret may be fine, so an existing session is kept, also one with earlier endpoints.
            Err(error @ AccessError::Read { .. }) => {
                let message = error.to_string();
                return there.ok_or(EtcdKeys::Unusable { reason: "SecretUnreadable", message }).into();
            }
            Err(AccessError::None(none)) => return self.without_secret(cluster, there, none),
        };
        match there {
            Some(there) if there.uses(&access) => Ok(there).into(),
            there => self.open(cluster, access, there).await,
        }
    }

    /// Opens a session with this access, or keeps the working one that is `there` if the new one does not work or leads
    /// to another etcd. Labels continue to follow the primary while etcd does not know a new password yet, and while
    /// the spec has wrong endpoints.
    async fn open(
        &self,
        cluster: &MasterCluster,
        access: Access,
        there: Option<Arc<EtcdSession>>,
    ) -> WayToEtcd {
        let resource = Resource::of(cluster);
        let (wake, target) = (self.wake.clone(), resource.reference.clone());
        // News of a session that is dropped again would start the next attempt at once.
        let adopted = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&adopted);
        let wake = move || {
            if heard.load(Ordering::SeqCst) {
                // The channel is closed only when the process ends.
                let _ = wake.send(target.clone());
            }
        };
        let etcd_session = match EtcdSession::start(access, Arc::new(wake)) {
            Ok(etcd_session) => Arc::new(etcd_session),
            Err(why) => {
                let unusable = NoAccess { reason: "EtcdUnusable", message: why.to_string() };
                return self.without_secret(cluster, there, unusable);
            }
        };
        etcd_session.first_read(FIRST_READ).await;
        if let Some(there) = self.own(cluster, there).await
            && let Some(reason) = self.objection(cluster, &etcd_session).await
        {
            return WayToEtcd::kept(there, cluster, reason);
        }
        adopted.store(true, Ordering::SeqCst);
        self.etcd_sessions.lock().insert(resource, Arc::clone(&etcd_session));
        self.writer.metrics.clusters(self.etcd_sessions.lock().len());
        Ok(etcd_session).into()
    }

    /// Handles a Secret that is missing, incomplete or unusable. A working connection does not need it any more: labels continue
    /// to follow the primary, and the status names the Secret, because no new pod can start.
    fn without_secret(
        &self,
        cluster: &MasterCluster,
        there: Option<Arc<EtcdSession>>,
        none: NoAccess,
    ) -> WayToEtcd {
        let NoAccess { reason, message } = none;
        match there.filter(|there| works(there)) {
            Some(there) => {
                let complaint = Some(Failure { reason, message, stalled: true });
                WayToEtcd { etcd: Ok(there), refused: false, complaint }
            }
            None => {
                self.etcd_sessions.lock().remove(&Resource::of(cluster));
                Err(EtcdKeys::Unusable { reason, message }).into()
            }
        }
    }

    /// Returns a session if it works and has the keys of this cluster.
    async fn own(
        &self,
        cluster: &MasterCluster,
        session: Option<Arc<EtcdSession>>,
    ) -> Option<Arc<EtcdSession>> {
        let session = session?;
        self.objection(cluster, &session).await.is_none().then_some(session)
    }

    /// Returns why a session cannot be used: etcd does not answer, or the keys are not those of this cluster.
    async fn objection(&self, cluster: &MasterCluster, session: &Arc<EtcdSession>) -> Option<EtcdKeys> {
        let observed = self.observed(cluster, &Ok(Arc::clone(session)));
        match observed.etcd {
            EtcdKeys::Current(_) => self.foreign(cluster, &observed, Some(session)).await,
            other => Some(other),
        }
    }

    /// Collects what is known of a cluster, with its status as last written.
    pub(super) fn observed(
        &self,
        cluster: &MasterCluster,
        etcd: &Result<Arc<EtcdSession>, EtcdKeys>,
    ) -> Observation {
        let mut observed = observe(cluster, &self.caches, etcd, Timestamp::now());
        if let Some(status) = self.newer_status(cluster) {
            observed.status = status;
        }
        observed
    }

    /// Returns why the keys are not those of this cluster, or cannot be told from those of another one.
    pub(super) async fn foreign(
        &self,
        cluster: &MasterCluster,
        observed: &Observation,
        etcd_session: Option<&EtcdSession>,
    ) -> Option<EtcdKeys> {
        match other_etcd(observed).or_else(|| self.conflict(cluster, observed)) {
            None => self.another_log(observed, etcd_session).await,
            foreign => foreign,
        }
    }

    /// Returns why the keys are not those of this cluster, if etcd has the known id and lacks the log.
    async fn another_log(
        &self,
        observed: &Observation,
        etcd_session: Option<&EtcdSession>,
    ) -> Option<EtcdKeys> {
        let etcd_session = etcd_session.filter(|_| is_log_in_doubt(observed))?;
        match log_end(&etcd_session.etcd, &etcd_session.keys, LOG_TIMEOUT).await {
            Ok(end) => other_log(observed, end.map(|end| end.log)),
            // Without the log it is unknown whose keys these are, so they are not used.
            Err(failure) => {
                Some(EtcdKeys::Lost { why: format!("the end of the log in etcd cannot be read: {failure}") })
            }
        }
    }

    /// Returns why the log is another cluster's, now that the cluster id of etcd is known.
    pub(super) fn conflict(&self, cluster: &MasterCluster, observed: &Observation) -> Option<EtcdKeys> {
        let store = observed.etcd.view()?.store?.to_string();
        conflict(cluster, &self.caches.clusters.store().state(), Some(&store))
    }
}

/// Returns whether a session has the keys as they are now.
fn works(session: &EtcdSession) -> bool {
    matches!(session.watched_keys(), WatchedKeys::Current { .. })
}
