//! Lines of JSON on a connection, bounded in length and in the time for sending one.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::MAX_LINE;

/// Timeout for sending a line. A peer that does not take some hundred bytes within it does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest line of a connection that is not authenticated: a name, a boot id, a nonce and a proof.
const MAX_STRANGERS_LINE: usize = 1 << 10;

/// Most lines per second from a peer. A standby sends at most one each 5 ms.
const LINES_PER_SECOND: u32 = 400;

/// Most lines in a burst: what a standby can have sent while this process was stopped, until it gave the connection up.
const MOST_LINES: u32 = 10 * LINES_PER_SECOND;

/// Token bucket for the lines of a peer.
#[derive(Debug)]
pub(super) struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowance {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: f64::from(MOST_LINES), at: now }
    }

    /// Takes one token; returns false if there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let grown = now.saturating_duration_since(self.at).as_secs_f64() * f64::from(LINES_PER_SECOND);
        self.left = (self.left + grown).min(f64::from(MOST_LINES)) - 1.0;
        self.at = now;
        self.left >= 0.0
    }
}

/// Collects bytes until a line is complete. Cancel safe: bytes that have arrived are kept.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    limit: usize,
    first_byte: Option<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::with_capacity(512), limit: MAX_LINE, first_byte: None }
    }

    /// Reads from a connection that is not authenticated yet, with a low limit.
    pub(super) fn for_strangers(from: R) -> Self {
        Self { limit: MAX_STRANGERS_LINE, ..Self::new(from) }
    }

    /// Sets the most bytes of a line.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the very first byte that has arrived.
    pub(super) fn first_byte(&self) -> Option<u8> {
        self.first_byte
    }

    /// Returns the next line; `None` when the other side has closed the connection. Cancel safe.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = serde_json::from_slice(&self.buffer[..end]);
                self.buffer.drain(..=end);
                return line.map(Some).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let room = self.limit.saturating_sub(self.buffer.len());
            if room == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if (&mut self.from).take(room as u64).read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
            self.first_byte = self.first_byte.or(self.buffer.first().copied());
        }
    }
}

/// Sends a value as a line.
pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line).map_err(io::Error::other)?;
    bytes.push(b'\n');
    let sending = async {
        to.write_all(&bytes).await?;
        // TLS may still buffer a part of it.
        to.flush().await
    };
    timeout(WRITE_TIMEOUT, sending).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Sets TCP_NODELAY for small lines, and keep-alives by which the kernel notices that the other host is gone.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(1));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Encodes bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn lines_are_bounded_in_rate() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(begin);
        assert!((0..MOST_LINES).all(|_| allowance.take(begin)));
        assert!(!allowance.take(begin));
        let mut allowance = Allowance::new(begin);
        // The most that a standby sends, for a minute.
        assert!((0..12_000).all(|line| allowance.take(begin + Duration::from_millis(5) * line)));
    }

    #[tokio::test]
    async fn lines_arrive_in_pieces_and_are_bounded() {
        let (near, mut far) = duplex(64 << 10);
        let mut lines = Lines::new(near);
        far.write_all(b"1\n2").await.unwrap();
        assert_eq!(lines.next::<u32>().await.unwrap(), Some(1));
        // A cancelled read loses nothing.
        assert!(timeout(Duration::from_millis(20), lines.next::<u32>()).await.is_err());
        far.write_all(b"3\n").await.unwrap();
        assert_eq!(lines.next::<u32>().await.unwrap(), Some(23));
        far.write_all(b"x\n").await.unwrap();
        assert!(lines.next::<u32>().await.is_err());
        far.write_all(&vec![b'7'; MAX_LINE + 1]).await.unwrap();
        assert_eq!(lines.next::<u32>().await.unwrap_err().to_string(), "a line is too long");
        let (near, far) = duplex(16);
        drop(far);
        assert_eq!(Lines::new(near).next::<u32>().await.unwrap(), None);
    }
}
