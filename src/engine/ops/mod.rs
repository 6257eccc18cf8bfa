//! Operations: each reads the state, decides, and commits the records that say what happened.
//!
//! No code here edits state directly. Most operations that are refused commit nothing; some commit a clean-up all the
//! same, for example the End of a write whose segments are gone (`end_stray` in `put.rs`).

mod copy_move;
mod evict;
mod find;
mod leases;
mod metadata;
mod placement;
mod put;
mod remove;
mod segments;
mod tasks;
mod term;
mod upkeep;
mod write_run;

pub use copy_move::Replicated;
pub use put::{ReplicaTypes, Started, Write, WriteConfig};
pub use segments::{MAX_MOUNTED, MAX_TOLD};
pub use upkeep::Upkeep;
pub use write_run::WriteRun;

/// Longest key in bytes: a record contains its key, and a record has to fit into a batch of the log.
pub const MAX_KEY: usize = 4096;

/// Longest value of the metadata server in bytes in a master with a log, for the same reason.
pub const MAX_LOGGED_VALUE: usize = 200 << 10;

/// Most bytes that one chunk of a long operation takes in the log: it names 1,024 objects in one record, or a few
/// hundred in a record each. Operations whose name ends in `_while` ask their caller before each chunk, without holding a
/// lock ([`Chunks`](super::chunks::Chunks)): there it waits for space in the queue (R2), and stops them when the primary
/// leaves.
pub const CHUNK_BYTES: usize = crate::engine::record_size::MAX_RECORD;
