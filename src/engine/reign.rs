//! The reign of one primary: what `NewTerm` left behind, and what it found.

use super::types::{LogTime, SegmentNumber, SequenceId, Term};

/// What is known of the current term. All of it is state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reign {
    /// The term; zero before the first `NewTerm`.
    pub term: Term,
    /// The `NewTerm` that began it.
    pub began: SequenceId,
    /// The timestamp of that record.
    pub since: LogTime,
    /// Until then nothing is evicted, and nothing removed unless forced (R6).
    pub hold_until: LogTime,
    /// The longest promise that this primary gives a reader, in milliseconds: its successor has to know.
    pub lease_ttl: u64,
    /// The time to live of the lease that this primary leads with, in milliseconds.
    pub leader_ttl: u64,
    /// The run of its process.
    pub boot_id: u64,
    /// Segments with a lower number were mounted in an earlier term.
    pub first_segment: SegmentNumber,
    /// How many ended tasks are remembered.
    pub kept_tasks: u32,
    /// The last `Resign`, zero if there was none.
    pub resigned: SequenceId,
}

/// A primary as the first record of its term names it.
#[derive(Clone, Copy, Debug)]
pub struct Primary<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The run of its process.
    pub boot_id: u64,
    /// The time to live of the lease that it leads with, in milliseconds.
    pub leader_ttl: u64,
}

impl Reign {
    /// Whether a primary has handed over and nothing has happened since, `last` being the last record: then all its
    /// promises to readers are in the log.
    #[must_use]
    pub fn has_resigned(&self, last: SequenceId) -> bool {
        self.resigned == last && last != SequenceId(0)
    }
}

/// What a primary found when it took over. Not state: it is for people to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TermReport {
    /// The term.
    pub term: Term,
    /// The record that began it.
    pub began: SequenceId,
    /// Clients that have to tell their segments again.
    pub clients: usize,
    /// Segments that take nothing new until then.
    pub segments: usize,
    /// Objects, those being written included.
    pub objects: u64,
    /// Bytes given out.
    pub bytes: u64,
    /// Writes, copies and moves under way, and bytes kept from others for a while.
    pub reservations: usize,
    /// For how many milliseconds nothing is evicted, and nothing removed unless forced (R6).
    pub hold_ms: u64,
    /// Objects that have been removed since because their memory is gone.
    pub objects_removed: u64,
    /// Bytes of those.
    pub bytes_removed: u64,
}
