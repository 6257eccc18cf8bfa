//! The identity of a log, and where it ends: the value of the `latest` key.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine::types::{SequenceId, Term};

/// The id of a log: random, made with the log. It tells two logs under one name apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

/// The checksum of a batch, by which the next one names it. Zero means "before the first batch".
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

/// The end of the log: the value of the `latest` key, as text that a person can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "LatestText", try_from = "LatestText")]
pub struct Latest {
    pub log: LogId,
    /// The term of the last batch.
    pub term: Term,
    /// The last record of the last batch.
    pub last: SequenceId,
    /// The checksum of the last batch.
    pub checksum: Checksum,
}

/// Why the value of the `latest` key cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the end of the log in etcd cannot be read: {0}")]
pub struct LatestError(String);

impl LatestError {
    /// Returns the cause alone.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl Latest {
    /// Returns the value of the key. Equal ends have equal bytes, so that a transaction can compare them.
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

/// [`Latest`] in JSON. Log id and checksum use all 64 bits, which some JSON readers cannot represent as a number, so
/// they are text.
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

/// The last batch that a master knows to be durable. Terms and ids are comparable within one log only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(pub Latest);
