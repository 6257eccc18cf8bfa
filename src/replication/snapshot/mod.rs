//! Snapshots: the whole state at the end of one batch, in a file.
//!
//! A standby starts from one and reads only the log after it. A file is written under another name, synced to disk,
//! read back, and only then renamed; any damage to it later is noticed before any of it is used. `docs/log-format.md`
//! has the bytes. The functions here block: call them on a blocking thread.

mod background;
mod digests;
mod files;
mod format;
mod progress;
mod shared;
mod start;
mod writing;

pub use digests::{DigestsError, digests};
pub use files::{
    Found, Written, announce, check, check_bytes, discard, forget, header, list, newest_good, prune, restore,
    tidy, write, write_pending,
};
pub use format::{check_from, read_from};
pub use progress::Progress;
pub use shared::SharedStore;
pub use start::{Origin, Restored, Wanted, describe, load, restore_wanted, unusable};
pub use writing::write_to;

use std::path::PathBuf;
use std::sync::Arc;

use crate::cluster::log_end::Latest;
use crate::engine::Engine;
use crate::engine::snapshot::{self as state, BeginError, CaptureError, SnapshotError};
use crate::engine::types::Digest;
use crate::engine::types::SequenceId;
use crate::replication::incarnation::Incarnation;

/// The format that this binary writes and reads.
pub const FORMAT: u32 = 1;

/// The header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The batch that it was taken after; the next batch names its checksum.
    pub at: Latest,
    /// The digest of the state after that batch.
    pub digest: Digest,
}

/// A snapshot that has begun: the state after one batch, which does not change while later records are applied. Dropping
/// it cancels the snapshot and frees what it has kept; the caller must not hold the sequencer then.
#[derive(Debug)]
pub struct Capture {
    header: Header,
    state: state::Capture,
}

impl Capture {
    /// Returns the header that the snapshot will have.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns how many objects the snapshot will have.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.state.objects()
    }
}

/// Begins a snapshot of the state as it is now, after the batch `at`. It takes milliseconds, however many objects there
/// are; records can be applied as soon as it returns.
pub fn begin(engine: &Arc<Engine>, at: &Latest) -> Result<Capture, BeginError> {
    let state = state::Capture::begin(engine, at.last)?;
    Ok(Capture { header: Header { at: *at, digest: state.digest() }, state })
}

/// A snapshot of a primary's state that has begun after a record which need not be durable yet. It can be written once
/// the batch that ends with that record is.
#[derive(Debug)]
pub struct BeginningCapture {
    state: state::Capture,
}

impl BeginningCapture {
    /// Returns the last record of the state.
    #[must_use]
    pub fn last(&self) -> SequenceId {
        self.state.at()
    }

    /// Returns the snapshot, which was taken after this batch; `None` if the batch does not end with the last record of
    /// the state.
    #[must_use]
    pub fn after(self, at: Latest) -> Option<Capture> {
        let Self { state } = self;
        (at.last == state.at()).then(|| Capture { header: Header { at, digest: state.digest() }, state })
    }
}

/// Begins a snapshot of a primary's state as it is now, and ends a batch of its log after the last record. It takes as
/// long as [`begin`].
pub fn begin_leading(incarnation: &Incarnation) -> Result<BeginningCapture, BeginError> {
    let state = state::Capture::begin_now(&incarnation.engine, || incarnation.queue.cut())?;
    Ok(BeginningCapture { state })
}

/// Why a snapshot cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system returned an error.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or directory that was accessed.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The contents of the file are wrong.
    #[error("{path}: {why}", path = .path.display())]
    Wrong { path: PathBuf, why: FormatError },
    /// The snapshot could not be completed; nothing is left of it.
    #[error("the snapshot was given up: {0}")]
    GivenUp(CaptureError),
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The state could not be captured to its end.
    #[error("the snapshot was given up: {0}")]
    GivenUp(#[from] CaptureError),
    /// The bytes do not begin as a snapshot does.
    #[error("not a snapshot")]
    Foreign,
    /// The format is not one that this binary reads.
    #[error("it has format {0}, this binary reads format {FORMAT}")]
    Format(u32),
    /// The header is damaged.
    #[error("its header is damaged")]
    Header,
    /// The last record of the state is not that of the batch that the snapshot claims to be taken after.
    #[error("the state is at record {found}, not at {said}", found = .found.0, said = .said.0)]
    Position {
        /// The last record of the state.
        found: SequenceId,
        /// The last record of the batch.
        said: SequenceId,
    },
    /// A chunk is damaged.
    #[error("chunk {chunk} is damaged: {why}")]
    Chunk { chunk: u64, why: Damage },
    /// A chunk is undamaged, but its contents are not valid.
    #[error("chunk {chunk}: {why}")]
    State { chunk: u64, why: SnapshotError },
    /// All chunks are valid, but together they do not make a state.
    #[error("{0}")]
    Whole(SnapshotError),
    /// The file ends before the snapshot does.
    #[error("it ends too early, after {0} whole chunks")]
    Short(u64),
    /// The file goes on after the snapshot.
    #[error("there are bytes after its end")]
    Long,
    /// The number or the checksum of all chunks at the end does not match.
    #[error("its end is damaged, after {0} chunks")]
    Trailer(u64),
}

/// How a chunk is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its lengths are impossible: zero, above the upper bound, or larger compressed than not.
    #[error("no chunk is that long")]
    Length,
    /// Its checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// It cannot be decompressed.
    #[error("it cannot be unpacked")]
    Packing,
}
