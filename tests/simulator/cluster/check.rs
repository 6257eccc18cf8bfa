//! What must hold, checked while it happens: no answer rests on what is not in the log (INV-3, R3), whoever serves has
//! the whole log (INV-4), all replicas are the same (INV-8), nobody speaks for a term that is over, and in the end the
//! cluster works (INV-10).

use std::time::Duration;

use moonkeeper::cluster::member::BootId;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::status::Activity;

use super::Sim;
use super::masters::leads;
use super::plan::MS;
use super::truth::{Ending, Seen};
use super::waiting::Parked;

/// What a primary was after a record that was not in the log yet.
pub struct Ahead {
    term: Term,
    applied: SequenceId,
    digest: Digest,
}

impl Sim {
    /// The log may have grown.
    pub fn log_grew(&mut self) {
        let news = std::mem::take(&mut self.truth.news);
        for batch in &news.batches {
            note!(self, "log {batch}");
        }
        if let Some(term) = news.elected {
            note!(self, "term {} begins", term.0);
            self.counts.terms += 1;
        }
        for (id, client) in &news.expired {
            self.counts.expired += 1;
            self.model.expired(*client, *id);
        }
        self.counts.exempt += news.exempt;
        self.counts.raised += u64::from(news.raised);
        if let Some(id) = news.evicted {
            self.model.evicted(id);
        }
        if news.frees {
            let checked = self.claims.check(&self.truth.engine, self.now, &self.truth.rewritten);
            self.expect(checked);
        }
        if news.batches.is_empty() {
            return;
        }
        let checked = self.model.check(&self.truth);
        self.expect(checked);
        self.counts.certain += self.model.certain() as u64;
        let last = self.truth.last;
        let (reached, ahead): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ahead).into_iter().partition(|ahead| ahead.applied <= last);
        self.ahead = ahead;
        for Ahead { term, applied, digest } in reached {
            // A tail that never got into the log tells nothing.
            if self.truth.shared(term, applied) == applied {
                self.same("a primary", applied, digest);
            }
        }
    }

    /// INV-8.
    fn same(&mut self, who: &str, applied: SequenceId, digest: Digest) {
        let expected = self.truth.digest_at(applied);
        if expected != Some(digest) {
            let what = format!("{who} has {digest:?} after {applied:?}, the log gives {expected:?}");
            self.fail(("INV-8", what));
        }
    }

    /// Compares a master with the log.
    pub fn compare(&mut self, index: usize) {
        let Some(node) = &self.masters[index].node else { return };
        let sequencer = node.incarnation().engine.sequencer(LogTime(0));
        let (applied, digest, faults) =
            (node.incarnation().engine.applied(), sequencer.digest(), node.incarnation().engine.faults());
        drop(sequencer);
        if self.masters[index].compared == Some((applied.0, digest.0)) {
            return;
        }
        let (activity, term) = node.brief();
        let divergence = node.incarnation().engine.divergence();
        self.masters[index].compared = Some((applied.0, digest.0));
        // What a corrupt primary wrote about its own state holds for no other.
        let wrong_digests = self.truth.corruption;
        if self.is_corrupt(index) {
            return self.check_snapshot_state(index, applied);
        }
        let term = if leads(activity) { term } else { Term(self.masters[index].term) };
        if faults > 0 || (!divergence.is_empty() && !wrong_digests) {
            return self.fail(("INV-8", format!("m{index} at {applied:?}: {faults} faults, {divergence:?}")));
        }
        if leads(activity) || activity == Activity::Leaving {
            if applied > self.truth.last {
                self.ahead.push(Ahead { term, applied, digest });
            } else if self.truth.shared(term, applied) == applied {
                self.same(&format!("m{index}"), applied, digest);
            }
        } else if applied > self.truth.last {
            let last = self.truth.last;
            self.fail(("INV-3", format!("standby m{index} has {applied:?}, the log ends at {last:?}")));
        } else {
            self.same(&format!("m{index}"), applied, digest);
        }
    }

    /// A standby goes on by watching the log from a revision: it misses no batch that it does not have, and waits for
    /// none that is not the next.
    pub fn check_watch(&mut self, index: usize, applied: SequenceId, from_revision: u64) {
        let next = self.etcd.model.revision() + 1;
        let needed = self.truth.revision_after(applied).unwrap_or(next);
        if from_revision > needed {
            let what =
                format!("m{index} at {applied:?} watches from {from_revision}, what it needs is at {needed}");
            self.fail(("watch", what));
        }
    }

    /// A node leads from now on: it has all that was in the log when it was elected, and its first record.
    pub fn check_promotion(&mut self, index: usize, term: Term, applied: SequenceId) {
        let Some(end) = self.truth.elections.get(&term).copied() else {
            return self.fail(("INV-4", format!("m{index} leads in {term:?}, which nobody was elected for")));
        };
        self.check_state(index, end);
        if self.is_corrupt(index) {
            return;
        }
        if applied.0 != end.0 + 1 {
            let what = format!("m{index} was elected at {end:?} and is at {applied:?} with its first record");
            self.fail(("INV-4", what));
        }
        self.check_hold(index, end);
    }

    /// R6: nothing is given up before the last promise can have ended of whoever wrote last, whose log ends at `end`. One
    /// whose lease was revoked by mistake goes on to answer for as long as its lease would have held.
    fn check_hold(&mut self, index: usize, end: SequenceId) {
        // The log ends with the last primary's record: the first one of this term is on its way.
        let last_boot = BootId(self.truth.engine.term_state().boot_id);
        let process = self.process(index);
        self.counts.witnessed += u64::from(self.witnesses.has_heard(process, last_boot));
        let before = self.truth.term_of(end).and_then(|term| self.truth.endings.get(&term)).copied();
        let (Some(Ending::Revoked(at)), Some(node)) = (before, &self.masters[index].node) else { return };
        // Whoever handed over promises nothing after its last record.
        if self.truth.engine.resigned() {
            return;
        }
        let engine = &node.incarnation().engine;
        let (until, now) = (engine.hold_until(), engine.sequencer(LogTime(0)).now);
        let waits = until.0.saturating_sub(now.0) * MS * 1000 / self.plan.rates[index];
        // A process that has ended answers nothing more.
        let silent = at + self.plan.leader_ttl.as_micros() as u64;
        let silent = self.witnesses.died_at(last_boot).map_or(silent, |died| died.min(silent));
        let promised = silent + self.plan.settings.lease_ttl_ms * MS;
        // Times in records are whole milliseconds.
        if self.now + waits + 2 * MS < promised {
            let what =
                format!("m{index} waits {waits} from {}, readers may be promised until {promised}", self.now);
            self.fail(("R6", what));
        }
    }

    /// A primary begins to hand over: the target has told lately that it is there.
    pub fn check_target(&mut self, index: usize, target: &str) {
        let (now, master) = (self.clock(index), &self.masters[index]);
        let begins = master.node.as_ref().is_some_and(|node| node.brief().0 == Activity::HandingOver);
        let heard = master.reports.get(target).map(|at| now.since(*at));
        if begins && heard.is_none_or(|ago| ago > Duration::from_millis(2_100)) {
            self.fail(("target", format!("m{index} hands over to {target}, last heard {heard:?} ago")));
        }
    }

    /// A master starts to serve: its first record is in the log, and all that it takes for durable is. Its first
    /// heartbeat may be on its way.
    pub fn check_open(&mut self, incarnation: &Incarnation, term: Term, again: bool) {
        let (applied, durable) = (incarnation.engine.applied(), incarnation.gate.durable());
        let shared = self.truth.shared(term, applied);
        let ours = self.truth.term_of(shared) == Some(term);
        // One that goes back to serving after a hand-over was given up may have more to write.
        if !ours || shared < durable || (applied.0 > durable.0 + 1 && !again) {
            let what =
                format!("opened in {term:?} at {applied:?}, {durable:?} durable, {shared:?} in the log");
            self.fail(("INV-4", what));
        }
    }

    /// Whoever answers leads, as far as it knows itself.
    pub fn check_role(&mut self, index: usize) {
        let Some(node) = &self.masters[index].node else { return };
        let (activity, _) = node.brief();
        if !leads(activity) {
            self.fail(("lease", format!("m{index} answers and knows that it does not lead: {activity:?}")));
        }
    }

    /// An answer leaves a master.
    pub fn check_answer(&mut self, term: Term, parked: &Parked) {
        let facts = &parked.facts;
        let checked = self.may_speak(term);
        self.expect(checked);
        let shared = self.truth.shared(term, facts.applied);
        let what = |what: &str| {
            let (number, depends_on) = (parked.number, parked.depends_on.0);
            format!("#{number} in {term:?} on {depends_on}: {what}; {shared:?} is in the log")
        };
        let mut broken = None;
        if parked.depends_on > self.truth.shared(term, parked.depends_on) {
            broken.get_or_insert(("INV-3", what("it rests on a record that is not in the log")));
        }
        if facts.changed && shared.0 + facts.may_be_lost < facts.applied.0 {
            broken.get_or_insert(("INV-3", what("it tells of a change that is not in the log")));
        }
        let told = facts.told.as_ref();
        if told.and_then(|told| told.1).is_some_and(|reserved| reserved > shared) {
            broken.get_or_insert(("R3", what("a writer is told bytes whose reservation is not in the log")));
        }
        // A successor takes a `Resign` that is the last record at its word, and waits for no reader.
        let resigned = self.truth.term_of(self.truth.last) == Some(term) && self.truth.engine.resigned();
        if resigned && !facts.promises.is_empty() {
            broken.get_or_insert(("resign", what("a reader is promised bytes after the last record")));
        }
        for (key, seen) in &facts.reads {
            let expected = self.truth.seen_at(key.as_bytes(), shared);
            if expected != *seen {
                let text = what(&format!("{key} was {seen:?}, in the log it is {expected:?}"));
                broken.get_or_insert(("INV-3", text));
            }
        }
        let until = facts.made + self.plan.settings.lease_ttl_ms * MS - 2 * MS;
        for (key, seen) in &facts.reads {
            if let Seen::Readable(object, bytes) = seen
                && facts.promises.contains(key)
            {
                self.claims.promised(*object, bytes.clone(), until);
            }
        }
        let hosts = told.map(|told| told.0.bytes.iter().map(|bytes| bytes.endpoint().to_vec()).collect());
        let uuid = self.clients[parked.client].uuid;
        let at = (term, facts.applied);
        self.model.answered(uuid, parked.number, &parked.reply, at, hosts.unwrap_or_default());
        if let Some((told, _)) = told {
            let checked = self.claims.told(self.now, told);
            self.expect(checked);
        }
        if let Some(broken) = broken {
            self.fail(broken);
        }
    }

    /// Whether a primary of this term may say anything: not when its lease has run out or it has handed over. One whose
    /// lease was revoked by mistake does not know, and may go on for as long as its lease would have held (R6).
    fn may_speak(&self, term: Term) -> Result<(), (&'static str, String)> {
        let ttl = self.plan.leader_ttl.as_micros() as u64;
        match self.truth.endings.get(&term) {
            None => Ok(()),
            Some(Ending::Revoked(at)) if self.now <= at + ttl => Ok(()),
            Some(ending) => Err(("lease", format!("{term:?} answers although it ended: {ending:?}"))),
        }
    }

    /// INV-10, and a last look at everything.
    pub fn check_end(&mut self) {
        let now = self.clock(0);
        let mut serving = 0;
        for index in 0..self.masters.len() {
            let now = if index == 0 { now } else { self.clock(index) };
            let last = self.settled;
            let Some(node) = &self.masters[index].node else {
                return self.fail(("INV-10", format!("m{index} is not there")));
            };
            let status = node.status(now);
            let server = self.masters[index].server.as_ref();
            let serves = server.is_some_and(|server| server.open && server.incarnation.gate.may_answer(now));
            serving += u64::from(serves && status.activity == Activity::Serving);
            if status.applied < last || !status.caught_up {
                return self.fail(("INV-10", format!("m{index} is not caught up with {last:?}: {status:?}")));
            }
        }
        if serving != 1 {
            return self.fail(("INV-10", format!("{serving} masters serve in the end")));
        }
        let wrong = self.truth.engine.sequencer(LogTime(0)).audit();
        if !wrong.is_empty() {
            return self.fail(("INV-5", format!("{wrong:?}")));
        }
        let checked = self.claims.check(&self.truth.engine, self.now, &self.truth.rewritten);
        self.expect(checked);
        let Some(server) = self.masters.iter().find_map(|master| master.server.as_ref()) else { return };
        if server.incarnation.is_durable() {
            for key in self.truth.known_keys() {
                let seen = Seen::answer(server.incarnation.engine.peek(&key, Seen::of).result);
                if seen != self.truth.seen(&key) {
                    let key = String::from_utf8_lossy(&key).into_owned();
                    return self.fail(("INV-3", format!("{key} is {seen:?} in the end")));
                }
            }
        }
    }
}
