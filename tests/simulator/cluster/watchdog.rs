//! Checks that run beside everything else, because a later fault may hide what they look for: a cluster without a primary
//! although nothing is wrong with it, and clients that are long gone and still have memory in the log's state.

use moonkeeper::engine::types::{Term, Uuid};
use moonkeeper::replication::node::status::Activity;

use super::plan::MS;
use super::{Event, Sim};

/// How often they run.
pub const EVERY: u64 = 200 * MS;

/// What the running checks remember.
#[derive(Default)]
pub struct Watchdog {
    /// The effects of every fault so far are over by then.
    pub trouble_until: u64,
    /// When a primary last served.
    served_at: u64,
    /// For how long the primary of a term has served.
    served: (Term, u64),
    /// When each client was last heard, in the time that the primary of a term had served.
    heard: std::collections::BTreeMap<Uuid, (Term, u64)>,
}

impl Watchdog {
    /// A fault has effects for so long.
    pub fn trouble(&mut self, until: u64) {
        self.trouble_until = self.trouble_until.max(until);
    }

    /// A master has heard a client.
    pub fn heard(&mut self, client: Uuid, term: Term) {
        let served = if self.served.0 == term { self.served.1 } else { 0 };
        self.heard.insert(client, (term, served));
    }

    /// Whether the primary of a term has heard a client.
    pub fn has_heard(&self, client: Uuid, term: Term) -> bool {
        self.heard.get(&client).is_some_and(|(heard, _)| *heard == term)
    }

    /// For how long the primary has served since it last heard a client.
    fn silent_for(&self, client: Uuid) -> u64 {
        let (term, served) = self.served;
        match self.heard.get(&client) {
            Some((heard, at)) if *heard == term => served.saturating_sub(*at),
            _ => served,
        }
    }
}

impl Sim {
    /// Runs the checks.
    pub fn watch_over(&mut self) {
        self.after(EVERY, Event::Watchdog);
        let serving = (0..self.masters.len()).find(|index| self.serves(*index));
        if let Some(index) = serving {
            self.watchdog.served_at = self.now;
            let term = Term(self.masters[index].term);
            let (of, served) = &mut self.watchdog.served;
            if *of != term {
                (*of, *served) = (term, 0);
            } else if self.now >= self.etcd.full_until {
                // While etcd has no space, no client's expiry can be written.
                *served += EVERY;
            }
            self.check_silence(term);
        } else {
            self.check_availability();
        }
    }

    /// Whether a master answers clients.
    pub fn serves(&self, index: usize) -> bool {
        let now = self.clock(index);
        let master = &self.masters[index];
        let open = master
            .server
            .as_ref()
            .is_some_and(|server| server.open && server.incarnation.gate.may_answer(now));
        let activity = master.node.as_ref().map(|node| node.brief().0);
        open && !master.paused && activity == Some(Activity::Serving)
    }

    /// INV-10 while it runs: without a fault there is a primary, after the time that a failover may take.
    fn check_availability(&mut self) {
        let since = self.watchdog.trouble_until.max(self.watchdog.served_at);
        if self.now > since + self.plan.patience() {
            let states: Vec<String> = self
                .masters
                .iter()
                .map(|master| format!("{:?}", master.node.as_ref().map(|node| node.brief())))
                .collect();
            let what = format!("no fault and no primary since {since}: {}", states.join(" "));
            self.fail(("no primary", what));
        }
    }

    /// A client that the primary of this term has not heard for its deadline has no memory in the log's state.
    fn check_silence(&mut self, term: Term) {
        if self.truth.leader.is_none_or(|leader| leader.0 != term) {
            return;
        }
        let missed_after = self.plan.missed_after();
        for segment in self.truth.engine.segments() {
            let silent = self.watchdog.silent_for(segment.client);
            if silent > missed_after {
                let what = format!("client {} was silent for {silent} and has memory", segment.client);
                return self.fail(("silent client", what));
            }
        }
    }
}
