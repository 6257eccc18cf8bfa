//! The bounded queue between the sequencer, which makes records, and the writer, which commits them.
//!
//! Records are encoded as they are appended, straight into the batch that they will be part of. Room is acquired
//! before the sequencer is entered (R2), so that appending never waits and never fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::batch::Body;
use crate::engine::record::Record;
use crate::engine::state::Log;
use crate::engine::types::{LogTime, SequenceId};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// Records that wait to be written.
#[derive(Debug)]
pub struct Queue {
    chunks: Mutex<Chunks>,
    /// The last record that was appended.
    last: AtomicU64,
    /// Bytes that are promised to callers, queued or being written.
    taken: AtomicUsize,
    limit: usize,
    wake: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct Chunks {
    waiting: VecDeque<Chunk>,
    /// Of a batch that was written: its room is used again.
    spare: Option<Body>,
}

/// The records of one batch.
#[derive(Debug)]
pub struct Chunk {
    /// The first record.
    pub first: SequenceId,
    /// The records as bytes.
    pub body: Body,
}

impl Chunk {
    /// The last record.
    #[must_use]
    pub fn last(&self) -> SequenceId {
        SequenceId(self.first.0 + u64::from(self.body.records()) - 1)
    }
}

/// Room in the queue for the records of one call.
#[derive(Debug)]
pub struct Room<'q> {
    queue: &'q Queue,
    bytes: usize,
}

impl Room<'_> {
    /// The same room, for a call that goes on after whoever asked for it.
    #[must_use]
    pub fn keep(self, queue: &Arc<Queue>) -> KeptRoom {
        debug_assert!(std::ptr::eq(self.queue, &raw const **queue), "room in another queue");
        let bytes = self.bytes;
        std::mem::forget(self);
        KeptRoom { queue: Arc::clone(queue), bytes }
    }
}

/// Room in the queue for a call that goes on elsewhere.
#[derive(Debug)]
pub struct KeptRoom {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Drop for KeptRoom {
    fn drop(&mut self) {
        self.queue.give_back(self.bytes);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.queue.give_back(self.bytes);
    }
}

impl Queue {
    /// A queue for so many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            chunks: Mutex::default(),
            last: AtomicU64::new(0),
            taken: AtomicUsize::new(0),
            limit,
            wake: tokio::sync::Notify::new(),
        }
    }

    /// Room for records of at most so many bytes, if there is any. A call that needs more than all of it gets it when
    /// the queue is empty.
    pub fn room(&self, bytes: usize) -> Option<Room<'_>> {
        #[cfg(feature = "planted")]
        if planted::active(Bug::DropWhenFull) {
            self.taken.fetch_add(bytes, Ordering::AcqRel);
            return Some(Room { queue: self, bytes });
        }
        let fits = |taken: usize| (taken == 0 || taken + bytes <= self.limit).then_some(taken + bytes);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits).ok()?;
        Some(Room { queue: self, bytes })
    }

    /// Bytes that are promised, queued or being written.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// The oldest records that wait, as one batch.
    #[must_use]
    pub fn take(&self) -> Option<Chunk> {
        self.chunks.lock().waiting.pop_front()
    }

    /// Whether there is more than one batch holds.
    #[must_use]
    pub fn has_full_batch(&self) -> bool {
        self.chunks.lock().waiting.len() > 1
    }

    /// How many records after this one were appended.
    #[must_use]
    pub fn records_after(&self, id: SequenceId) -> u64 {
        self.last.load(Ordering::Acquire).saturating_sub(id.0)
    }

    /// What was taken is durable, or will never be.
    pub fn done(&self, chunk: Chunk) {
        let Chunk { mut body, .. } = chunk;
        self.give_back(body.len());
        body.clear();
        self.chunks.lock().spare = Some(body);
    }

    /// Throws everything away. Only for state that is thrown away, too.
    pub fn clear(&self) {
        let chunks = std::mem::take(&mut self.chunks.lock().waiting);
        self.give_back(chunks.iter().map(|chunk| chunk.body.len()).sum());
    }

    /// Whether nothing waits to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.lock().waiting.is_empty()
    }

    /// Waits until records were appended since the last time.
    pub async fn appended(&self) {
        self.wake.notified().await;
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Log for Arc<Queue> {
    fn append(&self, id: SequenceId, at: LogTime, record: &Record<'_>) {
        #[cfg(feature = "planted")]
        if planted::active(Bug::DropWhenFull) && self.bytes() > self.limit {
            return;
        }
        let mut chunks = self.chunks.lock();
        let before = chunks.waiting.back().map_or(0, |chunk| chunk.body.len());
        let fits = chunks.waiting.back_mut().is_some_and(|chunk| chunk.body.try_push(at, record));
        if !fits {
            let mut chunk = Chunk { first: id, body: chunks.spare.take().unwrap_or_default() };
            // The first record of a batch always fits: calls whose record would not are refused before (R2).
            let first_fits = chunk.body.try_push(at, record);
            debug_assert!(first_fits, "a record that is larger than a batch");
            chunks.waiting.push_back(chunk);
        }
        let after = chunks.waiting.back().map_or(0, |chunk| chunk.body.len());
        let grown = if fits { after - before } else { after };
        self.last.store(id.0, Ordering::Release);
        drop(chunks);
        self.taken.fetch_add(grown, Ordering::AcqRel);
        self.wake.notify_one();
    }
}
