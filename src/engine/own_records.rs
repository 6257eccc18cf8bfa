//! Which records a thread has made: long work that releases the sequencer between its chunks has to know its own records
//! from those that others made meanwhile.

use std::cell::Cell;

use super::types::SequenceId;

thread_local! {
    static LAST: Cell<SequenceId> = const { Cell::new(SequenceId(0)) };
}

/// Records that this thread has made this record.
pub(super) fn note(id: SequenceId) {
    LAST.set(id);
}

/// Returns the last record that this thread has made, in whichever engine.
#[must_use]
pub fn last() -> SequenceId {
    LAST.get()
}
