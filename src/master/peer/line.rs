//! Lines of JSON on a connection, bounded in length and in the time that one may take to be sent.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::MAX_LINE;

/// Longest time for a line to leave. A reader that takes some hundred bytes no faster than that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Collects bytes until a line is whole. What has arrived survives a read that was given up.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::with_capacity(512) }
    }

    /// The next line; nothing when the other side has closed the connection. May be dropped and called again.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = serde_json::from_slice(&self.buffer[..end]);
                self.buffer.drain(..=end);
                return line.map(Some).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let room = MAX_LINE - self.buffer.len().min(MAX_LINE);
            if room == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if (&mut self.from).take(room as u64).read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Sends a line.
pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line).map_err(io::Error::other)?;
    bytes.push(b'\n');
    timeout(WRITE_TIMEOUT, to.write_all(&bytes))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn lines_arrive_in_pieces_and_are_bounded() {
        let (near, mut far) = duplex(64 << 10);
        let mut lines = Lines::new(near);
        far.write_all(b"1\n2").await.unwrap();
        assert_eq!(lines.next::<u32>().await.unwrap(), Some(1));
        // A read that is given up loses nothing.
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
