//! The serving process from outside: flags, HTTP, the admin API, the peer port, terms that begin and end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin_api;
mod flags;
mod http;
mod logged;
mod peers;
#[path = "../support/ports.rs"]
mod ports;
mod serving;
