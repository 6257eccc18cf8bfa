//! A small client: one connection, any number of calls outstanding.
//!
//! For tests, the load generator and the command line. Calls are cancel safe: two tasks own the socket, so a dropped
//! call never leaves half a frame behind.

use super::frame::{self, FrameError, RESPONSE_HEADER, ResponseHeader};
use super::functions::{Function, Rpc};
use super::struct_pack::{self, DecodeError, Form};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Most frames that one write sends.
const WRITE_BATCH: usize = 256;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be opened.
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: std::io::Error },
    /// The connection ended before the reply came.
    #[error("the connection was closed")]
    Closed,
    /// The server replied with an RPC-level error.
    #[error("rpc error {code}: {message}")]
    Rpc {
        code: u8,
        /// The error message in the body.
        message: String,
    },
    /// The reply could not be decoded.
    #[error("cannot decode the answer: {0}")]
    Decode(#[from] DecodeError),
}

/// A reply as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 0, or the code of an RPC-level error.
    pub error: u8,
    pub body: Vec<u8>,
}

/// The reply to a typed call; the decoded value borrows from it.
#[derive(Debug)]
pub struct Answer<F> {
    body: Vec<u8>,
    function: PhantomData<F>,
}

impl<F: Rpc> Answer<F> {
    /// Decodes the reply; the value borrows from it.
    pub fn value(&self) -> Result<F::Response<'_>, DecodeError> {
        struct_pack::decode(&self.body)
    }
}

/// Calls that wait for a reply; `None` once the connection has ended.
type Waiting = Mutex<Option<HashMap<u32, oneshot::Sender<Reply>>>>;

/// A connection to a master.
#[derive(Debug)]
pub struct Client {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
    next_sequence: Mutex<u32>,
    form: Form,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Client {
    /// Connects. `form` is the encoding of the arguments of typed calls.
    pub async fn connect(address: SocketAddr, form: Form) -> Result<Self, ClientError> {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = connected.await.map_err(|source| ClientError::Connect { address, source })?;
        let (read, write) = stream.into_split();
        let (frames, queue) = mpsc::unbounded_channel();
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(HashMap::new())));
        Ok(Self {
            frames,
            reader: tokio::spawn(read_replies(read, Arc::clone(&waiting))),
            writer: tokio::spawn(write_frames(write, queue, Arc::clone(&waiting))),
            waiting,
            next_sequence: Mutex::new(0),
            form,
        })
    }

    /// Calls a function by its id with a body that is sent as it is. The request is queued when this returns; the
    /// future waits for the reply.
    pub fn start(
        &self,
        function_id: u32,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> impl Future<Output = Result<Reply, ClientError>> + Send + 'static {
        let (sender, receiver) = oneshot::channel();
        let mut frame = Vec::with_capacity(128);
        // Held while the frame is queued, so that sequence numbers go out in order.
        let mut next = self.next_sequence.lock();
        let sequence = *next;
        *next = next.wrapping_add(1);
        frame::append_request(&mut frame, sequence, function_id, body);
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.insert(sequence, sender);
        }
        // If the connection has ended, the sender was dropped, and the receiver returns an error.
        let _ = self.frames.send(frame);
        async move { receiver.await.map_err(|_| ClientError::Closed) }
    }

    /// Calls a function with encoded arguments and waits for the reply.
    pub async fn call(&self, function: Function, body: &[u8]) -> Result<Reply, ClientError> {
        self.start(function.id(), |out| out.extend_from_slice(body)).await
    }

    /// Calls a function and waits for its reply, which must not be an RPC-level error.
    pub async fn call_typed<F: Rpc>(&self, request: &F::Request<'_>) -> Result<Answer<F>, ClientError> {
        let reply = self.start(F::FUNCTION.id(), |out| struct_pack::encode(request, self.form, out));
        let Reply { error, body } = reply.await?;
        if error != 0 {
            let message = struct_pack::decode::<&[u8]>(&body)?;
            return Err(ClientError::Rpc {
                code: error,
                message: String::from_utf8_lossy(message).into_owned(),
            });
        }
        Ok(Answer { body, function: PhantomData })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}

async fn write_frames(
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<Waiting>,
) {
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    while queue.recv_many(&mut frames, WRITE_BATCH).await > 0 {
        bytes.clear();
        frames.drain(..).for_each(|frame| bytes.extend_from_slice(&frame));
        if stream.write_all(&bytes).await.is_err() {
            break;
        }
    }
    *waiting.lock() = None;
}

async fn read_replies(stream: OwnedReadHalf, waiting: Arc<Waiting>) {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    while let Ok((sequence, reply)) = read_reply(&mut stream).await {
        if let Some(waiting) = &mut *waiting.lock()
            && let Some(sender) = waiting.remove(&sequence)
        {
            // The caller may have stopped waiting.
            let _ = sender.send(reply);
        }
    }
    *waiting.lock() = None;
}

async fn read_reply(stream: &mut BufReader<OwnedReadHalf>) -> std::io::Result<(u32, Reply)> {
    let mut header = [0; RESPONSE_HEADER];
    stream.read_exact(&mut header).await?;
    let header = ResponseHeader::parse(&header)
        .map_err(|error: FrameError| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
    let length = u64::from(header.length) + u64::from(header.attachment_length);
    let mut body = Vec::new();
    if stream.take(length).read_to_end(&mut body).await? as u64 != length {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    body.truncate(header.length as usize);
    Ok((header.sequence, Reply { error: header.error, body }))
}
