//! Moonkeeper: a highly available master for Mooncake Store.
//!
//! `wire` implements the protocol of Mooncake clients, `engine` is the deterministic state machine that holds the
//! metadata, `replication` keeps its records in an ordered, fenced log in etcd and decides which master is primary,
//! `coordination` is the access to etcd, `master` joins them into the serving process, `api` is the Kubernetes resource
//! that describes such masters, `operator` creates and maintains them. `engine` knows nothing of `replication`, and
//! `replication` nothing of `wire`.

/// `planted!(Bug)` is whether a bug was put in on purpose, `planted!(Bug => what)` does `what` if so. Without the feature
/// both are nothing.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($bug:ident) => {
        crate::planted::active(crate::planted::Bug::$bug)
    };
    ($bug:ident => $($what:tt)*) => {
        if crate::planted::active(crate::planted::Bug::$bug) {
            $($what)*
        }
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
    ($bug:ident => $($what:tt)*) => {};
}

pub mod api;
pub mod cli;
pub mod cluster;
pub mod coordination;
pub mod engine;
pub mod master;
pub mod net;
pub mod operator;
#[cfg(feature = "planted")]
pub mod planted;
pub mod replication;
pub mod wire;
