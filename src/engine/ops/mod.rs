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

/// What one chunk of long work takes in the log, at most: it names 1,024 objects in one record, or a few hundred in a
/// record each. Operations whose name ends in `_while` ask before each chunk, outside of every lock, whether to go on:
/// that is where they wait for space in the log (R2), and where a primary that leaves stops them.
pub const CHUNK_BYTES: usize = crate::engine::bounds::MAX_RECORD;
