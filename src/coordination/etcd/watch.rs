//! Watches: one stream each, whose fragments are joined, and which is asked for its progress so that silence means
//! trouble.

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

/// Upper bound of events that wait for their receiver; beyond it the stream is not read.
pub(super) const EVENTS_IN_FLIGHT: usize = 64;

/// Upper bound of one revision whose fragments are joined: etcd accepts no request above 1.5 MiB by default. The
/// backlog of a watch, a thousand revisions in one message, can be far larger.
const MAX_EVENT_BYTES: usize = 64 << 20;

impl Etcd {
    /// Runs a watch to its end, and sends how it ended.
    pub(super) async fn run_watch(self, request: WatchRequest, sender: mpsc::Sender<WatchEvent>) {
        let silence = self.settings.watch_silence;
        let ended = match self.connections.get().await {
            Err(fault) => broken(fault),
            Ok(connection) => {
                // A dropped receiver ends the watch: no task is left to read its events.
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
    // The last revision whose changes need not be sent, as far as that is known before the first answer.
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
    /// All changes up to this revision were sent; `None` until etcd has reported where the watch starts.
    told: Option<u64>,
    parts: Parts,
}

impl Follower {
    async fn run(mut self, sender: &mpsc::Sender<WatchEvent>) -> WatchEvent {
        let mut heard = Instant::now();
        let mut asked = false;
        loop {
            // After a third of the allowed silence the watch is asked for its progress; if no answer comes, the stream
            // is dead.
            let deadline = heard + if asked { self.silence } else { self.silence / 3 };
            let response = match timeout_at(deadline, self.stream.message()).await {
                Ok(Ok(Some(response))) => response.0,
                Ok(Ok(None)) => return WatchEvent::Broken("the watch ended".to_owned()),
                Ok(Err(error)) => return broken(error.into()),
                Err(_) if asked => return WatchEvent::Broken(format!("no message for {:?}", self.silence)),
                Err(_) => {
                    asked = true;
                    match timeout_at(heard + self.silence, self.stream.request_progress()).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) => return broken(error.into()),
                        Err(_) => return WatchEvent::Broken("etcd does not read requests".to_owned()),
                    }
                }
            };
            match self.take(response) {
                Ok(None) => {}
                // A slow receiver must not count as silence of etcd.
                Ok(Some(event)) => _ = sender.send(event).await,
                Err(ended) => return ended,
            }
            heard = Instant::now();
            asked = false;
        }
    }

    /// Converts a message to an event; the error is the end of the watch.
    fn take(&mut self, response: PbWatchResponse) -> Result<Option<WatchEvent>, WatchEvent> {
        let at = revision(response.header.as_ref());
        if response.canceled {
            return Err(match response.compact_revision {
                0 => WatchEvent::Broken(format!("etcd ended the watch: {}", response.cancel_reason)),
                oldest => WatchEvent::Compacted { oldest: unsigned(oldest) },
            });
        }
        if response.created {
            // A watch without a start revision begins after the revision that etcd had when the watch was created.
            self.told.get_or_insert(at);
            return Ok(None);
        }
        if !response.events.is_empty() || self.parts.started() {
            self.parts.add(response.events).map_err(WatchEvent::Broken)?;
            let complete = if response.fragment { self.parts.take_complete() } else { self.parts.take_all() };
            return self.changes(complete);
        }
        // Progress that etcd sends to this watch on its own comes in order with the changes. Its answer to a request
        // about the whole stream may overtake them in etcd before 3.5.8 and 3.4.25, so it counts as a sign of life
        // only.
        if response.watch_id >= 0 {
            self.told = self.told.max(Some(at));
        }
        Ok(self.told.map(|revision| WatchEvent::Progress { revision }))
    }

    /// Converts changes of whole revisions. The revision is that of the last change: the one in the header may be ahead
    /// of it.
    fn changes(&mut self, events: Vec<PbEvent>) -> Result<Option<WatchEvent>, WatchEvent> {
        let unknown = || WatchEvent::Broken("an event of an unknown kind".to_owned());
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

/// The events of a message in fragments that were received and not sent on yet.
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
        self.bytes += events.iter().map(size).sum::<usize>();
        if self.bytes > MAX_EVENT_BYTES {
            return Err(format!("one revision of more than {MAX_EVENT_BYTES} bytes"));
        }
        self.events.extend(events);
        Ok(())
    }

    /// Takes all revisions but the last, which may continue in the next fragment.
    fn take_complete(&mut self) -> Vec<PbEvent> {
        let last = self.events.last().map(revision_of);
        let complete = self.events.partition_point(|event| Some(revision_of(event)) != last);
        let rest = self.events.split_off(complete);
        self.bytes = rest.iter().map(size).sum();
        std::mem::replace(&mut self.events, rest)
    }

    fn take_all(&mut self) -> Vec<PbEvent> {
        std::mem::take(self).events
    }
}

fn size(event: &PbEvent) -> usize {
    event.kv.as_ref().map_or(0, |entry| entry.key.len() + entry.value.len())
}

fn revision_of(event: &PbEvent) -> i64 {
    event.kv.as_ref().map_or(0, |entry| entry.mod_revision)
}
