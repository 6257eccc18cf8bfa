//! A connection between a master and its companion: one JSON object per line, with file descriptors attached.
//!
//! The kernel delivers descriptors with the first byte of the line that they were sent with, or with a line before it,
//! never later. So they wait in a queue until their line is whole.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Longest line: the addresses of some masters, and a token that may come from a file of any content.
const MAX_LINE: usize = 64 << 10;
/// Bytes read at a time; most lines are shorter.
const CHUNK: usize = 4 << 10;
/// Most descriptors that may wait for their line. No message has more than one, and `receive` reads more bytes only
/// while no line is complete, so few can be waiting.
const MAX_DESCRIPTORS: usize = 4;
/// Time for the other side to read a line: it does little else.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new(), descriptors: VecDeque::new() }
    }

    /// Sends a message, with its descriptor if there is one.
    pub(super) async fn send(
        &self,
        message: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        if line.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
        }
        let sending = async {
            let mut sent = 0;
            while sent < line.len() {
                // The descriptor is attached to the first byte only.
                let descriptor = descriptor.filter(|_| sent == 0);
                let rest = &line[sent..];
                let send = || send_once(self.stream.as_fd(), rest, descriptor);
                sent += self.stream.async_io(Interest::WRITABLE, send).await?;
            }
            Ok(())
        };
        tokio::time::timeout(SEND_TIMEOUT, sending)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Receives the next message; `None` at the end of the connection. Cancel safe: what has arrived is kept.
    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.received.len() >= MAX_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            self.stream.readable().await?;
            let Self { stream, received, descriptors } = self;
            let mut chunk = [0; CHUNK];
            match stream.try_io(Interest::READABLE, || receive_once(stream.as_fd(), &mut chunk, descriptors))
            {
                Ok(0) => return Ok(None),
                Ok(count) => received.extend_from_slice(&chunk[..count]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
            if descriptors.len() > MAX_DESCRIPTORS {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
            }
        }
    }

    /// Returns the descriptor that came with the message received last.
    pub(super) fn descriptor(&mut self) -> io::Result<OwnedFd> {
        self.descriptors.pop_front().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "a message came without its descriptor")
        })
    }
}

fn send_once(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space for a descriptor"));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

fn receive_once(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
    }
    Ok(got.bytes)
}

#[cfg(test)]
mod tests {
    use super::super::message::ToCompanion;
    use super::*;
    use std::io::{Read, Write};

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one), Channel::new(other))
    }

    #[tokio::test]
    async fn messages_arrive_in_order_each_with_its_own_descriptor() {
        let (master, mut companion) = pair();
        let (first, mut first_end) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
        let (second, mut second_end) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
        let hello = ToCompanion::Hello { boot_id: "b".into() };
        master.send(&hello, Some(first.as_fd())).await.unwrap();
        master.send(&ToCompanion::Forget, None).await.unwrap();
        master.send(&ToCompanion::Port, Some(second.as_fd())).await.unwrap();
        drop((first, second));
        assert_eq!(companion.receive::<ToCompanion>().await.unwrap(), Some(hello));
        std::fs::File::from(companion.descriptor().unwrap()).write_all(b"1").unwrap();
        assert_eq!(companion.receive::<ToCompanion>().await.unwrap(), Some(ToCompanion::Forget));
        assert_eq!(companion.receive::<ToCompanion>().await.unwrap(), Some(ToCompanion::Port));
        std::fs::File::from(companion.descriptor().unwrap()).write_all(b"2").unwrap();
        let mut text = String::new();
        first_end.read_to_string(&mut text).unwrap();
        second_end.read_to_string(&mut text).unwrap();
        assert_eq!(text, "12");
        assert!(companion.descriptor().is_err());
        drop(master);
        assert_eq!(companion.receive::<ToCompanion>().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_unknown_too_long_or_brings_too_many_descriptors_is_an_error() {
        let refused = async |bytes: Vec<u8>| {
            let (one, mut other) = pair();
            let mut sent = 0;
            while sent < bytes.len() {
                one.stream.writable().await.unwrap();
                sent += one.stream.try_write(&bytes[sent..]).unwrap();
            }
            other.receive::<ToCompanion>().await.is_err()
        };
        assert!(!refused(b"{\"kind\":\"forget\"}\n".to_vec()).await);
        assert!(refused(b"{\"kind\":\"accept\"}\n".to_vec()).await);
        assert!(refused(b"{\"kind\":\"hello\"}\n".to_vec()).await);
        assert!(refused(b"\n".to_vec()).await);
        assert!(refused(vec![b' '; MAX_LINE + 1]).await);

        let (one, mut other) = pair();
        for _ in 0..=MAX_DESCRIPTORS {
            let descriptor = one.stream.as_fd();
            send_once(one.stream.as_fd(), b"{", Some(descriptor)).unwrap();
        }
        assert!(other.receive::<ToCompanion>().await.is_err());
    }
}
