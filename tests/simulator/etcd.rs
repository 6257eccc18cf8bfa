//! The way to etcd and back: requests and answers that are late, lost or doubled, and watches that fall silent.

use std::time::Duration;

use moonkeeper::coordination::model::{Model, WatchId as ModelWatch};
use moonkeeper::coordination::types::{Failure, KeyRange, Op, Request, WatchEvent, WatchRequest};
use moonkeeper::replication::node::{CallId, WatchId};

use super::plan::{MS, SECOND};
use super::truth::Cause;
use super::{Event, Process, Sim};

/// The model and who watches it.
pub struct Etcd {
    pub model: Model,
    /// The watch of whoever checks.
    spy: ModelWatch,
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
        Self { model, spy, watches: Vec::new(), sent: Default::default() }
    }
}

impl Sim {
    fn etcd_time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    /// How long a message to or from etcd takes.
    fn hop(&mut self) -> u64 {
        let usual = self.plan.delay / 2 + self.chance.below(self.plan.delay);
        let slow = !self.calm && self.chance.below(10_000) < self.plan.slow;
        if slow { usual + self.chance.below(self.plan.slowest) } else { usual }
    }

    fn odds(&mut self, of_ten_thousand: u64) -> bool {
        of_ten_thousand > 0 && !self.calm && self.chance.below(10_000) < of_ten_thousand
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
            let delay = self.hop() + self.chance.below(2 * SECOND);
            self.after(delay, Event::Arrive { from, call: None, request: request.clone() });
        }
        let delay = self.hop();
        self.after(delay, Event::Arrive { from, call: Some(call), request });
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
        let result = if matches!(request, Request::Txn(_)) && self.odds(refused) {
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
        let delay = self.hop();
        self.after(delay, Event::Answer { to: from, call, result });
    }

    /// Leases end while time passes.
    pub fn expire_leases(&mut self, until: u64) {
        while let Some(expiry) = self.etcd.model.next_expiry()
            && expiry <= Duration::from_micros(until)
        {
            self.now = self.now.max(expiry.as_micros() as u64);
            self.etcd.model.advance(expiry);
            self.look(Cause::Time);
        }
    }

    /// Looks at what has changed, and tells watches.
    pub fn look(&mut self, cause: Cause) {
        while let Some(event) = self.etcd.model.poll(self.etcd.spy) {
            let WatchEvent::Changes { changes, .. } = event else { continue };
            for change in &changes {
                let checked = self.truth.changed(self.now, change, cause);
                self.expect(checked);
            }
        }
        self.log_grew();
        for index in 0..self.etcd.watches.len() {
            self.tell(index);
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
            if self.chance.percent(40) {
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
