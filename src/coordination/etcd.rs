//! The client of a real etcd. One connection at a time, to one endpoint after another: when a call gets no answer or
//! a stream breaks, the next call goes to the next endpoint. It does not retry: whether and what to send again is
//! decided where the meaning of a lost answer is known (R5).
//!
//! Streams are known to hang without an error, so each has a bound on silence: watches are asked for a sign of life
//! every now and then, and every keep-alive is a question that has to be answered on its own stream.

mod answers;
mod connection;
mod dialer;
mod failures;
mod keepalive;
mod questions;
mod settings;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::coordination::etcd::connection::{Connection, Connections};
use crate::coordination::etcd::failures::Fault;
use crate::coordination::types::{Failure, Request, Response, WatchEvent, WatchRequest};

pub use settings::{EtcdSettings, Login, LoginFiles, SettingsError, Tls, TlsFiles, TlsPem, User, UserName};

/// A client of etcd. Clones share the connection.
#[derive(Clone)]
pub struct Etcd {
    connections: Arc<Connections>,
    settings: Arc<EtcdSettings>,
}

impl Etcd {
    /// A client with these settings. It connects when there is something to ask, so etcd may be away at first.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used: no endpoint or one that is no URL, `https` without a CA, files that cannot be
    /// read.
    pub fn connect(settings: EtcdSettings) -> Result<Self, SettingsError> {
        let settings = Arc::new(settings);
        Ok(Self { connections: Arc::new(Connections::new(Arc::clone(&settings))?), settings })
    }

    /// Asks etcd, and waits at most `timeout` for the answer, connecting included.
    ///
    /// # Errors
    ///
    /// What etcd says, if it surely was etcd that said it; else [`Failure::Unknown`].
    pub async fn call(&self, request: Request, timeout: Duration) -> Result<Response, Failure> {
        self.ask(timeout, async |connection| connection.perform(request).await).await
    }

    /// Asks etcd for the id of its cluster, by a read of a key that the user may read. Two etcds have different ids.
    ///
    /// # Errors
    ///
    /// As [`Etcd::call`].
    pub async fn cluster_id(&self, key: Bytes, timeout: Duration) -> Result<u64, Failure> {
        self.ask(timeout, async |connection| connection.cluster_id(key).await).await
    }

    async fn ask<T>(
        &self,
        timeout: Duration,
        question: impl AsyncFnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Failure> {
        let mut used: Option<Arc<Connection>> = None;
        let work = async {
            let connection = self.connections.get().await?;
            used = Some(Arc::clone(&connection));
            question(&connection).await
        };
        let fault = match tokio::time::timeout(timeout, work).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(fault)) => fault,
            Err(_) => Fault::broken(format!("nothing within {timeout:?}")),
        };
        if let Some(connection) = used
            && fault.connection_is_suspect
        {
            self.connections.give_up(&connection).await;
        }
        Err(fault.failure)
    }

    /// Watches. The last event is [`WatchEvent::Compacted`] or [`WatchEvent::Broken`]; until then the watch lasts, and
    /// it ends when the receiver is dropped. A receiver that does not receive holds the watch up, and etcd with it.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn watch(&self, request: WatchRequest) -> mpsc::Receiver<WatchEvent> {
        let (sender, receiver) = mpsc::channel(watch::EVENTS_IN_FLIGHT);
        let etcd = self.clone();
        tokio::spawn(async move { etcd.run_watch(request, sender).await });
        receiver
    }
}
