//! The beginning and the end of a term, and what both mean for read leases (R6).

use crate::engine::client::{Client, KnownClient};
use crate::engine::divergence::{BrokenChain, Divergence};
use crate::engine::record::Record;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::term_state::Primary;
use crate::engine::types::{LogTime, SequenceId, Term, Uuid};

impl Sequencer<'_> {
    /// Begins a term by its first record, `NewTerm`, after the whole durable prefix is applied. The old primary may
    /// answer reads for up to `answers_for` milliseconds more, and each of them grants a lease that may not be in the
    /// log; a negative number says how long ago the old primary is known to have stopped answering. Only if it handed
    /// over, or if there never was one, is there no hold.
    pub fn begin_term(&mut self, term: Term, primary: &Primary<'_>, answers_for: i64) -> SequenceId {
        let term_state = &self.core.term_state;
        let unpromised = self.core.last == SequenceId(0) || term_state.has_resigned(self.core.last);
        let settings = &self.engine.settings;
        let hold_until = if unpromised {
            LogTime(0)
        } else {
            LogTime(self.now.0.saturating_add_signed(answers_for))
                .plus(settings.lease_ttl_ms.max(term_state.lease_ttl))
        };
        let hold_until = if planted!(SkipHold) { LogTime(0) } else { hold_until };
        let kept_tasks = u32::try_from(settings.max_finished_tasks).unwrap_or(u32::MAX);
        let lease_ttl = settings.lease_ttl_ms;
        let Primary { name: primary, boot_id, leader_ttl } = *primary;
        self.commit(&Record::NewTerm {
            term,
            primary,
            boot_id,
            hold_until,
            lease_ttl,
            leader_ttl,
            kept_tasks,
        })
    }

    /// Commits a `Digest` record, with which standbys compare their own digest.
    pub fn commit_digest(&mut self) -> SequenceId {
        let digest = self.core.digest();
        self.commit(&Record::Digest { digest })
    }

    /// Returns whether the hold is on: readers may have leases that the log does not contain, so nothing is evicted,
    /// and nothing is removed unless forced (R6).
    pub(in crate::engine) fn in_reader_hold(&self) -> bool {
        self.now < self.core.term_state.hold_until
    }

    /// Returns when bytes that leave an object now, with `lease` on it, can be allocated again (INV-7).
    pub(super) fn release_at(&self, lease: LogTime) -> LogTime {
        self.now.plus(self.engine.settings.discarded_ms()).max(self.core.term_state.hold_until).max(lease)
    }
}

impl Engine {
    /// Commits `Resign`, the last record of the term, to hand over. The caller must have stopped answering reads before
    /// it wrote the last leases to the log. If it could not write all of them, `complete` is false and the record names
    /// the time by which the longest ends, for which the successor waits (R6). If the hand-over fails and this primary
    /// goes on, it commits another record and waits until that is durable before it answers a read: as long as `Resign`
    /// is the last record, a successor relies on it.
    pub fn resign(&self, now: LogTime, complete: bool) -> SequenceId {
        let mut sequencer = self.sequencer(now);
        let term = sequencer.core.term_state.term;
        let hold_until = if complete { LogTime(0) } else { sequencer.now.plus(self.settings.lease_ttl_ms) };
        sequencer.commit(&Record::Resign { term, hold_until })
    }

    /// Returns the inherited clients: those of an earlier primary that have not reported their segments to this one
    /// yet.
    #[must_use]
    pub fn inherited(&self) -> Vec<Uuid> {
        let clients = self.clients.read();
        clients.iter().filter(|(_, client)| client.inherited).map(|(id, _)| *id).collect()
    }

    /// Returns whether segments of earlier terms are closed to new objects because their clients have not reported them
    /// to this primary yet. Once none is, none will be again in this term.
    #[must_use]
    pub fn has_closed_segments(&self) -> bool {
        let first = self.term_state().first_segment;
        let is_closed = |client: &Client| client.inherited && client.segments.range(..first).next().is_some();
        self.clients.read().values().any(is_closed)
    }

    /// Returns all clients: those that have joined, are inherited, or own segments.
    #[must_use]
    pub fn known_clients(&self) -> Vec<KnownClient> {
        let known = |(id, client): (&Uuid, &Client)| KnownClient { id: *id, inherited: client.inherited };
        self.clients.read().iter().map(known).collect()
    }

    /// Takes the signs of divergence that were found since the last call.
    #[must_use]
    pub fn take_divergence(&self) -> Divergence {
        std::mem::take(&mut self.sequencer(LogTime(0)).core.divergence)
    }

    /// Returns the first `Digest` record that this replica did not match.
    #[must_use]
    pub fn digest_mismatch(&self) -> Option<SequenceId> {
        self.divergence().digest_mismatch.map(|mismatch| mismatch.record)
    }

    /// Returns the first record that did not follow the last one about its object.
    #[must_use]
    pub fn broken_chain(&self) -> Option<BrokenChain> {
        self.divergence().broken_chain
    }
}
