//! The operator's decisions and the objects that it makes, without an API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod objects;
mod plan;
