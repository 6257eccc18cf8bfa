//! Batches: the records of one etcd write.
//!
//! A batch names the log it belongs to, its term, its first and last sequence id, and the checksum of the batch before
//! it, so that a reader notices whatever is missing, repeated, damaged or of another history (INV-1). `docs/log-format.md`
//! has the bytes.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::codec::{self, Context, Records, Scratch};
use crate::engine::format::Format;
use crate::engine::packing::{Malformed, Reader, put_word};
use crate::engine::record::Record;
use crate::engine::types::{LogTime, SequenceId, Term};

/// Most bytes of a body with more than one record, before compression: etcd slows down steeply near 1 MiB and refuses
/// 1.5 MiB, and a small batch is committed sooner.
pub const MAX_BODY: usize = 256 * 1024;
/// Most records of a body.
pub const MAX_RECORDS: u32 = 4096;

/// What every batch begins with.
const MAGIC: [u8; 4] = *b"MKLB";
/// Bytes before the body.
const HEADER: usize = 56;
/// Bytes after the body.
const TRAILER: usize = 8;
/// No body is larger. A single record may have more than [`MAX_BODY`], but none has as much as this.
const MAX_OPEN: usize = 16 << 20;
/// The most that a byte can stand for in LZ4.
const MAX_RATIO: usize = 256;
/// Smaller bodies are not worth compressing.
const WORTH: usize = 256;

/// Which log it is: random, made with the log. Two logs under one name are told apart by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// The checksum of a batch, by which the next one names it. Zero stands for "before the first batch".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(pub u64);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The records of one batch as bytes, before compression.
#[derive(Debug, Default)]
pub struct Body {
    format: Format,
    bytes: Vec<u8>,
    records: u32,
    context: Context,
}

impl Body {
    /// An empty one, in this format.
    #[must_use]
    pub fn of(format: Format) -> Self {
        Self { format, ..Self::default() }
    }

    /// The format that its records are in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Adds a record. False, and nothing changed, if there would be too much in it; a first record always fits.
    #[must_use]
    pub fn try_push(&mut self, at: LogTime, record: &Record<'_>) -> bool {
        if self.records == MAX_RECORDS {
            return false;
        }
        let (length, context) = (self.bytes.len(), self.context);
        codec::encode(self.format, &mut self.bytes, &mut self.context, at, record);
        if self.bytes.len() > MAX_BODY && self.records > 0 {
            self.bytes.truncate(length);
            self.context = context;
            return false;
        }
        self.records += 1;
        true
    }

    /// A bug on purpose: adds the records of another body.
    #[cfg(feature = "planted")]
    pub fn absorb(&mut self, other: &Self) {
        let (mut records, mut scratch) = (Records::new(other.format, &other.bytes), Scratch::default());
        while let Ok(Some((at, record))) = records.next(&mut scratch) {
            let _ = self.try_push(at, &record);
        }
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many records.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Takes everything out, to be used again for records in this format.
    pub fn reuse(&mut self, format: Format) {
        self.clear();
        self.format = format;
    }

    /// Takes everything out and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
        self.context = Context::default();
    }
}

/// What a batch says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How the rest is to be read, and what its records mean.
    pub format: Format,
    /// The log that it belongs to.
    pub log: LogId,
    /// The term of the primary that wrote it.
    pub term: Term,
    /// Its first record.
    pub first: SequenceId,
    /// Its last record.
    pub last: SequenceId,
    /// The batch before it.
    pub previous: Checksum,
}

/// A batch ready to be written: the same bytes each time it is tried (R5).
#[derive(Clone, Debug)]
pub struct Sealed {
    /// What is written.
    pub bytes: Bytes,
    /// By which the next batch names it.
    pub checksum: Checksum,
    /// What it says of itself.
    pub header: Header,
}

/// How a body is kept.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Encoding {
    Plain = 0,
    Lz4 = 1,
}

/// Makes a batch of a body that is not empty, compressed when that pays.
#[must_use]
pub fn seal(log: LogId, term: Term, first: SequenceId, previous: Checksum, body: &Body) -> Sealed {
    let last = SequenceId(first.0 + u64::from(body.records.max(1)) - 1);
    let header = Header { format: body.format, log, term, first, last, previous };
    let compressed = (body.len() >= WORTH).then(|| lz4_flex::block::compress(&body.bytes));
    // Reading plain bytes is free, so an eighth less is the least worth having.
    let (encoding, kept) = match &compressed {
        Some(small) if small.len() < body.len() / 8 * 7 => (Encoding::Lz4, small),
        _ => (Encoding::Plain, &body.bytes),
    };
    let mut bytes = Vec::with_capacity(HEADER + kept.len() + TRAILER);
    put_header(&mut bytes, &header, encoding, body.len());
    bytes.extend_from_slice(kept);
    let checksum = Checksum(xxh3_64(&bytes));
    put_word(&mut bytes, checksum.0);
    Sealed { bytes: bytes.into(), checksum, header }
}

fn put_header(out: &mut Vec<u8>, header: &Header, encoding: Encoding, length: usize) {
    let Header { format, log, term, first, last, previous } = *header;
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&format.number().to_le_bytes());
    for word in [log.0, term.0, first.0, last.0, previous.0, (length as u64) << 8 | encoding as u64] {
        put_word(out, word);
    }
}

/// Why bytes are no batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// There are too few bytes, or they begin otherwise.
    #[error("not a batch: {0} bytes that do not begin as one does")]
    Foreign(usize),
    /// The format is not one that this binary reads.
    #[error("the batch has format {0}, this binary reads {readable:?}", readable = Format::readable_numbers())]
    Format(u32),
    /// The bytes are damaged.
    #[error("the batch is damaged: its checksum is {found}, it says {said}")]
    Checksum {
        /// What the bytes add up to.
        found: Checksum,
        /// What they should add up to.
        said: Checksum,
    },
    /// It is larger than anything that is ever written, or is no compressed body.
    #[error("the body cannot be unpacked")]
    Body,
    /// The numbers of its records make no sense.
    #[error("records {first} to {last} are not what it has", first = .0.first.0, last = .0.last.0)]
    Bounds(Header),
    /// A record cannot be read.
    #[error("record {id} cannot be read: {why}", id = .id.0)]
    Record {
        /// Which one.
        id: SequenceId,
        /// What is wrong.
        why: Malformed,
    },
}

/// A batch that was read. What opens is whole.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What it says of itself.
    pub header: Header,
    /// By which the next batch names it.
    pub checksum: Checksum,
    body: Vec<u8>,
}

impl Batch {
    /// Reads a batch and makes sure that every record in it can be read.
    pub fn open(bytes: &[u8]) -> Result<Self, BatchError> {
        let (covered, trailer) = bytes.split_last_chunk().ok_or(BatchError::Foreign(bytes.len()))?;
        let (header, encoding, length, body) = take_header(covered, bytes.len())?;
        let (found, said) = (Checksum(xxh3_64(covered)), Checksum(u64::from_le_bytes(*trailer)));
        if found != said {
            return Err(BatchError::Checksum { found, said });
        }
        let body = unpack(encoding, length, body)?;
        let batch = Self { header, checksum: said, body };
        batch.check()?;
        Ok(batch)
    }

    /// How many records it has.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.header.last.0 - self.header.first.0 + 1
    }

    /// How many bytes its records have.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Hands every record to `visit`, in order.
    pub fn each(&self, mut visit: impl FnMut(SequenceId, LogTime, &Record<'_>)) {
        let whole = self.walk(|id, at, record| visit(id, at, record));
        debug_assert!(whole.is_ok(), "what opened is whole");
    }

    fn check(&self) -> Result<(), BatchError> {
        let Header { first, last, .. } = self.header;
        let bounds = first.0 > 0 && last >= first && last.0 - first.0 < u64::from(MAX_RECORDS);
        if !bounds || self.walk(|_, _, _| ())? != SequenceId(last.0 + 1) {
            return Err(BatchError::Bounds(self.header));
        }
        Ok(())
    }

    /// Hands every record to `visit` and returns the id that the next one would have.
    fn walk(
        &self,
        mut visit: impl FnMut(SequenceId, LogTime, &Record<'_>),
    ) -> Result<SequenceId, BatchError> {
        let (mut records, mut scratch) = (Records::new(self.header.format, &self.body), Scratch::default());
        let mut id = self.header.first;
        loop {
            match records.next(&mut scratch) {
                Ok(Some((at, record))) => visit(id, at, &record),
                Ok(None) => return Ok(id),
                Err(why) => return Err(BatchError::Record { id, why }),
            }
            id = SequenceId(id.0.saturating_add(1));
        }
    }
}

/// The format that a batch says to be in, if this binary reads it.
#[must_use]
pub fn format_of(batch: &[u8]) -> Option<Format> {
    let number = batch.strip_prefix(&MAGIC)?.first_chunk()?;
    Format::of(u32::from_le_bytes(*number))
}

fn take_header(covered: &[u8], length: usize) -> Result<(Header, u8, u64, &[u8]), BatchError> {
    let foreign = |_: Malformed| BatchError::Foreign(length);
    let mut from = Reader::new(covered);
    if from.raw(MAGIC.len()).map_err(foreign)? != MAGIC {
        return Err(BatchError::Foreign(length));
    }
    let format = from.raw(4).map_err(foreign)?;
    let format = format.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let format = Format::of(format).ok_or(BatchError::Format(format))?;
    let mut word = || from.word().map_err(foreign);
    let header = Header {
        format,
        log: LogId(word()?),
        term: Term(word()?),
        first: SequenceId(word()?),
        last: SequenceId(word()?),
        previous: Checksum(word()?),
    };
    let packing = word()?;
    let body = from.raw(from.left()).map_err(foreign)?;
    Ok((header, packing as u8, packing >> 8, body))
}

fn unpack(encoding: u8, length: u64, body: &[u8]) -> Result<Vec<u8>, BatchError> {
    let length = usize::try_from(length).map_err(|_| BatchError::Body)?;
    let unpacked = if encoding == Encoding::Plain as u8 {
        body.to_vec()
    } else if encoding == Encoding::Lz4 as u8 && length <= MAX_OPEN && length / MAX_RATIO <= body.len() {
        lz4_flex::block::decompress(body, length).map_err(|_| BatchError::Body)?
    } else {
        return Err(BatchError::Body);
    };
    if unpacked.len() == length { Ok(unpacked) } else { Err(BatchError::Body) }
}

/// The end of the log: the value of the `latest` key, as text that a person can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "LatestText", try_from = "LatestText")]
pub struct Latest {
    /// The log.
    pub log: LogId,
    /// The term of the last batch.
    pub term: Term,
    /// The last record.
    pub last: SequenceId,
    /// The last batch.
    pub checksum: Checksum,
}

/// Why the value of the `latest` key cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the end of the log cannot be read: {0}")]
pub struct LatestError(String);

impl Latest {
    /// The value of the key. Equal ends have equal bytes, so that a transaction can compare them.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let Self { log, term, last, checksum } = self;
        let (term, last) = (term.0, last.0);
        format!(r#"{{"log":"{log}","term":{term},"last":{last},"checksum":"{checksum}"}}"#).into()
    }

    /// Reads the value of the key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LatestError> {
        serde_json::from_slice(bytes).map_err(|why| LatestError(why.to_string()))
    }
}

/// [`Latest`] in JSON: ids that are random have 64 bits, which not every reader takes as a number, so they are text.
#[derive(Serialize, Deserialize)]
struct LatestText {
    log: String,
    term: u64,
    last: u64,
    checksum: String,
}

impl From<Latest> for LatestText {
    fn from(end: Latest) -> Self {
        let (log, checksum) = (end.log.to_string(), end.checksum.to_string());
        Self { log, term: end.term.0, last: end.last.0, checksum }
    }
}

impl TryFrom<LatestText> for Latest {
    type Error = std::num::ParseIntError;

    fn try_from(text: LatestText) -> Result<Self, Self::Error> {
        Ok(Self {
            log: LogId(u64::from_str_radix(&text.log, 16)?),
            term: Term(text.term),
            last: SequenceId(text.last),
            checksum: Checksum(u64::from_str_radix(&text.checksum, 16)?),
        })
    }
}
