//! The accept loop of every server of this process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Least time between two log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A listening socket.
pub trait Listener {
    /// An accepted connection, with the peer's address if peers have one.
    type Connection;

    /// Accepts one connection. Dropping the future loses none.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Listener for TcpListener {
    type Connection = (TcpStream, SocketAddr);

    async fn accept(&self) -> io::Result<Self::Connection> {
        TcpListener::accept(self).await
    }
}

impl Listener for UnixListener {
    type Connection = UnixStream;

    async fn accept(&self) -> io::Result<Self::Connection> {
        UnixListener::accept(self).await.map(|(stream, _)| stream)
    }
}

/// Accepts the connections of one port. After a failure it pauses: the process may be out of file descriptors for a
/// while, and without a pause it would do nothing but fail.
#[derive(Debug)]
pub struct Acceptor {
    pause: Duration,
    /// Name of the port in the log; failures of a port without one are not logged.
    port: Option<&'static str>,
    /// End of the pause after the last failure.
    resumes: Option<Instant>,
    logged: Option<Instant>,
}

impl Acceptor {
    /// Creates one that pauses for so long after a failure and logs nothing.
    #[must_use]
    pub fn quiet(pause: Duration) -> Self {
        Self { pause, port: None, resumes: None, logged: None }
    }

    /// Creates one that pauses for so long after a failure, and logs failures at most once in [`LOG_INTERVAL`].
    #[must_use]
    pub fn new(port: &'static str, pause: Duration) -> Self {
        Self { port: Some(port), ..Self::quiet(pause) }
    }

    /// Returns the next connection. Dropping the future loses no connection and does not cut a pause short.
    pub async fn next<L: Listener>(&mut self, listener: &L) -> L::Connection {
        loop {
            if let Some(resumes) = self.resumes {
                sleep_until(resumes).await;
                self.resumes = None;
            }
            match listener.accept().await {
                Ok(connection) => return connection,
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Returns the next connection with its permit. First a permit, then the connection: excess connections wait in the
    /// kernel's backlog. `None` if the semaphore was closed.
    pub async fn next_within<L: Listener>(
        &mut self,
        limit: &Arc<Semaphore>,
        listener: &L,
    ) -> Option<(OwnedSemaphorePermit, L::Connection)> {
        let permit = Arc::clone(limit).acquire_owned().await.ok()?;
        Some((permit, self.next(listener).await))
    }

    fn failed(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.resumes = Some(now + self.pause);
        let Some(port) = self.port else { return };
        if self.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL) {
            self.logged = Some(now);
            tracing::warn!(%error, port, "cannot accept a connection");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PAUSE: Duration = Duration::from_millis(50);

    /// A port that fails so many times before it has a connection.
    struct Failing {
        times: usize,
        tried: AtomicUsize,
    }

    impl Failing {
        fn new(times: usize) -> Self {
            Self { times, tried: AtomicUsize::new(0) }
        }

        fn tried(&self) -> usize {
            self.tried.load(Ordering::Relaxed)
        }
    }

    impl Listener for Failing {
        type Connection = usize;

        async fn accept(&self) -> io::Result<usize> {
            let tried = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
            if tried > self.times { Ok(tried) } else { Err(io::Error::other("no descriptors")) }
        }
    }

    #[tokio::test]
    async fn a_failed_accept_is_repeated_after_a_pause() {
        let (listener, begun) = (Failing::new(2), Instant::now());
        assert_eq!(Acceptor::new("test", PAUSE).next(&listener).await, 3);
        assert!(begun.elapsed() >= 2 * PAUSE);
    }

    /// Servers wait for a connection and for other things at once, and begin anew after each.
    #[tokio::test]
    async fn a_wait_that_is_dropped_does_not_cut_the_pause_short() {
        let (listener, mut acceptor) = (Failing::new(usize::MAX), Acceptor::quiet(PAUSE));
        let begun = Instant::now();
        for _ in 0..40 {
            tokio::select! {
                () = tokio::time::sleep(PAUSE / 20) => {}
                _ = acceptor.next(&listener) => panic!("accepted"),
            }
        }
        let pauses = begun.elapsed().as_millis() / PAUSE.as_millis();
        assert!(listener.tried() as u128 <= pauses + 1, "{} in {pauses} pauses", listener.tried());
    }

    #[tokio::test]
    async fn no_connection_is_accepted_without_a_permit() {
        let (limit, listener) = (Arc::new(Semaphore::new(1)), Failing::new(0));
        let mut acceptor = Acceptor::quiet(PAUSE);
        let first = acceptor.next_within(&limit, &listener).await.unwrap();
        let second = tokio::time::timeout(PAUSE, acceptor.next_within(&limit, &listener)).await;
        assert!(second.is_err() && listener.tried() == 1);
        drop(first);
        assert!(acceptor.next_within(&limit, &listener).await.is_some());
    }
}
