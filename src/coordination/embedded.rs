//! The embedded store: the model of etcd with a file, if told so, and a server for etcd's API in front. It lets
//! masters run without an etcd for trials and tests, on one machine and from one process. It is no replacement for
//! etcd: it has no second member, and when its process ends nobody can be asked.

mod codec;
mod frames;
mod journal;
mod server;
mod store;

pub use server::{ServeError, serve};
pub use store::{OpenError, Store};
