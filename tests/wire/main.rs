//! The protocol of Mooncake clients: its bytes, its server, its calls, and peers that misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/wire/captured.rs"]
mod captured;
#[path = "../support/wire/master.rs"]
mod master;

mod calls;
mod frames;
mod hostile;
mod part;
mod process;
mod scripted;
mod server;
mod table;

/// That of the program: another one keeps what was given back for itself, and its memory says nothing.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
