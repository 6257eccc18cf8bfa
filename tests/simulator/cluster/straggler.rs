//! Calls that outlive their connection: a removal that goes on when the port is closed, and the writing down of promises
//! beside the role's own work.

use std::sync::Arc;

use moonkeeper::engine::types::SequenceId;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::{FlushId, Input};
use moonkeeper::replication::term_guard::TermGuard;
use moonkeeper::replication::time::LogClock;

use super::clients::Op;
use super::plan::{MS, SECOND};
use super::{Event, Sim, searches};

/// A removal by pattern that is under way.
pub struct Straggler {
    guard: TermGuard,
    incarnation: Arc<Incarnation>,
    clock: LogClock,
    prefix: String,
}

impl Sim {
    /// The port is about to be closed, and a call does not end with it.
    pub fn leave_straggler(&mut self, index: usize, incarnation: &Arc<Incarnation>, clock: LogClock) {
        if self.calm || !self.rng.percent(20) {
            return;
        }
        let Some(guard) = incarnation.guards.guard() else { return };
        let (prefix, delay) = (self.prefix(), self.rng.below(4 * SECOND));
        // A call that is between two chunks sees in time that it was cancelled; one that is inside of one does not.
        let delay = if self.rng.percent(70) { delay / 8 } else { delay };
        let to = self.process(index);
        self.masters[index].straggler =
            Some(Straggler { guard, incarnation: Arc::clone(incarnation), clock, prefix });
        self.after(delay, Event::Straggle { to });
    }

    /// It makes one more change, and is done.
    pub fn straggle(&mut self, index: usize) {
        let now = self.clock(index);
        let Some(Straggler { guard, incarnation, clock, prefix }) = self.masters[index].straggler.take()
        else {
            return;
        };
        note!(self, "m{index} goes on to remove ^{prefix}");
        let op = Op::RemoveMatching { prefix: prefix.clone(), force: false };
        searches::remove(&incarnation.engine, &prefix, false, clock.at(now));
        let (uuid, after) = (self.clients[0].uuid, SequenceId(incarnation.engine.applied().0));
        self.model.called(uuid, 0, &op, (after, after));
        drop(guard);
        self.compare(index);
    }

    /// Promises to readers are written down; now and then there is no time for all of them.
    pub fn flush_leases(&mut self, index: usize, flush: FlushId, incarnation: &Incarnation, clock: LogClock) {
        let at = clock.at(self.clock(index));
        let mut steps = if self.rng.percent(10) { self.rng.below(300) } else { u64::MAX };
        let mut go_on = || {
            steps = steps.saturating_sub(1);
            steps > 0
        };
        let flushed = incarnation.engine.flush_leases_while(at, &mut go_on);
        let (written, complete) = flushed;
        note!(self, "m{index} wrote {written} promises down, all: {complete}");
        self.input(index, Input::LeasesFlushed { flush, written, complete });
    }

    /// A standby loses its connection to the primary for a while.
    pub fn lose_peer(&mut self, index: usize) {
        let long = 100 * MS + self.rng.below(4 * SECOND);
        note!(self, "m{index} loses its connection to the primary for {long}");
        self.masters[index].disconnected_until = self.now + long;
        let boot = Self::boot_id(self.process(index));
        self.disconnect(index, boot);
    }
}
