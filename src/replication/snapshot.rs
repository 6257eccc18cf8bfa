//! Snapshots: the whole state at the end of one batch, in a file.
//!
//! A standby starts from one and reads only the log after it. A file is written under another name, brought to disk,
//! read back, and only then gets its name; whatever is wrong with it later is noticed before any of it is used.
//! `docs/log-format.md` has the bytes. The functions here block: they belong on a thread of their own.

mod files;
mod format;

pub use files::{Found, Written, check, list, newest_good, prune, restore, write};
pub use format::{read_from, write_to};

use std::path::PathBuf;

use super::batch::Latest;
use crate::engine::digest::Digest;
use crate::engine::snapshot::SnapshotError;
use crate::engine::types::SequenceId;

/// The format that this binary writes and reads.
pub const FORMAT: u32 = 1;

/// What a snapshot says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The batch that it was taken after, by which the next batch is known to follow.
    pub at: Latest,
    /// The digest of the state there.
    pub digest: Digest,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// There is something wrong with what the file says.
    #[error("{path}: {why}", path = .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: FormatError,
    },
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It begins otherwise than a snapshot.
    #[error("not a snapshot")]
    Foreign,
    /// The format is not one that this binary reads.
    #[error("it has format {0}, this binary reads format {FORMAT}")]
    Format(u32),
    /// The header is damaged.
    #[error("its header is damaged")]
    Header,
    /// The state has another last record than the batch that it is said to be taken after.
    #[error("the state is at record {found}, not at {said}", found = .found.0, said = .said.0)]
    Position {
        /// The last record of the state.
        found: SequenceId,
        /// The last record of the batch.
        said: SequenceId,
    },
    /// A chunk is damaged.
    #[error("chunk {chunk} is damaged: {why}")]
    Chunk {
        /// Which one.
        chunk: u64,
        /// How.
        why: Damage,
    },
    /// A chunk is whole and cannot be understood.
    #[error("chunk {chunk}: {why}")]
    State {
        /// Which one.
        chunk: u64,
        /// What is wrong.
        why: SnapshotError,
    },
    /// All chunks are whole and do not make a state.
    #[error("{0}")]
    Whole(SnapshotError),
    /// The file ends before the snapshot does.
    #[error("it ends too early, after {0} whole chunks")]
    Short(u64),
    /// The file goes on after the snapshot.
    #[error("there are bytes after its end")]
    Long,
    /// The end does not fit what came before.
    #[error("its end is damaged, after {0} chunks")]
    Trailer(u64),
}

/// How a chunk is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its length is one that no chunk has.
    #[error("no chunk is that long")]
    Length,
    /// Its bytes are not those that were written there.
    #[error("its checksum does not match")]
    Checksum,
    /// It cannot be unpacked.
    #[error("it cannot be unpacked")]
    Packing,
}
