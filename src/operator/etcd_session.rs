//! State that lasts from one pass over a cluster to the next: the watcher of its keys in etcd, and calls that are under
//! way. An operator that restarts does not need it: what must not be lost is in the status.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::etcd_access::Access;
use super::etcd_health_watch;
use super::keys_watch::{self, WatchedKeys};
use super::observation::{Call, CallError, KeysLeft, PromotionAnswer, SnapshotBegun};
use crate::cluster::etcd_health::EtcdHealth;
use crate::cluster::keys::Keys;
use crate::cluster::switchover::SwitchoverDone;
use crate::coordination::etcd::{Etcd, EtcdMembers, SettingsError};

/// Session with one cluster's etcd: the client, the watcher, and calls beside the passes.
pub struct EtcdSession {
    pub etcd: Etcd,
    pub keys: Keys,
    /// Calls that are under way or have ended.
    pub calls: Arc<Mutex<Calls>>,
    fingerprint: u64,
    endpoints: Vec<String>,
    client_certificate: bool,
    watched_keys: watch::Receiver<WatchedKeys>,
    etcd_health: watch::Receiver<EtcdHealth>,
    /// The watchers of the keys and of etcd's health.
    watchers: [JoinHandle<()>; 2],
    wake: Arc<dyn Fn() + Send + Sync>,
    /// Tasks beside the passes. Dropping the session aborts them: an operator that has lost its Lease, or the
    /// resource, makes no further calls.
    running: Mutex<JoinSet<()>>,
}

/// Calls that are under way or have ended.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    pub switchover: Call<Result<SwitchoverDone, CallError>>,
    pub snapshot: Call<Result<SnapshotBegun, CallError>>,
    /// The last report of a primary about its promotion.
    pub promotion: Option<PromotionAnswer>,
    /// Whether the primary is being asked about its promotion.
    pub asking: bool,
    /// The last attempt to delete the keys.
    pub deletion: Call<Result<(), KeysLeft>>,
    /// Number of attempts to delete the keys, this one included.
    pub deletion_attempts: u32,
}

impl EtcdSession {
    /// Connects and starts the watcher, which calls `wake` when there is something to act on.
    ///
    /// # Errors
    ///
    /// If the settings of the etcd client are invalid.
    pub fn start(access: Access, wake: Arc<dyn Fn() + Send + Sync>) -> Result<Self, SettingsError> {
        let Access { settings, keys, fingerprint, client_certificate } = access;
        let endpoints = settings.endpoints.clone();
        let place = format!("etcd at {}", endpoints.join(", "));
        let members = EtcdMembers::connect(&settings)?;
        let etcd = Etcd::connect(settings)?;
        let (sender, watched_keys) = watch::channel(WatchedKeys::NotYet);
        let (health, etcd_health) = watch::channel(EtcdHealth::default());
        let (news, other_news) = (Arc::clone(&wake), Arc::clone(&wake));
        let watchers = [
            tokio::spawn(keys_watch::watch(etcd.clone(), keys.clone(), place, sender, move || news())),
            tokio::spawn(etcd_health_watch::watch(members, health, move || other_news())),
        ];
        Ok(Self {
            etcd,
            keys,
            calls: Arc::default(),
            fingerprint,
            endpoints,
            client_certificate,
            watched_keys,
            etcd_health,
            watchers,
            wake,
            running: Mutex::default(),
        })
    }

    /// Returns whether this session uses these endpoints and credentials.
    #[must_use]
    pub fn uses(&self, access: &Access) -> bool {
        self.fingerprint == access.fingerprint
    }

    /// Returns whether this session uses these endpoints.
    #[must_use]
    pub fn leads_to(&self, endpoints: &[String]) -> bool {
        self.endpoints == endpoints
    }

    /// Returns whether the session presents a client certificate.
    #[must_use]
    pub fn shows_certificate(&self) -> bool {
        self.client_certificate
    }

    /// Returns the latest view of the keys.
    #[must_use]
    pub fn watched_keys(&self) -> WatchedKeys {
        self.watched_keys.borrow().clone()
    }

    /// Returns size, quota and alarms of etcd at the last look.
    #[must_use]
    pub fn etcd_health(&self) -> EtcdHealth {
        self.etcd_health.borrow().clone()
    }

    /// Waits until the first read has succeeded or failed, at most `within`.
    pub async fn first_read(&self, within: Duration) {
        let mut watched_keys = self.watched_keys.clone();
        let seen = watched_keys.wait_for(|watched_keys| !matches!(watched_keys, WatchedKeys::NotYet));
        // After a timeout the pass continues with `NotYet`.
        let _ = tokio::time::timeout(within, seen).await;
    }

    /// Runs a call beside the passes. `keep` stores its result, then the controller is woken.
    pub fn spawn<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        keep: impl FnOnce(&mut Calls, T) + Send + 'static,
    ) {
        let (calls, wake) = (Arc::clone(&self.calls), Arc::clone(&self.wake));
        self.run(async move {
            let result = call.await;
            keep(&mut calls.lock(), result);
            wake();
        });
    }

    /// Runs work without a result beside the passes.
    pub fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(work);
    }
}

impl Drop for EtcdSession {
    fn drop(&mut self) {
        self.watchers.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::etcd::EtcdSettings;

    #[tokio::test]
    async fn what_runs_beside_the_passes_ends_with_the_attendant() {
        let access = Access {
            settings: EtcdSettings::new(["http://127.0.0.1:1"]),
            keys: Keys::new("demo"),
            client_certificate: false,
            fingerprint: 0,
        };
        let etcd_session = EtcdSession::start(access, Arc::new(|| ())).unwrap();
        let (done, outcome) = tokio::sync::oneshot::channel::<()>();
        etcd_session.run(async move {
            std::future::pending::<()>().await;
            let _ = done.send(());
        });
        drop(etcd_session);
        // The task was aborted: its sender is dropped and nothing was sent.
        let ended = tokio::time::timeout(Duration::from_secs(30), outcome).await;
        assert!(matches!(ended, Ok(Err(_))), "it goes on");
    }
}
