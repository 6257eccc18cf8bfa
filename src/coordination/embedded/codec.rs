//! Entries of the journal as bytes.

use bytes::{Buf, BufMut, Bytes, TryGetError};

use crate::coordination::model::entries::{Entry, Redo};
use crate::coordination::types::{KeyValue, LeaseId};

/// Why bytes are not an entry.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("it ends too early")]
    Short,
    #[error("unknown kind {0}")]
    Kind(u8),
    #[error("something follows the entry")]
    Long,
}

impl From<TryGetError> for DecodeError {
    fn from(_: TryGetError) -> Self {
        Self::Short
    }
}

pub(super) fn encode(entry: &Entry, out: &mut Vec<u8>) {
    match entry {
        Entry::Granted { lease, ttl_seconds } => {
            out.put_u8(1);
            out.put_i64_le(lease.0);
            out.put_i64_le(*ttl_seconds);
        }
        Entry::Ended { lease } => {
            out.put_u8(2);
            out.put_i64_le(lease.0);
        }
        Entry::Revision { revision, changes } => {
            out.put_u8(3);
            put_changes(*revision, changes, out);
        }
        Entry::Compacted { revision } => {
            out.put_u8(4);
            out.put_u64_le(*revision);
        }
        Entry::Kept(entry) => {
            out.put_u8(5);
            put_key_value(entry, out);
        }
        Entry::Base { revision, changes } => {
            out.put_u8(6);
            put_changes(*revision, changes, out);
        }
    }
}

pub(super) fn decode(mut bytes: Bytes) -> Result<Entry, DecodeError> {
    let from = &mut bytes;
    let entry = match from.try_get_u8()? {
        1 => Entry::Granted { lease: LeaseId(from.try_get_i64_le()?), ttl_seconds: from.try_get_i64_le()? },
        2 => Entry::Ended { lease: LeaseId(from.try_get_i64_le()?) },
        3 => {
            let (revision, changes) = changes(from)?;
            Entry::Revision { revision, changes }
        }
        4 => Entry::Compacted { revision: from.try_get_u64_le()? },
        5 => Entry::Kept(key_value(from)?),
        6 => {
            let (revision, changes) = changes(from)?;
            Entry::Base { revision, changes }
        }
        kind => return Err(DecodeError::Kind(kind)),
    };
    if from.is_empty() { Ok(entry) } else { Err(DecodeError::Long) }
}

fn put_changes(revision: u64, changes: &[Redo], out: &mut Vec<u8>) {
    out.put_u64_le(revision);
    for change in changes {
        match change {
            Redo::Put(entry) => {
                out.put_u8(1);
                put_key_value(entry, out);
            }
            Redo::Delete(key) => {
                out.put_u8(2);
                put_bytes(key, out);
            }
        }
    }
}

fn changes(from: &mut Bytes) -> Result<(u64, Vec<Redo>), DecodeError> {
    let revision = from.try_get_u64_le()?;
    let mut changes = Vec::new();
    while !from.is_empty() {
        changes.push(match from.try_get_u8()? {
            1 => Redo::Put(key_value(from)?),
            2 => Redo::Delete(bytes(from)?),
            kind => return Err(DecodeError::Kind(kind)),
        });
    }
    Ok((revision, changes))
}

fn put_key_value(entry: &KeyValue, out: &mut Vec<u8>) {
    put_bytes(&entry.key, out);
    put_bytes(&entry.value, out);
    out.put_u64_le(entry.create_revision);
    out.put_u64_le(entry.mod_revision);
    out.put_u64_le(entry.version);
    out.put_i64_le(entry.lease.0);
}

fn key_value(from: &mut Bytes) -> Result<KeyValue, DecodeError> {
    Ok(KeyValue {
        key: bytes(from)?,
        value: bytes(from)?,
        create_revision: from.try_get_u64_le()?,
        mod_revision: from.try_get_u64_le()?,
        version: from.try_get_u64_le()?,
        lease: LeaseId(from.try_get_i64_le()?),
    })
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // Keys and values come in requests of at most 1.5 MiB.
    out.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

fn bytes(from: &mut Bytes) -> Result<Bytes, DecodeError> {
    let length = usize::try_from(from.try_get_u32_le()?).map_err(|_| DecodeError::Short)?;
    if length > from.len() {
        return Err(DecodeError::Short);
    }
    // A copy, so that the value does not keep the bytes of the whole entry in memory.
    Ok(Bytes::copy_from_slice(&from.split_to(length)))
}
