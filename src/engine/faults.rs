//! Records that could not be applied to an object. A log that a primary wrote in order has none: they are for people, who
//! need to know which objects were dropped and why.

use std::collections::VecDeque;

use super::core::Core;
use super::state::Engine;
use super::types::{ObjectId, SequenceId};

/// So many are kept by name; all are counted.
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
    /// In words, for status.
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
    /// The record.
    pub record: SequenceId,
    /// The objects that are concerned; those that were there are dropped, unless the reason is a broken chain.
    pub objects: Vec<ObjectId>,
    /// Why.
    pub reason: Reason,
}

/// The last few faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// How many there were.
    pub count: u64,
    last: VecDeque<Fault>,
}

impl Faults {
    /// Restores the count alone.
    #[must_use]
    pub fn counted(count: u64) -> Self {
        Self { count, last: VecDeque::new() }
    }

    /// Those that are kept by name, oldest first.
    #[must_use]
    pub fn last(&self) -> Vec<Fault> {
        self.last.iter().cloned().collect()
    }
}

impl Core {
    /// Notes that the record that is being applied could not be.
    pub(super) fn fault(&mut self, objects: Vec<ObjectId>, reason: Reason) {
        let faults = &mut self.faults;
        faults.count += 1;
        if faults.last.len() == KEPT {
            faults.last.pop_front();
        }
        faults.last.push_back(Fault { record: self.last, objects, reason });
    }
}

impl Engine {
    /// The last few records that could not be applied to an object, oldest first.
    #[must_use]
    pub fn recent_faults(&self) -> Vec<Fault> {
        self.recent_faults.lock().clone()
    }
}
