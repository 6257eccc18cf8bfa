//! What the server asks of whoever answers the calls.

use crate::replication::parked_answers::Refusing;
use crate::wire::functions::Function;
use crate::wire::generation::Refusal;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A future that a service hands to a connection.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The right to do what one call at a time does. It passes to the next in line when it is dropped.
pub type Turn = tokio::sync::OwnedSemaphorePermit;

/// What a call has waited for before it could start.
#[derive(Debug, Default)]
pub struct Waited {
    /// What the wait brought, or what an earlier call took that came with this one.
    pub turn: Option<Turn>,
    /// Since when this call waits, if it does.
    pub since: Option<Instant>,
    /// The place of this call in a line of the service's own. It is given up when the call starts, and with the
    /// connection.
    pub ticket: Option<Box<dyn Any + Send>>,
}

/// What a handler says about the reply that it has appended to `out`.
pub enum Outcome {
    /// The reply body is in `out`. It may be sent once everything up to this sequence id is durable (0: now).
    Ready {
        /// The highest sequence id that the reply depends on.
        depends_on: u64,
    },
    /// The request cannot start yet. The connection waits for the future and calls again, with the turn that it brings;
    /// later requests of the connection wait behind this one. What made the call wait may have passed before the future
    /// is first looked at: that counts, else the connection would wait for ever.
    Busy(BoxFuture<Option<Turn>>),
    /// The work takes long and is done outside the connection's loop.
    Aside(Box<Aside>),
    /// The reply comes later. Later requests of the connection overtake this one.
    Deferred(Box<Deferred>),
    /// The arguments cannot be read. The reply is RPC error 4, and a line in the log names the reason.
    Refused(Refusal),
    /// Another RPC-level error, which becomes the reply.
    Error(Failure),
}

/// Appends a reply body, and says which sequence id it depends on; or says which RPC error the reply is.
pub type Work = Box<dyn FnOnce(&mut Vec<u8>) -> Result<u64, Failure> + Send>;

/// An RPC-level error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code in the response header.
    pub code: u8,
    /// The message in the body.
    pub message: &'static str,
}

/// What becomes of replies that wait for a log that takes no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveUp {
    /// The present time, and how long they wait.
    pub refusing: Refusing,
    /// What is answered then.
    pub failure: Failure,
}

/// Work that is done outside the loop of a connection, on a thread of its own. Only a few of all connections' are under
/// way at a time; the others wait in line, and with each the requests that came after it.
pub struct Aside {
    /// Makes the reply.
    pub work: Work,
    /// Bytes of memory that it keeps until it is done.
    pub keeps: usize,
    /// Whether later requests of the connection wait until it is done, because it changes what they find. Others start
    /// as soon as this one has started.
    pub holds_back: bool,
}

/// A call whose reply comes later.
pub struct Deferred {
    /// Resolves to the reply. It is dropped with the connection.
    pub reply: BoxFuture<Result<DeferredReply, Failure>>,
    /// Bytes of memory that the call keeps until then.
    pub keeps: usize,
}

/// The reply to such a call.
#[derive(Debug)]
pub struct DeferredReply {
    /// The reply body.
    pub body: Vec<u8>,
    /// The highest sequence id that it depends on.
    pub depends_on: u64,
}

/// Answers calls.
pub trait Service: Send + Sync + 'static {
    /// Starts a call. Calls of one connection are started in the order of their arrival. A turn that is in `waited`
    /// afterwards is kept for the calls that came with this one. Whatever was appended to `out` counts only with
    /// [`Outcome::Ready`].
    fn call(&self, function: Function, body: &[u8], waited: &mut Waited, out: &mut Vec<u8>) -> Outcome;

    /// The durable prefix.
    fn durable(&self) -> u64;

    /// Resolves when the durable prefix has reached `id`. It may resolve earlier: the caller looks again.
    fn wait_durable(&self, id: u64) -> BoxFuture<()>;

    /// Whether the log takes no writes at present, and what becomes of replies that wait for it then. When this changes,
    /// futures of [`Self::wait_durable`] resolve; while it is so, they resolve at least once a second.
    fn gives_up(&self) -> Option<GiveUp> {
        None
    }

    /// Asked right before bytes go to a socket. `false`: this master no longer leads, and the connection is closed.
    fn may_write(&self) -> bool;

    /// A client has connected; for counting.
    fn connected(&self) {}

    /// A call named no function that there is, and was answered so; for counting.
    fn unknown_function(&self) {}
}
