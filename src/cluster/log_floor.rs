//! Up to where the log may be deleted: the value of the `floor` key, what a member still needs of the log, and what a
//! primary reports about both.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::log_end::LogId;
use crate::engine::types::SequenceId;

/// The value of the `floor` key: batches of this log up to this record may be deleted. It names its log, so that it
/// means nothing for another one that comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "FloorText", try_from = "FloorText")]
pub struct LogFloor {
    pub log: LogId,
    /// The last record that may be missing.
    pub last: SequenceId,
}

impl LogFloor {
    /// Returns the value of the key. Equal floors have equal bytes, so that a transaction can compare them.
    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        format!(r#"{{"log":"{}","last":{}}}"#, self.log, self.last.0).into()
    }

    /// Reads the value of the key.
    ///
    /// # Errors
    ///
    /// If it is not the value of a `floor` key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// [`LogFloor`] in JSON. A log id uses all 64 bits, which some JSON readers cannot represent as a number, so it is text.
#[derive(Serialize, Deserialize)]
struct FloorText {
    log: String,
    last: u64,
}

impl From<LogFloor> for FloorText {
    fn from(floor: LogFloor) -> Self {
        Self { log: floor.log.to_string(), last: floor.last.0 }
    }
}

impl TryFrom<FloorText> for LogFloor {
    type Error = std::num::ParseIntError;

    fn try_from(text: FloorText) -> Result<Self, Self::Error> {
        Ok(Self { log: LogId(u64::from_str_radix(&text.log, 16)?), last: SequenceId(text.last) })
    }
}

/// What a standby still has to read of the log, as its member key says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogNeed {
    /// The log that it follows; empty while it knows none, which counts for whatever log there is.
    pub log: String,
    /// It has everything up to this record, and reads what comes after it.
    pub after: u64,
}

impl LogNeed {
    /// Returns whether it is about this log.
    #[must_use]
    pub fn is_of(&self, log: LogId) -> bool {
        self.log.is_empty() || self.log == log.to_string()
    }

    /// Returns whether a log that keeps what this need asks for has what `other` asks for, too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.after <= other.after && (self.log.is_empty() || self.log == other.log)
    }
}

/// The floor of the log as a primary reports it in its member key and its status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FloorState {
    /// Batches up to this record may be deleted; zero if none may.
    pub floor: u64,
    /// Why the floor is where it is, or batches below it are still there.
    pub held_by: Option<String>,
    /// The next snapshots move it; else something is missing that only a person can change.
    pub can_move: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_reads_back_and_anything_else_is_refused() {
        let floor = LogFloor { log: LogId(u64::MAX), last: SequenceId(70) };
        assert_eq!(&floor.to_bytes()[..], br#"{"log":"ffffffffffffffff","last":70}"#);
        assert_eq!(LogFloor::from_bytes(&floor.to_bytes()).unwrap(), floor);
        for wrong in ["", "70", r#"{"log":"x","last":1}"#, r#"{"log":"7"}"#, r#"{"log":"7","last":-1}"#] {
            assert!(LogFloor::from_bytes(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_lower_need_covers_a_higher_one_of_the_same_log() {
        let need = |log: &str, after| LogNeed { log: log.to_owned(), after };
        assert!(need("", 3).covers(&need("0000000000000007", 3)));
        assert!(need("7", 3).covers(&need("7", 4)) && !need("7", 4).covers(&need("7", 3)));
        assert!(!need("7", 3).covers(&need("8", 4)) && !need("7", 3).covers(&need("", 4)));
        assert!(need("", 0).is_of(LogId(7)) && !need("7", 0).is_of(LogId(7)));
        assert!(need("0000000000000007", 0).is_of(LogId(7)));
    }
}
