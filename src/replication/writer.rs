//! The writer: one batch in flight, each in one fenced transaction (R1), sent again with the same bytes until there is
//! an answer (R5).

use bytes::Bytes;

use super::batch::{self, Checksum, LogId};
use super::batch::{FORMAT, Latest};
use super::keys::Keys;
use super::queue::{Chunk, Queue};
use crate::coordination::types::{Compare, Failure, Get, KeyRange, LeaseId, Op, OpResult, Response, Txn};
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
    in_flight: Option<InFlight>,
}

#[derive(Debug)]
struct InFlight {
    chunk: Chunk,
    txn: Txn,
    after: End,
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
    /// A writer for a term, which goes on from the end of the log.
    #[must_use]
    pub fn new(keys: Keys, term: Term, end: End) -> Self {
        Self { keys, term, end, in_flight: None }
    }

    /// The end of the durable log.
    #[must_use]
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Whether a batch is on its way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The next transaction to send, if records wait and none is on its way.
    pub fn next(&mut self, queue: &Queue) -> Option<Txn> {
        if self.in_flight.is_some() {
            return None;
        }
        Some(self.pack(queue.take()?))
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
        let mut success =
            vec![put(self.keys.batch(chunk.first), sealed.bytes), put(self.keys.latest(), latest.clone())];
        let unchanged = match &self.end.latest {
            Some(value) => Compare::Value { key: self.keys.latest(), equals: value.clone() },
            None => {
                // The log begins with this batch, and so does the format that it is written in.
                success.push(put(self.keys.format(), FORMAT.to_string().into()));
                Compare::CreateRevision { key: self.keys.latest(), equals: 0 }
            }
        };
        let get = |key| Op::Get(Get::all(KeyRange::key(key)));
        let mine = Compare::CreateRevision { key: self.keys.election(), equals: self.term.0 };
        let compare = vec![mine, unchanged];
        #[cfg(feature = "planted")]
        let compare = if planted::active(Bug::SkipFence) { compare[1..].to_vec() } else { compare };
        let txn = Txn { compare, success, failure: vec![get(self.keys.election()), get(self.keys.latest())] };
        let after = End {
            log: self.end.log,
            last: sealed.header.last,
            checksum: sealed.checksum,
            latest: Some(latest),
        };
        self.in_flight = Some(InFlight { chunk, txn: txn.clone(), after });
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
        Written::Durable(self.end.last)
    }

    /// Gives up what is on its way. Only for state that is thrown away, too.
    pub fn abandon(&mut self, queue: &Queue) {
        if let Some(in_flight) = self.in_flight.take() {
            queue.done(in_flight.chunk);
        }
    }
}
