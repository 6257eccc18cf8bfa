//! The server for etcd's API in front of a store: keys, watches, leases, status and defragmentation; every other call is
//! answered
//! with "unimplemented". Clients are not authenticated, so it belongs on the loopback interface.

mod connections;
mod convert;
mod kv;
mod lease;
mod maintenance;
mod watches;

use std::future::Future;
use std::time::Duration;

use etcd_client::proto::{PbKvServer, PbLeaseServer, PbMaintenanceServer, PbWatchServer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;

use crate::coordination::embedded::store::Store;

/// Upper bound of a request: etcd's 1.5 MiB, plus what etcd allows for everything around keys and values.
const MAX_REQUEST_BYTES: usize = 2 << 20;

/// Upper bound of concurrent calls on one connection; a client may keep a stream open for each of its watches and
/// leases.
const MAX_STREAMS: u32 = 1000;

/// Interval of expiring leases; etcd does it every half second.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

/// Clients are pinged at this interval; one that does not answer in time is disconnected.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the server ended although `stop` did not resolve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The network failed.
    #[error("the server of the embedded store ended: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The disk failed, so the store was closed.
    #[error("the embedded store cannot write its file: {0}")]
    Failed(String),
}

/// Serves a store until `stop` resolves, or until its file cannot be written any more. Then the store is closed:
/// connections end, and another process can open the file.
///
/// # Errors
///
/// If it ends for another reason than `stop`.
pub async fn serve(
    listener: TcpListener,
    store: Store,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    // Dropped with this future, whatever the reason. Connections and watches end when it is dropped.
    let (_stopping, stopped) = watch::channel(());
    let kv = PbKvServer::new(kv::Kv::new(store.clone()));
    let watches = PbWatchServer::new(watches::Watches::new(store.clone(), stopped.clone()));
    let leases = PbLeaseServer::new(lease::Leases::new(store.clone()));
    let server = Server::builder()
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .max_concurrent_streams(MAX_STREAMS)
        .add_service(kv.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(watches.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(leases.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(PbMaintenanceServer::new(maintenance::Maintenance::new(store.clone())))
        .serve_with_incoming(connections::incoming(listener, stopped));
    let ended = tokio::select! {
        ended = server => ended.map_err(ServeError::from),
        () = expire(&store) => Err(ServeError::Failed(store.failure().unwrap_or_default())),
        () = stop => Ok(()),
    };
    store.close();
    ended
}

/// Ends leases in time and keeps the store small while no client changes it; returns when the store has failed.
async fn expire(store: &Store) {
    let mut ticks = tokio::time::interval(EXPIRY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if store.tick().await.is_err() {
            return;
        }
    }
}
