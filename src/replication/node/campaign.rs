//! Standing for election: only a candidate that has the whole log can win, because the transaction itself checks it.
//!
//! The election key is created only if it does not exist and the log ends exactly where this node is. From then on no
//! other master can write to the log (R1), so the winner has applied the whole durable prefix (INV-4).

use std::time::Duration;

use bytes::Bytes;

use super::compaction::Compaction;
use super::raising::Raising;
use super::{CallId, Leadership, Node, Phase, Purpose, Stage};
use crate::cluster::log_end::History;
use crate::cluster::member::BootId;
use crate::cluster::member::{ElectionValue, MemberValue};
use crate::cluster::promotion::PromotionReason;
use crate::coordination::types::{Compare, Failure, Get, KeyRange, Op, OpResult, Request, Response, Txn};
use crate::engine::term_state::Primary;
use crate::engine::types::{LogTime, Term};
use crate::replication::formats::LogFormat;
use crate::replication::lease::LeaderLease;
use crate::replication::linger::Linger;
use crate::replication::time::{LogClock, Monotonic};
use crate::replication::writer::Writer;

/// How long other standbys wait for the named successor before they stand themselves.
const PREFERENCE: Duration = Duration::from_secs(2);

/// Delay before a transaction without an answer is sent again.
const RETRY: Duration = Duration::from_millis(50);

/// Longest back-off after a failed attempt. The actual one is random, so that two nodes do not keep step.
const BACKOFF_MS: u64 = 300;

/// Returns a duration in milliseconds, rounded down.
fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// An attempt to become primary.
#[derive(Debug)]
pub(super) enum Campaign {
    /// The leader lease was requested.
    Granting { call: CallId, sent: Monotonic },
    /// The election key is being created.
    Creating { lease: LeaderLease, txn: Txn, call: Option<CallId>, retry_at: Monotonic },
}

impl Node {
    /// Stands for election if no master leads and this node is a candidate.
    pub(super) fn stand(&mut self, now: Monotonic) {
        let Some(gone_at) = self.seen_keys.gone_at() else { return };
        let live = self.following.is_candidate();
        let live = live || planted!(StandBehind);
        let ready = self.seen_keys.is_known() && live && now >= self.stand_after;
        let another = self.seen_keys.successor().is_some_and(|name| name != self.settings.name);
        if !ready || self.stopping || (another && now.since(gone_at) < PREFERENCE) || self.bar().is_some() {
            return;
        }
        let ttl_seconds = i64::try_from(self.settings.leader_ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let call = self.call(Purpose::LeaderLease, Request::LeaseGrant { ttl_seconds });
        self.phase = Phase::Campaigning(Campaign::Granting { call, sent: now });
    }

    /// Returns why this node must not stand although it has followed the log to its end: a live member knows more
    /// records.
    pub(super) fn bar(&self) -> Option<String> {
        let position = &self.following.position;
        let longer = |history: &History| match position.log {
            None => true,
            Some(log) => history.0.log == log && history.0.last > position.applied,
        };
        let members = self.seen_keys.members().filter(|member| member.name != self.settings.name);
        let knows_more =
            |member: &MemberValue| member.history.as_ref().filter(|known| longer(known)).copied();
        let (name, known) = members.filter_map(|member| Some((&member.name, knows_more(member)?))).next()?;
        let (log, last, applied) = (known.0.log, known.0.last.0, position.applied.0);
        Some(format!(
            "the log in etcd ends at record {applied}, but {name} knows records up to {last} of log {log}"
        ))
    }

    pub(super) fn leader_lease_granted(
        &mut self,
        now: Monotonic,
        call: CallId,
        result: Result<Response, Failure>,
    ) {
        let Phase::Campaigning(Campaign::Granting { call: asked, sent }) = self.phase else { return };
        if asked != call {
            return;
        }
        let Ok(Response::LeaseGranted { lease, ttl_seconds }) = result else {
            return self.stand_back(now);
        };
        let ttl = Duration::from_secs(ttl_seconds.unsigned_abs());
        let lease = LeaderLease::granted(lease, ttl, sent);
        let Some(txn) = self.election_txn(&lease, ttl) else { return self.stand_back(now) };
        let call = self.call(Purpose::Campaign, Request::Txn(txn.clone()));
        self.phase = Phase::Campaigning(Campaign::Creating { lease, txn, call: Some(call), retry_at: now });
    }

    fn election_txn(&self, lease: &LeaderLease, ttl: Duration) -> Option<Txn> {
        let keys = &self.settings.keys;
        let value = ElectionValue {
            name: self.settings.name.clone(),
            boot_id: self.settings.boot_id,
            lease_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            addresses: self.settings.addresses.clone(),
        };
        let value = Bytes::from(serde_json::to_vec(&value).ok()?);
        let caught_up = match self.following.position.latest() {
            Some(latest) => Compare::Value { key: keys.latest(), equals: latest },
            None => Compare::CreateRevision { key: keys.latest(), equals: 0 },
        };
        let get = |key| Op::Get(Get::all(KeyRange::key(key)));
        let mut compare = vec![Compare::CreateRevision { key: keys.election(), equals: 0 }, caught_up];
        // If the format was raised since it was read, it may be one that this master cannot write.
        if let Some(format) = &self.following.format {
            compare.push(Compare::Value { key: keys.format(), equals: format.clone() });
        }
        let compare = if planted!(StandBehind) { compare[..1].to_vec() } else { compare };
        Some(Txn {
            compare,
            success: vec![Op::Put { key: keys.election(), value, lease: lease.id }],
            failure: vec![get(keys.election())],
        })
    }

    /// Continues an attempt: sends a transaction without an answer again, keeps the lease alive, gives up when it ends.
    pub(super) fn campaign(&mut self, now: Monotonic) {
        let Phase::Campaigning(Campaign::Creating { lease, txn, call, retry_at }) = &mut self.phase else {
            return;
        };
        if now >= lease.deadline() {
            return self.stand_back(now);
        }
        if call.is_none() && now >= *retry_at {
            let txn = txn.clone();
            let again = self.call(Purpose::Campaign, Request::Txn(txn));
            if let Phase::Campaigning(Campaign::Creating { call, .. }) = &mut self.phase {
                *call = Some(again);
            }
        }
        self.keep_lease(now);
    }

    pub(super) fn campaigned(&mut self, now: Monotonic, answer: CallId, result: Result<Response, Failure>) {
        let Phase::Campaigning(Campaign::Creating { lease, call, retry_at, .. }) = &mut self.phase else {
            return;
        };
        if *call != Some(answer) {
            return;
        }
        *call = None;
        match result {
            Ok(Response::Txn { succeeded: true, revision, .. }) => {
                let lease = lease.clone();
                self.begin(now, Term(revision), lease);
            }
            Ok(Response::Txn { succeeded: false, results, .. }) => {
                let election = match results.first() {
                    Some(OpResult::Got(page)) => page.entries.first(),
                    _ => None,
                };
                match election {
                    // An earlier attempt without an answer had succeeded.
                    Some(entry) if entry.lease == lease.id => {
                        let (term, lease) = (Term(entry.create_revision), lease.clone());
                        self.begin(now, term, lease);
                    }
                    Some(_) => self.stand_back(now),
                    None => {
                        // The log is longer than what this node has, or its format was raised: read it and stand again
                        // at once.
                        let stand_after = self.stand_after;
                        self.stand_back(now);
                        self.stand_after = stand_after;
                        self.read_log();
                    }
                }
            }
            Err(Failure::LeaseNotFound) => self.stand_back(now),
            // The transaction may have been carried out: send the same one until there is an answer (R5).
            Ok(_) | Err(_) => *retry_at = now.plus(RETRY),
        }
    }

    /// Gives up an attempt, and backs off for a random time.
    pub(super) fn stand_back(&mut self, now: Monotonic) {
        let phase = std::mem::replace(&mut self.phase, Phase::Standby);
        if let Phase::Campaigning(Campaign::Creating { lease, .. }) = phase {
            self.call(Purpose::Nobody, Request::LeaseRevoke { lease: lease.id });
        }
        let wait = self.random_below(BACKOFF_MS);
        self.stand_after = self.stand_after.max(now.plus(Duration::from_millis(wait)));
    }

    /// Returns the longest lease that the old primary can have had.
    fn longest_ttl(&self) -> Duration {
        let last_ttl = Duration::from_millis(self.incarnation.engine.term_state().leader_ttl);
        self.settings.leader_ttl.max(self.seen_keys.leader_ttl()).max(last_ttl)
    }

    /// Returns for how many milliseconds from now the old primary may still answer reads (R6), negative if it has
    /// answered none for some time. `last_term` is the term of the last batch.
    fn old_primary_answers_for(&self, now: Monotonic, last_term: Term, ttl: Duration) -> i64 {
        // The primary that wrote last may have come and gone unseen while this node could not reach etcd. Then
        // `gone_at` is about an earlier one, and only now is certain.
        let seen = self.seen_keys.last_term() >= last_term;
        let seen = seen || planted!(StaleAbsence);
        let silent = self.seen_keys.gone_at().filter(|_| seen).unwrap_or(now).plus(ttl);
        // A witness saw the process end that wrote last, so it answered nothing after the report arrived here. Earlier
        // primaries are covered by their own holds, which are state.
        let term_state = self.incarnation.engine.term_state();
        let led_last = BootId(term_state.boot_id);
        // After a recovery the last primary may be one whose `NewTerm` was dropped.
        let told_at = self.witnessed.told_at(led_last).filter(|_| !self.is_recovered_since(term_state.began));
        let answers_for = match told_at {
            Some(told_at) => -whole_ms(now.since(told_at)),
            None => whole_ms(silent.since(now)).saturating_add(1),
        };
        if planted!(HoldWithoutLease) { 0 } else { answers_for }
    }

    /// Returns why this node takes over. `dead` is the process that it found dead, `empty` whether there is no log yet.
    fn promotion_reason(
        &self,
        empty: bool,
        dead: Option<BootId>,
        gone_at: Monotonic,
        batch_at: Option<Monotonic>,
        ttl: Duration,
    ) -> PromotionReason {
        let engine = &self.incarnation.engine;
        // A primary writes a batch each second. If it was gone soon after its last batch, its lease cannot have run out
        // yet: another standby found it dead and revoked the lease.
        let soon = batch_at.is_some_and(|batch_at| {
            gone_at.since(batch_at) < ttl / 2 && !self.seen_keys.may_be_old(batch_at, ttl / 2)
        });
        // Only the process that led last counts: this node may have found an earlier one dead that another node
        // replaced.
        let led_last = BootId(engine.term_state().boot_id);
        let found_dead = dead == Some(led_last) || soon;
        match (empty, engine.resigned(), found_dead && led_last != self.settings.boot_id) {
            (true, ..) => PromotionReason::FirstStart,
            (_, true, _) => PromotionReason::Switchover,
            (.., true) => PromotionReason::ProcessDied,
            (.., false) => PromotionReason::LeaseEnded,
        }
    }

    /// Begins to lead: commits the first record, `NewTerm`. Applying it also cleans up after the old primary.
    fn begin(&mut self, now: Monotonic, term: Term, lease: LeaderLease) {
        let (position, batch_at) = (self.following.position, self.following.batch_at);
        self.unfollow();
        let engine = &self.incarnation.engine;
        engine.unseal();
        let empty = position.applied.0 == 0;
        let from = if empty { self.settings.wall } else { engine.sequencer(LogTime(0)).now };
        let from = if planted!(WallClock) { self.settings.wall } else { from };
        let clock = LogClock::new(from, now);
        let ttl = self.longest_ttl();
        let answers_for = self.old_primary_answers_for(now, position.term, ttl);
        let primary = Primary {
            name: self.settings.name.as_bytes(),
            boot_id: self.settings.boot_id.0,
            leader_ttl: u64::try_from(lease.ttl().as_millis()).unwrap_or(u64::MAX),
        };
        let gone_at = self.seen_keys.gone_at().unwrap_or(now);
        let dead = self.dead.take();
        let reason = self.promotion_reason(empty, dead, gone_at, batch_at, ttl);
        // If this master could not read the key, it would not have become a candidate (`LogEnd`).
        let key = LogFormat::of_key(self.following.format.as_deref()).unwrap_or(LogFormat::New);
        let format = if empty { key.written() } else { key.written_on() };
        engine.set_format(format);
        self.hold_starts(engine);
        let first = engine.sequencer(clock.at(now)).begin_term(term, &primary, answers_for);
        let in_key = self.following.format.is_some().then_some(format);
        let fresh = self.fresh_log();
        let writer = Writer::new(self.settings.keys.clone(), term, position.end(fresh), in_key);
        tracing::info!(term = term.0, applied = position.applied.0, "won the election");
        self.phase = Phase::Leading(Box::new(Leadership {
            term,
            lease,
            writer,
            linger: Linger::default(),
            clock,
            stage: Stage::Beginning(first),
            gone_at,
            won_at: now,
            reason,
            next_heartbeat: now,
            writing: None,
            retry_at: None,
            handover: None,
            told: false,
            raising: Raising::of(format),
            compaction: Compaction::new(),
        }));
        self.peers.clear();
        planted!(ServeEarly => self.open());
    }
}
