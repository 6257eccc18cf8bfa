//! Operations: each looks at the state, decides, and commits the records that say what happened.
//!
//! Nothing here edits state. An operation that is refused commits nothing.

mod evict;
mod find;
mod leases;
mod metadata;
mod placement;
mod put;
mod remove;
mod replicate;
mod run;
mod segments;
mod tasks;
mod term;
mod upkeep;

pub use put::{ReplicaTypes, Started, WriteConfig};
pub use replicate::Replicated;
pub use run::Run;
pub use segments::{MAX_MOUNTED, MAX_TOLD};
pub use upkeep::Upkeep;

/// The longest key: a record names its key, and a record has to fit into a batch of the log.
pub const MAX_KEY: usize = 4096;

/// The longest value of the metadata server in a master with a log, for the same reason.
pub const MAX_LOGGED_VALUE: usize = 200 << 10;
