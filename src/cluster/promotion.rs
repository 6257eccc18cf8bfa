//! Why and how a master took over, as it reports it to people and to the operator.

use serde::{Deserialize, Serialize};

/// Why there was a promotion. The words in JSON must not change: masters and operators of other versions read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromotionReason {
    /// The log was empty: there never was a primary.
    #[serde(rename = "first start")]
    FirstStart,
    /// The primary handed over.
    #[serde(rename = "switchover")]
    Switchover,
    /// The process of the primary was found dead.
    #[serde(rename = "the primary died")]
    ProcessDied,
    /// The lease of the primary ran out, or was revoked.
    #[serde(rename = "the lease ran out")]
    LeaseEnded,
    /// A reason of another version, in its words.
    #[serde(untagged)]
    Other(String),
}

impl Default for PromotionReason {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl PromotionReason {
    /// Returns the words that stand for it in JSON.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::FirstStart => "first start",
            Self::Switchover => "switchover",
            Self::ProcessDied => "the primary died",
            Self::LeaseEnded => "the lease ran out",
            Self::Other(words) => words,
        }
    }
}

/// The report of a promotion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromotionReport {
    /// The term that began with it.
    pub term: u64,
    /// Name of the new primary.
    pub primary: String,
    pub reason: PromotionReason,
    /// When, in milliseconds since 1970 by the wall clock of the new primary.
    pub at_ms: u64,
    /// From when the election key was seen absent until the address of the new primary was published.
    pub total_ms: u64,
    /// From the won election until the address was published.
    pub after_election_ms: u64,
    /// Objects in the state at the promotion.
    pub objects: u64,
    /// Objects that were removed because their memory is gone.
    pub objects_removed: u64,
    /// Size of these objects in bytes.
    pub bytes_removed: u64,
    /// Clients of an earlier primary that have to rejoin.
    pub inherited_clients: u64,
    /// How long, from its first record on, the new primary neither evicts nor removes what the old one may have
    /// promised to readers (R6).
    pub hold_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_words_that_other_versions_read() {
        let all = ["first start", "switchover", "the primary died", "the lease ran out", "a new word"];
        for words in all {
            let json = format!("{words:?}");
            let reason: PromotionReason = serde_json::from_str(&json).unwrap();
            assert_eq!((reason.as_str(), serde_json::to_string(&reason).unwrap()), (words, json));
            assert_eq!(matches!(reason, PromotionReason::Other(_)), words == "a new word");
        }
    }
}
