//! The interface between the server and the service that answers the calls.

use crate::engine::types::SequenceId;
use crate::replication::parked_answers::Refusing;
use crate::wire::client_version::Refusal;
use crate::wire::functions::Function;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A future that a service hands to a connection.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A permit for the work that only one call at a time may do. It passes to the next call in line when it is dropped.
pub type SequencerPermit = tokio::sync::OwnedSemaphorePermit;

/// What a call has waited for before it could start.
#[derive(Debug, Default)]
pub struct Waited {
    /// The turn that the wait returned, or that an earlier call took which arrived with this one.
    pub turn: Option<SequencerPermit>,
    /// When this call began to wait; `None` if it has not.
    pub since: Option<Instant>,
    /// The position of this call in a queue of the service. It is dropped when the call starts, and with the
    /// connection.
    pub ticket: Option<Box<dyn Any + Send>>,
}

/// Result of a handler, about the reply that it has appended to `out`.
pub enum Outcome {
    /// The reply body is in `out`. It may be sent once everything up to this sequence id is durable (0: now).
    Ready {
        /// The highest sequence id that the reply depends on.
        depends_on: SequenceId,
    },
    /// The request cannot start yet. The connection waits for the future and calls again, with the turn that it
    /// returns; later requests of the connection wait behind this one. If the reason to wait ends before the future is
    /// first polled, the future still has to resolve, else the connection would wait for ever.
    Busy(BoxFuture<Option<SequencerPermit>>),
    /// The work takes long and runs outside the connection's loop.
    Offload(Box<Offload>),
    /// The reply comes later. Later requests of the connection overtake this one.
    Deferred(Box<Deferred>),
    /// The arguments cannot be decoded. The reply is RPC error 4, and a log line names the reason.
    Refused(Refusal),
    /// Another RPC-level error, which becomes the reply.
    Error(Failure),
}

/// Work that appends a reply body and returns the sequence id that it depends on, or the RPC error that is the reply.
pub type Work = Box<dyn FnOnce(&mut Vec<u8>) -> Result<SequenceId, Failure> + Send>;

/// An RPC-level error, which is the reply to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code in the response header.
    pub code: u8,
    /// The message in the body.
    pub message: &'static str,
}

/// What happens to replies that wait for a log that takes no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// The present time, and how long they wait.
    pub refusing: Refusing,
    /// The error that is sent then.
    pub failure: Failure,
}

/// Work that runs outside the loop of a connection, on a blocking thread. Only a few are running at a time over all
/// connections; the others queue, and with each the requests that came after it.
pub struct Offload {
    pub work: Work,
    /// Bytes of memory that it keeps until it is done.
    pub keeps: usize,
    /// Whether later requests of the connection wait until it is done, because it changes the state that they read.
    /// Otherwise they start as soon as this one has started.
    pub holds_back: bool,
}

/// A call whose reply comes later.
pub struct Deferred {
    /// Resolves to the reply. It is dropped with the connection.
    pub reply: BoxFuture<Result<DeferredReply, Failure>>,
    /// Bytes of memory that the call keeps until then.
    pub keeps: usize,
}

/// The reply to a deferred call.
#[derive(Debug)]
pub struct DeferredReply {
    pub body: Vec<u8>,
    /// The highest sequence id that it depends on.
    pub depends_on: SequenceId,
}

/// A service that answers calls.
pub trait Service: Send + Sync + 'static {
    /// Starts a call. Calls of one connection are started in the order of their arrival. A turn that is in `waited`
    /// afterwards is kept for the calls that arrived with this one. What was appended to `out` counts only with
    /// [`Outcome::Ready`].
    fn call(&self, function: Function, body: &[u8], waited: &mut Waited, out: &mut Vec<u8>) -> Outcome;

    /// Returns the durable prefix: replies that depend on it may be sent.
    fn durable(&self) -> SequenceId;

    /// Resolves when the durable prefix has reached `id`. It may resolve earlier: the caller checks again.
    fn wait_durable(&self, id: SequenceId) -> BoxFuture<()>;

    /// Returns what happens to replies that wait for the log, if it takes no writes at present. When this changes,
    /// futures of [`Self::wait_durable`] resolve; while it is so, they resolve at least once a second.
    fn gives_up(&self) -> Option<GiveUp> {
        None
    }

    /// Returns whether bytes may be written to a socket; called right before. With `false` this master no longer leads,
    /// and the connection is closed.
    fn may_write(&self) -> bool;

    /// Counts that a client has connected.
    fn connected(&self) {}

    /// Counts a call with an unknown function id, which was answered with an error.
    fn unknown_function(&self) {}
}
