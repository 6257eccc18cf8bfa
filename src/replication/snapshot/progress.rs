//! Progress of a snapshot that is being written, and the flag that stops it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Progress of a snapshot that is being written. The writer stores it; other threads may read it at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Objects that were written.
    pub objects: AtomicU64,
    /// Objects that there are to write; zero before the writing begins.
    pub of: AtomicU64,
    /// Bytes that were written.
    pub bytes: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Asks the writer to stop: after a chunk or two it removes what it has written and returns an error.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the writer was asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
