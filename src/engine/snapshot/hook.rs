//! Copy on first change: while a snapshot is taken, whatever is part of it and changes before it was written is encoded
//! first, as it was.
//!
//! A hook is called with the lock of what it watches, before the change. It belongs to the snapshot whose scan moves its
//! cursor: what lies behind the cursor was written, what has a later id than the snapshot is not part of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::chunks::Chunks;
use super::encode::{self, Base, Encoder};
use crate::engine::object::Object;
use crate::engine::reserved::{Discarded, Processing};
use crate::engine::types::{ObjectId, SequenceId};

/// Slots in one word of a bit set.
const WORD: u32 = u64::BITS;

/// What changed before the scan came to it, encoded as it was, until it is fetched.
#[derive(Debug)]
pub(super) struct Changed {
    kept: Mutex<Kept>,
    /// Most bytes that may wait.
    limit: u64,
    waiting: AtomicU64,
    given_up: AtomicBool,
}

#[derive(Debug)]
struct Kept {
    encoder: Encoder,
    chunks: Chunks,
    objects: u64,
}

impl Changed {
    pub fn new(base: Arc<Base>, limit: u64) -> Self {
        let kept = Kept { encoder: Encoder::new(base), chunks: Chunks::default(), objects: 0 };
        Self { kept: Mutex::new(kept), limit, waiting: AtomicU64::new(0), given_up: AtomicBool::new(false) }
    }

    fn keep(&self, objects: u64, encode: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        if self.given_up.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        let Kept { encoder, chunks, objects: all } = &mut *kept;
        encode(encoder, chunks.open());
        chunks.end_item();
        *all += objects;
        let waiting = chunks.bytes() as u64;
        self.waiting.store(waiting, Ordering::Relaxed);
        if waiting > self.limit {
            self.given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Returns how many bytes wait, if they are too many.
    pub fn too_many(&self) -> Option<u64> {
        self.given_up.load(Ordering::Relaxed).then(|| self.waiting.load(Ordering::Relaxed))
    }

    /// Fetches a full chunk, or with `rest` any that there is.
    pub fn fetch(&self, rest: bool) -> Option<Vec<u8>> {
        let mut kept = self.kept.lock();
        let chunk = kept.chunks.take(rest);
        self.waiting.store(kept.chunks.bytes() as u64, Ordering::Relaxed);
        chunk
    }

    /// Returns how many objects were kept, fetched or not.
    pub fn objects(&self) -> u64 {
        self.kept.lock().objects
    }
}

/// The hook of one shard.
#[derive(Debug)]
pub(in crate::engine) struct ShardHook {
    /// Objects with a later id are not part of the snapshot.
    last: ObjectId,
    /// The scan is done with the slots before this one. Moved by a reader of the shard.
    cursor: AtomicU32,
    /// Bit set of the slots whose object at the moment of the snapshot was kept.
    kept: Box<[u64]>,
    changed: Arc<Changed>,
}

impl ShardHook {
    /// Creates a hook for the slots before `slots`: later ones were empty at the moment of the snapshot.
    pub(super) fn new(last: ObjectId, slots: u32, changed: Arc<Changed>) -> Self {
        let words = slots.div_ceil(WORD) as usize;
        Self { last, cursor: AtomicU32::new(0), kept: vec![0; words].into(), changed }
    }

    pub(super) fn cursor(&self) -> u32 {
        self.cursor.load(Ordering::Relaxed)
    }

    /// Moves the cursor. The caller has read access to the shard and is the only one who scans it, so a hook, which has
    /// write access, sees the new place.
    pub(super) fn advance(&self, cursor: u32) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    /// Returns whether an object is part of the snapshot as it is now. The scan asks this of what it comes to.
    pub(super) fn is_original(&self, slot: u32, object: &Object) -> bool {
        let kept = self.kept.get((slot / WORD) as usize);
        object.id <= self.last && kept.is_some_and(|word| word >> (slot % WORD) & 1 == 0)
    }

    /// Keeps the object at this slot if the snapshot still needs it. It is about to change or to go.
    pub fn before_change(&mut self, slot: u32, object: &Object) {
        if slot < self.cursor() || !self.is_original(slot, object) {
            return;
        }
        planted!(SkipPreImage => return);
        if let Some(word) = self.kept.get_mut((slot / WORD) as usize) {
            *word |= 1 << (slot % WORD);
        }
        self.changed.keep(1, |encoder, out| encoder.object(out, object));
    }
}

/// The hook of the reservations that belong to no readable object.
#[derive(Debug)]
pub(in crate::engine) struct CoreHook {
    /// The record after which the snapshot is taken.
    pub(super) at: SequenceId,
    /// The scan is done with the writes up to this one.
    pub(super) writes: ObjectId,
    /// The scan is done with the discarded bytes up to this record.
    pub(super) discarded: SequenceId,
    /// Ids up to `at` under which bytes were discarded since: a fault of the log releases bytes under the id of the
    /// object that had them.
    late: BTreeSet<SequenceId>,
    changed: Arc<Changed>,
}

impl CoreHook {
    pub(super) fn new(at: SequenceId, changed: Arc<Changed>) -> Self {
        let late = BTreeSet::new();
        Self { at, writes: ObjectId(0), discarded: SequenceId(0), late, changed }
    }

    /// Keeps a write that has just ended.
    pub fn write_ended(&mut self, id: ObjectId, write: &Processing) {
        if id.0 <= self.at.0 && id > self.writes {
            planted!(SkipEndedWrite => return);
            self.changed.keep(0, |_, out| encode::processing(out, id, write));
        }
    }

    /// Keeps discarded bytes that were just released.
    pub fn released(&mut self, record: SequenceId, bytes: &Discarded) {
        if record > self.discarded && self.is_original(record) {
            self.changed.keep(0, |encoder, out| encoder.discarded(out, record, bytes));
        }
    }

    /// Notes that bytes are being discarded.
    pub fn discarding(&mut self, record: SequenceId) {
        if record <= self.at {
            self.late.insert(record);
        }
    }

    /// Returns whether discarded bytes are part of the snapshot.
    pub(super) fn is_original(&self, record: SequenceId) -> bool {
        record <= self.at && !self.late.contains(&record)
    }
}
