//! A key-value model that knows nothing of `apply`: from what clients asked and were told it says which keys have to be
//! readable, may be, or must not be. An acknowledged object that vanishes without a removal, an eviction or the loss of
//! its memory is a failure, however well all replicas agree on it.
//!
//! It errs on the side of "may be": a call that could have changed a key, whether or not it was answered, ends what was
//! certain about that key until a later answer makes it certain again.

use std::collections::{BTreeMap, BTreeSet};

use moonkeeper::engine::types::{SequenceId, Term, Uuid};

use super::clients::{Op, Reply};
use super::truth::{Seen, Truth};

/// What is certain about one key.
#[derive(Debug, Default)]
struct Key {
    /// The last reservation that a client was told of.
    started: Option<Started>,
    /// An answer said that it is complete.
    complete: Option<Started>,
    /// The last record of a call that may have removed or replaced it.
    disturbed: SequenceId,
    /// An End was tried since it was last known to be absent.
    may_appear: bool,
    /// The last record of an End that was tried.
    ended: SequenceId,
}

#[derive(Clone, Debug)]
struct Started {
    /// The call that began the write.
    call: u64,
    /// The record of its reservation.
    at: SequenceId,
    /// The clients in whose memory it lies.
    hosts: BTreeSet<Vec<u8>>,
}

/// An answer whose record is not known to be in the log yet: with relaxed durability it may be lost.
struct Told {
    term: Term,
    at: SequenceId,
    fact: Fact,
}

enum Fact {
    Complete { key: String, call: u64 },
    Absent { key: String },
}

/// What clients may rely on, key by key.
#[derive(Default)]
pub struct KeyModel {
    keys: BTreeMap<String, Key>,
    /// Calls under way, by number.
    asked: BTreeMap<u64, Op>,
    told: Vec<Told>,
    /// Mounts whose answer is on its way.
    mounts: BTreeMap<u64, (Uuid, SequenceId)>,
    /// The endpoint of each client's memory.
    endpoints: BTreeMap<Uuid, Vec<u8>>,
    /// Objects in a client's memory that were reserved up to this record may be gone with it.
    lost_up_to: BTreeMap<Vec<u8>, SequenceId>,
}

impl KeyModel {
    /// A client and the endpoint of its memory.
    pub fn knows(&mut self, client: Uuid, endpoint: &str) {
        self.endpoints.insert(client, endpoint.as_bytes().to_vec());
    }

    /// A master has carried a call out: the records after `before` and up to `after` may be its work. The answer may
    /// never leave.
    pub fn called(&mut self, client: Uuid, number: u64, op: &Op, (before, after): (SequenceId, SequenceId)) {
        match op {
            Op::Start { key, upsert: true, .. } => self.disturb(key, after),
            Op::End { key, .. } => {
                let key = self.key(key);
                key.may_appear = true;
                key.ended = key.ended.max(after);
            }
            Op::Revoke { key, .. } => self.disturb(key, after),
            Op::Remove { keys, .. } => keys.iter().for_each(|key| self.disturb(key, after)),
            Op::RemoveAll { .. } => self.disturb_matching(|_| true, after),
            Op::RemoveMatching { prefix, .. } => {
                self.disturb_matching(|key| key.starts_with(prefix.as_str()), after);
            }
            Op::Drain(_) if after > before => self.give_up(client),
            _ => {}
        }
        self.asked.insert(number, op.clone());
    }

    /// An answer leaves a master. `at` is the last record that it may rest on, `hosts` where a writer was told to write.
    pub fn answered(
        &mut self,
        client: Uuid,
        number: u64,
        reply: &Reply,
        (term, at): (Term, SequenceId),
        hosts: BTreeSet<Vec<u8>>,
    ) {
        let Some(op) = self.asked.remove(&number) else { return };
        let fact = match (op, reply) {
            (Op::Start { key, .. }, Reply::Started) => {
                self.key(&key).started = Some(Started { call: number, at, hosts });
                return;
            }
            (Op::Copy { key, .. }, Reply::Started) => {
                // A move takes the object there; losing either memory may lose it, also if it was given up before.
                let gone =
                    hosts.iter().any(|host| self.lost_up_to.get(host).is_some_and(|up_to| at <= *up_to));
                let known = self.key(&key);
                if gone {
                    known.complete = None;
                }
                known.started.iter_mut().chain(&mut known.complete).for_each(|started| {
                    started.hosts.extend(hosts.iter().cloned());
                });
                return;
            }
            (Op::Mount(_), Reply::Done) => {
                self.mounts.insert(number, (client, at));
                return;
            }
            (Op::End { key, write }, Reply::Done) => Fact::Complete { key, call: write },
            (Op::Remove { keys, .. }, Reply::Done) if keys.len() == 1 => {
                Fact::Absent { key: keys[0].clone() }
            }
            _ => return,
        };
        self.told.push(Told { term, at, fact });
    }

    /// A client gives its memory up. It goes now, or when the next primary asks for a list and finds it missing.
    pub fn give_up(&mut self, client: Uuid) {
        self.lose(client, SequenceId(u64::MAX));
    }

    /// The log says that a client was not heard from in time.
    pub fn expired(&mut self, client: Uuid, at: SequenceId) {
        self.lose(client, at);
    }

    /// The log says that objects were evicted.
    pub fn evicted(&mut self, at: SequenceId) {
        self.disturb_matching(|_| true, at);
    }

    /// The log has grown: what it says of each key has to fit.
    pub fn check(&mut self, truth: &Truth) -> Result<(), (&'static str, String)> {
        let last = truth.last;
        let (reached, ahead): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.told).into_iter().partition(|told| told.at <= last);
        self.told = ahead;
        for Told { term, at, fact } in reached {
            if truth.shared(term, at) == at {
                self.learn(at, fact);
            }
        }
        for (name, key) in &self.keys {
            if key.complete.is_none() && key.may_appear {
                continue;
            }
            let seen = truth.seen(name.as_bytes());
            let readable = matches!(&seen, Seen::Readable(_, bytes) if !bytes.is_empty());
            if let Some(complete) = &key.complete
                && !readable
            {
                let what = format!("{name} was acknowledged ({complete:?}) and is {seen:?} at {last:?}");
                return Err(("model", what));
            }
            if !key.may_appear && readable {
                return Err(("model", format!("{name} is not there and is {seen:?} at {last:?}")));
            }
        }
        Ok(())
    }

    /// How many keys have to be readable.
    pub fn certain(&self) -> usize {
        self.keys.values().filter(|key| key.complete.is_some()).count()
    }

    fn learn(&mut self, at: SequenceId, fact: Fact) {
        match fact {
            Fact::Complete { key, call } => {
                let lost = self.lost_up_to.clone();
                let known = self.key(&key);
                let started = known.started.clone().filter(|started| started.call == call);
                let Some(started) = started.filter(|_| known.disturbed < at) else { return };
                let gone = |host: &Vec<u8>| lost.get(host).is_some_and(|up_to| started.at <= *up_to);
                if !started.hosts.iter().any(gone) {
                    known.complete = Some(started);
                }
            }
            Fact::Absent { key } => {
                let known = self.key(&key);
                if known.ended < at {
                    known.may_appear = false;
                }
            }
        }
    }

    fn key(&mut self, name: &str) -> &mut Key {
        if !self.keys.contains_key(name) {
            self.keys.insert(name.to_owned(), Key::default());
        }
        self.keys.get_mut(name).unwrap()
    }

    fn disturb(&mut self, name: &str, after: SequenceId) {
        let key = self.key(name);
        key.complete = None;
        key.disturbed = key.disturbed.max(after);
    }

    fn disturb_matching(&mut self, matches: impl Fn(&str) -> bool, after: SequenceId) {
        let names: Vec<String> = self.keys.keys().filter(|name| matches(name)).cloned().collect();
        names.iter().for_each(|name| self.disturb(name, after));
    }

    /// Everything in a client's memory that was reserved up to a record may be gone.
    fn lose(&mut self, client: Uuid, up_to: SequenceId) {
        let Some(endpoint) = self.endpoints.get(&client).cloned() else { return };
        for key in self.keys.values_mut() {
            let gone = |started: &Started| started.hosts.contains(&endpoint) && started.at <= up_to;
            if key.complete.as_ref().is_some_and(gone) {
                key.complete = None;
            }
        }
        let lost = self.lost_up_to.entry(endpoint).or_default();
        *lost = (*lost).max(up_to);
    }

    /// A client hears that it has mounted other memory: what was reserved since lies in that. One that does not hear it
    /// will not name that memory to the next primary.
    pub fn mounted(&mut self, number: u64) {
        let Some((client, at)) = self.mounts.remove(&number) else { return };
        if let Some(endpoint) = self.endpoints.get(&client) {
            self.lost_up_to.insert(endpoint.clone(), at);
        }
    }
}
