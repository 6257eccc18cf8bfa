//! What a recovery has decided: the value of the key `recovered`, which `moonkeeper recover` writes in the transaction
//! that begins a new log. It is about that log alone, and is never changed before the next recovery.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::log_end::{Latest, LogId};
use crate::engine::types::{LogTime, SequenceId};

/// Most superseded logs that are remembered. A master that was away for more recoveries than this has to be given an
/// empty data directory.
pub const MAX_SUPERSEDED: usize = 64;

/// A recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "RecoveredText", try_from = "RecoveredText")]
pub struct Recovered {
    /// The log that it has begun.
    pub log: LogId,
    /// The batch that the first batch of this log follows: a snapshot that was taken after it is the state that this
    /// log continues from, although it is of another log. `None` if the log begins at record 1.
    pub base: Option<Latest>,
    /// The first record that the recovery itself has written: the terms before it are not the last that the old log had.
    pub began: SequenceId,
    /// Logs that this one replaces, the newest first: a master that knows one of them drops what it knows.
    pub supersedes: Vec<LogId>,
    /// Before this log time no bytes are given to a writer: clients may still be writing where a record that was dropped
    /// has told them to (R4).
    pub no_starts_before: LogTime,
}

/// Why the value of the key cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the key `recovered` in etcd cannot be read: {0}")]
pub struct RecoveredError(String);

impl Recovered {
    /// Returns the value of the key.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        // A struct of text, numbers and lists can always be written as JSON.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads the value of the key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecoveredError> {
        serde_json::from_slice(bytes).map_err(|why| RecoveredError(why.to_string()))
    }

    /// Returns whether a master that knows the batch `known` has to drop what it knows, because the log that ends at
    /// `end` is the one of this recovery and was begun to replace the log of that batch.
    #[must_use]
    pub fn replaces(&self, known: &Latest, end: &Latest) -> bool {
        end.log == self.log && known.log != self.log && self.supersedes.contains(&known.log)
    }
}

/// [`Recovered`] in JSON, with ids as text like in the other keys.
#[derive(Serialize, Deserialize)]
struct RecoveredText {
    log: String,
    base: Option<Latest>,
    began: u64,
    supersedes: Vec<String>,
    no_starts_before_ms: u64,
}

impl From<Recovered> for RecoveredText {
    fn from(value: Recovered) -> Self {
        Self {
            log: value.log.to_string(),
            base: value.base,
            began: value.began.0,
            supersedes: value.supersedes.iter().map(LogId::to_string).collect(),
            no_starts_before_ms: value.no_starts_before.0,
        }
    }
}

impl TryFrom<RecoveredText> for Recovered {
    type Error = String;

    fn try_from(text: RecoveredText) -> Result<Self, Self::Error> {
        if text.supersedes.len() > MAX_SUPERSEDED {
            return Err(format!(
                "it names {} superseded logs, at most {MAX_SUPERSEDED} are allowed",
                text.supersedes.len()
            ));
        }
        let supersedes: Result<_, _> = text.supersedes.iter().map(|log| log_id(log)).collect();
        Ok(Self {
            log: log_id(&text.log)?,
            base: text.base,
            began: SequenceId(text.began),
            supersedes: supersedes?,
            no_starts_before: LogTime(text.no_starts_before_ms),
        })
    }
}

/// Reads the id of a log as it is written in keys and messages.
pub fn log_id(text: &str) -> Result<LogId, String> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| digits);
    id.map(LogId).ok_or_else(|| format!("'{text}' is not the id of a log: 16 hexadecimal digits"))
}

/// Returns the superseded logs of the next recovery: those that are given, then those of the recovery before, each once
/// and at most [`MAX_SUPERSEDED`].
#[must_use]
pub fn superseded(logs: impl IntoIterator<Item = LogId>, before: Option<&Recovered>) -> Vec<LogId> {
    let mut all: Vec<LogId> = Vec::new();
    for log in logs.into_iter().chain(before.into_iter().flat_map(|before| before.supersedes.iter().copied()))
    {
        if all.len() < MAX_SUPERSEDED && !all.contains(&log) {
            all.push(log);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::log_end::Checksum;
    use crate::engine::types::Term;

    fn at(log: u64, last: u64) -> Latest {
        Latest { log: LogId(log), term: Term(3), last: SequenceId(last), checksum: Checksum(5) }
    }

    fn recovered() -> Recovered {
        Recovered {
            log: LogId(9),
            base: Some(at(7, 40)),
            began: SequenceId(41),
            supersedes: vec![LogId(7), LogId(6)],
            no_starts_before: LogTime(1_700_000_600_000),
        }
    }

    #[test]
    fn it_is_kept_as_text_that_people_can_read() {
        let bytes = recovered().to_bytes();
        let base = r#"{"log":"0000000000000007","term":3,"last":40,"checksum":"0000000000000005"}"#;
        let text = format!(
            r#"{{"log":"0000000000000009","base":{base},"began":41,"supersedes":["0000000000000007","0000000000000006"],"no_starts_before_ms":1700000600000}}"#
        );
        assert_eq!(bytes, text.as_bytes());
        assert_eq!(Recovered::from_bytes(&bytes).unwrap(), recovered());
        for bad in ["", "{}", &text.replace("0006", "000x"), &text.replace("\"0000000000000006\"", "\"6\"")] {
            assert!(Recovered::from_bytes(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = Recovered { supersedes: (0..65).map(LogId).collect(), ..recovered() };
        assert!(Recovered::from_bytes(&long.to_bytes()).unwrap_err().to_string().contains("65"));
    }

    #[test]
    fn only_named_logs_are_replaced_and_only_by_the_log_of_the_recovery() {
        let it = recovered();
        assert!(it.replaces(&at(7, 1000), &at(9, 41)), "however long it was");
        assert!(!it.replaces(&at(5, 1), &at(9, 41)), "a log that is not named");
        assert!(!it.replaces(&at(7, 1), &at(8, 41)), "the key is about another log");
        assert!(!it.replaces(&at(9, 50), &at(9, 41)), "the log of the recovery was shortened");
    }

    #[test]
    fn the_list_of_superseded_logs_is_bounded_and_names_each_once() {
        assert_eq!(superseded([LogId(9), LogId(7)], Some(&recovered())), [LogId(9), LogId(7), LogId(6)]);
        let many = superseded((0..200).map(LogId), Some(&recovered()));
        assert_eq!((many.len(), many[0]), (MAX_SUPERSEDED, LogId(0)));
    }
}
