//! Random changes of captured requests, against decoders, framing and handlers: nothing panics, and no request makes the
//! program reserve much.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/wire/captured.rs"]
mod captured;
#[path = "../support/dated.rs"]
mod dated;
#[path = "../support/wire/master.rs"]
mod master;

mod counting;
mod decoders;
mod handlers;
mod mutations;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
