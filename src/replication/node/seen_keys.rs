//! The keys of the cluster: which master leads, which are members, and which one is to lead next.
//!
//! A watch reports changes at once. Watches are known to stall without an error, so the keys are also read every
//! second.

use std::time::Duration;

use super::{CallId, Node, Purpose, WatchId};
use crate::cluster::member::MemberValue;
use crate::cluster::view::{ClusterView, Leader, Serving};
use crate::coordination::types::{Failure, Get, Request, Response, WatchEvent, WatchRequest};
use crate::engine::types::Term;
use crate::replication::time::Monotonic;

/// Interval of reading the keys, whatever the watch reports.
const POLL: Duration = Duration::from_secs(1);

/// For so long after an outage of etcd its watches may deliver changes from before it.
const OLD_NEWS: Duration = Duration::from_secs(2);

/// The keys of the cluster as a node last saw them, and when.
#[derive(Debug, Default)]
pub struct SeenKeys {
    /// The keys; at revision zero if they were not read yet.
    keys: ClusterView,
    /// When the election key was first seen absent; `None` while a master leads.
    gone_at: Option<Monotonic>,
    /// The last term that a leader was seen in.
    last_term: Term,
    /// The longest lease that a leader was seen with.
    leader_ttl: Duration,
    watch: Option<WatchId>,
    /// A read under way, and the revision that was known when it was sent.
    call: Option<(CallId, u64)>,
    /// How often etcd's revision has gone back: it was restored from a backup, or replaced.
    went_back: u32,
    next_poll: Monotonic,
    /// When the keys were last read.
    read_at: Option<Monotonic>,
    /// When etcd last answered after a silence so long that a leader's lease can have run out.
    back_at: Option<Monotonic>,
}

impl SeenKeys {
    /// Returns the master that leads.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        self.keys.leader.as_ref()
    }

    /// Returns when the election key was first seen absent; `None` while a master leads.
    #[must_use]
    pub fn gone_at(&self) -> Option<Monotonic> {
        self.gone_at
    }

    /// Returns the last term that a leader was seen in.
    #[must_use]
    pub fn last_term(&self) -> Term {
        self.last_term
    }

    /// Returns the longest lease that a leader was seen with.
    #[must_use]
    pub fn leader_ttl(&self) -> Duration {
        self.leader_ttl
    }

    /// Returns the values of all member keys that can be read.
    pub fn members(&self) -> impl Iterator<Item = &MemberValue> {
        self.keys.members.values().filter_map(|member| member.value.as_ref())
    }

    /// Returns the value of the key of this member.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&MemberValue> {
        self.keys.members.get(name)?.value.as_ref()
    }

    /// Returns the name of the preferred successor, if a hand-over has set one.
    #[must_use]
    pub fn successor(&self) -> Option<&str> {
        self.keys.successor.as_ref()?.name.as_deref()
    }

    /// Returns the address that clients read, and the revision that created it.
    #[must_use]
    pub fn serving(&self) -> Option<&Serving> {
        self.keys.serving.as_ref()
    }

    /// Returns whether the keys were read at least once.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.keys.revision > 0
    }

    /// Returns how often etcd's revision has gone back.
    #[must_use]
    pub fn went_back(&self) -> u32 {
        self.went_back
    }

    /// Returns when the keys were last read.
    #[must_use]
    pub fn read_at(&self) -> Option<Monotonic> {
        self.read_at
    }

    /// Returns whether a watch event at `moment` may be from before an outage of etcd: the keys had not been read for
    /// `long` then, or could be read again only a little before.
    #[must_use]
    pub fn may_be_old(&self, moment: Monotonic, long: Duration) -> bool {
        self.read_at.is_some_and(|read_at| moment.since(read_at) >= long)
            || self.back_at.is_some_and(|back_at| moment.since(back_at) < OLD_NEWS)
    }

    pub(super) fn watch(&self) -> Option<WatchId> {
        self.watch
    }

    /// Forgets the terms of an earlier log: those of another one may be lower.
    pub(super) fn forget_terms(&mut self) {
        self.last_term = self.keys.leader.as_ref().map_or(Term(0), |leader| leader.term);
    }

    /// Updates what is known of leaders from the keys.
    fn note_leader(&mut self, now: Monotonic) {
        match &self.keys.leader {
            Some(leader) => {
                self.gone_at = None;
                self.last_term = self.last_term.max(leader.term);
                self.leader_ttl = self.leader_ttl.max(Duration::from_millis(leader.value.lease_ms));
            }
            None => self.gone_at = self.gone_at.or(Some(now)),
        }
    }
}

impl Node {
    pub(super) fn keep_view(&mut self, now: Monotonic) {
        if self.seen_keys.call.is_none() && now >= self.seen_keys.next_poll {
            self.seen_keys.next_poll = now.plus(POLL);
            let request = Request::Get(Get::all(self.settings.keys.cluster()));
            let known = self.seen_keys.keys.revision;
            self.seen_keys.call = Some((self.call(Purpose::Keys, request), known));
        }
    }

    pub(super) fn keys_read(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let Some((_, known)) = self.seen_keys.call.take_if(|(asked, _)| *asked == call) else { return };
        let Ok(Response::Got { revision, page }) = result else {
            return;
        };
        let long = self.settings.leader_ttl.max(self.seen_keys.leader_ttl) / 2;
        if self.seen_keys.read_at.is_some_and(|before| now.since(before) >= long) {
            self.seen_keys.back_at = Some(now);
        }
        self.seen_keys.read_at = Some(now);
        if revision < known {
            // A linearizable read that was sent after `known` was seen: etcd itself has gone back.
            tracing::error!(
                known,
                revision,
                "the revision of etcd went back: it was restored from a backup, or replaced"
            );
            self.seen_keys.went_back += 1;
            let watch = self.seen_keys.watch.take();
            self.unwatch(watch);
            self.store_went_back(now);
        } else if revision < self.seen_keys.keys.revision {
            // A watch has delivered newer keys already.
            return;
        }
        self.seen_keys.keys = ClusterView::read(&self.settings.keys, revision, &page.entries);
        self.seen_keys.note_leader(now);
        if self.seen_keys.watch.is_none() {
            let request = WatchRequest {
                range: self.settings.keys.cluster(),
                from_revision: revision + 1,
                deletions: true,
            };
            self.seen_keys.watch = Some(self.watch(request));
        }
        self.view_is_new(now);
    }

    pub(super) fn view_changed(&mut self, now: Monotonic, event: WatchEvent) {
        match event {
            WatchEvent::Changes { revision, changes } => {
                // One by one: a leader that came and went in between counts, too.
                for change in &changes {
                    let known = self.seen_keys.keys.revision;
                    self.seen_keys.keys.change(&self.settings.keys, known, std::slice::from_ref(change));
                    self.seen_keys.note_leader(now);
                }
                self.seen_keys.keys.change(&self.settings.keys, revision, &[]);
                self.seen_keys.note_leader(now);
                self.view_is_new(now);
            }
            WatchEvent::Progress { .. } => {}
            WatchEvent::Compacted { .. } | WatchEvent::Broken(_) => {
                // The next read starts another watch.
                self.seen_keys.watch = None;
                self.seen_keys.next_poll = self.seen_keys.next_poll.min(now.plus(RETRY));
            }
        }
    }

    /// Reacts to an etcd that has lost its last writes. Another master may have led in the lost part, so a primary does
    /// not continue on a lease that came back with etcd. Every master writes its history again before any of them
    /// stands: the member keys have gone back, too.
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

    /// Ceases to lead if the election key is gone, or is another master's.
    fn view_is_new(&mut self, now: Monotonic) {
        let super::Phase::Leading(leadership) = &self.phase else { return };
        let mine = self.seen_keys.leader().is_some_and(|leader| leader.term == leadership.term);
        // A view from before the election shows nothing about it.
        if mine || self.seen_keys.keys.revision < leadership.term.0 {
            return;
        }
        // A watch may be quicker than the answer to the transaction that deleted the key.
        if leadership.handover.as_ref().is_some_and(|handover| handover.is_deleting()) {
            self.finish_handover(now);
        } else {
            self.leave(now, "the election key is gone".to_owned());
        }
    }
}

/// How long a master waits before it stands after etcd has gone back: members write their keys every two seconds.
const HISTORIES_TOLD: Duration = Duration::from_secs(5);

/// Delay before a broken watch is replaced.
const RETRY: Duration = Duration::from_millis(100);
