//! A cluster in virtual time: the production code of the role of a master, of the log and of the state machine, over the
//! model of etcd, with a network and processes that fail as a seed says, and clients whose every answer is checked.
//!
//! Nothing here reads a clock or a source of random numbers but the seed's, so a seed is a run: same seed, same trace.

/// A line in the trace, if there is one.
macro_rules! note {
    ($sim:expr, $($text:tt)*) => {
        if $sim.tracing {
            let text = format!($($text)*);
            $sim.note(&text);
        }
    };
}

mod check;
mod chunks;
mod claims;
mod clients;
mod corruption;
mod damage;
mod disks;
mod etcd;
mod event;
mod executing;
mod faults;
mod machines;
mod masters;
mod model;
mod plan;
mod rewriting;
#[path = "../../support/engine/rng.rs"]
#[allow(dead_code)] // shared with other tests, which use more of it
mod rng;
mod searches;
mod serving;
mod straggler;
mod truncation;
mod truth;
mod waiting;
mod watchdog;
mod witness;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use moonkeeper::cluster::keys::Keys;
use moonkeeper::engine::types::SequenceId;

use claims::Claims;
use clients::{Client, Reply};
use disks::Disks;
use etcd::Etcd;
pub use event::{Counts, Event, Process};
use masters::Master;
use model::KeyModel;
pub use plan::ALL as FAULTS;
#[cfg(feature = "planted")]
pub use plan::Focus;
use plan::Plan;
use rng::Rng;
use truncation::Floors;
use truth::Truth;
use watchdog::Watchdog;
use witness::Witnesses;

/// No run has nearly as many events: one that has goes round in circles.
const MOST_EVENTS: u64 = 500_000;

/// What was found to be wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule or invariant.
    pub check: &'static str,
    /// What happened.
    pub what: String,
}

/// How a run went.
pub struct Outcome {
    /// What happened, line by line, if it was asked for.
    pub trace: String,
    /// What was wrong, if anything.
    pub violation: Option<Violation>,
    /// How much happened.
    pub counts: Counts,
}

/// A cluster in virtual time.
pub struct Sim {
    plan: Plan,
    rng: Rng,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::BTreeMap<u64, Event>,
    next: u64,
    keys: Keys,
    etcd: Etcd,
    masters: Vec<Master>,
    clients: Vec<Client>,
    truth: Truth,
    claims: Claims,
    model: KeyModel,
    watchdog: Watchdog,
    /// Digests of primaries that the log has not reached yet.
    ahead: Vec<check::Ahead>,
    /// Off for seeds that only count: a seed that fails is run again with its trace.
    tracing: bool,
    trace: String,
    violation: Option<Violation>,
    counts: Counts,
    calm: bool,
    /// There are no further faults until then.
    quiet_until: u64,
    /// Where the log ended a while before the end.
    settled: SequenceId,
    witnesses: Witnesses,
    /// Decides whose machines sleep.
    sleeps: Rng,
    disks: Disks,
    floors: Floors,
}

/// Runs a seed, with a trace or, which takes less time, without.
pub fn run(seed: u64, tracing: bool) -> Outcome {
    let mut sim = Sim::new(seed, tracing);
    let run = catch_unwind(AssertUnwindSafe(|| sim.run()));
    if let Err(panic) = run {
        let what = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        sim.violation.get_or_insert(Violation { check: "panic", what });
    }
    if let Some(Violation { check, what }) = sim.violation.clone() {
        note!(sim, "VIOLATION {check}: {what}");
    }
    sim.counts.records = sim.truth.last.0;
    Outcome { trace: sim.trace, violation: sim.violation, counts: sim.counts }
}

impl Sim {
    fn new(seed: u64, tracing: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::new(seed, &mut rng);
        let keys = Keys::new("sim");
        let mut sim = Self {
            now: 0,
            queue: BinaryHeap::new(),
            events: std::collections::BTreeMap::new(),
            next: 0,
            etcd: Etcd::new(),
            masters: Vec::new(),
            clients: Vec::new(),
            truth: Truth::new(keys.clone()),
            claims: Claims::default(),
            model: KeyModel::default(),
            watchdog: Watchdog::default(),
            ahead: Vec::new(),
            tracing,
            trace: String::new(),
            violation: None,
            counts: Counts::default(),
            calm: false,
            quiet_until: 0,
            settled: SequenceId(0),
            witnesses: Witnesses::new(seed),
            sleeps: machines::rng(seed),
            disks: Disks::new(seed),
            floors: Floors::default(),
            keys,
            plan,
            rng,
        };
        note!(sim, "seed {seed} {:?}", sim.plan);
        sim.found_in_older_format();
        for master in 0..sim.plan.masters {
            sim.masters.push(Master::new(master, &mut sim.rng));
            let late = sim.plan.lonely && master > 0;
            let delay = sim.rng.below(200_000) + if late { sim.plan.faults_until } else { 0 };
            sim.after(delay, Event::Boot { master });
        }
        for number in 0..sim.plan.clients {
            let client = Client::new(number, sim.plan.segment);
            sim.model.knows(client.uuid, &client.endpoint());
            if !client.has_memory() {
                sim.model.give_up(client.uuid);
            }
            sim.clients.push(client);
            let delay = 100_000 + sim.rng.below(2_000_000);
            sim.after(delay, Event::Step { client: number as usize });
        }
        let first = sim.plan.fault_every + sim.rng.below(3_000_000);
        sim.after(first, Event::Fault);
        let calm = sim.plan.faults_until;
        sim.after(calm, Event::Calm);
        sim.after(watchdog::EVERY, Event::Watchdog);
        let settle = sim.plan.end - plan::SECOND;
        sim.after(settle, Event::Settle);
        sim
    }

    fn run(&mut self) {
        while self.violation.is_none() {
            let Some(Reverse((at, number))) = self.queue.pop() else { break };
            if at > self.plan.end {
                break;
            }
            if self.counts.events > MOST_EVENTS {
                return self.fail(("INV-10", "the cluster never comes to rest".into()));
            }
            self.expire_leases(at);
            self.now = at;
            if let Some(event) = self.events.remove(&number) {
                self.counts.events += 1;
                self.happen(event);
            }
        }
        if self.violation.is_none() {
            self.check_end();
        }
    }

    /// Something is going to happen in a while.
    fn after(&mut self, delay: u64, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((self.now + delay, self.next)));
        self.events.insert(self.next, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { from, call, request } => self.arrive(from, call, &request),
            Event::WatchBegins { from, watch, request } => self.begin_watch(from, watch, request),
            Event::Unstall { master } => self.unstall(master),
            Event::Resume { master } => self.resume(master),
            Event::Boot { master } => self.boot(master),
            Event::Step { client } => self.step(client),
            Event::Reply { client, number, reply } => self.replied(client, number, reply),
            Event::GiveUp { client, number } => self.replied(client, number, Reply::Unknown),
            Event::Fault => self.fault(),
            Event::Calm => self.calm_down(),
            Event::Cut { master, long } => self.cut(master, long),
            Event::Unblind { master } => self.unblind(master),
            Event::Watchdog => self.watch_over(),
            Event::Switchover { master, to } => self.switch_over(master, to),
            Event::Revoke => self.revoke_leader(),
            Event::Mend => self.mend(),
            Event::OtherLog => self.leave_other_log(),
            Event::Settle => self.settled = self.truth.last,
            Event::Tick(to)
            | Event::Answer { to, .. }
            | Event::Timeout { to, .. }
            | Event::WatchTells { to, .. }
            | Event::Opened { to, .. }
            | Event::Closing { to }
            | Event::Closed { to, .. }
            | Event::Flush { to, .. }
            | Event::Straggle { to }
            | Event::Report { to, .. }
            | Event::Gone { to, .. }
            | Event::Told { to, .. }
            | Event::Dead { to, .. }
            | Event::Witness { to, .. }
            | Event::SnapshotWrite { to, .. }
            | Event::SnapshotAnnounced { to, .. }
            | Event::SnapshotRead { to, .. }
            | Event::SnapshotShare { to, .. }
            | Event::SnapshotProve { to, .. }
            | Event::Upkeep { of: to, .. }
            | Event::LookAgain { of: to, .. } => {
                if self.masters[to.master].boot == to.boot {
                    self.reach(to.master, event);
                }
            }
            Event::Call { master, .. } => self.reach(master, event),
        }
    }

    /// Something reaches a process, when it does anything at all.
    fn reach(&mut self, master: usize, event: Event) {
        if self.masters[master].paused {
            self.masters[master].inbox.push(event);
        } else {
            self.meet(master, event);
        }
    }

    /// A line in the trace.
    fn note(&mut self, text: &str) {
        let (seconds, micros) = (self.now / plan::SECOND, self.now % plan::SECOND);
        let _ = writeln!(self.trace, "{seconds}.{micros:06} {text}");
    }

    fn fail(&mut self, (check, what): (&'static str, String)) {
        self.violation.get_or_insert(Violation { check, what });
    }

    fn expect(&mut self, checked: Result<(), (&'static str, String)>) {
        if let Err(broken) = checked {
            self.fail(broken);
        }
    }
}
