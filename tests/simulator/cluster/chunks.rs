//! Admission of long work as a master has it, in a world where time stands still while a call is carried out.

use std::time::Duration;

use moonkeeper::engine::chunks;
use moonkeeper::engine::types::SequenceId;
use moonkeeper::replication::admission::{Admission, ChunksAhead};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::queue_space::{Permit, Ticket};
use moonkeeper::replication::time::Monotonic;

/// More than any record of these clients takes.
pub const RECORD: usize = 300;

/// Admission of long work, chunk by chunk.
pub struct Chunks<'r> {
    incarnation: &'r Incarnation,
    now: Monotonic,
    permit: Option<Permit<'r>>,
    /// The permit of the first chunk, if there is one already.
    first: Option<Permit<'r>>,
    /// Its place in the line for space in the queue, with which it goes on later.
    ticket: &'r mut Option<Ticket>,
    ahead: ChunksAhead,
    pub refused: bool,
}

impl<'r> Chunks<'r> {
    pub fn new(
        incarnation: &'r Incarnation,
        now: Monotonic,
        first: Option<Permit<'r>>,
        ticket: &'r mut Option<Ticket>,
    ) -> Self {
        let ahead = ChunksAhead::default();
        Self { incarnation, now, permit: None, first, ticket, ahead, refused: false }
    }
}

impl chunks::Chunks for Chunks<'_> {
    /// Whether the next chunk may begin. Time stands still here: work that has to wait stops, and goes on with its ticket.
    fn next_chunk(&mut self) -> bool {
        self.ahead.end_chunk();
        self.permit = self.first.take();
        if self.permit.is_some() {
            return true;
        }
        if self.ahead.is_full(self.incarnation.gate.durable()) {
            self.refused = true;
            return false;
        }
        match self.incarnation.admit(self.now, RECORD, self.ticket, Duration::ZERO) {
            Admission::Admitted(permit) => self.permit = Some(permit),
            Admission::Waiting | Admission::Refused(_) => self.refused = true,
        }
        self.permit.is_some()
    }

    fn made(&mut self, last: SequenceId) {
        self.ahead.made(last);
    }
}
