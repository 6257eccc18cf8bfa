//! What lasts from one pass over a cluster to the next: the watcher of its keys in etcd, and calls that are under way.
//! None of it is needed to go on after a restart: what must not be forgotten is in the status.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::access::Access;
use super::observed::{Call, CallError, KeysLeft, PromotionAnswer};
use super::sight::{self, Sight};
use crate::coordination::etcd::{Etcd, SettingsError};
use crate::master::admin_api::SwitchoverDone;
use crate::replication::keys::Keys;

/// Looks after one cluster.
pub struct Attendant {
    /// The client of its etcd.
    pub etcd: Etcd,
    /// The keys of the cluster.
    pub keys: Keys,
    /// Calls that are under way or have ended.
    pub calls: Arc<Mutex<Calls>>,
    fingerprint: u64,
    endpoints: Vec<String>,
    client_certificate: bool,
    sight: watch::Receiver<Sight>,
    watcher: JoinHandle<()>,
    /// Wakes the controller.
    wake: Arc<dyn Fn() + Send + Sync>,
    /// What runs beside the passes. It ends with this: an operator that has lost its Lease, or the resource, asks for
    /// nothing more.
    running: Mutex<JoinSet<()>>,
}

/// Calls that are under way or have ended.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The last switchover.
    pub switchover: Call<Result<SwitchoverDone, CallError>>,
    /// The last answer about a promotion.
    pub promotion: Option<PromotionAnswer>,
    /// Whether the primary is being asked about its promotion.
    pub asking: bool,
    /// The last attempt to delete the keys.
    pub deletion: Call<Result<(), KeysLeft>>,
    /// How many there were.
    pub deletion_attempts: u32,
}

impl Attendant {
    /// Begins to watch. `wake` is called when there is something to act on.
    ///
    /// # Errors
    ///
    /// If the way to etcd makes no sense.
    pub fn start(access: Access, wake: Arc<dyn Fn() + Send + Sync>) -> Result<Self, SettingsError> {
        let Access { settings, keys, fingerprint, client_certificate } = access;
        let endpoints = settings.endpoints.clone();
        let place = format!("etcd at {}", endpoints.join(", "));
        let etcd = Etcd::connect(settings)?;
        let (sender, sight) = watch::channel(Sight::NotYet);
        let news = Arc::clone(&wake);
        let watcher = tokio::spawn(sight::watch(etcd.clone(), keys.clone(), place, sender, move || news()));
        Ok(Self {
            etcd,
            keys,
            calls: Arc::default(),
            fingerprint,
            endpoints,
            client_certificate,
            sight,
            watcher,
            wake,
            running: Mutex::default(),
        })
    }

    /// Whether it goes this way.
    #[must_use]
    pub fn goes(&self, access: &Access) -> bool {
        self.fingerprint == access.fingerprint
    }

    /// Whether these are its endpoints.
    #[must_use]
    pub fn leads_to(&self, endpoints: &[String]) -> bool {
        self.endpoints == endpoints
    }

    /// Whether etcd is shown a certificate.
    #[must_use]
    pub fn shows_certificate(&self) -> bool {
        self.client_certificate
    }

    /// What is seen now.
    #[must_use]
    pub fn sight(&self) -> Sight {
        self.sight.borrow().clone()
    }

    /// Waits until something is seen, or that nothing is to be seen.
    pub async fn first_sight(&self, within: Duration) {
        let mut sight = self.sight.clone();
        let seen = sight.wait_for(|sight| !matches!(sight, Sight::NotYet));
        // If nothing comes, that is what is known.
        let _ = tokio::time::timeout(within, seen).await;
    }

    /// Runs a call beside the passes. What it brings is kept by `keep`, and the controller is woken.
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

    /// Runs something beside the passes that brings nothing.
    pub fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(work);
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.watcher.abort();
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
        let attendant = Attendant::start(access, Arc::new(|| ())).unwrap();
        let (done, outcome) = tokio::sync::oneshot::channel::<()>();
        attendant.run(async move {
            std::future::pending::<()>().await;
            let _ = done.send(());
        });
        drop(attendant);
        // Its end of the channel is gone without a word.
        let ended = tokio::time::timeout(Duration::from_secs(30), outcome).await;
        assert!(matches!(ended, Ok(Err(_))), "it goes on");
    }
}
