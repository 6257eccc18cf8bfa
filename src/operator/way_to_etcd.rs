//! Opens the session with a cluster's etcd, and keeps it from one pass to the next.

use std::sync::Arc;
use std::time::Duration;

use super::access::{self, AccessError, NoAccess};
use super::attendant::Attendant;
use super::observed::{EtcdSight, Observed};
use super::reconcile::{Context, Resource};
use super::report::Failure;
use super::rival::{rival, store_of};
use super::same_etcd::{is_log_in_doubt, other_log};
use super::sight::{Sight, log_end};
use crate::api::MasterCluster;

/// How long a pass waits for the first read of a new session, because the status depends on it.
const FIRST_SIGHT: Duration = Duration::from_secs(5);

/// Timeout of reading the end of the log.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// The session with a cluster's etcd, or why there is none.
pub(super) struct WayToEtcd {
    /// The session, or why there is none.
    pub(super) etcd: Result<Arc<Attendant>, EtcdSight>,
    /// A problem to report although the session works.
    pub(super) complaint: Option<Failure>,
}

impl From<Result<Arc<Attendant>, EtcdSight>> for WayToEtcd {
    fn from(etcd: Result<Arc<Attendant>, EtcdSight>) -> Self {
        Self { etcd, complaint: None }
    }
}

impl Context {
    /// Returns the session with the cluster's etcd; opens one if there is none or if the access has changed.
    pub(super) async fn way_to_etcd(&self, cluster: &MasterCluster) -> WayToEtcd {
        let resource = Resource::of(cluster);
        if let Some(taken) = rival(cluster, &self.caches.clusters.store().state(), store_of(cluster)) {
            self.attendants.lock().remove(&resource);
            return Err(taken).into();
        }
        let there = self.attendants.lock().get(&resource).cloned();
        let access = match access::resolve(&self.writer.client, cluster).await {
            Ok(access) => access,
            // The Secret may be fine, so an existing session is kept.
            Err(error @ AccessError::Read { .. }) => {
                let message = error.to_string();
                return there.ok_or(EtcdSight::Unusable { reason: "SecretUnreadable", message }).into();
            }
            Err(AccessError::None(none)) => return self.without_secret(cluster, there, none),
        };
        if let Some(there) = there.filter(|there| there.goes(&access)) {
            return Ok(there).into();
        }
        let (wake, target) = (self.wake.clone(), resource.reference.clone());
        // The channel is closed only when the process ends.
        let wake = move || _ = wake.send(target.clone());
        match Attendant::start(access, Arc::new(wake)) {
            Ok(attendant) => {
                let attendant = Arc::new(attendant);
                self.attendants.lock().insert(resource, Arc::clone(&attendant));
                self.writer.metrics.clusters(self.attendants.lock().len());
                attendant.first_sight(FIRST_SIGHT).await;
                Ok(attendant).into()
            }
            Err(why) => Err(EtcdSight::Unusable { reason: "EtcdUnusable", message: why.to_string() }).into(),
        }
    }

    /// Handles a Secret that is missing or incomplete. A working connection does not need it any more: labels continue
    /// to follow the primary, and the status names the Secret, because no new pod can start.
    fn without_secret(
        &self,
        cluster: &MasterCluster,
        there: Option<Arc<Attendant>>,
        none: NoAccess,
    ) -> WayToEtcd {
        let NoAccess { reason, message } = none;
        let works = |there: &Arc<Attendant>| {
            there.leads_to(&cluster.spec.etcd.endpoints) && matches!(there.sight(), Sight::Current { .. })
        };
        match there.filter(works) {
            Some(there) => {
                let complaint = Some(Failure { reason, message, stalled: true });
                WayToEtcd { etcd: Ok(there), complaint }
            }
            None => {
                self.attendants.lock().remove(&Resource::of(cluster));
                Err(EtcdSight::Unusable { reason, message }).into()
            }
        }
    }

    /// Returns why the keys are not those of this cluster, if etcd has the known id and lacks the log.
    pub(super) async fn another_log(
        &self,
        observed: &Observed,
        attendant: Option<&Attendant>,
    ) -> Option<EtcdSight> {
        let attendant = attendant.filter(|_| is_log_in_doubt(observed))?;
        match log_end(&attendant.etcd, &attendant.keys, LOG_TIMEOUT).await {
            Ok(end) => other_log(observed, end.map(|end| end.log)),
            // Without the log it is unknown whose keys these are, so they are not used.
            Err(failure) => {
                Some(EtcdSight::Lost { why: format!("the end of the log in etcd cannot be read: {failure}") })
            }
        }
    }

    /// Returns why the log is another cluster's, now that the cluster id of etcd is known.
    pub(super) fn rival(&self, cluster: &MasterCluster, observed: &Observed) -> Option<EtcdSight> {
        let store = observed.etcd.view()?.store?.to_string();
        rival(cluster, &self.caches.clusters.store().state(), Some(&store))
    }
}
