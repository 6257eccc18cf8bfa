//! What the keys of the cluster say: who leads, who is a member, who is to lead next.
//!
//! A watch tells of changes at once. Watches are known to fall silent without a word, so the keys are also read every
//! second.

use std::collections::BTreeMap;
use std::time::Duration;

use super::member::{ElectionValue, MemberValue};
use super::{CallId, Node, Purpose, WatchId};
use crate::coordination::types::{
    Change, Failure, Get, KeyValue, LeaseId, Request, Response, WatchEvent, WatchRequest,
};
use crate::engine::types::Term;
use crate::replication::keys::Keys;
use crate::replication::time::Monotonic;

/// How often the keys are read whatever the watch says.
const POLL: Duration = Duration::from_secs(1);

/// For so long after an outage of etcd its watches may tell of what was before it.
const OLD_NEWS: Duration = Duration::from_secs(2);

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The term.
    pub term: Term,
    /// The lease that the key ends with.
    pub lease: LeaseId,
    /// What the leader says of itself.
    pub value: ElectionValue,
}

/// What the keys of the cluster say.
#[derive(Debug, Default)]
pub struct View {
    /// Up to which revision of the store this holds; zero if nothing was read yet.
    revision: u64,
    leader: Option<Leader>,
    /// When it was first seen that nobody leads; `None` while somebody does.
    gone_at: Option<Monotonic>,
    /// The last term that a leader was seen in.
    last_term: Term,
    /// How long the last leader's lease was.
    leader_ttl: Duration,
    members: BTreeMap<String, MemberValue>,
    successor: Option<String>,
    master_view: Option<(String, u64)>,
    watch: Option<WatchId>,
    /// A read under way, and the revision that was known when it was sent.
    call: Option<(CallId, u64)>,
    /// How often the store's revision has gone back: it was restored from a backup, or replaced.
    went_back: u32,
    next_poll: Monotonic,
    /// When the keys were last read.
    read_at: Option<Monotonic>,
    /// When etcd last answered again after a silence in which a leader's lease can have run out.
    back_at: Option<Monotonic>,
}

impl View {
    /// Who leads.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        self.leader.as_ref()
    }

    /// When it was first seen that nobody leads.
    #[must_use]
    pub fn gone_at(&self) -> Option<Monotonic> {
        self.gone_at
    }

    /// The last term that a leader was seen in.
    #[must_use]
    pub fn last_term(&self) -> Term {
        self.last_term
    }

    /// The longest lease that a leader was seen with.
    #[must_use]
    pub fn leader_ttl(&self) -> Duration {
        self.leader_ttl
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<String, MemberValue> {
        &self.members
    }

    /// Who is to lead next, if somebody said so.
    #[must_use]
    pub fn successor(&self) -> Option<&str> {
        self.successor.as_deref()
    }

    /// The address that clients read, and the revision that created it.
    #[must_use]
    pub fn master_view(&self) -> Option<&(String, u64)> {
        self.master_view.as_ref()
    }

    /// Whether the keys were read at all.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.revision > 0
    }

    /// How often the store's revision has gone back.
    #[must_use]
    pub fn went_back(&self) -> u32 {
        self.went_back
    }

    /// When the keys were last read.
    #[must_use]
    pub fn read_at(&self) -> Option<Monotonic> {
        self.read_at
    }

    /// Whether what a watch told at `moment` may be from before an outage of etcd: the keys had not been read for `long`
    /// then, or could be read again only a little before.
    #[must_use]
    pub fn may_be_old(&self, moment: Monotonic, long: Duration) -> bool {
        self.read_at.is_some_and(|read_at| moment.since(read_at) >= long)
            || self.back_at.is_some_and(|back_at| moment.since(back_at) < OLD_NEWS)
    }

    pub(super) fn watch(&self) -> Option<WatchId> {
        self.watch
    }

    fn set(&mut self, keys: &Keys, entry: &KeyValue) {
        if entry.key == keys.election() {
            self.last_term = self.last_term.max(Term(entry.create_revision));
            match serde_json::from_slice::<ElectionValue>(&entry.value) {
                Ok(value) => {
                    self.leader_ttl = self.leader_ttl.max(Duration::from_millis(value.lease_ms));
                    self.leader =
                        Some(Leader { term: Term(entry.create_revision), lease: entry.lease, value });
                }
                Err(error) => {
                    // Somebody leads, whoever it is: nobody may stand.
                    tracing::warn!(%error, "cannot read the election key");
                    let value = ElectionValue::default();
                    self.leader =
                        Some(Leader { term: Term(entry.create_revision), lease: LeaseId(0), value });
                }
            }
        } else if entry.key == keys.switchover() {
            self.successor = String::from_utf8(entry.value.to_vec()).ok();
        } else if entry.key == keys.master_view() {
            let address = String::from_utf8_lossy(&entry.value).into_owned();
            self.master_view = Some((address, entry.create_revision));
        } else if let Some(name) = keys.member_name(&entry.key)
            && let Ok(value) = serde_json::from_slice(&entry.value)
        {
            self.members.insert(name, value);
        }
    }

    fn unset(&mut self, keys: &Keys, key: &[u8]) {
        if *key == *keys.election() {
            self.leader = None;
        } else if *key == *keys.switchover() {
            self.successor = None;
        } else if *key == *keys.master_view() {
            self.master_view = None;
        } else if let Some(name) = keys.member_name(key) {
            self.members.remove(&name);
        }
    }

    fn note_absence(&mut self, now: Monotonic) {
        match self.leader {
            Some(_) => self.gone_at = None,
            None => self.gone_at = self.gone_at.or(Some(now)),
        }
    }
}

impl Node {
    pub(super) fn keep_view(&mut self, now: Monotonic) {
        if self.view.call.is_none() && now >= self.view.next_poll {
            self.view.next_poll = now.plus(POLL);
            let request = Request::Get(Get::all(self.settings.keys.cluster()));
            let known = self.view.revision;
            self.view.call = Some((self.call(Purpose::View, request), known));
        }
    }

    pub(super) fn view_read(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let Some((_, known)) = self.view.call.take_if(|(asked, _)| *asked == call) else { return };
        let Ok(Response::Got { revision, page }) = result else {
            return;
        };
        let long = self.settings.leader_ttl.max(self.view.leader_ttl) / 2;
        if self.view.read_at.is_some_and(|before| now.since(before) >= long) {
            self.view.back_at = Some(now);
        }
        self.view.read_at = Some(now);
        if revision < known {
            // A linearizable read that was sent after `known` was seen: the store itself has gone back.
            tracing::error!(
                known,
                revision,
                "the revision of etcd went back: it was restored from a backup, or replaced"
            );
            self.view.went_back += 1;
            let watch = self.view.watch.take();
            self.unwatch(watch);
            self.store_went_back(now);
        } else if revision < self.view.revision {
            // A watch was quicker.
            return;
        }
        self.view.revision = revision;
        self.view.leader = None;
        self.view.successor = None;
        self.view.master_view = None;
        self.view.members.clear();
        for entry in &page.entries {
            self.view.set(&self.settings.keys, entry);
        }
        self.view.note_absence(now);
        if self.view.watch.is_none() {
            let request = WatchRequest {
                range: self.settings.keys.cluster(),
                from_revision: revision + 1,
                deletions: true,
            };
            self.view.watch = Some(self.watch(request));
        }
        self.view_is_new(now);
    }

    pub(super) fn view_changed(&mut self, now: Monotonic, event: WatchEvent) {
        match event {
            WatchEvent::Changes { revision, changes } => {
                for change in &changes {
                    // What a read has told already may be told again, late.
                    match change {
                        Change::Put(entry) if entry.mod_revision > self.view.revision => {
                            self.view.set(&self.settings.keys, entry);
                        }
                        Change::Deleted { key, revision } if *revision > self.view.revision => {
                            self.view.unset(&self.settings.keys, key);
                        }
                        Change::Put(_) | Change::Deleted { .. } => {}
                    }
                }
                self.view.revision = self.view.revision.max(revision);
                self.view.note_absence(now);
                self.view_is_new(now);
            }
            WatchEvent::Progress { .. } => {}
            WatchEvent::Compacted { .. } | WatchEvent::Broken(_) => {
                // The next read starts another one.
                self.view.watch = None;
                self.view.next_poll = self.view.next_poll.min(now.plus(RETRY));
            }
        }
    }

    /// The store has lost what was written last. Another master may have led in what is lost, so a primary does not go on
    /// by a lease that came back with the store. Every master tells its history anew before any of them stands: the keys
    /// that tell it have gone back, too.
    fn store_went_back(&mut self, now: Monotonic) {
        self.member.forget();
        self.leave(now, "etcd was restored from a backup, or replaced".to_owned());
        if matches!(self.phase, super::Phase::Campaigning(_)) {
            self.stand_back(now);
        }
        if matches!(self.phase, super::Phase::Standby) {
            self.read_log();
        }
        self.stand_after = now.plus(HISTORIES_TOLD);
    }

    /// A primary whose key is gone, or is another's, no longer leads.
    fn view_is_new(&mut self, now: Monotonic) {
        let super::Phase::Leading(reign) = &self.phase else { return };
        let mine = self.view.leader.as_ref().is_some_and(|leader| leader.term == reign.term);
        // A view from before the election says nothing about it.
        if mine || self.view.revision < reign.term.0 {
            return;
        }
        // A watch may be quicker than the answer to the transaction that it tells of.
        if reign.handover.as_ref().is_some_and(|handover| handover.is_deleting()) {
            self.finish_handover(now);
        } else {
            self.leave(now, "the election key is gone".to_owned());
        }
    }
}

/// How long a master waits before it stands after the store has gone back: members write their keys every two seconds.
const HISTORIES_TOLD: Duration = Duration::from_secs(5);

/// How soon a broken watch is replaced.
const RETRY: Duration = Duration::from_millis(100);
