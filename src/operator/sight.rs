//! Watches the keys of one cluster in etcd. One watcher for each cluster: it reads all keys, then follows their
//! changes; whenever the watch breaks it reads again. What it sees is always either current or said to be lost, so
//! that nobody takes an old view for the present one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::view::{StoreId, View};
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Failure, Get, KeyRange, Request, Response, WatchEvent, WatchRequest};
use crate::replication::batch::Latest;
use crate::replication::keys::Keys;

/// How long a read of a cluster's keys may take.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// How often etcd is asked for its alarms: a watch does not tell of them.
const ALARMS: Duration = Duration::from_secs(5);

/// How soon a failed read is made again.
const RETRY: Duration = Duration::from_millis(500);

/// Most keys that a cluster has: seven members and a few more. Above that it is not a cluster of ours.
const MAX_KEYS: u64 = 1000;

/// What is known of a cluster's keys.
#[derive(Clone, Debug, Default)]
pub enum Sight {
    /// Nothing was heard yet.
    #[default]
    NotYet,
    /// This is what they say now.
    Current {
        /// The keys.
        view: Arc<View>,
        /// When the last news came.
        since: Instant,
    },
    /// etcd does not answer.
    Lost {
        /// What happens when it is asked.
        why: String,
    },
}

/// Tells of a cluster's keys until nobody listens any more. `news` is called after every change that somebody should
/// act on, and when etcd is lost and found.
///
/// `place` names the etcd for people.
pub async fn watch(etcd: Etcd, keys: Keys, place: String, sight: watch::Sender<Sight>, news: impl Fn()) {
    while !sight.is_closed() {
        match read(&etcd, &keys).await {
            Ok(view) => {
                publish(&sight, Arc::new(view.clone()), &news);
                follow(&etcd, &keys, view, &sight, &news).await;
            }
            Err(failure) => {
                let why = format!("{place} cannot be read: {failure}");
                let was_lost = matches!(&*sight.borrow(), Sight::Lost { .. });
                if !was_lost {
                    tracing::warn!(%why, "the keys of a cluster cannot be read");
                }
                sight.send_replace(Sight::Lost { why });
                if !was_lost {
                    news();
                }
                sleep(RETRY).await;
            }
        }
    }
}

/// Reads all keys but the log.
async fn read(etcd: &Etcd, keys: &Keys) -> Result<View, Failure> {
    let get = Get { limit: MAX_KEYS, ..Get::all(keys.cluster()) };
    match etcd.call(Request::Get(get), READ_TIMEOUT).await? {
        Response::Got { revision, page } => {
            let no_space = is_out_of_space(etcd).await.unwrap_or(false);
            let store = Some(StoreId(etcd.cluster_id(keys.latest(), READ_TIMEOUT).await?));
            let log = log_end(etcd, keys, READ_TIMEOUT).await?.map(|end| end.log);
            Ok(View { no_space, store, log, ..View::read(keys, revision, &page.entries) })
        }
        other => Err(Failure::Unknown(format!("it answered {other:?}"))),
    }
}

/// Whether etcd has raised the alarm NOSPACE; `None` if it does not say.
async fn is_out_of_space(etcd: &Etcd) -> Option<bool> {
    match etcd.call(Request::Alarms, READ_TIMEOUT).await {
        Ok(Response::Alarms { no_space }) => Some(no_space),
        _ => None,
    }
}

/// Follows the changes until the watch ends.
async fn follow(etcd: &Etcd, keys: &Keys, mut view: View, sight: &watch::Sender<Sight>, news: &impl Fn()) {
    // From the revision that was read, although nothing of it is news: etcd leaves a request for progress unanswered while
    // one watch of the stream starts in the future, and so a watch of an idle etcd would count as broken. What is told
    // twice changes nothing.
    let request = WatchRequest { range: keys.cluster(), from_revision: view.revision, deletions: true };
    let mut events: mpsc::Receiver<WatchEvent> = etcd.watch(request);
    let mut alarms = tokio::time::interval_at(Instant::now() + ALARMS, ALARMS);
    alarms.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = sight.closed() => return,
            _ = alarms.tick() => {
                if let Some(no_space) = is_out_of_space(etcd).await
                    && no_space != view.no_space
                {
                    view.no_space = no_space;
                    publish(sight, Arc::new(view.clone()), news);
                }
                continue;
            }
        };
        match event {
            Some(WatchEvent::Changes { revision, changes }) => {
                view.change(keys, revision, &changes);
                publish(sight, Arc::new(view.clone()), news);
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

fn publish(sight: &watch::Sender<Sight>, view: Arc<View>, news: &impl Fn()) {
    let mut is_news = true;
    sight.send_modify(|sight| {
        let since = match &*sight {
            Sight::Current { view: before, since } if !view.is_news_to(before) => {
                is_news = false;
                *since
            }
            _ => Instant::now(),
        };
        *sight = Sight::Current { view, since };
    });
    if is_news {
        news();
    }
}

/// Where the log ends; `None` if there is no log yet.
pub async fn log_end(etcd: &Etcd, keys: &Keys, within: Duration) -> Result<Option<Latest>, Failure> {
    let get = Get::all(KeyRange::key(keys.latest()));
    match etcd.call(Request::Get(get), within).await? {
        Response::Got { page, .. } => match page.entries.first() {
            None => Ok(None),
            Some(entry) => {
                Latest::from_bytes(&entry.value).map(Some).map_err(|why| Failure::Unknown(why.to_string()))
            }
        },
        other => Err(Failure::Unknown(format!("it answered {other:?}"))),
    }
}
