//! The log: its bytes, who writes it, who applies it, and the role of a master in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/ports.rs"]
mod ports;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/etcd_process.rs"]
mod process;
#[path = "../support/engine/mod.rs"]
mod support;

mod clock;
mod codec;
mod dump;
mod floor;
mod golden;
mod log;
mod node;
mod records;
mod recovery;
mod snapshot;
mod snapshot_start;
mod snapshot_store;
