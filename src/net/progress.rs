//! A connection that fails when no byte has moved on it for too long, so that clients that stop reading or writing do
//! not keep their permit for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream that fails after a time without traffic.
pub struct Progress<S> {
    inner: S,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S: Unpin> Progress<S> {
    /// Wraps a stream. Reads and writes fail when neither has moved a byte for `limit`.
    pub fn new(inner: S, limit: Duration) -> Progress<S> {
        Progress { inner, limit, deadline: Box::pin(sleep(limit)) }
    }

    /// Passes a result on. A result that is ready renews the deadline; a pending one fails if the deadline has passed.
    fn watch<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.limit);
            return result;
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Progress<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.watch(cx, result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Progress<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn fails_only_when_nothing_moves() {
        let (near, mut far) = duplex(4);
        let mut near = Progress::new(near, Duration::from_millis(50));
        let mut buffer = [0; 4];
        far.write_all(b"abcd").await.unwrap();
        near.read_exact(&mut buffer).await.unwrap();
        assert_eq!(near.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

        // The other side reads no bytes: four fit into the buffer.
        let (near, _far) = duplex(4);
        let mut near = Progress::new(near, Duration::from_millis(50));
        assert_eq!(near.write_all(b"abcdefgh").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
