//! Writes a snapshot that has begun. Two threads do it: the calling one scans the state, under locks that applying needs
//! too, at the priority that it has; the other one compresses and writes, at a low one.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::format::{CHUNK_HEADER, Sums, header_bytes};
use super::{Capture, FormatError, Header, Progress, background};
use crate::engine::snapshot::{self as state, CaptureError};

/// Chunks that may wait to be written.
pub(super) const AHEAD: usize = 4;

/// From the thread that scans to the one that writes.
pub(super) enum Message {
    /// The next chunk, and how many objects were encoded so far.
    Chunk(Vec<u8>, u64),
    /// That was all. Without it the snapshot is not ended.
    End,
}

/// Writes a snapshot that has begun.
pub fn write_to(
    out: &mut (impl Write + Send),
    capture: Capture,
    progress: &Progress,
) -> Result<Header, FormatError> {
    let Capture { header, state } = capture;
    progress.of.store(state.objects(), Ordering::Relaxed);
    let (chunks, written) = sync_channel(AHEAD);
    let (empty, emptied) = channel();
    let (scanned, written) = background::beside(
        move || scan(state, &chunks, &emptied, progress),
        move || write_all(out, &header, &written, &empty, progress),
    );
    // If nothing can be written, the scan ends early without an error of its own.
    written?;
    scanned?;
    Ok(header)
}

/// Passes all chunks on, and ends the capture.
pub(super) fn scan(
    mut state: state::Capture,
    chunks: &SyncSender<Message>,
    emptied: &Receiver<Vec<u8>>,
    progress: &Progress,
) -> Result<(), CaptureError> {
    loop {
        let mut chunk = emptied.try_recv().unwrap_or_default();
        if progress.is_cancelled() {
            return Err(CaptureError::Cancelled);
        }
        let message =
            if state.next(&mut chunk)? { Message::Chunk(chunk, state.encoded()) } else { Message::End };
        let ended = matches!(message, Message::End);
        // Without a receiver, writing has failed.
        if chunks.send(message).is_err() || ended {
            return Ok(());
        }
    }
}

fn write_all(
    out: &mut impl Write,
    header: &Header,
    chunks: &Receiver<Message>,
    empty: &Sender<Vec<u8>>,
    progress: &Progress,
) -> Result<(), FormatError> {
    let bytes = header_bytes(header);
    out.write_all(&bytes)?;
    let mut sums = Sums::new(&bytes);
    let mut packed = Vec::new();
    let mut written = bytes.len();
    while let Ok(message) = chunks.recv() {
        let Message::Chunk(chunk, objects) = message else {
            for word in [0, sums.chunks, sums.all] {
                out.write_all(&word.to_le_bytes())?;
            }
            out.flush()?;
            break;
        };
        pack(&chunk, &mut packed, &mut sums);
        out.write_all(&packed)?;
        written += packed.len();
        progress.objects.store(objects, Ordering::Relaxed);
        progress.bytes.store(written as u64, Ordering::Relaxed);
        // The scan may have ended, and needs no more chunks then.
        let _ = empty.send(chunk);
    }
    Ok(())
}

/// Compresses a chunk, if that makes it smaller, behind its lengths and its checksum.
fn pack(chunk: &[u8], packed: &mut Vec<u8>, sums: &mut Sums) {
    packed.resize(CHUNK_HEADER + lz4_flex::block::get_maximum_output_size(chunk.len()), 0);
    let length = lz4_flex::block::compress_into(chunk, &mut packed[CHUNK_HEADER..]);
    match length {
        Ok(length) if length < chunk.len() => packed.truncate(CHUNK_HEADER + length),
        _ => {
            packed.truncate(CHUNK_HEADER);
            packed.extend_from_slice(chunk);
        }
    }
    let stored = packed.len() - CHUNK_HEADER;
    let lengths = (chunk.len() as u64) << 32 | stored as u64;
    let sum = sums.chunk(lengths, &packed[CHUNK_HEADER..]);
    packed[..8].copy_from_slice(&lengths.to_le_bytes());
    packed[8..CHUNK_HEADER].copy_from_slice(&sum.to_le_bytes());
}
