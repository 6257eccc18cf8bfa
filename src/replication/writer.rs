//! The writer: one batch in flight, each in one fenced transaction (R1), sent again with the same bytes until there is
//! an answer (R5).

use bytes::Bytes;

use super::batch::{self, Checksum, Latest, LogId};
use super::formats;
use super::keys::Keys;
use super::queue::{Chunk, Queue};
use crate::coordination::types::{Compare, Failure, Get, KeyRange, LeaseId, Op, OpResult, Response, Txn};
use crate::engine::format::Format;
use crate::engine::types::{SequenceId, Term};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// The end of the log as its writer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The log.
    pub log: LogId,
    /// The last record.
    pub last: SequenceId,
    /// The checksum of the batch that it is in.
    pub checksum: Checksum,
    /// The value of the key that says so, byte for byte; `None` if there is no log yet.
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

/// Records that do not follow the end of the log: the state that made them is not the one that the log gives.
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

/// What an answer meant.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// The batch is durable.
    Durable(SequenceId),
    /// Nobody knows. The same transaction has to be sent again.
    Unknown,
    /// Another master leads, or none.
    Deposed,
    /// The log does not end where this writer left it although it is still the only one that may write.
    Broken,
}

impl Writer {
    /// A writer for a term, which goes on from the end of a log whose format key says `format`.
    #[must_use]
    pub fn new(keys: Keys, term: Term, end: End, format: Option<Format>) -> Self {
        Self { keys, term, end, format, in_flight: None, broken: false }
    }

    /// The end of the durable log.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Whether a batch is on its way, or one came that could not be sent: the state that made it cannot be kept.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some() || self.broken
    }

    /// The next transaction to send, if records wait and none is on its way.
    ///
    /// # Errors
    ///
    /// If what waits does not follow the end of the log: sending it would overwrite batches or leave a gap (INV-1).
    pub fn next(&mut self, queue: &Queue) -> Result<Option<Txn>, Discontinuity> {
        if self.is_busy() {
            return Ok(None);
        }
        let Some(chunk) = queue.take() else { return Ok(None) };
        let gap = Discontinuity { end: self.end.last, first: chunk.first };
        let follows = gap.first.0 == gap.end.0 + 1;
        #[cfg(feature = "planted")]
        let follows = follows || planted::active(Bug::UnknownIsFailed);
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
        // No batch is ever overwritten (INV-1). After an attempt whose success was not heard of this fails, too, and
        // `latest` in the failure branch tells that it was this very batch (R5).
        let absent = Compare::CreateRevision { key: self.keys.batch(self.end.log, chunk.first), equals: 0 };
        let compare = vec![mine, unchanged, absent];
        #[cfg(feature = "planted")]
        let compare = if planted::active(Bug::SkipFence) { compare[1..].to_vec() } else { compare };
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

    /// A bug on purpose: what is on its way is made anew, with what has come since.
    #[cfg(feature = "planted")]
    pub fn repack(&mut self, queue: &Queue) -> Option<Txn> {
        let mut chunk = self.in_flight.take()?.chunk;
        if let Some(more) = queue.take() {
            chunk.body.absorb(&more.body);
        }
        Some(self.pack(chunk))
    }

    /// The transaction that has to be sent again.
    #[must_use]
    pub fn again(&self) -> Option<Txn> {
        self.in_flight.as_ref().map(|in_flight| in_flight.txn.clone())
    }

    /// Takes the answer to the transaction on its way.
    pub fn answered(&mut self, answer: Result<Response, Failure>, queue: &Queue) -> Written {
        let Some(in_flight) = &self.in_flight else { return Written::Unknown };
        match answer {
            Ok(Response::Txn { succeeded: true, .. }) => self.commit(queue),
            #[cfg(feature = "planted")]
            Ok(Response::Txn { .. }) if planted::active(Bug::FailedIsCommitted) => self.commit(queue),
            #[cfg(feature = "planted")]
            Err(_) if planted::active(Bug::UnknownIsFailed) => {
                self.abandon(queue);
                Written::Unknown
            }
            Ok(Response::Txn { succeeded: false, results, .. }) => {
                let [OpResult::Got(election), OpResult::Got(latest)] = results.as_slice() else {
                    return Written::Unknown;
                };
                let latest = latest.entries.first().map(|entry| &entry.value);
                // An earlier attempt may have been committed without our hearing of it, whoever leads now.
                if latest.is_some() && latest == in_flight.after.latest.as_ref() {
                    return self.commit(queue);
                }
                match election.entries.first() {
                    Some(entry) if entry.create_revision == self.term.0 => Written::Broken,
                    _ => Written::Deposed,
                }
            }
            // Time-outs, lack of space, whatever else: it may have been done (R5).
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

    /// Gives up what is on its way. Only for state that is thrown away, too.
    pub fn abandon(&mut self, queue: &Queue) {
        if let Some(in_flight) = self.in_flight.take() {
            queue.done(in_flight.chunk);
        }
    }
}
