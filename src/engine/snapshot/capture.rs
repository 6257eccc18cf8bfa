//! A capture: the state at one moment, as items, while later records are applied.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::chunks::Chunks;
use super::encode::{self, Encoder};
use super::hook::Changed;
use super::plan::{Beginning, Entry};
use super::{CHUNK, SLICE};
use crate::engine::state::Engine;
use crate::engine::types::{Digest, LogTime, SequenceId};

/// Most bytes that may wait of what changed before the scan came to it: some three million objects.
pub const MAX_WAITING: u64 = 256 << 20;

/// Why a capture did not reach its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("it was cancelled")]
    Cancelled,
    /// The snapshot was written more slowly than its objects changed, so that too much memory would be needed.
    #[error(
        "objects change faster than they are written: {waiting} bytes of earlier state wait to be written"
    )]
    TooManyChanges { waiting: u64 },
    /// Objects are missing, or there are too many: a bug of this program, noticed.
    #[error("{found} objects were found of {said}")]
    Miscounted { found: u64, said: u64 },
}

/// What is scanned next. Everything before it is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// What was encoded at the beginning.
    Head,
    /// The objects of this shard.
    Shard(usize),
    /// Writes under way.
    Writes,
    /// Discarded bytes.
    Discarded,
    /// What changed is all there is left, with the entries of the metadata server.
    Rest,
    Done,
}

/// The state at one moment. Dropping it ends the capture: objects that change are not kept any longer, and memory is
/// freed. The caller must not hold the sequencer then.
#[derive(Debug)]
pub struct Capture {
    pub(super) engine: Arc<Engine>,
    pub(super) at: SequenceId,
    pub(super) digest: Digest,
    pub(super) objects: u64,
    /// The shards whose objects are captured.
    pub(super) shards: Range<usize>,
    /// What was encoded when the capture began.
    pub(super) head: Chunks,
    pub(super) metadata: std::vec::IntoIter<Entry>,
    pub(super) changed: Arc<Changed>,
    /// Encoder of what the scan finds unchanged.
    pub(super) encoder: Encoder,
    /// Objects that the scan found unchanged.
    pub(super) unchanged: u64,
    pub(super) stage: Stage,
    /// Whether objects that change are kept.
    pub(super) hooked: bool,
}

impl Capture {
    /// Creates the capture of an engine's state that has begun.
    pub(super) fn new(engine: Arc<Engine>, beginning: Beginning) -> Self {
        let Beginning { at, digest, objects, shards, head, metadata, changed, base } = beginning;
        Self {
            engine,
            at,
            digest,
            objects,
            shards,
            head,
            metadata: metadata.into_iter(),
            changed,
            encoder: Encoder::new(base),
            unchanged: 0,
            stage: Stage::Head,
            hooked: true,
        }
    }

    /// Returns the record after which the state is captured.
    #[must_use]
    pub fn at(&self) -> SequenceId {
        self.at
    }

    /// Returns the digest of the state.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns how many objects the captured part of the state has.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns how many of them were encoded.
    #[must_use]
    pub fn encoded(&self) -> u64 {
        self.unchanged + self.changed.objects()
    }

    /// Replaces `chunk` by the next one, which has whole items. Returns false if there is no more.
    pub fn next(&mut self, chunk: &mut Vec<u8>) -> Result<bool, CaptureError> {
        chunk.clear();
        while chunk.len() < CHUNK && self.step(SLICE, chunk)? {}
        Ok(!chunk.is_empty())
    }

    /// Appends some items to `out`, about `most` of those that are scanned: their lock is held for that long. Returns
    /// false if there is no more.
    pub fn step(&mut self, most: usize, out: &mut Vec<u8>) -> Result<bool, CaptureError> {
        if let Some(waiting) = self.changed.too_many() {
            return Err(CaptureError::TooManyChanges { waiting });
        }
        self.stage = match self.stage {
            Stage::Head => match self.head.take(true) {
                Some(chunk) => {
                    append(out, chunk);
                    Stage::Head
                }
                None if self.shards.is_empty() => Stage::Writes,
                None => Stage::Shard(self.shards.start),
            },
            Stage::Done => return Ok(false),
            stage => {
                // What has changed comes first, so that it takes little memory.
                if let Some(chunk) = self.changed.fetch(false) {
                    append(out, chunk);
                    return Ok(true);
                }
                match stage {
                    Stage::Shard(shard) => self.scan_shard(shard, most, out),
                    Stage::Writes => self.scan_writes(most, out),
                    Stage::Discarded => self.scan_discarded(most, out),
                    _ => self.rest(out)?,
                }
            }
        };
        Ok(true)
    }

    /// Encodes what is left when the scan has come to its end.
    fn rest(&mut self, out: &mut Vec<u8>) -> Result<Stage, CaptureError> {
        self.unhook();
        if let Some(chunk) = self.changed.fetch(true) {
            append(out, chunk);
            return Ok(Stage::Rest);
        }
        for (key, value, record) in self.metadata.by_ref() {
            encode::metadata(out, &key, &value, record);
            if out.len() >= CHUNK {
                return Ok(Stage::Rest);
            }
        }
        let found = self.encoded();
        if found != self.objects {
            return Err(CaptureError::Miscounted { found, said: self.objects });
        }
        encode::end(out, found);
        Ok(Stage::Done)
    }

    /// Removes the hooks. It holds the sequencer, as every thread that waits for write access to a shard must: the holder
    /// of the sequencer may lock a shard for reading twice, which a waiting writer in between would turn into a
    /// deadlock.
    fn unhook(&mut self) {
        if !std::mem::take(&mut self.hooked) {
            return;
        }
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let of_shards: Vec<_> = self.engine.shards.iter().map(|shard| shard.write().hook.take()).collect();
        let of_core = sequencer.core.hook.take();
        drop(sequencer);
        // After the sequencer was released, because freeing takes time.
        drop((of_shards, of_core));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.unhook();
        self.engine.capturing.store(false, Ordering::Relaxed);
    }
}

/// Appends a chunk without copying it, if it is the first one.
fn append(out: &mut Vec<u8>, mut chunk: Vec<u8>) {
    if out.is_empty() {
        *out = chunk;
    } else {
        out.append(&mut chunk);
    }
}
