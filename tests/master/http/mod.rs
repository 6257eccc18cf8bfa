//! The HTTP servers of a master over real sockets: answers compared with those recorded from the reference, metric
//! names, and what happens to clients that misbehave.

mod admin;
mod limits;
mod metadata;
mod metrics;
mod support;
