//! The state machine by itself: its rules, its replicas, its size, its threads.
#![allow(clippy::unwrap_used, reason = "clippy knows test functions but not their helpers")]

#[path = "../support/engine/mod.rs"]
mod support;

mod capture;
mod concurrent;
mod digest;
mod digests;
mod divergence;
mod eviction;
mod exempt;
mod hold;
mod replica;
mod runs;
mod scale;
mod seal;
mod segments;
mod term;
mod time;
mod unmounted_writes;
