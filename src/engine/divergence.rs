//! Signs that this replica diverges from the log. Not state: the log is the truth, and a replica that doubts its state
//! is rebuilt.

use super::types::{ObjectId, SequenceId};
use crate::engine::types::Digest;

/// Signs that this replica diverges from the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divergence {
    /// The first `Digest` that did not match.
    pub digest_mismatch: Option<Mismatch>,
    pub digest_mismatches: u64,
    /// The first record that did not follow the last one about its object.
    pub broken_chain: Option<BrokenChain>,
    pub broken_chains: u64,
    /// The first record that was not the next one.
    pub out_of_order: Option<OutOfOrder>,
    pub records_out_of_order: u64,
}

/// A `Digest` that does not match the state of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub record: SequenceId,
    /// The digest of this replica at that record.
    pub own: Digest,
}

/// A record that was not applied because it is not the next one: records were lost, came twice, or this state took a
/// change that is not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfOrder {
    /// The record that would have been the next one.
    pub expected: SequenceId,
    /// The record that came instead of it.
    pub found: SequenceId,
}

/// A record about an object that is not there, or whose last record is not the one that it should follow: a change of
/// that object was lost or came too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChain {
    pub object: ObjectId,
    pub record: SequenceId,
    /// The record that it should follow.
    pub after: SequenceId,
    /// The last record about the object here, if the object is here.
    pub found: Option<SequenceId>,
}

impl Divergence {
    /// Returns whether there is no sign of divergence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds signs that were seen later.
    pub fn add(&mut self, later: &Self) {
        self.digest_mismatches += later.digest_mismatches;
        self.digest_mismatch = self.digest_mismatch.or(later.digest_mismatch);
        self.broken_chains += later.broken_chains;
        self.broken_chain = self.broken_chain.or(later.broken_chain);
        self.records_out_of_order += later.records_out_of_order;
        self.out_of_order = self.out_of_order.or(later.out_of_order);
    }

    pub(super) fn digest(&mut self, mismatch: Mismatch) {
        self.digest_mismatches += 1;
        self.digest_mismatch.get_or_insert(mismatch);
    }

    pub(super) fn order(&mut self, wrong: OutOfOrder) {
        self.records_out_of_order += 1;
        self.out_of_order.get_or_insert(wrong);
    }

    pub(super) fn chain(&mut self, broken: BrokenChain) {
        self.broken_chains += 1;
        self.broken_chain.get_or_insert(broken);
    }
}
