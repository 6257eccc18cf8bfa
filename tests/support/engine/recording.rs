//! A log as the bytes of its batches, with the digest of the state after each.

use std::sync::Arc;

use bytes::Bytes;
use moonkeeper::cluster::log_end::{Checksum, LogId};
use moonkeeper::engine::Engine;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::replication::batch::{Body, seal};

/// A log that is being recorded.
#[derive(Debug, Default)]
pub struct Recording {
    /// The batches, and the digest after each.
    pub batches: Vec<(Bytes, Digest)>,
    records_each: u32,
    body: Body,
    first: SequenceId,
    previous: Checksum,
}

impl Recording {
    /// So many records go into a batch.
    pub fn new(records_each: u32) -> Self {
        Self { records_each, ..Self::default() }
    }

    /// The next record, which `replica` has applied.
    pub fn push(&mut self, id: SequenceId, at: LogTime, record: &Record<'_>, replica: &Arc<Engine>) {
        if self.body.is_empty() {
            self.first = id;
        }
        assert!(self.body.try_push(at, record), "batches of this size never fill up");
        if self.body.records() < self.records_each {
            return;
        }
        let term = Term(replica.term().0.max(1));
        let sealed = seal(LogId(0x601d), term, self.first, self.previous, &self.body);
        self.previous = sealed.checksum;
        self.batches.push((sealed.bytes, replica.sequencer(LogTime(0)).digest()));
        self.body.clear();
    }
}
