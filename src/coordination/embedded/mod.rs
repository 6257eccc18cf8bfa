//! The embedded store: the model of etcd with a server for etcd's API in front and, if configured, a file. It lets
//! masters run without an etcd for trials and tests, on one machine and from one process. It is no replacement for
//! etcd: it has no second member, and when its process ends no other one can answer.

mod codec;
mod frames;
mod journal;
mod limits;
mod rewrite;
mod server;
mod steps;
mod store;
#[cfg(test)]
mod tests;
mod upkeep;

pub use server::{ServeError, serve};
pub use store::{OpenError, Store};
