//! The beginning and the end of a term, and what both mean for promises to readers (R6).

use crate::engine::client::{Client, KnownClient};
use crate::engine::doubts::{BrokenChain, Doubts};
use crate::engine::record::Record;
use crate::engine::reign::Primary;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{LogTime, SequenceId, Term, Uuid};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

impl Sequencer<'_> {
    /// Begins a term: the first record of every primary, after the whole durable prefix is applied. The old primary may
    /// answer reads for up to `answers_for` milliseconds more, and every one of them is a promise that may be nowhere in
    /// the log; a negative number says how long ago it was known to answer no more. Only if it handed over, or if there never was one, is there nothing to wait for.
    pub fn begin_term(&mut self, term: Term, primary: &Primary<'_>, answers_for: i64) -> SequenceId {
        let reign = &self.core.reign;
        let unpromised = self.core.last == SequenceId(0) || reign.has_resigned(self.core.last);
        let rules = &self.engine.rules;
        let hold_until = if unpromised {
            LogTime(0)
        } else {
            LogTime(self.now.0.saturating_add_signed(answers_for)).plus(rules.lease_ttl.max(reign.lease_ttl))
        };
        #[cfg(feature = "planted")]
        let hold_until = if planted::active(Bug::SkipHold) { LogTime(0) } else { hold_until };
        let kept_tasks = u32::try_from(rules.max_finished_tasks).unwrap_or(u32::MAX);
        let lease_ttl = rules.lease_ttl;
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

    /// Writes the digest down, for others to compare theirs with.
    pub fn commit_digest(&mut self) -> SequenceId {
        let digest = self.core.digest();
        self.commit(&Record::Digest { digest })
    }

    /// Whether readers may have been promised what the log does not say: then nothing is evicted, and nothing removed
    /// unless forced (R6).
    pub(in crate::engine) fn held(&self) -> bool {
        self.now < self.core.reign.hold_until
    }

    /// When bytes that leave an object now, with `lease` on it, can be given out again (INV-7).
    pub(super) fn release_at(&self, lease: LogTime) -> LogTime {
        self.now.plus(self.engine.rules.hold()).max(self.core.reign.hold_until).max(lease)
    }
}

impl Engine {
    /// Hands over: writes down that this was the last record of the term. No read may be answered since before the last
    /// promises to readers were written down; if not all of them were, `complete` is false and the record says until
    /// when the longest can last, which the successor waits for (R6). A primary that goes on nevertheless, because the
    /// hand-over failed, commits another record and waits until it is durable before it answers a read: as long as the
    /// `Resign` is the last record, a successor takes it at its word.
    pub fn resign(&self, now: LogTime, complete: bool) -> SequenceId {
        let mut sequencer = self.sequencer(now);
        let term = sequencer.core.reign.term;
        let hold_until = if complete { LogTime(0) } else { sequencer.now.plus(self.rules.lease_ttl) };
        sequencer.commit(&Record::Resign { term, hold_until })
    }

    /// The clients of the primary before that have not told their segments to this one yet.
    #[must_use]
    pub fn inherited(&self) -> Vec<Uuid> {
        let clients = self.clients.read();
        clients.iter().filter(|(_, client)| client.inherited).map(|(id, _)| *id).collect()
    }

    /// Whether segments of the primary before are closed to new objects, because their clients have not told them to this
    /// one yet. Once none is, none closes again in this term.
    #[must_use]
    pub fn has_closed_segments(&self) -> bool {
        let first = self.reign().first_segment;
        let is_closed = |client: &Client| client.inherited && client.segments.range(..first).next().is_some();
        self.clients.read().values().any(is_closed)
    }

    /// All clients that are known and alive, or own segments.
    #[must_use]
    pub fn known_clients(&self) -> Vec<KnownClient> {
        let known = |(id, client): (&Uuid, &Client)| KnownClient { id: *id, inherited: client.inherited };
        self.clients.read().iter().map(known).collect()
    }

    /// Takes the signs that were seen since the last time.
    #[must_use]
    pub fn take_doubts(&self) -> Doubts {
        std::mem::take(&mut self.sequencer(LogTime(0)).core.doubts)
    }

    /// The first `Digest` record that this replica did not match.
    #[must_use]
    pub fn digest_mismatch(&self) -> Option<SequenceId> {
        self.doubts().digest_mismatch.map(|mismatch| mismatch.record)
    }

    /// The first record that did not follow the last one about its object.
    #[must_use]
    pub fn broken_chain(&self) -> Option<BrokenChain> {
        self.doubts().broken_chain
    }
}
