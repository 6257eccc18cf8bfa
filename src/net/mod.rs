//! What servers and clients of this program share about the network: listening, accepting, HTTP, TLS, stopping.

pub mod accept;
pub(crate) mod http_client;
pub mod http_server;
pub mod listen;
mod progress;
pub mod stop;
pub mod tls;
