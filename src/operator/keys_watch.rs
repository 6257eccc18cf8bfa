//! Watches the keys of one cluster in etcd. One watcher for each cluster: it reads all keys, then follows their
//! changes; whenever the watch breaks it reads again. What it publishes is either current or marked as lost, so that no
//! pass mistakes an old view for the present one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Latest, LatestError};
use crate::cluster::view::{ClusterView, StoreId};
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Failure, Get, KeyRange, Request, Response, WatchEvent, WatchRequest};

/// Timeout of a read of a cluster's keys.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Delay before a failed read is retried.
const RETRY: Duration = Duration::from_millis(500);

/// Upper bound of the keys that are read. A cluster has seven members and a few more keys; a prefix with more is not a
/// cluster of ours.
const MAX_KEYS: u64 = 1000;

/// What is known of a cluster's keys in etcd.
#[derive(Clone, Debug, Default)]
pub enum WatchedKeys {
    /// Neither an answer nor a failure yet.
    #[default]
    NotYet,
    /// The keys as they are now.
    Current {
        view: Arc<ClusterView>,
        /// When the view last changed in a way that `is_news_to` counts.
        since: Instant,
    },
    /// etcd does not answer.
    Lost {
        /// The failure of the last read.
        why: String,
    },
}

/// Publishes a cluster's keys until all receivers are dropped. Calls `news` after every change that needs a pass, and
/// when etcd becomes unreachable or reachable.
///
/// `place` names the etcd in messages.
pub async fn watch(
    etcd: Etcd,
    keys: Keys,
    place: String,
    watched_keys: watch::Sender<WatchedKeys>,
    news: impl Fn(),
) {
    while !watched_keys.is_closed() {
        match read(&etcd, &keys).await {
            Ok(view) => {
                publish(&watched_keys, Arc::new(view.clone()), &news);
                follow(&etcd, &keys, view, &watched_keys, &news).await;
            }
            Err(failure) => {
                let why = format!("{place} cannot be read: {failure}");
                let was_lost = matches!(&*watched_keys.borrow(), WatchedKeys::Lost { .. });
                if !was_lost {
                    tracing::warn!(%why, "the keys of a cluster cannot be read");
                }
                watched_keys.send_replace(WatchedKeys::Lost { why });
                if !was_lost {
                    news();
                }
                sleep(RETRY).await;
            }
        }
    }
}

/// Reads all keys of the cluster, and of the log only its end.
async fn read(etcd: &Etcd, keys: &Keys) -> Result<ClusterView, Failure> {
    let get = Get { limit: MAX_KEYS, ..Get::all(keys.cluster()) };
    match etcd.call(Request::Get(get), READ_TIMEOUT).await? {
        Response::Got { revision, page } => {
            let store = Some(StoreId(etcd.cluster_id(keys.latest(), READ_TIMEOUT).await?));
            let log = log_end(etcd, keys, READ_TIMEOUT).await?.map(|end| end.log);
            Ok(ClusterView { store, log, ..ClusterView::read(keys, revision, &page.entries) })
        }
        other => Err(Failure::unexpected(&other)),
    }
}

/// Follows the changes until the watch ends.
async fn follow(
    etcd: &Etcd,
    keys: &Keys,
    mut view: ClusterView,
    watched_keys: &watch::Sender<WatchedKeys>,
    news: &impl Fn(),
) {
    // From the revision that was read, although its changes are known: etcd does not answer a progress request while a
    // watch of the stream starts at a future revision, and so the watch of an idle etcd would count as broken. Applying
    // a change twice has no effect.
    let request = WatchRequest { range: keys.cluster(), from_revision: view.revision, deletions: true };
    let mut events: mpsc::Receiver<WatchEvent> = etcd.watch(request);
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = watched_keys.closed() => return,
        };
        match event {
            Some(WatchEvent::Changes { revision, changes }) => {
                view.change(keys, revision, &changes);
                publish(watched_keys, Arc::new(view.clone()), news);
            }
            Some(WatchEvent::Progress { .. }) => {}
            Some(WatchEvent::Compacted { .. }) | None => return,
            Some(WatchEvent::Broken(why)) => {
                tracing::debug!(%why, "a watch of a cluster's keys broke");
                return;
            }
        }
    }
}

fn publish(watched_keys: &watch::Sender<WatchedKeys>, view: Arc<ClusterView>, news: &impl Fn()) {
    let mut is_news = true;
    watched_keys.send_modify(|watched_keys| {
        let since = match &*watched_keys {
            WatchedKeys::Current { view: before, since } if !view.is_news_to(before) => {
                is_news = false;
                *since
            }
            _ => Instant::now(),
        };
        *watched_keys = WatchedKeys::Current { view, since };
    });
    if is_news {
        news();
    }
}

/// Reads where the log ends; `None` if there is no log yet.
pub async fn log_end(etcd: &Etcd, keys: &Keys, within: Duration) -> Result<Option<Latest>, Failure> {
    let get = Get::all(KeyRange::key(keys.latest()));
    match etcd.call(Request::Get(get), within).await? {
        Response::Got { page, .. } => match page.entries.first() {
            None => Ok(None),
            Some(entry) => {
                let unusable = |error: LatestError| {
                    let key = String::from_utf8_lossy(&entry.key);
                    Failure::Unusable(format!(
                        "the value of {key} is not the end of a log ({})",
                        error.reason()
                    ))
                };
                Latest::from_bytes(&entry.value).map(Some).map_err(unusable)
            }
        },
        other => Err(Failure::unexpected(&other)),
    }
}
