//! Values for probes, metrics and status, published whenever the sequencer is released, so that reading them never
//! waits for it. All of them are of the same moment, so a digest belongs to the sequence id beside it.

use super::divergence::Divergence;
use super::term_state::{TermReport, TermState};
use super::types::{LogTime, SequenceId};
use crate::engine::types::Digest;

/// Numbers for metrics, all of the same moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// The last record that had been applied at that moment.
    pub sequence_id: SequenceId,
    /// The digest at that record.
    pub digest: Digest,
    /// Bytes that belong to no object but may still be in use.
    pub discarded_bytes: u64,
    /// Objects that are being written.
    pub writing: usize,
    /// Those of them whose segments are all unmounted: they are kept only because a client may still be writing (R4).
    pub lost_writes: usize,
    /// Written objects whose segments are all unmounted: they are kept only because a client may still be writing a
    /// copy.
    pub lost_copies: usize,
    pub tasks_pending: usize,
    /// Tasks that clients work on.
    pub tasks_processing: usize,
}

/// The values that are published together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Published {
    pub(super) reading: Reading,
    pub(super) term_state: TermState,
    pub(super) report: TermReport,
    pub(super) divergence: Divergence,
    pub(super) digest_matched: SequenceId,
    pub(super) last_change: SequenceId,
    pub(super) log_time: LogTime,
    pub(super) faults: u64,
}
