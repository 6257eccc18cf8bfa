//! The commands of the program, as a user or a script meets them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cluster;
mod output;
mod snapshots;
mod verify;
