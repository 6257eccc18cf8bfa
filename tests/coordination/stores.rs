//! The model and what is behind a client, asked in the same way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonkeeper::coordination::etcd::Etcd;
use moonkeeper::coordination::model::{Model, WatchId};
use moonkeeper::coordination::types::{Change, Failure, Request, Response, WatchEvent, WatchRequest};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::process::PATIENCE;

/// A model whose time is that of the test.
#[derive(Clone)]
pub struct Timed {
    model: Arc<Mutex<Model>>,
    start: Instant,
}

impl Timed {
    pub fn new() -> Self {
        Self { model: Arc::new(Mutex::new(Model::new())), start: Instant::now() }
    }

    fn call(&self, request: &Request) -> Result<Response, Failure> {
        self.model.lock().call(self.start.elapsed(), request)
    }

    pub fn compacted(&self) -> u64 {
        self.model.lock().compacted()
    }

    pub fn poll(&self, watch: WatchId) -> Option<WatchEvent> {
        let mut model = self.model.lock();
        model.advance(self.start.elapsed());
        model.poll(watch)
    }
}

/// Something that is asked as etcd is.
pub enum Store {
    Model(Timed),
    Etcd(Etcd),
}

impl Store {
    pub async fn call(&self, request: Request) -> Result<Response, Failure> {
        match self {
            Self::Model(timed) => timed.call(&request),
            Self::Etcd(etcd) => etcd.call(request, PATIENCE).await,
        }
    }

    pub fn watch(&self, request: WatchRequest) -> Watch {
        match self {
            Self::Model(timed) => {
                let id = timed.model.lock().watch(request);
                Watch::Model(timed.clone(), id)
            }
            Self::Etcd(etcd) => Watch::Etcd(etcd.watch(request)),
        }
    }
}

/// A watch of one of them.
pub enum Watch {
    Model(Timed, WatchId),
    Etcd(mpsc::Receiver<WatchEvent>),
}

impl Watch {
    /// The next event.
    pub async fn next(&mut self) -> WatchEvent {
        let next = async {
            match self {
                Self::Model(timed, id) => loop {
                    if let Some(event) = timed.poll(*id) {
                        return event;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                },
                Self::Etcd(receiver) => receiver.recv().await.expect("a watch says how it ended"),
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("an event within patience")
    }

    /// The next event that is no mere sign of life.
    pub async fn next_but_progress(&mut self) -> WatchEvent {
        let next = async {
            loop {
                match self.next().await {
                    WatchEvent::Progress { .. } => {}
                    event => return event,
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("more than signs of life within patience")
    }

    /// The next changes, up to those of a revision.
    pub async fn changes_until(&mut self, last: u64) -> Vec<Change> {
        let mut all = Vec::new();
        let mut told = 0;
        while told < last {
            let event = self.next_but_progress().await;
            let WatchEvent::Changes { revision, changes } = event else {
                panic!("the watch ended: {event:?}")
            };
            for change in &changes {
                let at = revision_of(change);
                assert!(at > told && at <= revision, "a revision came in parts or out of order");
            }
            told = revision;
            all.extend(changes);
        }
        all
    }
}

pub fn revision_of(change: &Change) -> u64 {
    match change {
        Change::Put(entry) => entry.mod_revision,
        Change::Deleted { revision, .. } => *revision,
    }
}
