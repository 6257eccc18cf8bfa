//! Faults: records that could not be applied to an object. A log that a primary wrote in order has none. They are
//! reported in status, because administrators need to know which objects were dropped and why.

use std::collections::VecDeque;

use super::types::{ObjectId, SequenceId};

/// Most faults that are kept with their details; all are counted.
const KEPT: usize = 8;

/// Why a record could not be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A new object has the key of one that is there.
    KeyTaken,
    /// A place is in a segment that is not mounted.
    UnknownSegment,
    /// A place is not free, or not inside its segment.
    Overlap,
    /// The object is not there, or its last record is another one.
    BrokenChain,
    /// Bytes that became free were free already.
    NotTaken,
}

impl Reason {
    /// Returns the reason in words, for status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyTaken => "the key is taken",
            Self::UnknownSegment => "the segment is not mounted",
            Self::Overlap => "the bytes are not free",
            Self::BrokenChain => "the record does not follow the last one about the object",
            Self::NotTaken => "the bytes are free already",
        }
    }
}

/// A record that could not be applied to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub record: SequenceId,
    /// The objects that are concerned; those that were there are dropped, unless the reason is a broken chain.
    pub objects: Vec<ObjectId>,
    pub reason: Reason,
}

/// Count of all faults, and the details of the last few.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub count: u64,
    last: VecDeque<Fault>,
}

impl Faults {
    /// Restores the count alone, without details.
    #[must_use]
    pub fn counted(count: u64) -> Self {
        Self { count, last: VecDeque::new() }
    }

    /// Returns the faults whose details are kept, oldest first.
    #[must_use]
    pub fn last(&self) -> Vec<Fault> {
        self.last.iter().cloned().collect()
    }

    /// Counts a fault and keeps its details, instead of the oldest if there are many.
    pub(super) fn add(&mut self, fault: Fault) {
        self.count += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(fault);
    }
}
