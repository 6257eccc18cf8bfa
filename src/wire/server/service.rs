//! What the server asks of whoever answers the calls.

use crate::wire::functions::Function;
use std::future::Future;
use std::pin::Pin;

/// A future that a service hands to a connection.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The right to do what one call at a time does. It passes to the next in line when it is dropped.
pub type Turn = tokio::sync::OwnedSemaphorePermit;

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
    /// The work goes on outside the connection's loop. The future yields the reply body and the sequence id that it
    /// depends on. Later requests of the connection go on meanwhile.
    Later(BoxFuture<(Vec<u8>, u64)>),
    /// An RPC-level error: its code and message, which become the reply.
    Error {
        /// The code in the response header.
        code: u8,
        /// The message in the body.
        message: &'static str,
    },
}

/// Answers calls.
pub trait Service: Send + Sync + 'static {
    /// Starts a call. Calls of one connection are started in the order of their arrival. `turn` is what the connection
    /// waited for, if it did; a turn that is there afterwards is kept for the calls that came with this one. Whatever
    /// was appended to `out` counts only with [`Outcome::Ready`].
    fn call(&self, function: Function, body: &[u8], turn: &mut Option<Turn>, out: &mut Vec<u8>) -> Outcome;

    /// The durable prefix.
    fn durable(&self) -> u64;

    /// Resolves when the durable prefix has reached `id`. It may resolve earlier: the caller looks again.
    fn wait_durable(&self, id: u64) -> BoxFuture<()>;

    /// Asked right before bytes go to a socket. `false`: this master no longer leads, and the connection is closed.
    fn may_write(&self) -> bool;
}
