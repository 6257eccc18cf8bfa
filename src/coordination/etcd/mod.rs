//! The client of a real etcd. It has one connection at a time, to one endpoint after another: when a call gets no
//! answer or a stream breaks, the next call goes to the next endpoint. It does not retry: whether and what to send
//! again is decided where the meaning of a lost answer is known (R5).
//!
//! Streams are known to hang without an error, so each has a bound on silence: a quiet watch is asked for its progress,
//! and every keep-alive is a request that has to be answered on its own stream.

mod answers;
mod connection;
mod dialer;
mod failures;
mod keepalive;
mod keeper;
mod members;
mod questions;
mod settings;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::coordination::etcd::connection::{Connection, Connections};
use crate::coordination::etcd::failures::Fault;
use crate::coordination::types::{Failure, MemberStatus, Request, Response, WatchEvent, WatchRequest};

pub use members::EtcdMembers;
pub use settings::{EtcdSettings, Login, LoginFiles, SettingsError, Tls, TlsFiles, TlsPem, User, UserName};

/// A client of etcd. Clones share the connection.
#[derive(Clone)]
pub struct Etcd {
    connections: Arc<Connections>,
    settings: Arc<EtcdSettings>,
}

impl Etcd {
    /// Returns a client with these settings. It connects at the first call, so etcd may be unreachable at first.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used: no endpoint or one that is not a URL, `https` without a CA, files that cannot be
    /// read.
    pub fn connect(settings: EtcdSettings) -> Result<Self, SettingsError> {
        let settings = Arc::new(settings);
        Ok(Self { connections: Arc::new(Connections::new(Arc::clone(&settings))?), settings })
    }

    /// Sends a request to etcd, and waits at most `timeout` for the answer, connecting included.
    ///
    /// # Errors
    ///
    /// etcd's error, if it surely came from etcd itself; else [`Failure::Unknown`].
    pub async fn call(&self, request: Request, timeout: Duration) -> Result<Response, Failure> {
        self.ask(timeout, async |connection| connection.perform(request).await).await
    }

    /// Returns the id of etcd's cluster, by a read of a key that the user may read. Two etcds have different ids.
    ///
    /// # Errors
    ///
    /// As [`Etcd::call`].
    pub async fn cluster_id(&self, key: Bytes, timeout: Duration) -> Result<u64, Failure> {
        self.ask(timeout, async |connection| connection.cluster_id(key).await).await
    }

    /// Asks the member at the endpoint in use for its size, its quota and the alarms.
    ///
    /// # Errors
    ///
    /// As [`Etcd::call`].
    pub async fn member_status(&self, timeout: Duration) -> Result<MemberStatus, Failure> {
        self.ask(timeout, async |connection| connection.member_status().await).await
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

    /// Starts a watch. Its last event is [`WatchEvent::Compacted`] or [`WatchEvent::Broken`]; dropping the receiver
    /// ends it, too. A receiver that is not read holds the watch up, and etcd with it.
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
