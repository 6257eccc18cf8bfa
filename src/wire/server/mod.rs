//! The TCP server: accepts connections and runs one task for each.
//!
//! It parses frames, passes requests to a [`Service`] in the order of their arrival, and sends the replies when they
//! may be sent. It knows nothing of what a call means.

mod budget;
mod connection;
mod deferred;
mod offload;
mod parked;
mod refusal_log;
mod service;

pub use service::{
    BoxFuture, Deferred, DeferredReply, Failure, GiveUp, Offload, Outcome, SequencerPermit, Service, Waited,
    Work,
};

use budget::{Budget, Charge};
use connection::{Charges, Closed, Connection};
use offload::OffloadedCalls;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::net::accept::Acceptor;
use crate::net::listen::listen;

/// Connections that the kernel queues until they are accepted: thousands of clients reconnect at once after a failover.
const BACKLOG: i32 = 4096;
/// Wait before the next attempt to accept when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least time between two log lines about refused connections, and between two about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes that a connection may hold in requests and in replies that wait for the log before it is charged: what the
/// limits of one connection come to with small requests.
const FREE_PENDING: usize = 64 << 10;
/// The same for replies that the peer does not read. A thousand clients that never read make the master hold this much
/// for each of them, their last requests, and the budget.
const FREE_UNREAD: usize = 32 << 10;

/// Limits and options of connections.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Connections beyond this number are closed at once.
    pub max_connections: usize,
    /// Connections from which no request came for this long are closed.
    pub idle_timeout: Option<Duration>,
    /// Whether small replies are sent at once (TCP_NODELAY).
    pub no_delay: bool,
    /// Bytes of large requests, and of replies that wait for the log, that all connections may hold together. Beyond
    /// it, the connections from which nothing has come for the longest time are closed.
    pub max_pending_bytes: usize,
    /// The same for replies that peers do not read.
    pub max_unread_bytes: usize,
    /// How many calls may work on blocking threads at a time, over all connections.
    pub max_aside: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            idle_timeout: None,
            no_delay: true,
            // Eight requests of the largest size.
            max_pending_bytes: 512 << 20,
            max_unread_bytes: 32 << 20,
            // Each keeps a processor busy, and upkeep needs threads as well.
            max_aside: 2,
        }
    }
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct BindError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A server whose port is open and whose connections are not accepted yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    settings: Settings,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Opens the port. Must be called inside a tokio runtime.
    pub fn bind(address: SocketAddr, settings: Settings) -> Result<Self, BindError> {
        let open = || {
            let listener = TcpListener::from_std(listen(address, BACKLOG)?)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = open().map_err(|source| BindError { address, source })?;
        Ok(Self { listener, address, settings, connections: Arc::default() })
    }

    /// Takes over a port that is open already.
    pub fn on(
        listener: std::net::TcpListener,
        address: SocketAddr,
        settings: Settings,
    ) -> Result<Self, BindError> {
        let take = || {
            let listener = TcpListener::from_std(listener)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = take().map_err(|source| BindError { address, source })?;
        Ok(Self { listener, address, settings, connections: Arc::default() })
    }

    /// Returns the address that the server listens on, with the chosen port when 0 was requested.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Duplicates the descriptor of the listening socket.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Returns a counter of open connections that stays valid while the server runs.
    pub fn connections(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.connections)
    }

    /// Serves until `stop` turns true or its sender is gone; then closes all connections. No byte is sent any more when
    /// this returns. Returns the port, which closes when it is dropped.
    pub async fn serve<S: Service>(self, service: Arc<S>, mut stop: watch::Receiver<bool>) -> TcpListener {
        let Self { listener, settings, connections, .. } = self;
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        tokio::pin!(stopped);
        let pending = Budget::new(FREE_PENDING, settings.max_pending_bytes);
        let unread = Budget::new(FREE_UNREAD, settings.max_unread_bytes);
        let places = Arc::new(Semaphore::new(settings.max_aside));
        let mut tasks = JoinSet::new();
        let mut refused = Throttle::default();
        let mut acceptor = Acceptor::new("rpc", ACCEPT_PAUSE);
        let mut closed = Throttle::default();
        loop {
            tokio::select! {
                () = &mut stopped => break,
                Some(ended) = tasks.join_next() => {
                    connections.fetch_sub(1, Ordering::Relaxed);
                    report(ended, &mut closed);
                }
                (stream, peer) = acceptor.next(&listener) => {
                    if tasks.len() >= settings.max_connections {
                        // Dropping the accepted stream closes it.
                        if refused.allow() {
                            tracing::warn!(%peer, limit = settings.max_connections, "refused a connection, too many are open");
                        }
                        continue;
                    }
                    connections.fetch_add(1, Ordering::Relaxed);
                    service.connected();
                    let charges = Charges {
                        pending: Charge::new(Arc::clone(&pending)),
                        unread: Charge::new(Arc::clone(&unread)),
                    };
                    let offloaded = OffloadedCalls::new(Arc::clone(&places));
                    tasks.spawn(run(stream, peer, Arc::clone(&service), charges, offloaded, settings.clone()));
                }
            }
        }
        tasks.shutdown().await;
        connections.store(0, Ordering::Relaxed);
        listener
    }
}

async fn run<S: Service>(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<S>,
    charges: Charges,
    offloaded: OffloadedCalls,
    settings: Settings,
) -> (SocketAddr, Closed) {
    if settings.no_delay
        && let Err(error) = stream.set_nodelay(true)
    {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    (peer, Connection::new(stream, service, charges, offloaded, settings.idle_timeout).await)
}

/// Logs why a connection ended. Peers decide how often that happens, so the lines that they cause are throttled.
fn report(ended: Result<(SocketAddr, Closed), tokio::task::JoinError>, throttle: &mut Throttle) {
    match ended {
        Ok((peer, reason @ (Closed::Frame(_) | Closed::Overload))) => {
            if throttle.allow() {
                tracing::warn!(%peer, %reason, "closed a connection");
            }
        }
        Ok((peer, reason)) => tracing::debug!(%peer, %reason, "connection closed"),
        // A panic in a handler costs its connection, not the server.
        Err(error) if error.is_panic() => {
            tracing::error!(%error, "a request handler panicked, its connection is closed");
        }
        Err(_) => {}
    }
}

/// Lets a log line through at most once in [`LOG_INTERVAL`].
#[derive(Default)]
struct Throttle {
    last: Option<Instant>,
}

impl Throttle {
    fn allow(&mut self) -> bool {
        let now = Instant::now();
        let allowed = self.last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if allowed {
            self.last = Some(now);
        }
        allowed
    }
}
