//! The wire protocol of Mooncake Store clients: coro_rpc frames that carry struct_pack bodies.
//!
//! `struct_pack` is the codec, `types` and `messages` are what travels, `functions` ties each remote function to its
//! request and response, `batch` writes the answer to a batch item by item, `frame` reads and writes headers, `server` and `client` move frames over TCP. Nothing here
//! knows what a request means: the server hands bodies to a [`server::Service`].

pub mod batch;
pub mod client;
pub mod frame;
pub mod functions;
pub mod generation;
pub mod messages;
pub mod server;
pub mod struct_pack;
pub mod types;
