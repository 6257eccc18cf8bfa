//! Reads a capture into digests by range, instead of into a file.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use super::writing::{AHEAD, Message, scan};
use super::{Progress, background};
use crate::engine::snapshot::{Capture, CaptureError, KeyRange, RangeDigests, RangeReader, SnapshotError};

/// Why there are no digests.
#[derive(Debug, thiserror::Error)]
pub enum DigestsError {
    /// The state could not be captured to its end.
    #[error(transparent)]
    GivenUp(#[from] CaptureError),
    /// What was captured cannot be read: a bug of this program, or of its memory.
    #[error("the captured state cannot be read: {0}")]
    Unreadable(#[from] SnapshotError),
}

/// Computes the digests of a captured state: those of a range, or without one of all items. As for a snapshot, the
/// calling thread scans, and another one does the rest at a low priority.
pub fn digests(
    capture: Capture,
    range: Option<KeyRange>,
    progress: &Progress,
) -> Result<RangeDigests, DigestsError> {
    progress.of.store(capture.objects(), Ordering::Relaxed);
    let (chunks, scanned) = sync_channel(AHEAD);
    let (empty, emptied) = channel();
    let (scan, read) = background::beside(
        move || scan(capture, &chunks, &emptied, progress),
        move || read(RangeReader::new(range), &scanned, &empty, progress),
    );
    // If nothing can be read, the scan ends early without an error of its own; if it fails itself, what was read ends
    // early.
    scan?;
    Ok(read?)
}

fn read(
    mut reader: RangeReader,
    chunks: &Receiver<Message>,
    empty: &Sender<Vec<u8>>,
    progress: &Progress,
) -> Result<RangeDigests, SnapshotError> {
    while let Ok(Message::Chunk(chunk, objects)) = chunks.recv() {
        reader.chunk(&chunk)?;
        progress.objects.store(objects, Ordering::Relaxed);
        // The scan may have ended, and needs no more chunks then.
        let _ = empty.send(chunk);
    }
    reader.finish()
}
