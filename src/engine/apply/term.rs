//! Records about changes of primary, and about the state as a whole.

use std::sync::atomic::Ordering;

use crate::engine::core::Core;
use crate::engine::digest;
use crate::engine::doubts::Mismatch;
use crate::engine::reign::{Reign, TermReport};
use crate::engine::state::Sequencer;
use crate::engine::types::Digest;
use crate::engine::types::{LogTime, SegmentNumber, SequenceId, Term};

impl Sequencer<'_> {
    /// Cleans up after the old primary, at a cost for each client and segment and none for objects: replicas in
    /// unmounted segments cannot be read anyway, reservations stay as they are (R4), and so do replicated leases.
    /// `told` has the fields of the record; the rest follows from the state.
    pub(super) fn apply_new_term(&mut self, id: SequenceId, at: LogTime, told: Reign) {
        planted!(ForgetReservations => self.forget_reservations(id));
        planted!(ForgetUnleased => self.forget_unleased(id, at));
        let core = &mut *self.core;
        let reign = Reign {
            began: id,
            since: at,
            // An earlier hold goes on: it may protect leases that were granted two primaries ago.
            hold_until: core.reign.hold_until.max(told.hold_until),
            first_segment: SegmentNumber(core.next_segment),
            resigned: core.reign.resigned,
            ..told
        };
        core.set_reign(reign);
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
            term: reign.term,
            began: id,
            clients: clients.len(),
            segments: core.segments.len(),
            objects: counts.objects.load(Ordering::Relaxed),
            bytes: counts.allocated.load(Ordering::Relaxed),
            reservations: core.processing.len() + core.replications.len() + core.discarded.len(),
            hold_ms: reign.hold_until.0.saturating_sub(at.0),
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
                self.unsettle(handle, id, super::Fate::Free);
            }
        }
    }

    /// Drops the object whose lease ended first: a bug on purpose.
    #[cfg(feature = "planted")]
    fn forget_unleased(&mut self, id: SequenceId, at: LogTime) {
        let first = self.core.eviction.candidates(Default::default(), at, false).next();
        if let Some(handle) = first.and_then(|(_, object)| self.engine.handle(&self.core, object)) {
            self.unsettle(handle, id, super::Fate::Free);
        }
    }

    pub(super) fn apply_resign(&mut self, id: SequenceId, term: Term, hold_until: LogTime) {
        let reign = self.core.reign;
        // A `Resign` of another term says nothing about the leases of this one.
        if reign.term == term {
            let hold_until = reign.hold_until.max(hold_until);
            self.core.set_reign(Reign { resigned: id, hold_until, ..reign });
        }
    }

    /// Compares our digest with the one that the primary had before this record. The log is the truth: if ours differs,
    /// this replica doubts its state.
    pub(super) fn apply_digest(&mut self, id: SequenceId, digest: Digest) {
        if digest != self.core.digest() {
            let own = self.core.digest();
            self.core.doubts.digest(Mismatch { record: id, own });
        } else {
            self.core.digest_matched = id;
        }
    }
}

impl Core {
    fn set_reign(&mut self, reign: Reign) {
        self.digest.subtract(digest::reign(&self.reign));
        self.reign = reign;
        self.digest.add(digest::reign(&self.reign));
    }
}
