//! Moonkeeper: a highly available master for Mooncake Store.
//!
//! `wire` speaks the protocol of Mooncake clients, `engine` is the deterministic state machine that holds the
//! metadata, `master` joins the two into the serving process. `engine` knows nothing of `wire` or `master`.

pub mod cli;
pub mod engine;
pub mod master;
pub mod wire;
