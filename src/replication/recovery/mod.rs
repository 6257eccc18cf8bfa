//! Recovery: begins a new log from what is left when no master can stand for election. Pure: the command executes the
//! transactions that are built here.
//!
//! The new log has an id of its own. It continues from a snapshot, from a copy of the old log up to a record, from both,
//! or from nothing, and its first own records are a `Digest` of that state, which confirms the snapshot to masters that
//! start from it, and the removal of objects that dropped records have changed. Everything is written below the new id
//! first; one transaction then makes it the log of the cluster (`steps`).

mod new_log;
mod replay;
mod steps;

pub use new_log::{CopyError, NewLog};
pub use replay::{Contents, Replay, ReplayError};
pub use steps::{Chunk, Commit, chunks, create_election, delete_leftovers, fenced};
