//! Serves a router on a listener within limits: the number of connections, the time for a request's head to arrive, and
//! the time without any traffic. The admin API and the metadata server both run on it.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::accept::Acceptor;
use super::progress::Progress;
use super::stop::stopped;

/// Timeout without a byte in either direction. Long enough for a slow reader, short enough that readers that are gone
/// do not use up the permits.
const STALLED: Duration = Duration::from_secs(30);

/// Upper bound of a request's head in bytes; a query for many keys is long.
const MAX_HEAD: usize = 256 << 10;

/// Upper bound of the wait for connections to end when the server stops.
const GRACE: Duration = Duration::from_secs(2);

/// Delay after a failed accept, for instance when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of an HTTP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Upper bound of connections at a time.
    pub max_connections: usize,
    /// Timeout for a request's head to arrive.
    pub header_timeout: Duration,
}

/// Serves until `stop` turns true or its sender is dropped, then lets requests in progress end.
pub async fn serve(listener: TcpListener, router: Router, limits: HttpLimits, stop: watch::Receiver<bool>) {
    let open = move |stream| std::future::ready(Ok((stream, router.clone())));
    serve_with(listener, open, limits, stop).await;
}

/// Serves like [`serve`], with a layer between connection and routes, TLS for instance: `open` turns each connection
/// into the stream that requests are read from, and returns the routes for it. It has the same timeout as a request's
/// head.
pub async fn serve_with<O, F, S>(
    listener: TcpListener,
    open: O,
    limits: HttpLimits,
    mut stop: watch::Receiver<bool>,
) where
    O: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<(S, Router)>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = u32::try_from(limits.max_connections).unwrap_or(u32::MAX).min(1 << 20);
    let free = Arc::new(Semaphore::new(places as usize));
    let mut acceptor = Acceptor::new("http", ACCEPT_PAUSE);
    loop {
        let next = tokio::select! {
            next = acceptor.next_within(&free, &listener) => next,
            () = stopped(&mut stop) => break,
        };
        // The semaphore is never closed.
        let Some((place, (stream, _))) = next else { break };
        // Answers are written in one piece, so waiting for more would only delay them.
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(open(stream), limits, stop.clone(), place));
    }
    drop(listener);
    // All permits are free when all connections have ended.
    let _ = timeout(GRACE, free.acquire_many(places)).await;
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    open: impl Future<Output = io::Result<(S, Router)>>,
    limits: HttpLimits,
    mut stop: watch::Receiver<bool>,
    place: OwnedSemaphorePermit,
) {
    let opened = tokio::select! {
        opened = timeout(limits.header_timeout, open) => opened,
        () = stopped(&mut stop) => return,
    };
    let (stream, router) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(why)) => {
            tracing::debug!(%why, "an HTTP connection could not be opened");
            return;
        }
        Err(_) => return,
    };
    let io = TokioIo::new(Progress::new(stream, STALLED));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(MAX_HEAD)
        .serve_connection(io, TowerToHyperService::new(router));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(why) = result {
        tracing::debug!(%why, "an HTTP connection ended with an error");
    }
    drop(place);
}
