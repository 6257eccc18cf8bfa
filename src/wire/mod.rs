//! The wire protocol of Mooncake Store clients: coro_rpc frames that carry struct_pack bodies.
//!
//! `struct_pack` is the codec, `types` and `messages` are the values that are encoded, `functions` ties each remote
//! function to its request and response, `batch` writes the reply to a batch item by item, `frame` parses and writes
//! headers, `server` and `client` send frames over TCP. Nothing here knows what a request means: the server passes
//! bodies to a [`server::Service`].

pub mod batch;
pub mod client;
pub mod client_version;
pub mod frame;
pub mod functions;
pub mod messages;
pub mod server;
pub mod struct_pack;
pub mod types;
