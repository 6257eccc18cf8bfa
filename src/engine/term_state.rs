//! The current term: what its `NewTerm` record set, and what the new primary found.

use super::types::{LogTime, SegmentNumber, SequenceId, Term};

/// The current term as the log describes it. All of it is replicated state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TermState {
    /// The term; zero before the first `NewTerm`.
    pub term: Term,
    /// The `NewTerm` that began it.
    pub began: SequenceId,
    /// The timestamp of that record.
    pub since: LogTime,
    /// Until then nothing is evicted, and nothing removed unless forced (R6).
    pub hold_until: LogTime,
    /// Longest read lease that this primary grants, in milliseconds: its successor computes the hold from it.
    pub lease_ttl: u64,
    /// TTL of this primary's leader lease, in milliseconds.
    pub leader_ttl: u64,
    /// Identifies the run of the primary's process.
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
    pub name: &'a [u8],
    /// Identifies the run of the primary's process.
    pub boot_id: u64,
    /// TTL of its leader lease, in milliseconds.
    pub leader_ttl: u64,
}

impl TermState {
    /// Returns whether the log ends with a `Resign`, `last` being its last record: then every read lease that the old
    /// primary granted is in the log or ends by `hold_until`.
    #[must_use]
    pub fn has_resigned(&self, last: SequenceId) -> bool {
        self.resigned == last && last != SequenceId(0)
    }
}

/// What a primary found when it took over, for status and events. Not state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TermReport {
    pub term: Term,
    /// The record that began it.
    pub began: SequenceId,
    /// Clients that have to report their segments again.
    pub clients: usize,
    /// Segments that are closed to new objects until their client has done so.
    pub segments: usize,
    /// Objects, those being written included.
    pub objects: u64,
    /// Allocated bytes.
    pub bytes: u64,
    /// How many writes, copies and moves are under way, and how many discarded reservations are not released yet.
    pub reservations: usize,
    /// For how many milliseconds nothing is evicted, and nothing removed unless forced (R6).
    pub hold_ms: u64,
    /// Objects that have been removed since because their memory was unmounted.
    pub objects_removed: u64,
    /// Their sizes, one replica counted for each.
    pub bytes_removed: u64,
}
