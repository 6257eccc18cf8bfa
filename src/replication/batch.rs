//! Batches: the records of one etcd transaction.
//!
//! A batch names the log it belongs to, its term, its first and last sequence id, and the checksum of the batch before
//! it, so that a reader notices a batch that is missing, repeated, damaged or of another history (INV-1).
//! `docs/log-format.md` has the bytes.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::codec::{self, Context, Records, Scratch};
use crate::cluster::log_end::{Checksum, LogId};
use crate::engine::format::Format;
use crate::engine::record::Record;
use crate::engine::types::{LogTime, SequenceId, Term};
use crate::engine::varint::{Malformed, Reader, put_word};

/// Upper bound of a body with more than one record, in bytes before compression: etcd slows down steeply near 1 MiB and
/// refuses 1.5 MiB, and a small batch is committed sooner.
pub const MAX_BODY: usize = 256 * 1024;
/// Upper bound of the number of records in a body.
pub const MAX_RECORDS: u32 = 4096;

/// The first bytes of every batch.
const MAGIC: [u8; 4] = *b"MKLB";
/// Length of the header before the body, in bytes.
const HEADER: usize = 56;
/// Length of the checksum after the body, in bytes.
const TRAILER: usize = 8;
/// Upper bound of any body, in bytes. A single record may have more than [`MAX_BODY`], but none has as much as this.
const MAX_OPEN: usize = 16 << 20;
/// Highest compression ratio of LZ4: one compressed byte stands for at most this many.
const MAX_RATIO: usize = 256;
/// Bodies with fewer bytes are not compressed: it would not pay.
const WORTH: usize = 256;

/// The records of one batch as bytes, before compression.
#[derive(Debug, Default)]
pub struct Body {
    format: Format,
    bytes: Vec<u8>,
    records: u32,
    context: Context,
}

impl Body {
    /// Returns an empty body for records in this format.
    #[must_use]
    pub fn of(format: Format) -> Self {
        Self { format, ..Self::default() }
    }

    /// Returns the format that its records are in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Adds a record. Returns false and changes nothing if the body would become too large; a first record always fits.
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

    /// Planted bug: adds the records of another body.
    #[cfg(feature = "planted")]
    pub fn absorb(&mut self, other: &Self) {
        let (mut records, mut scratch) = (Records::new(other.format, &other.bytes), Scratch::default());
        while let Ok(Some((at, record))) = records.next(&mut scratch) {
            let _ = self.try_push(at, &record);
        }
    }

    /// Returns the size of the records in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of records.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Returns whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Removes all records and sets the format of those to come; the allocation is kept.
    pub fn reuse(&mut self, format: Format) {
        self.clear();
        self.format = format;
    }

    /// Removes all records and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records = 0;
        self.context = Context::default();
    }
}

/// The header of a batch: its place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Format of the rest of the batch. It also decides what the records mean.
    pub format: Format,
    /// The log that the batch belongs to.
    pub log: LogId,
    /// The term of the primary that wrote it.
    pub term: Term,
    pub first: SequenceId,
    pub last: SequenceId,
    /// Checksum of the batch before it.
    pub previous: Checksum,
}

/// A batch ready to be written: the same bytes at every attempt (R5).
#[derive(Clone, Debug)]
pub struct Sealed {
    /// The value of the batch's key.
    pub bytes: Bytes,
    /// The checksum by which the next batch names this one.
    pub checksum: Checksum,
    pub header: Header,
}

/// Whether the body is compressed, as the header records it.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Encoding {
    Plain = 0,
    Lz4 = 1,
}

/// Makes a batch of a body that is not empty, compressed if that saves at least an eighth.
#[must_use]
pub fn seal(log: LogId, term: Term, first: SequenceId, previous: Checksum, body: &Body) -> Sealed {
    let last = SequenceId(first.0 + u64::from(body.records.max(1)) - 1);
    let header = Header { format: body.format, log, term, first, last, previous };
    let compressed = (body.len() >= WORTH).then(|| lz4_flex::block::compress(&body.bytes));
    // Plain bytes cost nothing to read, so compression has to save an eighth to be used.
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

/// Why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// There are too few bytes, or they do not begin with the magic bytes.
    #[error("not a batch: {0} bytes without the header of one")]
    Foreign(usize),
    /// The format is not one that this binary reads.
    #[error("the batch has format {0}, this binary reads {readable:?}", readable = Format::readable_numbers())]
    Format(u32),
    /// The bytes are damaged.
    #[error("the batch is damaged: its checksum is {found}, its trailer has {said}")]
    Checksum {
        /// Computed over the bytes.
        found: Checksum,
        /// Read from the trailer.
        said: Checksum,
    },
    /// The body is larger than any that is ever written, or cannot be decompressed.
    #[error("the body cannot be unpacked")]
    Body,
    /// The first and last sequence id contradict each other or the number of records.
    #[error("its body does not have records {first} to {last}", first = .0.first.0, last = .0.last.0)]
    Bounds(Header),
    /// A record cannot be read.
    #[error("record {id} cannot be read: {why}", id = .id.0)]
    Record { id: SequenceId, why: Malformed },
}

/// A batch that was read and checked: all of its records can be decoded.
#[derive(Clone, Debug)]
pub struct Batch {
    pub header: Header,
    /// The checksum by which the next batch names this one.
    pub checksum: Checksum,
    body: Vec<u8>,
}

impl Batch {
    /// Reads a batch, and decodes every record once to make sure that [`Self::each`] cannot fail halfway.
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

    /// Returns the number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.header.last.0 - self.header.first.0 + 1
    }

    /// Returns the size of the records in bytes, before compression.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Passes every record to `visit`, in order.
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

    /// Passes every record to `visit` and returns the id that the next one would have.
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

/// Returns the format that a batch claims to be in, if this binary reads it.
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
