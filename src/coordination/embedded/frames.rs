//! Entries in the file of a store: each has its length, a checksum of the length alone, and a checksum of length and
//! payload. The checksum of the length makes it possible to find an entry after damaged bytes, and to tell a damaged
//! length from an entry that was half written.

use std::io::{self, Read, Seek, SeekFrom};

use bytes::{Buf, Bytes};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::coordination::embedded::codec::encode;
use crate::coordination::model::entries::Entry;

/// Length, checksum of the length, checksum of the payload.
pub(super) const HEADER_BYTES: u64 = 16;

/// The first part of the header, by which the beginning of an entry is found: length and its checksum.
const START_BYTES: usize = 8;

/// Bytes that are read at a time in the search for an entry.
const SEARCH_BYTES: usize = 64 << 10;

/// Seed of the checksums. It makes sure that zeros, which a file system may leave behind, are not a valid header.
const SEED: u64 = 0x4d4b_5354_4f52_4502;

/// Appends an entry to `out`.
pub(super) fn frame(entry: &Entry, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES as usize]);
    encode(entry, out);
    let (header, payload) = out[start..].split_at_mut(HEADER_BYTES as usize);
    let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("an entry of more than 4 GiB"))?;
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..START_BYTES].copy_from_slice(&length_check(length).to_le_bytes());
    header[START_BYTES..].copy_from_slice(&checksum(length, payload).to_le_bytes());
    Ok(())
}

fn length_check(length: u32) -> u32 {
    xxh3_64_with_seed(&length.to_le_bytes(), SEED) as u32
}

fn checksum(length: u32, payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, SEED ^ u64::from(length))
}

/// Returns the length that an entry's first bytes contain, if their checksum matches. No entry is empty.
fn length_of(mut start: &[u8]) -> Option<u32> {
    let (length, check) = (start.try_get_u32_le().ok()?, start.try_get_u32_le().ok()?);
    (length > 0 && check == length_check(length)).then_some(length)
}

/// What is found at an offset of the file.
pub(super) enum Next {
    Entry(Bytes),
    /// The end of the file.
    End,
    /// The beginning of an entry that was not written to its end.
    Torn,
    /// An entry with its whole length, but with a wrong checksum.
    Altered,
    /// Bytes that are neither an entry nor what an interrupted write leaves behind.
    Damaged,
}

/// Reads what is at offset `at` in a file of this length.
pub(super) fn next(reader: &mut (impl Read + Seek), at: u64, length: u64) -> io::Result<Next> {
    let left = length - at;
    if left < HEADER_BYTES {
        return Ok(if left == 0 { Next::End } else { Next::Torn });
    }
    let mut header = [0; HEADER_BYTES as usize];
    reader.read_exact(&mut header)?;
    let Some(bytes) = length_of(&header) else {
        return if is_torn(&header, reader)? { Ok(Next::Torn) } else { Ok(Next::Damaged) };
    };
    if u64::from(bytes) > left - HEADER_BYTES {
        return Ok(Next::Torn);
    }
    let mut payload = vec![0; bytes as usize];
    reader.read_exact(&mut payload)?;
    let said = (&header[START_BYTES..]).get_u64_le();
    Ok(if checksum(bytes, &payload) == said { Next::Entry(payload.into()) } else { Next::Altered })
}

/// Returns whether a header without a valid length is what an interrupted write leaves behind: its end never reached
/// the disk, and only zeros follow; or its beginning did not, and is zero.
fn is_torn(header: &[u8], reader: &mut impl Read) -> io::Result<bool> {
    if header[..START_BYTES].iter().all(|byte| *byte == 0) {
        return Ok(true);
    }
    let mut bytes = vec![0; SEARCH_BYTES];
    loop {
        match reader.read(&mut bytes)? {
            0 => return Ok(true),
            read if bytes[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Returns the offset at which the next entry begins, at `from` or later, whole or not.
pub(super) fn find(reader: &mut (impl Read + Seek), from: u64) -> io::Result<Option<u64>> {
    reader.seek(SeekFrom::Start(from))?;
    let (mut window, mut at) = (Vec::with_capacity(SEARCH_BYTES), from);
    loop {
        let read = reader.by_ref().take(SEARCH_BYTES as u64).read_to_end(&mut window)?;
        if let Some(found) = window.windows(START_BYTES).position(|start| length_of(start).is_some()) {
            return Ok(Some(at + found as u64));
        }
        if read == 0 {
            return Ok(None);
        }
        // An entry may begin in the last bytes that were read so far.
        let done = window.len().saturating_sub(START_BYTES - 1);
        window.drain(..done);
        at += done as u64;
    }
}
