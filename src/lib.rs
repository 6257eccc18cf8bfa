//! Moonkeeper: a highly available master for Mooncake Store.
//!
//! `wire` speaks the protocol of Mooncake clients, `engine` is the deterministic state machine that holds the
//! metadata, `replication` keeps its records in an ordered, fenced log in etcd and decides who is primary,
//! `coordination` is etcd, `master` joins them into the serving process, `api` is the Kubernetes resource that describes
//! such masters, `operator` makes and minds them. `engine` knows nothing of `replication`, and `replication` nothing of
//! `wire`.

pub mod api;
pub mod cli;
pub mod coordination;
pub mod engine;
pub mod master;
pub mod net;
pub mod operator;
#[cfg(feature = "planted")]
pub mod planted;
pub mod replication;
pub mod wire;
