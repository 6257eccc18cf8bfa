//! Everything that is etcd, or takes its place, is asked the same questions: the model, real etcd in two versions, the
//! embedded store. `ETCD_BIN` and `ETCD_DEBIAN_BIN` name the real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod checks;
mod compaction;
mod differential;
mod embedded;
mod faults;
#[path = "../support/ports.rs"]
mod ports;
#[path = "../support/etcd_process.rs"]
mod process;
mod space;
mod stores;
mod suite;
mod wide;
