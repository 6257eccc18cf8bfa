//! Signs that this replica is not what the log says it should be. Not state: the log is the truth, and a replica that
//! doubts itself is rebuilt.

use super::types::{ObjectId, SequenceId};

/// Signs that this replica is not what the log says it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// The first `Digest` that did not match.
    pub digest_mismatch: Option<SequenceId>,
    /// How many did not.
    pub digest_mismatches: u64,
    /// The first record that did not follow the last one about its object.
    pub broken_chain: Option<BrokenChain>,
    /// How many did not.
    pub broken_chains: u64,
}

/// A record about an object that is not there, or whose last record is not the one that it should follow: a change of
/// that object was lost or came too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChain {
    /// The object.
    pub object: ObjectId,
    /// The record.
    pub record: SequenceId,
    /// The record that it should follow.
    pub after: SequenceId,
    /// The last record about the object here, if the object is here.
    pub found: Option<SequenceId>,
}

impl Doubts {
    pub(super) fn digest(&mut self, record: SequenceId) {
        self.digest_mismatches += 1;
        self.digest_mismatch.get_or_insert(record);
    }

    pub(super) fn chain(&mut self, broken: BrokenChain) {
        self.broken_chains += 1;
        self.broken_chain.get_or_insert(broken);
    }
}
