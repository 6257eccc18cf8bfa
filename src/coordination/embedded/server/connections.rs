//! Connections of the server, and an upper bound on their number.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::net::accept::Acceptor;

/// Upper bound of connections at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1000;

/// Pause after a failed accept, for instance when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that releases its permit when it ends, and that ends when the server does.
pub(super) struct Connection {
    stream: TcpStream,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: OwnedSemaphorePermit,
}

/// Accepts connections as long as there are permits for them, until the returned stream is dropped.
pub(super) fn incoming(
    listener: TcpListener,
    stopped: watch::Receiver<()>,
) -> impl Stream<Item = io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut acceptor = Acceptor::new("embedded store", ACCEPT_PAUSE);
        loop {
            let next = tokio::select! {
                next = acceptor.next_within(&places, &listener) => next,
                () = sender.closed() => return,
            };
            // The semaphore is never closed.
            let Some((place, (stream, _))) = next else { return };
            // The server sets this option only on connections that it accepts itself.
            _ = stream.set_nodelay(true);
            let mut stopped = stopped.clone();
            let stopped = Box::pin(async move { _ = stopped.changed().await });
            if sender.send(Ok(Connection { stream, stopped, _place: place })).await.is_err() {
                return;
            }
        }
    });
    Incoming(receiver)
}

struct Incoming(mpsc::Receiver<io::Result<Connection>>);

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.stopped.as_mut().poll(context).is_ready() {
            // A future that has completed must not be polled again.
            self.stopped = Box::pin(std::future::ready(()));
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
