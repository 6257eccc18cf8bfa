//! The way to etcd and back: requests and answers that are late, lost or doubled, and watches that fall silent.

use std::time::Duration;

use moonkeeper::coordination::model::{Model, WatchId as ModelWatch};
use moonkeeper::coordination::types::{
    Change, Failure, KeyRange, Op, Request, Response, WatchEvent, WatchRequest,
};
use moonkeeper::replication::node::{CallId, WatchId};

use super::plan::{MS, SECOND};
use super::truth::Cause;
use super::{Event, Process, Sim};

/// The model and its watchers.
pub struct Etcd {
    pub model: Model,
    /// The watch of the checks.
    pub spy: ModelWatch,
    /// It refuses writes and leases until then.
    pub full_until: u64,
    /// What was done to the log by hand and has to be undone.
    pub damage: Option<super::damage::Damage>,
    /// An earlier state, for a restore.
    pub backup: Option<super::damage::Backup>,
    watches: Vec<Watch>,
    /// Bytes of batches as they were first sent: they never change (R5).
    sent: std::collections::BTreeMap<(u64, Vec<u8>), bytes::Bytes>,
}

struct Watch {
    of: Process,
    watch: WatchId,
    model: ModelWatch,
    /// When the last thing that it told arrives: they keep their order.
    last: u64,
}

impl Etcd {
    pub fn new() -> Self {
        let mut model = Model::new();
        let everything = KeyRange::prefix("mooncake-store/");
        let spy = model.watch(WatchRequest { range: everything, from_revision: 1, deletions: true });
        Self {
            model,
            spy,
            full_until: 0,
            damage: None,
            backup: None,
            watches: Vec::new(),
            sent: Default::default(),
        }
    }
}

impl Sim {
    /// etcd's own clock.
    pub fn etcd_time(&self) -> Duration {
        Duration::from_micros(self.now * self.plan.etcd_rate / 1000)
    }

    /// Asks the model directly, without a network.
    pub fn by_hand(&mut self, request: &Request) -> Result<Response, Failure> {
        let now = self.etcd_time();
        self.etcd.model.call(now, request)
    }

    /// How long a message to or from etcd takes.
    fn hop(&mut self) -> u64 {
        let usual = self.plan.delay / 2 + self.rng.below(self.plan.delay);
        let slow = !self.calm && self.rng.below(10_000) < self.plan.slow;
        if slow { usual + self.rng.below(self.plan.slowest) } else { usual }
    }

    fn odds(&mut self, of_ten_thousand: u64) -> bool {
        of_ten_thousand > 0 && !self.calm && self.rng.below(10_000) < of_ten_thousand
    }

    fn is_cut(&self, master: usize) -> bool {
        self.masters[master].cut_until > self.now
    }

    /// A master asks etcd.
    pub fn ask(&mut self, from: Process, call: CallId, request: Request, timeout: Duration) {
        // The time-out runs by the master's own clock.
        let timeout = timeout.as_micros() as u64 * 1000 / self.plan.rates[from.master];
        self.after(timeout, Event::Timeout { to: from, call });
        self.masters[from.master].waiting.insert(call);
        if let Request::Txn(txn) = &request {
            self.expect_same_bytes(from, &txn.success);
        }
        let lost = self.plan.lost_requests;
        if self.is_cut(from.master) || self.odds(lost) {
            return;
        }
        let twice = self.plan.twice;
        if matches!(request, Request::Txn(_)) && self.odds(twice) {
            let delay = self.hop() + self.rng.below(2 * SECOND);
            self.after(delay, Event::Arrive { from, call: None, request: request.clone() });
        }
        let mut delay = self.hop();
        if self.masters[from.master].slow_writes_until > self.now && self.is_batch(&request) {
            delay += self.rng.below(500 * MS);
        }
        self.after(delay, Event::Arrive { from, call: Some(call), request });
    }

    fn is_batch(&self, request: &Request) -> bool {
        let Request::Txn(txn) = request else { return false };
        txn.success.iter().any(|op| matches!(op, Op::Put { key, .. } if self.keys.batches().contains(key)))
    }

    /// How late an answer is on top of what is usual: as late as its caller still takes it.
    fn lateness(&mut self, master: usize, request: &Request) -> u64 {
        let timeout = self.plan.call_timeout.as_micros() as u64;
        let late = timeout / 2 + self.rng.below(timeout * 45 / 100);
        let keep_alive = matches!(request, Request::LeaseKeepAlive { .. });
        if keep_alive && self.masters[master].late_keep_alives_until > self.now {
            return late;
        }
        if !self.masters[master].relapses || !self.is_batch(request) {
            return 0;
        }
        // It loses the lease and leads again before it hears what became of this write.
        self.masters[master].relapses = false;
        self.masters[master].slow_writes_until = self.now + 2 * timeout;
        let soon = self.rng.below(20 * MS);
        self.after(soon, Event::Revoke);
        late
    }

    /// R5: whatever is sent again has the same bytes.
    fn expect_same_bytes(&mut self, from: Process, ops: &[Op]) {
        for op in ops {
            let Op::Put { key, value, .. } = op else { continue };
            if self.keys.batches().contains(key) {
                let place = (self.masters[from.master].term, key.to_vec());
                let first = self.etcd.sent.entry(place).or_insert_with(|| value.clone());
                if first != value {
                    self.fail(("R5", "a batch was sent again with other bytes".into()));
                }
            }
        }
    }

    /// A request is carried out. Requests that a process sent go on when it is dead.
    pub fn arrive(&mut self, from: Process, call: Option<CallId>, request: &Request) {
        let refused = self.plan.refused;
        let grows = match request {
            Request::Txn(txn) => txn.success.iter().any(|op| matches!(op, Op::Put { .. })),
            Request::LeaseGrant { .. } => true,
            _ => false,
        };
        let full = grows && self.etcd.full_until > self.now;
        let result = if full || matches!(request, Request::Txn(_)) && self.odds(refused) {
            Err(Failure::Refused("no space".into()))
        } else {
            let now = self.etcd_time();
            let result = self.etcd.model.call(now, request);
            let cause = match request {
                Request::LeaseRevoke { .. } => Cause::Revocation,
                _ => Cause::Transaction,
            };
            self.look(cause);
            result
        };
        let Some(call) = call else { return };
        let lost = self.plan.lost_answers;
        if self.is_cut(from.master) || self.odds(lost) {
            return;
        }
        let delay = self.hop() + self.lateness(from.master, request);
        self.after(delay, Event::Answer { to: from, call, result });
    }

    /// Leases end while time passes.
    pub fn expire_leases(&mut self, until: u64) {
        let rate = self.plan.etcd_rate;
        while let Some(expiry) = self.etcd.model.next_expiry()
            && expiry <= Duration::from_micros(until * rate / 1000)
        {
            let at = (expiry.as_micros() as u64 * 1000).div_ceil(rate);
            self.now = self.now.max(at).min(until.max(self.now));
            self.etcd.model.advance(expiry);
            self.look(Cause::Time);
        }
    }

    /// Looks at what has changed, and tells watches.
    pub fn look(&mut self, cause: Cause) {
        while let Some(event) = self.etcd.model.poll(self.etcd.spy) {
            let WatchEvent::Changes { changes, .. } = event else { continue };
            for change in &changes {
                if !self.is_restored() {
                    let checked = self.check_compaction(change, cause);
                    self.expect(checked);
                }
                if cause == Cause::Hand {
                    continue;
                }
                let checked = if self.is_restored() {
                    self.check_restored(change)
                } else {
                    self.truth.changed(self.now, change, cause)
                };
                self.expect(checked);
            }
        }
        self.log_grew();
        for index in 0..self.etcd.watches.len() {
            self.tell(index);
        }
    }

    /// No master takes a store that was restored from a backup for the log that it knows.
    fn check_restored(&self, change: &Change) -> Result<(), (&'static str, String)> {
        match change {
            Change::Put(entry) if self.keys.batches().contains(&entry.key) => {
                Err(("history", "a batch was written to a restored store whose log is shorter".into()))
            }
            _ => Ok(()),
        }
    }

    /// All connections to etcd break.
    pub fn break_watches(&mut self) {
        (0..self.masters.len()).for_each(|master| self.break_watches_of(master));
    }

    /// The connections of a master to etcd break.
    pub fn break_watches_of(&mut self, master: usize) {
        let watches = self.etcd.watches.clone();
        for Watch { of, watch, .. } in watches.into_iter().filter(|watch| watch.of.master == master) {
            self.end_watch(of, watch);
            let event = WatchEvent::Broken("connection reset".into());
            self.after(1, Event::WatchTells { to: of, watch, event });
        }
    }

    fn tell(&mut self, index: usize) {
        let Watch { of, watch, model, mut last } = self.etcd.watches[index];
        let master = &self.masters[of.master];
        if master.boot != of.boot || master.stalled_until > self.now || self.is_cut(of.master) {
            return;
        }
        while let Some(event) = self.etcd.model.poll(model) {
            last = last.max(self.now + self.hop());
            self.after(last - self.now, Event::WatchTells { to: of, watch, event });
        }
        self.etcd.watches[index].last = last;
    }

    /// A watch that was asked for begins.
    pub fn begin_watch(&mut self, from: Process, watch: WatchId, request: WatchRequest) {
        if self.is_cut(from.master) {
            let broken = WatchEvent::Broken("cannot connect".into());
            return self.after(200 * MS, Event::WatchTells { to: from, watch, event: broken });
        }
        if self.masters[from.master].boot != from.boot {
            return;
        }
        let model = self.etcd.model.watch(request);
        self.etcd.watches.push(Watch { of: from, watch, model, last: self.now });
        self.tell(self.etcd.watches.len() - 1);
    }

    /// A watch is no longer wanted.
    pub fn end_watch(&mut self, of: Process, watch: WatchId) {
        self.etcd.watches.retain(|other| {
            let ended = other.of == of && other.watch == watch;
            if ended {
                self.etcd.model.cancel(other.model);
            }
            !ended
        });
    }

    /// The watches of a dead process end.
    pub fn end_watches(&mut self, of: Process) {
        let watches: Vec<WatchId> =
            self.etcd.watches.iter().filter(|watch| watch.of == of).map(|watch| watch.watch).collect();
        watches.into_iter().for_each(|watch| self.end_watch(of, watch));
    }

    /// The watches of a master go on, or break.
    pub fn unstall(&mut self, master: usize) {
        if self.masters[master].stalled_until > self.now || self.is_cut(master) {
            return;
        }
        let of = Process { master, boot: self.masters[master].boot };
        let watches: Vec<WatchId> =
            self.etcd.watches.iter().filter(|watch| watch.of == of).map(|watch| watch.watch).collect();
        for watch in watches {
            if self.rng.percent(40) {
                self.end_watch(of, watch);
                let broken = WatchEvent::Broken("connection reset".into());
                self.after(1, Event::WatchTells { to: of, watch, event: broken });
            } else if let Some(index) =
                self.etcd.watches.iter().position(|other| other.watch == watch && other.of == of)
            {
                self.tell(index);
            }
        }
    }
}

impl Clone for Watch {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Watch {}
