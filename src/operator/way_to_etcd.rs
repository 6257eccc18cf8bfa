//! Finds the way to a cluster's etcd, and keeps the one who watches it there from one pass to the next.

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

/// How long a new watcher of etcd has to see something. What it sees decides what the status says.
const FIRST_SIGHT: Duration = Duration::from_secs(5);

/// How long etcd has to say which log it has.
const LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// How etcd is reached.
pub(super) struct WayToEtcd {
    /// The one who watches it, or why there is none.
    pub(super) etcd: Result<Arc<Attendant>, EtcdSight>,
    /// What is wrong although it is watched.
    pub(super) complaint: Option<Failure>,
}

impl From<Result<Arc<Attendant>, EtcdSight>> for WayToEtcd {
    fn from(etcd: Result<Arc<Attendant>, EtcdSight>) -> Self {
        Self { etcd, complaint: None }
    }
}

impl Context {
    /// The one who looks after the cluster's etcd, or why there is none.
    pub(super) async fn way_to_etcd(&self, cluster: &MasterCluster) -> WayToEtcd {
        let resource = Resource::of(cluster);
        if let Some(taken) = rival(cluster, &self.caches.clusters.store().state(), store_of(cluster)) {
            self.attendants.lock().remove(&resource);
            return Err(taken).into();
        }
        let there = self.attendants.lock().get(&resource).cloned();
        let access = match access::resolve(&self.writer.client, cluster).await {
            Ok(access) => access,
            // The one that is there goes on.
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
        // A closed channel means that everything ends.
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

    /// A Secret is missing or lacks something. A connection that works does not need it any more: labels go on to follow
    /// the primary, and the status names the Secret, because no new pod can start.
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

    /// Why what was read is not about this cluster, if etcd calls itself as the known one and lacks the log.
    pub(super) async fn another_log(
        &self,
        observed: &Observed,
        attendant: Option<&Attendant>,
    ) -> Option<EtcdSight> {
        let attendant = attendant.filter(|_| is_log_in_doubt(observed))?;
        match log_end(&attendant.etcd, &attendant.keys, LOG_TIMEOUT).await {
            Ok(end) => other_log(observed, end.map(|end| end.log)),
            // Nothing is concluded from keys of which it is not known whose they are.
            Err(failure) => Some(EtcdSight::Lost { why: format!("the log cannot be read: {failure}") }),
        }
    }

    /// Why the log is another cluster's, now that etcd has said who it is.
    pub(super) fn rival(&self, cluster: &MasterCluster, observed: &Observed) -> Option<EtcdSight> {
        let store = observed.etcd.view()?.store?.to_string();
        rival(cluster, &self.caches.clusters.store().state(), Some(&store))
    }
}
