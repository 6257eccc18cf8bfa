//! The batches of the new log: copies of those of the old one, and the records of the recovery itself.

use bytes::Bytes;

use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Checksum, Latest, LogId};
use crate::coordination::types::{LeaseId, Op};
use crate::engine::format::Format;
use crate::engine::record::{ObjectRef, Record, RemoveSource};
use crate::engine::types::{Digest, LogTime, SequenceId, Term};
use crate::replication::batch::{self, Batch, Body};

/// Most objects that one record removes.
const REMOVED_AT_ONCE: usize = 1024;

/// A record of the old log does not fit into a batch of the new one, which has the same bounds.
#[derive(Debug, thiserror::Error)]
#[error("record {0} does not fit into a batch")]
pub struct CopyError(u64);

/// A log that is being written.
#[derive(Debug)]
pub struct NewLog {
    keys: Keys,
    log: LogId,
    /// The term of the recovery: no batch has a higher one.
    term: Term,
    last: SequenceId,
    checksum: Checksum,
    last_term: Term,
}

impl NewLog {
    /// Creates a log whose first batch follows `base`; `None` for one that begins at record 1.
    #[must_use]
    pub fn new(keys: Keys, log: LogId, term: Term, base: Option<&Latest>) -> Self {
        let (last, checksum) = base.map_or_else(Default::default, |base| (base.last, base.checksum));
        Self { keys, log, term, last, checksum, last_term: Term(0) }
    }

    /// Returns the end of the log.
    #[must_use]
    pub fn end(&self) -> Latest {
        Latest { log: self.log, term: self.last_term, last: self.last, checksum: self.checksum }
    }

    /// Copies the records of a batch up to one of them; `None` if there are none. The chain of checksums is a new one,
    /// because each batch names its log.
    pub fn copy(&mut self, batch: &Batch, up_to: SequenceId) -> Result<Option<Op>, CopyError> {
        let mut body = Body::of(batch.header.format);
        let mut left_out = None;
        batch.each(|id, at, record| {
            if id <= up_to && left_out.is_none() && !body.try_push(at, record) {
                left_out = Some(id);
            }
        });
        if let Some(id) = left_out {
            return Err(CopyError(id.0));
        }
        // In another etcd terms may be lower than they were.
        let term = batch.header.term.min(self.term);
        Ok((!body.is_empty()).then(|| self.seal(term, &body)))
    }

    /// Returns the batches with the records of the recovery: the digest of the state so far, which confirms it to every
    /// reader, and the removal of these objects.
    pub fn begin(&mut self, format: Format, at: LogTime, digest: Digest, removed: &[ObjectRef]) -> Vec<Op> {
        let mut batches = Vec::new();
        let mut body = Body::of(format);
        // A first record always fits.
        let _ = body.try_push(at, &Record::Digest { digest });
        for objects in removed.chunks(REMOVED_AT_ONCE) {
            let record = Record::Remove { objects, source: RemoveSource::Explicit };
            if !body.try_push(at, &record) {
                batches.push(self.seal(self.term, &body));
                body.clear();
                let _ = body.try_push(at, &record);
            }
        }
        batches.push(self.seal(self.term, &body));
        batches
    }

    fn seal(&mut self, term: Term, body: &Body) -> Op {
        let first = SequenceId(self.last.0.saturating_add(1));
        let sealed = batch::seal(self.log, term, first, self.checksum, body);
        (self.last, self.checksum, self.last_term) = (sealed.header.last, sealed.checksum, term);
        put(self.keys.batch(self.log, first), sealed.bytes)
    }
}

pub(super) fn put(key: Bytes, value: Bytes) -> Op {
    Op::Put { key, value, lease: LeaseId(0) }
}
