//! The writer: one batch in flight, each in one fenced transaction (R1), sent again with the same bytes until there is
//! an answer (R5).

use bytes::Bytes;

use super::batch;
use super::formats;
use super::queue::{Chunk, Queue};
use crate::cluster::keys::Keys;
use crate::cluster::log_end::{Checksum, Latest, LogId};
use crate::coordination::types::{Compare, Failure, Get, KeyRange, LeaseId, Op, OpResult, Response, Txn};
use crate::engine::format::Format;
use crate::engine::types::{SequenceId, Term};

/// The end of the log as its writer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub log: LogId,
    pub last: SequenceId,
    /// The checksum of the last batch.
    pub checksum: Checksum,
    /// The value of the key `latest`, byte for byte; `None` if there is no log yet.
    pub latest: Option<Bytes>,
}

/// Commits batches, one after another.
#[derive(Debug)]
pub struct Writer {
    keys: Keys,
    term: Term,
    end: End,
    /// The format in the format key, if there is one.
    format: Option<Format>,
    in_flight: Option<InFlight>,
    /// Records came that do not follow the end of the log: nothing more is written.
    broken: bool,
}

/// The error of records that do not follow the end of the log: the state that made them is not the one that the log
/// gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log ends at record {end}, but the next record to write is {first}", end = .end.0, first = .first.0)]
pub struct Discontinuity {
    /// The last record of the durable log.
    pub end: SequenceId,
    /// The first record that was to follow it.
    pub first: SequenceId,
}

#[derive(Debug)]
struct InFlight {
    chunk: Chunk,
    txn: Txn,
    after: End,
    format: Format,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// The batch is durable; this is its last record.
    Durable(SequenceId),
    /// Whether the batch was written is unknown. The same transaction has to be sent again (R5).
    Unknown,
    /// Another master leads, or none.
    Deposed,
    /// The log does not end where this writer left it although it is still the only one that may write.
    Broken,
}

impl Writer {
    /// Creates the writer of a term. It continues from the end of a log whose format key says `format`.
    #[must_use]
    pub fn new(keys: Keys, term: Term, end: End, format: Option<Format>) -> Self {
        Self { keys, term, end, format, in_flight: None, broken: false }
    }

    /// Returns the end of the durable log.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Returns the last batch of the durable log; `None` if there is none of this term.
    #[must_use]
    pub fn durable_end(&self) -> Option<Latest> {
        let value = self.end.latest.as_ref()?;
        Latest::from_bytes(value).ok().filter(|end| end.term == self.term)
    }

    /// Returns whether a batch is in flight, or one came that could not be sent: the state that made it cannot be kept.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some() || self.broken
    }

    /// Returns the next transaction to send, if records wait and none is in flight.
    ///
    /// # Errors
    ///
    /// If the waiting records do not follow the end of the log: sending them would overwrite batches or leave a gap
    /// (INV-1).
    pub fn next(&mut self, queue: &Queue) -> Result<Option<Txn>, Discontinuity> {
        if self.is_busy() {
            return Ok(None);
        }
        let Some(chunk) = queue.take() else { return Ok(None) };
        let gap = Discontinuity { end: self.end.last, first: chunk.first };
        let follows = gap.first.0 == gap.end.0 + 1;
        let follows = follows || planted!(UnknownIsFailed);
        if !follows {
            self.broken = true;
            queue.done(chunk);
            return Err(gap);
        }
        Ok(Some(self.pack(chunk)))
    }

    /// Makes the transaction that commits a batch.
    fn pack(&mut self, chunk: Chunk) -> Txn {
        let sealed = batch::seal(self.end.log, self.term, chunk.first, self.end.checksum, &chunk.body);
        let latest = Latest {
            log: self.end.log,
            term: self.term,
            last: sealed.header.last,
            checksum: sealed.checksum,
        }
        .to_bytes();
        let put = |key, value| Op::Put { key, value, lease: LeaseId(0) };
        let mut success = vec![
            put(self.keys.batch(self.end.log, chunk.first), sealed.bytes),
            put(self.keys.latest(), latest.clone()),
        ];
        let unchanged = match &self.end.latest {
            Some(value) => Compare::Value { key: self.keys.latest(), equals: value.clone() },
            None => Compare::CreateRevision { key: self.keys.latest(), equals: 0 },
        };
        let format = sealed.header.format;
        if self.end.latest.is_none() || self.format != Some(format) {
            // The log, or its use of a newer format, begins with this batch: no master reads one without the other.
            success.push(put(self.keys.format(), formats::key_value(format)));
        }
        let get = |key| Op::Get(Get::all(KeyRange::key(key)));
        let mine = Compare::CreateRevision { key: self.keys.election(), equals: self.term.0 };
        // No batch is ever overwritten (INV-1). After an attempt that succeeded without an answer this compare fails,
        // too, and `latest` in the failure branch shows that it was this very batch (R5).
        let absent = Compare::CreateRevision { key: self.keys.batch(self.end.log, chunk.first), equals: 0 };
        let compare = vec![mine, unchanged, absent];
        let compare = if planted!(SkipFence) { compare[1..].to_vec() } else { compare };
        let txn = Txn { compare, success, failure: vec![get(self.keys.election()), get(self.keys.latest())] };
        let after = End {
            log: self.end.log,
            last: sealed.header.last,
            checksum: sealed.checksum,
            latest: Some(latest),
        };
        self.in_flight = Some(InFlight { chunk, txn: txn.clone(), after, format });
        txn
    }

    /// Planted bug: packs the batch in flight anew, with the records that have come since.
    #[cfg(feature = "planted")]
    pub fn repack(&mut self, queue: &Queue) {
        let Some(InFlight { mut chunk, .. }) = self.in_flight.take() else { return };
        if let Some(more) = queue.take() {
            chunk.body.absorb(&more.body);
        }
        self.pack(chunk);
    }

    /// Returns the transaction in flight, which has to be sent again.
    #[must_use]
    pub fn again(&self) -> Option<Txn> {
        self.in_flight.as_ref().map(|in_flight| in_flight.txn.clone())
    }

    /// Handles the answer to the transaction in flight.
    pub fn answered(&mut self, answer: Result<Response, Failure>, queue: &Queue) -> Written {
        let Some(in_flight) = &self.in_flight else { return Written::Unknown };
        match answer {
            Ok(Response::Txn { succeeded: true, .. }) => self.commit(queue),
            Ok(Response::Txn { .. }) if planted!(FailedIsCommitted) => self.commit(queue),
            Err(_) if planted!(UnknownIsFailed) => {
                self.abandon(queue);
                Written::Unknown
            }
            Ok(Response::Txn { succeeded: false, results, .. }) => {
                let [OpResult::Got(election), OpResult::Got(latest)] = results.as_slice() else {
                    return Written::Unknown;
                };
                let latest = latest.entries.first().map(|entry| &entry.value);
                // An earlier attempt may have been committed without its answer reaching this writer, whichever master
                // leads now.
                if latest.is_some() && latest == in_flight.after.latest.as_ref() {
                    return self.commit(queue);
                }
                match election.entries.first() {
                    Some(entry) if entry.create_revision == self.term.0 => Written::Broken,
                    _ => Written::Deposed,
                }
            }
            // Timeouts, lack of space and all other failures: the transaction may have been carried out (R5).
            Ok(_) | Err(_) => Written::Unknown,
        }
    }

    fn commit(&mut self, queue: &Queue) -> Written {
        let Some(in_flight) = self.in_flight.take() else { return Written::Unknown };
        queue.done(in_flight.chunk);
        self.end = in_flight.after;
        self.format = Some(in_flight.format);
        Written::Durable(self.end.last)
    }

    /// Gives up the batch in flight. Only for a state that is discarded, too.
    pub fn abandon(&mut self, queue: &Queue) {
        if let Some(in_flight) = self.in_flight.take() {
            queue.done(in_flight.chunk);
        }
    }
}
