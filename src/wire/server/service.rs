//! What the server asks of whoever answers the calls.

use crate::wire::functions::Function;
use std::future::Future;
use std::pin::Pin;

/// A future that a service hands to a connection.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a handler says about the reply that it has appended to `out`.
pub enum Outcome {
    /// The reply body is in `out`. It may be sent once everything up to this sequence id is durable (0: now).
    Ready {
        /// The highest sequence id that the reply depends on.
        depends_on: u64,
    },
    /// The request cannot start yet: a queue is full. The connection waits for [`Service::capacity`] and calls again;
    /// later requests of the connection wait behind this one.
    Busy,
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
    /// Starts a call. Calls of one connection are started in the order of their arrival. Whatever was appended to
    /// `out` counts only with [`Outcome::Ready`].
    fn call(&self, function: Function, body: &[u8], out: &mut Vec<u8>) -> Outcome;

    /// The durable prefix.
    fn durable(&self) -> u64;

    /// Resolves when the durable prefix has reached `id`. It may resolve earlier: the caller looks again.
    fn wait_durable(&self, id: u64) -> BoxFuture<()>;

    /// Resolves when it is worth calling again after [`Outcome::Busy`]. Capacity that came back between the refused
    /// call and this one counts, else the connection would wait for ever.
    fn capacity(&self) -> BoxFuture<()>;

    /// Asked right before bytes go to a socket. `false`: this master no longer leads, and the connection is closed.
    fn may_write(&self) -> bool;
}
