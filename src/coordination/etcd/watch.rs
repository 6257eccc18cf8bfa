//! Watches: one stream each, its fragments put together, and asked for signs of life so that silence means trouble.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{WatchFilterType, WatchOptions, WatchStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::coordination::etcd::Etcd;
use crate::coordination::etcd::answers::{change, revision, unsigned};
use crate::coordination::etcd::connection::Connection;
use crate::coordination::etcd::failures::Fault;
use crate::coordination::etcd::questions::{range, signed};
use crate::coordination::types::{Change, Failure, WatchEvent, WatchRequest};

/// So many events may wait for their receiver; then the stream is not read on.
pub(super) const EVENTS_IN_FLIGHT: usize = 64;

/// The largest change of one revision that is put together: etcd takes no request above 1.5 MiB unless told so.
const MAX_EVENT_BYTES: usize = 64 << 20;

impl Etcd {
    /// Runs a watch to its end, and says how it ended.
    pub(super) async fn run_watch(self, request: WatchRequest, sender: mpsc::Sender<WatchEvent>) {
        let silence = self.settings.watch_silence;
        let ended = match self.connections.get().await {
            Err(fault) => broken(fault),
            Ok(connection) => {
                // Whoever watched may be gone, and then nobody is told anything any more.
                let ended = tokio::select! {
                    () = sender.closed() => return,
                    ended = follow(&connection, request, silence, &sender) => ended,
                };
                if matches!(ended, WatchEvent::Broken(_)) {
                    self.connections.give_up(&connection).await;
                }
                ended
            }
        };
        _ = sender.send(ended).await;
    }
}

async fn follow(
    connection: &Arc<Connection>,
    request: WatchRequest,
    silence: Duration,
    sender: &mpsc::Sender<WatchEvent>,
) -> WatchEvent {
    // The revision up to which everything was told, as far as that is known before the first answer.
    let told = request.from_revision.checked_sub(1);
    let (key, end) = range(request.range);
    let mut options = WatchOptions::new()
        .with_start_revision(signed(request.from_revision))
        .with_progress_notify()
        .with_fragment();
    if let Some(end) = end {
        options = options.with_range(end);
    }
    if !request.deletions {
        options = options.with_filters([WatchFilterType::NoDelete]);
    }
    let mut client = connection.watch.clone();
    let opening = client.watch(key, Some(options));
    let stream = match timeout_at(Instant::now() + silence, opening).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return broken(error.into()),
        Err(_) => return WatchEvent::Broken(format!("no watch within {silence:?}")),
    };
    Follower { stream, silence, told, parts: Parts::default() }.run(sender).await
}

fn broken(fault: Fault) -> WatchEvent {
    WatchEvent::Broken(match fault.failure {
        Failure::Unknown(why) | Failure::Refused(why) => why,
        other => other.to_string(),
    })
}

struct Follower {
    stream: WatchStream,
    silence: Duration,
    /// Everything up to this revision was told; `None` until etcd has said where it starts.
    told: Option<u64>,
    parts: Parts,
}

impl Follower {
    async fn run(mut self, sender: &mpsc::Sender<WatchEvent>) -> WatchEvent {
        let mut heard = Instant::now();
        let mut asked = false;
        loop {
            // After a while of silence a sign of life is asked for; if none comes, the stream is dead.
            let deadline = heard + if asked { self.silence } else { self.silence / 3 };
            let response = match timeout_at(deadline, self.stream.message()).await {
                Ok(Ok(Some(response))) => response.0,
                Ok(Ok(None)) => return WatchEvent::Broken("the watch ended".to_owned()),
                Ok(Err(error)) => return broken(error.into()),
                Err(_) if asked => return WatchEvent::Broken(format!("silent for {:?}", self.silence)),
                Err(_) => {
                    asked = true;
                    match timeout_at(heard + self.silence, self.stream.request_progress()).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) => return broken(error.into()),
                        Err(_) => return WatchEvent::Broken("etcd reads nothing any more".to_owned()),
                    }
                }
            };
            match self.take(response) {
                Ok(None) => {}
                // The receiver may take its time: that is not etcd's silence.
                Ok(Some(event)) => _ = sender.send(event).await,
                Err(ended) => return ended,
            }
            heard = Instant::now();
            asked = false;
        }
    }

    /// What a message tells; the end of the watch as an error.
    fn take(&mut self, response: PbWatchResponse) -> Result<Option<WatchEvent>, WatchEvent> {
        let at = revision(response.header.as_ref());
        if response.canceled {
            return Err(match response.compact_revision {
                0 => WatchEvent::Broken(format!("etcd ended the watch: {}", response.cancel_reason)),
                oldest => WatchEvent::Compacted { oldest: unsigned(oldest) },
            });
        }
        if response.created {
            // A watch without a start revision begins after the one that etcd had then.
            self.told.get_or_insert(at);
            return Ok(None);
        }
        if !response.events.is_empty() || self.parts.started() {
            let whole = !response.fragment;
            self.parts.add(response.events).map_err(WatchEvent::Broken)?;
            return if whole { self.changes() } else { Ok(None) };
        }
        // What etcd sends of itself to this watch comes in order with the changes. What it answers to the whole stream
        // may overtake them in etcd before 3.5.8 and 3.4.25, so it counts as a sign of life only.
        if response.watch_id >= 0 {
            self.told = self.told.max(Some(at));
        }
        Ok(self.told.map(|revision| WatchEvent::Progress { revision }))
    }

    /// The changes that have come together. The header may be ahead of them, the last of them is not.
    fn changes(&mut self) -> Result<Option<WatchEvent>, WatchEvent> {
        let unknown = || WatchEvent::Broken("an event of an unknown kind".to_owned());
        let events = std::mem::take(&mut self.parts).events;
        let changes: Option<Vec<Change>> = events.into_iter().map(change).collect();
        let changes = changes.ok_or_else(unknown)?;
        let last = changes.last().map(|change| match change {
            Change::Put(entry) => entry.mod_revision,
            Change::Deleted { revision, .. } => *revision,
        });
        let Some(revision) = last else { return Ok(None) };
        self.told = self.told.max(Some(revision));
        Ok(Some(WatchEvent::Changes { revision, changes }))
    }
}

/// What has come of a message that etcd sends in fragments.
#[derive(Default)]
struct Parts {
    events: Vec<PbEvent>,
    bytes: usize,
}

impl Parts {
    fn started(&self) -> bool {
        !self.events.is_empty()
    }

    fn add(&mut self, events: Vec<PbEvent>) -> Result<(), String> {
        let size = |event: &PbEvent| event.kv.as_ref().map_or(0, |entry| entry.key.len() + entry.value.len());
        self.bytes += events.iter().map(size).sum::<usize>();
        if self.bytes > MAX_EVENT_BYTES {
            return Err(format!("one change of more than {MAX_EVENT_BYTES} bytes"));
        }
        self.events.extend(events);
        Ok(())
    }
}
