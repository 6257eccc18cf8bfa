//! One connection: a future that reads requests, calls the service, and writes replies.
//!
//! Buffers belong to the thread, not to the connection: everything that one read brings is handled at once, all replies
//! are sent with one write, and only what is left over (a partial request, bytes that the socket did not take) is
//! copied to the connection. So an idle connection holds no buffer at all, and a call allocates nothing.

use super::budget::Charge;
use super::deferred::{DeferredCalls, Settled};
use super::offload::{Done, OffloadedCalls};
use super::parked::Parked;
use super::refusal_log;
use super::service::{BoxFuture, Failure, Outcome, SequencerPermit, Service, Waited};
use crate::engine::types::SequenceId;
use crate::wire::frame::{self, FrameError, RequestHeader};
use crate::wire::functions::Function;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// Bytes that one read takes: some hundred small requests. It is also the most that a connection holds back in whole
/// requests.
const READ_CHUNK: usize = 32 << 10;
/// While more reply bytes than this wait for the peer or for the log, no further request of the connection is started.
/// This bounds what a client that never reads can make the master hold, besides one reply.
const OUTPUT_LIMIT: usize = 32 << 10;
/// Largest output buffer that a thread keeps, so that the memory of a rare huge reply is freed.
const KEPT_SCRATCH: usize = 1 << 20;

struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { input: vec![0; READ_CHUNK].into_boxed_slice(), output: Vec::new() });
}

/// Why a connection ended: because of the peer, a limit, or the loss of the lead.
#[derive(Debug, thiserror::Error)]
pub(super) enum Closed {
    #[error("the peer closed the connection")]
    ByPeer,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("no request came within the timeout")]
    Idle,
    #[error("this master no longer leads")]
    NotLeading,
    #[error("large requests and unread replies of all connections take too much memory")]
    Overload,
}

struct IdleTimer {
    limit: Duration,
    last_request: tokio::time::Instant,
    sleep: Pin<Box<Sleep>>,
}

/// The future of one connection. It ends when the connection does.
pub(super) struct Connection<S> {
    stream: TcpStream,
    service: Arc<S>,
    /// Received and not yet handled: a partial request, or requests that may not start yet.
    input: Vec<u8>,
    /// Replies that the socket has not taken yet, from offset `written` on.
    output: Vec<u8>,
    written: usize,
    /// The durable prefix when it was last read; it only grows.
    durable: SequenceId,
    parked: Parked,
    offloaded: OffloadedCalls,
    deferred: DeferredCalls,
    /// Permits of calls that are done and that this connection is not charged for yet.
    places: Vec<OwnedSemaphorePermit>,
    /// What the next request waits for before it can start.
    waiting: Option<BoxFuture<Option<SequencerPermit>>>,
    /// What it waited for. A turn is kept only while requests that arrived together are handled.
    waited: Waited,
    idle: Option<IdleTimer>,
    charges: Charges,
    /// Whether bytes have come from the peer, and gone to it, since the last charge.
    received: bool,
    sent: bool,
    /// Set when the input violates the protocol. Replies that are ready by then are sent as far as the socket takes
    /// them at once; those that wait for the log, for the peer or for offloaded work are dropped with the connection.
    broken: Option<FrameError>,
}

/// The two charges of a connection.
pub(super) struct Charges {
    /// For requests that are incomplete or wait, and replies that wait for the log.
    pub(super) pending: Charge,
    /// For replies that the peer does not read.
    pub(super) unread: Charge,
}

impl<S: Service> Connection<S> {
    /// Creates the future that serves `stream` with `service`.
    pub(super) fn new(
        stream: TcpStream,
        service: Arc<S>,
        charges: Charges,
        offloaded: OffloadedCalls,
        idle_timeout: Option<Duration>,
    ) -> Self {
        let idle = idle_timeout.map(|limit| IdleTimer {
            limit,
            last_request: tokio::time::Instant::now(),
            sleep: Box::pin(tokio::time::sleep(limit)),
        });
        Self {
            stream,
            service,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            durable: SequenceId(0),
            parked: Parked::default(),
            offloaded,
            deferred: DeferredCalls::default(),
            places: Vec::new(),
            waiting: None,
            waited: Waited::default(),
            idle,
            charges,
            received: false,
            sent: false,
            broken: None,
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Closed> {
        let Scratch { input, output } = scratch;
        loop {
            if !self.offloaded.is_empty() {
                self.collect_asides(cx, output);
            }
            if !self.deferred.is_empty() {
                self.collect_deferred(cx, output);
            }
            self.parked.release(&*self.service, cx, output);
            if let Err(closed) = self.flush(cx, output) {
                return Poll::Ready(closed);
            }
            if let Some(error) = self.broken {
                return Poll::Ready(Closed::Frame(error));
            }
            if self.is_idle_too_long(cx) {
                return Poll::Ready(Closed::Idle);
            }
            if !self.may_start(cx) {
                return Poll::Pending;
            }
            if self.has_request() {
                let buffered = std::mem::take(&mut self.input);
                let used = self.handle(&buffered, output);
                self.keep(buffered, used);
                continue;
            }
            let mut read = ReadBuf::new(input);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Closed::Io(error)),
                Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(Closed::ByPeer),
                Poll::Ready(Ok(())) => self.received = true,
            }
            if self.input.is_empty() {
                let used = self.handle(read.filled(), output);
                self.input.extend_from_slice(&read.filled()[used..]);
            } else {
                self.append_input(read.filled());
            }
        }
    }

    /// Handles every whole request in `input` that may start; returns how many bytes they had.
    fn handle(&mut self, input: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while out.len() + self.parked.bytes() <= OUTPUT_LIMIT && !self.offloaded.hold_back() {
            let rest = &input[used..];
            let header = match RequestHeader::parse(rest) {
                Ok(Some(header)) if rest.len() >= header.frame_length() => header,
                Ok(_) => break,
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            };
            let body = &rest[frame::REQUEST_HEADER..frame::REQUEST_HEADER + header.length as usize];
            if !self.start(header, body, out) {
                break;
            }
            used += header.frame_length();
        }
        self.waited.turn = None;
        if used > 0
            && let Some(idle) = &mut self.idle
        {
            idle.last_request = tokio::time::Instant::now();
        }
        used
    }

    /// Starts one call; returns `false` if it cannot start yet.
    #[inline]
    fn start(&mut self, header: RequestHeader, body: &[u8], out: &mut Vec<u8>) -> bool {
        let sequence = header.sequence;
        let Some(function) = Function::from_id(header.function_id) else {
            let message = "the rpc function not registered";
            frame::append_error(out, sequence, frame::FUNCTION_NOT_REGISTERED, message);
            self.service.unknown_function();
            return true;
        };
        let start = frame::begin_response(out);
        match self.service.call(function, body, &mut self.waited, out) {
            Outcome::Ready { depends_on } => self.finish(start, sequence, depends_on, out),
            Outcome::Busy(waiting) => {
                out.truncate(start);
                self.waiting = Some(waiting);
                self.waited.since.get_or_insert_with(Instant::now);
                return false;
            }
            Outcome::Offload(offload) => {
                out.truncate(start);
                self.offloaded.start(sequence, offload);
            }
            Outcome::Deferred(call) => {
                out.truncate(start);
                self.deferred.push(sequence, *call);
            }
            Outcome::Refused(reason) => {
                out.truncate(start);
                frame::append_error(out, sequence, frame::INVALID_RPC_ARGUMENTS, "invalid rpc arg");
                refusal_log::report(function, reason, || self.stream.peer_addr());
            }
            Outcome::Error(Failure { code, message }) => {
                out.truncate(start);
                frame::append_error(out, sequence, code, message);
            }
        }
        self.waited.since = None;
        self.waited.ticket = None;
        true
    }

    /// Completes the reply that starts at offset `start` of `out`, and parks it if what it depends on is not durable.
    #[inline]
    fn finish(&mut self, start: usize, sequence: u32, depends_on: SequenceId, out: &mut Vec<u8>) {
        frame::finish_response(out, start, sequence);
        if !self.is_durable(depends_on) {
            self.parked.push(depends_on, sequence, &out[start..]);
            out.truncate(start);
        }
    }

    /// Returns whether the durable prefix has reached `id`.
    #[inline]
    fn is_durable(&mut self, id: SequenceId) -> bool {
        if id > self.durable {
            self.durable = self.service.durable();
        }
        id <= self.durable
    }

    fn collect_asides(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while let Some(Done { sequence, frame, depends_on, place }) = self.offloaded.poll_done(cx) {
            self.places.extend(place);
            if !self.is_durable(depends_on) {
                self.parked.push(depends_on, sequence, &frame);
            } else if out.is_empty() && frame.len() > KEPT_SCRATCH {
                // Moving the frame avoids a copy, and the thread does not keep its memory.
                *out = frame;
            } else {
                out.extend_from_slice(&frame);
            }
        }
    }

    fn collect_deferred(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while let Some(Settled { sequence, reply }) = self.deferred.poll_settled(cx) {
            match reply {
                Ok(reply) => {
                    let start = frame::begin_response(out);
                    out.extend_from_slice(&reply.body);
                    self.finish(start, sequence, reply.depends_on, out);
                }
                Err(Failure { code, message }) => frame::append_error(out, sequence, code, message),
            }
        }
    }

    /// Writes the replies that are left over and then `out`; what the socket does not take is kept, and `out` is empty
    /// afterwards.
    fn flush(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Result<(), Closed> {
        if !self.output.is_empty() {
            let sent = write_some(&mut self.stream, &*self.service, cx, &self.output[self.written..])?;
            self.written += sent;
            self.sent |= sent > 0;
            if self.written < self.output.len() {
                if !out.is_empty() {
                    self.output.drain(..self.written);
                    self.written = 0;
                    self.output.extend_from_slice(out);
                    empty(out);
                }
                return Ok(());
            }
            self.output = Vec::new();
            self.written = 0;
        }
        if out.is_empty() {
            return Ok(());
        }
        let sent = write_some(&mut self.stream, &*self.service, cx, out)?;
        self.sent = true;
        if sent < out.len() {
            if out.len() > KEPT_SCRATCH {
                self.output = std::mem::take(out);
                self.written = sent;
                return Ok(());
            }
            self.output = out[sent..].to_vec();
        }
        empty(out);
        Ok(())
    }

    /// Returns whether another request may start. If not, the task is woken when that can change.
    fn may_start(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(waiting) = &mut self.waiting {
            let Poll::Ready(turn) = waiting.as_mut().poll(cx) else { return false };
            self.waited.turn = turn;
            self.waiting = None;
        }
        let may = self.output.len() - self.written + self.parked.bytes() <= OUTPUT_LIMIT
            && !self.offloaded.hold_back();
        if !may {
            // Other connections wait for the turn and for the space that a ticket reserves; a client that does not read
            // must not keep either from them.
            self.waited.turn = None;
            self.waited.ticket = None;
        }
        may
    }

    /// Returns whether `input` starts with a whole request, or with bytes that cannot become one.
    fn has_request(&self) -> bool {
        match RequestHeader::parse(&self.input) {
            Ok(Some(header)) => self.input.len() >= header.frame_length(),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Keeps what `handle` left of a buffer, in no more memory than it needs.
    fn keep(&mut self, mut buffered: Vec<u8>, used: usize) {
        if used == 0 {
            self.input = buffered;
        } else if used < buffered.len() {
            buffered.drain(..used);
            buffered.shrink_to_fit();
            self.input = buffered;
        }
    }

    /// Appends to a partial request. The buffer doubles up to the length of the request; it never grows to the length
    /// that a header merely announces.
    fn append_input(&mut self, more: &[u8]) {
        if let Ok(Some(header)) = RequestHeader::parse(&self.input) {
            let missing = header.frame_length().saturating_sub(self.input.len());
            let doubled = self.input.len().max(more.len());
            self.input.reserve_exact(missing.min(doubled).max(more.len()));
        }
        self.input.extend_from_slice(more);
    }

    /// Charges what this connection keeps while it waits; returns `false` if it has to be closed.
    fn charge_memory(&mut self, cx: &Context<'_>) -> bool {
        let pending =
            self.input.capacity() + self.parked.bytes() + self.offloaded.keep() + self.deferred.keep();
        // A wait for the log or for this master's own work is not the peer's fault.
        let ours = self.waits_for_us();
        let (received, sent) = (self.received || ours, self.sent);
        (self.received, self.sent) = (false, false);
        let charged = self.charges.pending.charge(pending, received, &mut self.places, cx)
            && self.charges.unread.charge(self.output.capacity(), sent, &mut self.places, cx);
        if self.places.capacity() > 0 {
            self.places = Vec::new();
        }
        charged
    }

    /// Returns whether the peer waits for a reply.
    fn waits_for_us(&self) -> bool {
        self.waiting.is_some()
            || !self.parked.is_empty()
            || !self.offloaded.is_empty()
            || !self.deferred.is_empty()
    }

    fn is_idle_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let waiting = self.waits_for_us();
        let Some(idle) = &mut self.idle else { return false };
        while idle.sleep.as_mut().poll(cx).is_ready() {
            if waiting {
                // The peer waits for this master, not the reverse.
                idle.last_request = tokio::time::Instant::now();
            }
            let deadline = idle.last_request + idle.limit;
            if deadline <= tokio::time::Instant::now() {
                return true;
            }
            idle.sleep.as_mut().reset(deadline);
        }
        false
    }
}

/// Empties the output buffer of a thread.
fn empty(out: &mut Vec<u8>) {
    out.clear();
    if out.capacity() > KEPT_SCRATCH {
        out.shrink_to(KEPT_SCRATCH);
    }
}

/// Writes until all is written or the socket is full; returns how many bytes were.
fn write_some<S: Service>(
    stream: &mut TcpStream,
    service: &S,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Result<usize, Closed> {
    let mut sent = 0;
    while sent < bytes.len() {
        if !service.may_write() {
            return Err(Closed::NotLeading);
        }
        match Pin::new(&mut *stream).poll_write(cx, &bytes[sent..]) {
            Poll::Pending => break,
            Poll::Ready(Ok(0)) => return Err(Closed::ByPeer),
            Poll::Ready(Ok(count)) => sent += count,
            Poll::Ready(Err(error)) => return Err(Closed::Io(error)),
        }
    }
    Ok(sent)
}

impl<S: Service> Future for Connection<S> {
    type Output = Closed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Closed> {
        SCRATCH.with_borrow_mut(|scratch| {
            // A handler that panicked may have left a reply of another connection here.
            scratch.output.clear();
            let this = &mut *self;
            let driven = this.drive(cx, scratch);
            if driven.is_pending() && !this.charge_memory(cx) {
                return Poll::Ready(Closed::Overload);
            }
            driven
        })
    }
}
