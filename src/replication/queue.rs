//! The bounded queue between the sequencer, which makes records, and the writer, which commits them.
//!
//! Records are encoded as they are appended, straight into the batch that they will be part of. Space is acquired
//! before the sequencer is entered (R2), so that appending never waits and never fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::batch::Body;
use super::queue_space::{OwnedPermit, Permit, QueueSpace, Ticket};
use crate::engine::format::Format;
use crate::engine::record::Record;
use crate::engine::state::Log;
use crate::engine::types::{LogTime, SequenceId};

/// Records that wait to be written.
#[derive(Debug)]
pub struct Queue {
    chunks: Mutex<Chunks>,
    /// The last record that was appended.
    last: AtomicU64,
    space: Arc<QueueSpace>,
    wake: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Chunks {
    waiting: VecDeque<Chunk>,
    /// Buffer of a batch that was written, for reuse.
    spare: Option<Body>,
    /// The next record begins another batch.
    is_cut: bool,
}

/// The records of one batch.
#[derive(Debug)]
pub struct Chunk {
    pub first: SequenceId,
    pub body: Body,
}

impl Chunk {
    /// Returns the id of the last record.
    #[must_use]
    pub fn last(&self) -> SequenceId {
        SequenceId(self.first.0 + u64::from(self.body.records()) - 1)
    }
}

impl Queue {
    /// Creates a queue with a capacity of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            chunks: Mutex::default(),
            last: AtomicU64::new(0),
            space: Arc::new(QueueSpace::new(limit)),
            wake: tokio::sync::Notify::new(),
        }
    }

    /// Acquires space for records of at most `bytes`, if there is any and no other caller waits for it. A call that
    /// needs more than the capacity gets it when the queue is empty.
    pub fn try_acquire(&self, bytes: usize) -> Option<Permit<'_>> {
        self.space.try_acquire(bytes)
    }

    /// Joins the line of callers that wait for space. Returns a ticket that is granted in its turn.
    #[must_use]
    pub fn wait(&self, bytes: usize) -> Ticket {
        self.space.wait(bytes)
    }

    /// Returns the permit of a ticket that is granted, else the ticket.
    pub fn redeem(&self, ticket: Ticket) -> Result<Permit<'_>, Ticket> {
        ticket.redeem(&self.space)
    }

    /// Turns a permit into one that can be moved to another task.
    #[must_use]
    pub fn keep(&self, permit: Permit<'_>) -> OwnedPermit {
        permit.into_owned(&self.space)
    }

    /// Returns the bytes that are reserved, queued or being written.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.space.taken()
    }

    /// Takes the oldest records, as one batch.
    #[must_use]
    pub fn take(&self) -> Option<Chunk> {
        let mut chunks = self.chunks.lock();
        let chunk = chunks.waiting.pop_front();
        // What was cut is taken.
        chunks.is_cut &= !chunks.waiting.is_empty();
        chunk
    }

    /// Planted bug: takes over the oldest records of another state.
    #[cfg(feature = "planted")]
    pub(super) fn inherit(&self, other: &Self) {
        let Some(chunk) = other.take() else { return };
        self.space.add(chunk.body.len());
        self.chunks.lock().waiting.push_front(chunk);
    }

    /// Returns whether more than one batch is queued, so that the first one cannot grow.
    #[must_use]
    pub fn has_full_batch(&self) -> bool {
        self.chunks.lock().waiting.len() > 1
    }

    /// Ends a batch after the last record that was appended. The caller holds the sequencer, so that this record is the
    /// last one of the state, too.
    pub fn cut(&self) {
        let mut chunks = self.chunks.lock();
        chunks.is_cut = !chunks.waiting.is_empty();
    }

    /// Returns how many records were appended after this one.
    #[must_use]
    pub fn records_after(&self, id: SequenceId) -> u64 {
        self.last.load(Ordering::Acquire).saturating_sub(id.0)
    }

    /// Releases the space of a batch that is durable, or never will be, and keeps its buffer for reuse.
    pub fn done(&self, chunk: Chunk) {
        let Chunk { mut body, .. } = chunk;
        self.space.release(body.len());
        body.clear();
        self.chunks.lock().spare = Some(body);
    }

    /// Discards all records. Only for a state that is discarded, too.
    pub fn clear(&self) {
        let mut all = self.chunks.lock();
        all.is_cut = false;
        let chunks = std::mem::take(&mut all.waiting);
        drop(all);
        self.space.release(chunks.iter().map(|chunk| chunk.body.len()).sum());
    }

    /// Returns whether no record waits to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.lock().waiting.is_empty()
    }

    /// Waits until records have been appended since the last call.
    pub async fn appended(&self) {
        self.wake.notified().await;
    }
}

impl Log for Arc<Queue> {
    fn append(&self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        planted!(DropWhenFull => if self.bytes() > self.space.limit() { return; });
        let mut chunks = self.chunks.lock();
        let before = chunks.waiting.back().map_or(0, |chunk| chunk.body.len());
        let is_cut = std::mem::take(&mut chunks.is_cut);
        // All records of a batch have the same format.
        let fits = !is_cut
            && chunks
                .waiting
                .back_mut()
                .is_some_and(|chunk| chunk.body.format() == format && chunk.body.try_push(at, record));
        if !fits {
            let mut chunk = Chunk { first: id, body: chunks.spare.take().unwrap_or_default() };
            chunk.body.reuse(format);
            // The first record of a batch always fits: a call whose record would not is refused before it is applied
            // (R2).
            let first_fits = chunk.body.try_push(at, record);
            debug_assert!(first_fits, "a record that is larger than a batch");
            chunks.waiting.push_back(chunk);
        }
        let after = chunks.waiting.back().map_or(0, |chunk| chunk.body.len());
        let grown = if fits { after - before } else { after };
        self.last.store(id.0, Ordering::Release);
        drop(chunks);
        self.space.add(grown);
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::Digest;

    #[test]
    fn a_batch_ends_where_it_is_cut() {
        let queue = Arc::new(Queue::new(1 << 20));
        let append = |id| {
            let record = Record::Digest { digest: Digest(id) };
            queue.append(Format::NEWEST, SequenceId(id), LogTime(id), &record);
        };
        // There is nothing to cut, and the first batch is not cut short later.
        queue.cut();
        (1..=3).for_each(append);
        queue.cut();
        queue.cut();
        (4..=5).for_each(append);
        assert_eq!(
            queue.take().map(|chunk| (chunk.first, chunk.last())),
            Some((SequenceId(1), SequenceId(3)))
        );
        assert_eq!(
            queue.take().map(|chunk| (chunk.first, chunk.last())),
            Some((SequenceId(4), SequenceId(5)))
        );
        // What was cut has been taken since: the next batch is a whole one.
        append(6);
        queue.cut();
        assert_eq!(queue.take().map(|chunk| chunk.last()), Some(SequenceId(6)));
        (7..=8).for_each(append);
        assert_eq!(queue.take().map(|chunk| chunk.last()), Some(SequenceId(8)));
    }
}
