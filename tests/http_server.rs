//! The HTTP servers of a master over real sockets: answers compared with those recorded from the reference, metric
//! names, and what happens to clients that misbehave.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "http/admin.rs"]
mod admin;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/metadata.rs"]
mod metadata;
#[path = "http/metrics.rs"]
mod metrics;
#[path = "http/support.rs"]
mod support;
