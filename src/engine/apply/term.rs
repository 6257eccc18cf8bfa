//! Records about changes of primary, and about the state as a whole.

use std::sync::atomic::Ordering;

use crate::engine::core::Core;
use crate::engine::digest;
use crate::engine::divergence::Mismatch;
use crate::engine::state::Sequencer;
use crate::engine::term_state::{TermReport, TermState};
use crate::engine::types::Digest;
use crate::engine::types::{LogTime, SegmentNumber, SequenceId, Term};

impl Sequencer<'_> {
    /// Cleans up after the old primary, at a cost for each client and segment and none for objects: replicas in
    /// unmounted segments cannot be read anyway, reservations stay as they are (R4), and so do replicated leases.
    /// `told` has the fields of the record; the rest follows from the state.
    pub(super) fn apply_new_term(&mut self, id: SequenceId, at: LogTime, told: TermState) {
        planted!(ForgetReservations => self.forget_reservations(id));
        planted!(ForgetUnleased => self.forget_unleased(id, at));
        let core = &mut *self.core;
        let term_state = TermState {
            began: id,
            since: at,
            // An earlier hold goes on: it may protect leases that were granted two primaries ago.
            hold_until: core.term_state.hold_until.max(told.hold_until),
            first_segment: SegmentNumber(core.next_segment),
            resigned: core.term_state.resigned,
            ..told
        };
        core.set_term_state(term_state);
        core.forget_tasks();
        core.close_all();
        let mut clients = self.engine.clients.write();
        for (name, client) in clients.iter_mut() {
            core.digest.subtract(digest::client(*name, client));
            client.joined = false;
            client.inherited = true;
            client.last_record = id;
            core.digest.add(digest::client(*name, client));
        }
        let counts = &self.engine.counts;
        core.report = TermReport {
            term: term_state.term,
            began: id,
            clients: clients.len(),
            segments: core.segments.len(),
            objects: counts.objects.load(Ordering::Relaxed),
            bytes: counts.allocated.load(Ordering::Relaxed),
            reservations: core.processing.len() + core.copy_moves.len() + core.discarded.len(),
            hold_ms: term_state.hold_until.0.saturating_sub(at.0),
            objects_removed: 0,
            bytes_removed: 0,
        };
    }

    /// Frees the bytes of writes under way: a bug on purpose.
    #[cfg(feature = "planted")]
    fn forget_reservations(&mut self, id: SequenceId) {
        let writes: Vec<_> = self.core.processing.keys().copied().collect();
        for write in writes {
            if let Some(handle) = self.engine.handle(&self.core, write) {
                self.remove_object(handle, id, super::Fate::Free);
            }
        }
    }

    /// Drops the object whose lease ended first: a bug on purpose.
    #[cfg(feature = "planted")]
    fn forget_unleased(&mut self, id: SequenceId, at: LogTime) {
        let first = self.core.eviction.candidates(Default::default(), at, false).next();
        if let Some(handle) = first.and_then(|(_, object)| self.engine.handle(&self.core, object)) {
            self.remove_object(handle, id, super::Fate::Free);
        }
    }

    pub(super) fn apply_resign(&mut self, id: SequenceId, term: Term, hold_until: LogTime) {
        let term_state = self.core.term_state;
        // A `Resign` of another term says nothing about the leases of this one.
        if term_state.term == term {
            let hold_until = term_state.hold_until.max(hold_until);
            self.core.set_term_state(TermState { resigned: id, hold_until, ..term_state });
        }
    }

    /// Compares our digest with the one that the primary had before this record. The log is the truth: if ours differs,
    /// this replica doubts its state.
    pub(super) fn apply_digest(&mut self, id: SequenceId, digest: Digest) {
        if digest != self.core.digest() {
            let own = self.core.digest();
            self.core.divergence.digest(Mismatch { record: id, own });
        } else {
            self.core.digest_matched = id;
        }
        self.begin_planned();
    }
}

impl Core {
    fn set_term_state(&mut self, term_state: TermState) {
        self.digest.subtract(digest::term_state(&self.term_state));
        self.term_state = term_state;
        self.digest.add(digest::term_state(&self.term_state));
    }
}
