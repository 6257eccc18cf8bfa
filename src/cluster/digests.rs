//! Digests of the state of a master, by which `moonkeeper verify` compares masters: requests and answers of
//! `POST /api/v1/digest`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::snapshot::{ItemKind, ItemSum, KeyRange, KindSum, RangeDigests};
use crate::engine::types::LogTime;

/// A request to compute digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DigestRequest {
    /// They are computed after the first `Digest` record with this log time or a later one, in milliseconds.
    pub from_ms: u64,
    /// The items that are read; everything if it is missing.
    #[serde(default)]
    pub range: Option<ItemRange>,
}

/// The items of one kind whose positions begin in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemRange {
    pub kind: String,
    /// Those whose position has the first `bits` bits of this one, in hexadecimal digits.
    pub prefix: String,
    /// A multiple of 8.
    pub bits: u8,
}

impl ItemRange {
    /// Returns the range in the words of the engine; `None` if it is none.
    #[must_use]
    pub fn parse(&self) -> Option<KeyRange> {
        let prefix = u64::from_str_radix(&self.prefix, 16).ok()?;
        KeyRange::new(ItemKind::named(&self.kind)?, prefix, self.bits)
    }
}

/// The answer to a request that was not refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DigestsAnswer {
    /// Name of the master.
    pub member: String,
    /// The digests, if they are complete.
    pub digests: Option<StateDigests>,
    /// How far it is, if it takes longer.
    pub progress: Option<DigestsProgress>,
}

/// How far the computation of digests is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DigestsProgress {
    /// The log time that was requested.
    pub from_ms: u64,
    /// It has begun: the record has been applied.
    pub begun: bool,
    /// Objects that were read.
    pub objects: u64,
    /// Objects that there are to read.
    pub of: u64,
}

/// Digests of the state of a master at one record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateDigests {
    /// The log that the record belongs to.
    pub log: String,
    /// The term that the master was in.
    pub term: u64,
    /// The record.
    pub sequence_id: u64,
    /// The digest that the master keeps up to date record by record, in hexadecimal digits.
    pub kept: String,
    /// The digest of everything that was found in its memory; missing if only a range was read.
    pub computed: Option<String>,
    /// What was read, by the kind of the items.
    pub kinds: BTreeMap<String, KindDigests>,
}

/// The items of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KindDigests {
    /// All of them.
    #[serde(flatten)]
    pub sum: RangeDigest,
    /// Those with the same next byte in their position, by that byte. For all objects this is the shard.
    pub parts: BTreeMap<u8, RangeDigest>,
    /// One by one, if there are not too many.
    pub items: Option<Vec<ItemDigest>>,
}

/// Number and digest of items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RangeDigest {
    pub count: u64,
    /// The sum of their hashes, in hexadecimal digits.
    pub digest: String,
}

/// One item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ItemDigest {
    /// Hash of its name, in hexadecimal digits.
    pub position: String,
    /// Hash of all that records say of it, in hexadecimal digits.
    pub digest: String,
    /// The key of an object, the name of a segment, ...
    pub name: String,
    /// What it consists of, for people.
    pub fields: BTreeMap<String, String>,
}

fn hex(word: u64) -> String {
    format!("{word:016x}")
}

impl StateDigests {
    /// Returns the digests of a state in this log and term.
    #[must_use]
    pub fn new(log: String, term: u64, digests: RangeDigests) -> Self {
        let RangeDigests { at, kept, computed, kinds } = digests;
        let kinds = kinds.into_iter().map(|(kind, sum)| (kind.as_str().to_owned(), sum.into()));
        Self {
            log,
            term,
            sequence_id: at.0,
            kept: hex(kept.0),
            computed: computed.map(|digest| hex(digest.0)),
            kinds: kinds.collect(),
        }
    }
}

impl From<ItemSum> for RangeDigest {
    fn from(sum: ItemSum) -> Self {
        Self { count: sum.count, digest: hex(sum.digest.0) }
    }
}

impl From<KindSum> for KindDigests {
    fn from(KindSum { sum, parts, items }: KindSum) -> Self {
        let item = |item: crate::engine::snapshot::ListedItem| {
            let fields = item.description.fields.into_iter().map(|(name, value)| (name.to_owned(), value));
            ItemDigest {
                position: hex(item.position),
                digest: hex(item.digest),
                name: item.description.name,
                fields: fields.collect(),
            }
        };
        Self {
            sum: sum.into(),
            parts: parts.into_iter().map(|(part, sum)| (part, sum.into())).collect(),
            items: items.map(|items| items.into_iter().map(item).collect()),
        }
    }
}

/// Why a master computed no digests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestsRefused {
    #[error("there is no such range of items")]
    NoSuchRange,
    /// Masters might mean different records.
    #[error("its log is at time {} ms already, the digests were to be computed from {} ms on", .now.0, .from.0)]
    TooLate { now: LogTime, from: LogTime },
    #[error("it is computing digests for another request")]
    Busy,
    #[error("it is taking a snapshot")]
    SnapshotUnderWay,
    /// No digest came in time.
    #[error(
        "it has applied no digest of the primary from that time on within {seconds} s; its last record is {applied}"
    )]
    NoRecord { seconds: u64, applied: u64 },
    /// The state was discarded before the record came.
    #[error("it has begun to build its state anew")]
    Replaced,
    /// The primary applies records before they are durable.
    #[error("record {0} did not become durable")]
    NotDurable(u64),
    #[error("{0}")]
    Failed(String),
}

impl DigestsRefused {
    /// Returns the code of the error in JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchRange => "bad_request",
            Self::TooLate { .. } => "too_late",
            Self::Busy => "busy",
            Self::SnapshotUnderWay => "snapshot_under_way",
            Self::NoRecord { .. } => "no_record",
            Self::Replaced => "replaced",
            Self::NotDurable(_) => "not_durable",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns whether the error with this code may be gone in a moment.
    #[must_use]
    pub fn is_passing(code: &str) -> bool {
        ["too_late", "busy", "snapshot_under_way", "replaced", "not_durable"].contains(&code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_or_refused() {
        let range = |kind: &str, prefix: &str, bits| {
            ItemRange { kind: kind.into(), prefix: prefix.into(), bits }.parse()
        };
        assert!(range("object", "ab00000000000000", 8).is_some());
        for (kind, prefix, bits) in [
            ("objects", "0", 0),
            ("object", "x", 0),
            ("object", "0", 7),
            ("object", "0", 64),
            ("task", "", 0),
        ] {
            assert_eq!(range(kind, prefix, bits), None, "{kind} {prefix} {bits}");
        }
    }
}
