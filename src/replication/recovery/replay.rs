//! Replays a log, or what is left of it, to see what a recovery would keep and what it would lose.

use std::collections::HashMap;
use std::path::Path;

use crate::cluster::log_end::{Checksum, Latest, LogId};
use crate::engine::Engine;
use crate::engine::record::ObjectRef;
use crate::engine::settings::EngineSettings;
use crate::engine::types::{Digest, LogTime, ObjectId, SequenceId, Term};
use crate::engine::walk::Cursor;
use crate::replication::batch::{Batch, BatchError};
use crate::replication::snapshot::{self, FileError, Header};

/// What a state contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The last record.
    pub last: SequenceId,
    /// The term that it was in.
    pub term: Term,
    /// The timestamp of the last record; zero without one.
    pub log_time: LogTime,
    pub digest: Digest,
    /// Objects whose bytes are written.
    pub objects: u64,
    /// Their bytes, all replicas counted.
    pub bytes: u64,
    /// Objects that are being written.
    pub writing: u64,
}

/// Why a batch cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("record {0} and the ones that follow it are missing")]
    Missing(u64),
    #[error("the batch of record {0} does not follow the one before it")]
    Foreign(u64),
}

/// A state that is built from a snapshot or from nothing, and from batches that follow.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    /// The log, once one is known.
    log: Option<LogId>,
    /// Checksum and last record of the last batch.
    checksum: Checksum,
    last: SequenceId,
}

impl Default for Replay {
    fn default() -> Self {
        let engine = Engine::new(EngineSettings::default());
        Self { engine, log: None, checksum: Checksum(0), last: SequenceId(0) }
    }
}

impl Replay {
    /// Reads a snapshot to its end, all checksums and the digest of its state included.
    pub fn from_snapshot(path: &Path) -> Result<(Header, Self), FileError> {
        let (header, engine) = snapshot::restore(path, EngineSettings::default(), None)?;
        let Latest { log, last, checksum, .. } = header.at;
        Ok((header, Self { engine, log: Some(log), checksum, last }))
    }

    /// Returns the last record of the last whole batch.
    #[must_use]
    pub fn last(&self) -> SequenceId {
        self.last
    }

    /// Reads the next batch, which has to follow the last one.
    pub fn open(&self, bytes: &[u8]) -> Result<Batch, ReplayError> {
        let batch = Batch::open(bytes)?;
        let header = &batch.header;
        if header.first.0 > self.last.0.saturating_add(1) {
            return Err(ReplayError::Missing(self.last.0.saturating_add(1)));
        }
        let follows = header.first.0 == self.last.0.saturating_add(1) && header.previous == self.checksum;
        if !follows || self.log.is_some_and(|log| log != header.log) {
            return Err(ReplayError::Foreign(header.first.0));
        }
        Ok(batch)
    }

    /// Applies the records of the next batch up to one of them.
    pub fn apply(&mut self, batch: &Batch, up_to: SequenceId) {
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let mut next = sequencer.next_id();
        batch.each(|id, at, record| {
            if id == next && id <= up_to {
                sequencer.apply(batch.header.format, id, at, record);
                next = SequenceId(id.0 + 1);
            }
        });
        if up_to >= batch.header.last {
            (self.log, self.last, self.checksum) =
                (Some(batch.header.log), batch.header.last, batch.checksum);
        }
    }

    /// Returns what the state contains now.
    #[must_use]
    pub fn contents(&self) -> Contents {
        let sequencer = self.engine.sequencer(LogTime(0));
        let (last, log_time, digest) = (self.engine.applied(), sequencer.now, sequencer.digest());
        drop(sequencer);
        let mut contents =
            Contents { last, log_time, digest, term: self.engine.term_state().term, ..Contents::default() };
        let mut cursor = Cursor::default();
        while self.engine.walk_piece(&mut cursor, |object| {
            if object.is_written() {
                let replicas = object.replicas().filter(|replica| replica.is_readable()).count() as u64;
                contents.objects += 1;
                contents.bytes = contents.bytes.saturating_add(object.size.saturating_mul(replicas));
            } else {
                contents.writing += 1;
            }
        }) {}
        contents
    }

    /// Returns the last record about each object.
    #[must_use]
    pub fn objects(&self) -> HashMap<ObjectId, SequenceId> {
        let mut objects = HashMap::new();
        let mut cursor = Cursor::default();
        while self.engine.walk_piece(&mut cursor, |object| {
            objects.insert(object.id, object.last_record);
        }) {}
        objects
    }

    /// Returns those objects of an earlier state that are not here any more as they were. Their bytes may have been
    /// given to another object since: read under the old key, they would be wrong.
    #[must_use]
    pub fn changed_since(&self, mut before: HashMap<ObjectId, SequenceId>) -> Vec<ObjectRef> {
        let mut cursor = Cursor::default();
        while self.engine.walk_piece(&mut cursor, |object| {
            let whole = object.replicas().all(|replica| replica.segment.is_alive());
            if whole && before.get(&object.id) == Some(&object.last_record) {
                before.remove(&object.id);
            }
        }) {}
        let mut changed: Vec<ObjectRef> =
            before.into_iter().map(|(id, after)| ObjectRef { id, after }).collect();
        changed.sort_unstable_by_key(|object| object.id);
        changed
    }
}
