//! The bytes of a snapshot: a header, chunks, an end. Each has its own checksum, and that of a chunk covers its
//! position, so that a chunk that is missing, repeated or of another file is noticed.

use std::io::{ErrorKind, Read};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Damage, FORMAT, FormatError, Header};
use crate::cluster::log_end::{Checksum, Latest, LogId};
use crate::engine::settings::EngineSettings;
use crate::engine::snapshot::{Check, Restore};
use crate::engine::types::Digest;
use crate::engine::types::{LogTime, SequenceId, Term};
use crate::engine::varint::{Reader, put_word};
use crate::engine::{Engine, Log};

const MAGIC: [u8; 4] = *b"MKSN";
const HEADER: usize = 56;
/// Lengths and checksum before the bytes of a chunk.
pub(super) const CHUNK_HEADER: usize = 16;
/// Upper bound of a chunk in bytes. Chunks are usually much smaller, but an item is never split.
const MAX_CHUNK: usize = 16 << 20;

/// Reads a snapshot into a new engine whose later records go to `log`.
pub fn read_from(
    from: &mut impl Read,
    settings: EngineSettings,
    log: Option<Box<dyn Log>>,
) -> Result<(Header, Engine), FormatError> {
    let mut restore = Restore::new(settings, log);
    let header =
        walk(from, |chunk, bytes| restore.chunk(bytes).map_err(|why| FormatError::State { chunk, why }))?;
    let engine = restore.finish().map_err(FormatError::Whole)?;
    let reading = engine.sequencer(LogTime(0)).reading();
    if reading.sequence_id != header.at.last || reading.digest != header.digest {
        return Err(FormatError::Position { found: reading.sequence_id, said: header.at.last });
    }
    Ok((header, engine))
}

/// Reads a snapshot to its end, and computes the digest of its state. Nothing is kept.
pub fn check_from(from: &mut impl Read) -> Result<Header, FormatError> {
    let mut check = Check::default();
    let header =
        walk(from, |chunk, bytes| check.chunk(bytes).map_err(|why| FormatError::State { chunk, why }))?;
    let digest = check.finish().map_err(FormatError::Whole)?;
    if digest == header.digest { Ok(header) } else { Err(FormatError::Header) }
}

/// Reads the header of a snapshot.
pub(super) fn header_from(from: &mut impl Read) -> Result<Header, FormatError> {
    let mut bytes = [0; HEADER];
    read_exact(from, &mut bytes, FormatError::Foreign)?;
    read_header(&bytes)
}

/// Reads a snapshot to its end and passes every undamaged chunk, decompressed, to `visit`.
pub(super) fn walk(
    from: &mut impl Read,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), FormatError>,
) -> Result<Header, FormatError> {
    let mut bytes = [0; HEADER];
    read_exact(from, &mut bytes, FormatError::Foreign)?;
    let header = read_header(&bytes)?;
    let mut sums = Sums::new(&bytes);
    let (mut stored, mut unpacked) = (Vec::new(), Vec::new());
    loop {
        let chunk = sums.chunks;
        let lengths = read_word(from, chunk)?;
        if lengths == 0 {
            break;
        }
        let damaged = |why| FormatError::Chunk { chunk, why };
        let (raw, length) = ((lengths >> 32) as usize, lengths as u32 as usize);
        if raw > MAX_CHUNK || length > raw || length == 0 {
            return Err(damaged(Damage::Length));
        }
        let said = read_word(from, chunk)?;
        stored.resize(length, 0);
        read_exact(from, &mut stored, FormatError::Short(chunk))?;
        if sums.chunk(lengths, &stored) != said {
            return Err(damaged(Damage::Checksum));
        }
        if length == raw {
            visit(chunk, &stored)?;
            continue;
        }
        unpacked.resize(raw, 0);
        match lz4_flex::block::decompress_into(&stored, &mut unpacked) {
            Ok(length) if length == raw => visit(chunk, &unpacked)?,
            _ => return Err(damaged(Damage::Packing)),
        }
    }
    if (read_word(from, sums.chunks)?, read_word(from, sums.chunks)?) != (sums.chunks, sums.all) {
        return Err(FormatError::Trailer(sums.chunks));
    }
    match from.read(&mut [0])? {
        0 => Ok(header),
        _ => Err(FormatError::Long),
    }
}

/// Checksums of the chunks, each over its position and bytes, and a checksum over all of them.
pub(super) struct Sums {
    pub chunks: u64,
    pub all: u64,
}

impl Sums {
    pub fn new(header: &[u8]) -> Self {
        Self { chunks: 0, all: xxh3_64(header) }
    }

    pub fn chunk(&mut self, lengths: u64, bytes: &[u8]) -> u64 {
        let sum = xxh3_64_with_seed(bytes, lengths ^ self.chunks.rotate_left(20));
        self.chunks += 1;
        self.all = xxh3_64_with_seed(&sum.to_le_bytes(), self.all);
        sum
    }
}

pub(super) fn header_bytes(header: &Header) -> Vec<u8> {
    let Header { at: Latest { log, term, last, checksum }, digest } = *header;
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    for word in [log.0, term.0, last.0, checksum.0, digest.0] {
        put_word(&mut out, word);
    }
    let sum = xxh3_64(&out);
    put_word(&mut out, sum);
    out
}

fn read_header(bytes: &[u8; HEADER]) -> Result<Header, FormatError> {
    let wrong = |_| FormatError::Header;
    let mut from = Reader::new(bytes);
    let start = from.word().map_err(wrong)?.to_le_bytes();
    if start[..4] != MAGIC {
        return Err(FormatError::Foreign);
    }
    let format = start[4..].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    if format != FORMAT {
        return Err(FormatError::Format(format));
    }
    let mut word = || from.word().map_err(wrong);
    let header = Header {
        at: Latest {
            log: LogId(word()?),
            term: Term(word()?),
            last: SequenceId(word()?),
            checksum: Checksum(word()?),
        },
        digest: Digest(word()?),
    };
    if word()? == xxh3_64(&bytes[..HEADER - 8]) { Ok(header) } else { Err(FormatError::Header) }
}

fn read_word(from: &mut impl Read, chunks: u64) -> Result<u64, FormatError> {
    let mut bytes = [0; 8];
    read_exact(from, &mut bytes, FormatError::Short(chunks))?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_exact(from: &mut impl Read, bytes: &mut [u8], short: FormatError) -> Result<(), FormatError> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => short,
        _ => error.into(),
    })
}
