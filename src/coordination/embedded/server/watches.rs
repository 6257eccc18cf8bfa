//! Watches. A stream keeps a position in the history for each of its watches and reads on from there at every new
//! revision. So events that a slow client has not read yet are not buffered; a client that is so slow that its position
//! is compacted gets an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::{PbEvent, PbWatchRequest, PbWatchRequestUnion, PbWatchResponse, PbWatchService};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::coordination::embedded::server::convert::{entry, header, range, signed, status, unsigned};
use crate::coordination::embedded::store::Store;
use crate::coordination::model::Model;
use crate::coordination::model::history::Logged;
use crate::coordination::model::steps::Refusal;
use crate::coordination::types::KeyRange;

/// Upper bound of watches at a time, of all clients together.
const MAX_WATCHES: usize = 10_000;

/// Upper bound of messages that are queued for one client.
const MESSAGES_IN_FLIGHT: usize = 4;

/// Revisions are combined into one message up to this size, and a larger one is split into fragments if the client
/// accepts them.
const MESSAGE_BYTES: usize = 1 << 20;

/// Interval of progress events for a watch that requested them.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// The id in answers that are to the whole stream and not to one of its watches, as in etcd.
const NO_WATCH: i64 = -1;

pub(super) struct Watches {
    store: Store,
    places: Arc<Semaphore>,
    stopped: watch::Receiver<()>,
}

impl Watches {
    pub(super) fn new(store: Store, stopped: watch::Receiver<()>) -> Self {
        Self { store, places: Arc::new(Semaphore::new(MAX_WATCHES)), stopped }
    }
}

#[tonic::async_trait]
impl PbWatchService for Watches {
    type WatchStream = ReceiverStream<Result<PbWatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(MESSAGES_IN_FLIGHT);
        let stream = Stream {
            store: self.store.clone(),
            places: Arc::clone(&self.places),
            watches: BTreeMap::new(),
            next_id: 0,
            sender: sender.clone(),
        };
        let mut stopped = self.stopped.clone();
        let questions = request.into_inner();
        tokio::spawn(async move {
            tokio::select! {
                ended = stream.run(questions) => if let Err(Ended::With(status)) = ended {
                    _ = sender.send(Err(status)).await;
                },
                () = sender.closed() => {}
                _ = stopped.changed() => {
                    _ = sender.try_send(Err(Status::unavailable("the embedded store is stopping")));
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Why the stream of a client's watches ended.
enum Ended {
    Gone,
    With(Status),
}

struct Watch {
    range: KeyRange,
    /// The first revision that was not sent to it.
    next: u64,
    puts: bool,
    deletions: bool,
    previous: bool,
    fragments: bool,
    /// When the next progress event is due; `None` if they were not requested.
    progress: Option<Instant>,
    _place: OwnedSemaphorePermit,
}

/// A stream with its watches.
struct Stream {
    store: Store,
    places: Arc<Semaphore>,
    watches: BTreeMap<i64, Watch>,
    next_id: i64,
    sender: mpsc::Sender<Result<PbWatchResponse, Status>>,
}

/// What is to be sent to a watch next.
enum Told {
    Nothing,
    Events { revision: u64, events: Vec<PbEvent> },
    Compacted { revision: u64, oldest: u64 },
}

impl Stream {
    async fn run(mut self, mut questions: Streaming<PbWatchRequest>) -> Result<(), Ended> {
        let mut revisions = self.store.revisions();
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL / 4);
        loop {
            tokio::select! {
                question = questions.message() => match question {
                    Ok(Some(PbWatchRequest { request_union: Some(question) })) => self.answer(question).await?,
                    Ok(Some(PbWatchRequest { request_union: None })) => {}
                    // The client sends no more requests; its watches continue until it is gone.
                    Ok(None) => return self.run_on(revisions).await,
                    Err(_) => return Err(Ended::Gone),
                },
                changed = revisions.changed() => {
                    changed.map_err(|_| Ended::Gone)?;
                    self.tell_all().await?;
                }
                _ = ticks.tick() => self.tell_progress().await?,
            }
        }
    }

    async fn run_on(mut self, mut revisions: watch::Receiver<u64>) -> Result<(), Ended> {
        loop {
            revisions.changed().await.map_err(|_| Ended::Gone)?;
            self.tell_all().await?;
        }
    }

    async fn answer(&mut self, question: PbWatchRequestUnion) -> Result<(), Ended> {
        match question {
            PbWatchRequestUnion::CreateRequest(request) => {
                // In etcd an empty key means the first one.
                let key = if request.key.is_empty() { vec![0] } else { request.key };
                let range = range(key, request.range_end);
                let place = Arc::clone(&self.places).try_acquire_owned();
                let id = if request.watch_id > 0 { request.watch_id } else { self.free_id() };
                let revision = self.revision()?;
                let refused = |why: &str| PbWatchResponse {
                    header: header(revision),
                    watch_id: NO_WATCH,
                    created: true,
                    canceled: true,
                    cancel_reason: why.to_owned(),
                    ..PbWatchResponse::default()
                };
                if range.end.as_ref().is_some_and(|end| **end != [0] && *end <= range.start) {
                    return self.send(refused("mvcc: watcher range is empty")).await;
                }
                if self.watches.contains_key(&id) {
                    return self.send(refused("mvcc: duplicate watch ID provided on the WatchStream")).await;
                }
                let Ok(place) = place else {
                    return self.send(refused("etcdserver: too many requests")).await;
                };
                let watch = Watch {
                    range,
                    next: if request.start_revision > 0 {
                        unsigned(request.start_revision)
                    } else {
                        revision + 1
                    },
                    puts: !request.filters.contains(&0),
                    deletions: !request.filters.contains(&1),
                    previous: request.prev_kv,
                    fragments: request.fragment,
                    progress: request.progress_notify.then(|| Instant::now() + PROGRESS_INTERVAL),
                    _place: place,
                };
                self.watches.insert(id, watch);
                let created = PbWatchResponse {
                    header: header(revision),
                    watch_id: id,
                    created: true,
                    ..PbWatchResponse::default()
                };
                self.send(created).await?;
                self.tell(id).await
            }
            PbWatchRequestUnion::CancelRequest(request) => self.cancel(request.watch_id).await,
            PbWatchRequestUnion::ProgressRequest(_) => self.progress().await,
        }
    }

    async fn cancel(&mut self, watch_id: i64) -> Result<(), Ended> {
        if self.watches.remove(&watch_id).is_none() {
            return Ok(());
        }
        let revision = self.revision()?;
        self.send(PbWatchResponse {
            header: header(revision),
            watch_id,
            canceled: true,
            ..PbWatchResponse::default()
        })
        .await
    }

    /// Answers a progress request, which is about all watches of the stream.
    async fn progress(&mut self) -> Result<(), Ended> {
        self.tell_all().await?;
        // All watches have been sent everything up to the oldest position; newer revisions may have come meanwhile.
        let newest = self.revision()?;
        let told = self.watches.values().map(|watch| watch.next - 1).min();
        let revision = told.map_or(newest, |told| told.min(newest));
        self.send(PbWatchResponse {
            header: header(revision),
            watch_id: NO_WATCH,
            ..PbWatchResponse::default()
        })
        .await
    }

    fn free_id(&mut self) -> i64 {
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    fn revision(&self) -> Result<u64, Ended> {
        self.store.look(Model::revision).map_err(|rejection| Ended::With(status(rejection)))
    }

    async fn send(&self, response: PbWatchResponse) -> Result<(), Ended> {
        self.sender.send(Ok(response)).await.map_err(|_| Ended::Gone)
    }

    async fn tell_all(&mut self) -> Result<(), Ended> {
        let ids: Vec<i64> = self.watches.keys().copied().collect();
        for id in ids {
            self.tell(id).await?;
        }
        Ok(())
    }

    /// Sends a watch everything that was not sent to it yet.
    async fn tell(&mut self, id: i64) -> Result<(), Ended> {
        while let Some(watch) = self.watches.get_mut(&id) {
            let told = self.store.look(|model| watch.collect(model));
            match told.map_err(|rejection| Ended::With(status(rejection)))? {
                Told::Nothing => return Ok(()),
                Told::Events { revision, events } => {
                    if let Some(progress) = &mut watch.progress {
                        *progress = Instant::now() + PROGRESS_INTERVAL;
                    }
                    let parts = if watch.fragments { fragments(events) } else { vec![events] };
                    let last = parts.len() - 1;
                    for (index, events) in parts.into_iter().enumerate() {
                        let fragment = index < last;
                        let header = header(revision);
                        self.send(PbWatchResponse {
                            header,
                            watch_id: id,
                            fragment,
                            events,
                            ..PbWatchResponse::default()
                        })
                        .await?;
                    }
                }
                Told::Compacted { revision, oldest } => {
                    self.watches.remove(&id);
                    return self
                        .send(PbWatchResponse {
                            header: header(revision),
                            watch_id: id,
                            canceled: true,
                            compact_revision: signed(oldest),
                            cancel_reason: Refusal::Compacted.to_string(),
                            ..PbWatchResponse::default()
                        })
                        .await;
                }
            }
        }
        Ok(())
    }

    /// Sends progress events to the watches that requested them and had no other event for the interval.
    async fn tell_progress(&mut self) -> Result<(), Ended> {
        self.tell_all().await?;
        let now = Instant::now();
        let newest = self.revision()?;
        let mut due = Vec::new();
        for (id, watch) in &mut self.watches {
            if let Some(progress) = &mut watch.progress
                && *progress <= now
            {
                *progress = now + PROGRESS_INTERVAL;
                due.push((*id, newest.min(watch.next - 1)));
            }
        }
        for (watch_id, revision) in due {
            self.send(PbWatchResponse { header: header(revision), watch_id, ..PbWatchResponse::default() })
                .await?;
        }
        Ok(())
    }
}

impl Watch {
    /// Collects the next revisions, up to the size of a message, and advances behind them.
    fn collect(&mut self, model: &Model) -> Told {
        let history = model.history();
        let (newest, oldest) = (history.revision(), history.compacted());
        if self.next < oldest {
            return Told::Compacted { revision: newest, oldest };
        }
        let mut events = Vec::new();
        let mut bytes = 0;
        while self.next <= newest && bytes < MESSAGE_BYTES {
            for logged in history.changes(self.next).iter().filter(|logged| self.wants(logged)) {
                let event = self.event(logged, oldest);
                bytes += size(&event);
                events.push(event);
            }
            self.next += 1;
        }
        if events.is_empty() { Told::Nothing } else { Told::Events { revision: newest, events } }
    }

    fn wants(&self, logged: &Logged) -> bool {
        (if logged.deleted { self.deletions } else { self.puts }) && self.range.contains(&logged.entry.key)
    }

    fn event(&self, logged: &Logged, oldest: u64) -> PbEvent {
        // The state before the oldest revision that can be read is not told, as in etcd.
        let previous = self.previous && logged.entry.mod_revision > oldest;
        PbEvent {
            r#type: i32::from(logged.deleted),
            kv: Some(entry(logged.entry.clone())),
            prev_kv: logged.previous.clone().filter(|_| previous).map(entry),
        }
    }
}

fn size(event: &PbEvent) -> usize {
    let sizes = event.kv.iter().chain(&event.prev_kv).map(|entry| entry.key.len() + entry.value.len() + 64);
    sizes.sum()
}

/// Splits events into parts of about the size of a message.
fn fragments(events: Vec<PbEvent>) -> Vec<Vec<PbEvent>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for event in events {
        let more = size(&event);
        if bytes > 0 && bytes + more > MESSAGE_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.push(event);
        }
    }
    parts
}
