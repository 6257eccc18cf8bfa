//! Masters: a process with a clock of its own, its role, and whoever carries its commands out.

use std::collections::BTreeSet;

use moonkeeper::coordination::types::{Op, Request};
use moonkeeper::engine::types::{LogTime, Term};
use moonkeeper::replication::node::{Addresses, BootId, CallId, Command, Input, Node, Peer, Settings, TICK};
use moonkeeper::replication::time::Monotonic;

use super::chance::Chance;
use super::plan::{MS, SECOND};
use super::serving::Server;
use super::{Event, Process, Sim};

/// A master.
pub struct Master {
    pub name: String,
    /// Which life it is in.
    pub boot: u64,
    pub node: Option<Node>,
    /// Its monotonic clock began anywhere.
    offset: u64,
    pub paused: bool,
    /// What it finds when it goes on.
    pub inbox: Vec<Event>,
    /// It does not reach etcd until then.
    pub cut_until: u64,
    /// Its watches say nothing until then.
    pub stalled_until: u64,
    /// Calls that it waits for.
    pub waiting: BTreeSet<CallId>,
    pub server: Option<Server>,
    pub followed: Option<Peer>,
    /// The term that it last led in.
    pub term: u64,
    next_report: u64,
    /// What was compared last.
    pub compared: Option<(u64, u64)>,
    /// How its role was last told.
    told: String,
}

impl Master {
    pub fn new(index: usize, chance: &mut Chance) -> Self {
        Self {
            name: format!("m{index}"),
            boot: 0,
            node: None,
            offset: chance.below(1 << 40),
            paused: false,
            inbox: Vec::new(),
            cut_until: 0,
            stalled_until: 0,
            waiting: BTreeSet::new(),
            server: None,
            followed: None,
            term: 0,
            next_report: 0,
            compared: None,
            told: String::new(),
        }
    }
}

impl Sim {
    /// Which boot id a process has: no two have the same.
    fn boot_id(process: Process) -> BootId {
        BootId(process.boot * 10 + process.master as u64)
    }

    /// The process of a master as it is now.
    pub fn process(&self, master: usize) -> Process {
        Process { master, boot: self.masters[master].boot }
    }

    /// The monotonic clock of a master.
    pub fn clock(&self, master: usize) -> Monotonic {
        Monotonic(self.masters[master].offset + self.now * self.plan.rates[master] / 1000)
    }

    /// A process starts.
    pub fn boot(&mut self, index: usize) {
        if self.masters[index].node.is_some() {
            return;
        }
        self.masters[index].boot += 1;
        let process = self.process(index);
        let address = |kind: &str| format!("{}:{kind}", self.masters[index].name);
        let addresses = Addresses {
            rpc: address("rpc"),
            http: address("http"),
            peer: address("peer"),
            admin: address("admin"),
        };
        // Nobody's wall clock is right.
        let wall = 1_700_000_000_000 + self.chance.below(4_000_000_000);
        let settings = Settings {
            name: self.masters[index].name.clone(),
            boot_id: Self::boot_id(process),
            keys: self.keys.clone(),
            addresses,
            version: "simulated".into(),
            leader_ttl: self.plan.leader_ttl,
            keep_alive: self.plan.keep_alive,
            call_timeout: self.plan.call_timeout,
            handover_timeout: self.plan.call_timeout * 3,
            rules: self.plan.rules.clone(),
            queue_bytes: self.plan.queue_bytes,
            wall: LogTime(wall),
            seed: self.chance.next(),
        };
        self.note(&format!("m{index} boots as {}", process.boot));
        let node = Node::new(settings, self.clock(index));
        self.masters[index].node = Some(node);
        self.masters[index].compared = None;
        self.obey(index);
        self.after(TICK.as_micros() as u64, Event::Tick(process));
    }

    /// A process is gone, with everything in it.
    pub fn die(&mut self, index: usize) {
        let process = self.process(index);
        self.end_watches(process);
        self.hang_up(index);
        let master = &mut self.masters[index];
        master.node = None;
        master.paused = false;
        master.waiting.clear();
        master.server = None;
        master.followed = None;
        // Connections to it break.
        let inbox = std::mem::take(&mut master.inbox);
        master.boot += 1;
        for event in inbox {
            if let Event::Call { client, number, .. } = event {
                self.after(MS, Event::Reply { client, number, reply: super::Reply::Unknown });
            }
        }
        let boot = Self::boot_id(process);
        for other in 0..self.masters.len() {
            let follows = self.masters[other].followed.clone().filter(|peer| peer.boot_id == boot);
            if let Some(peer) = follows
                && self.chance.percent(80)
            {
                let delay = 20 * MS + self.chance.below(100 * MS);
                let to = self.process(other);
                self.after(delay, Event::Dead { to, boot, lease: peer.lease });
            }
        }
        let delay = 200 * MS + self.chance.below(4 * SECOND);
        self.after(delay, Event::Boot { master: index });
    }

    /// A process goes on; everything that it missed is there at once.
    pub fn resume(&mut self, index: usize) {
        if !self.masters[index].paused {
            return;
        }
        self.note(&format!("m{index} goes on"));
        self.masters[index].paused = false;
        for event in std::mem::take(&mut self.masters[index].inbox) {
            self.reach(index, event);
        }
    }

    /// Something reaches a process that is awake.
    pub fn meet(&mut self, index: usize, event: Event) {
        let process = self.process(index);
        let waiting = &mut self.masters[index].waiting;
        match event {
            Event::Tick(_) => {
                self.input(index, Input::Tick);
                self.report(index);
                if self.masters[index].node.is_some() && self.process(index) == process {
                    self.after(TICK.as_micros() as u64, Event::Tick(process));
                }
            }
            Event::Answer { call, result, .. } if waiting.remove(&call) => {
                self.note(&format!("m{index} #{} {}", call.0, brief(&result)));
                self.input(index, Input::Answer { call, result });
            }
            Event::Timeout { call, .. } if waiting.remove(&call) => {
                self.note(&format!("m{index} #{} timed out", call.0));
                let result = Err(moonkeeper::coordination::types::Failure::Unknown("timed out".into()));
                self.input(index, Input::Answer { call, result });
            }
            Event::Answer { .. } | Event::Timeout { .. } => {}
            Event::WatchTells { watch, event, .. } => self.input(index, Input::Watch { watch, event }),
            Event::Opened { serial, .. } => self.opened(index, serial),
            Event::Closing { .. } => self.closing(index),
            Event::Closed { .. } => self.input(index, Input::Closed { quiet: true }),
            Event::Report { name, boot, applied, .. } => {
                self.input(index, Input::PeerReport { name, boot_id: boot, applied });
            }
            Event::Dead { boot, lease, .. } => {
                self.note(&format!("m{index} is told that {} is dead", boot.0));
                self.input(index, Input::PeerDead { boot_id: boot, lease });
            }
            Event::Upkeep { serial, .. } => self.upkeep(index, serial),
            Event::Call { client, number, op, .. } => self.called(index, client, number, op),
            _ => {}
        }
    }

    /// Tells the role of a master something.
    pub fn input(&mut self, index: usize, input: Input) {
        let now = self.clock(index);
        if let Some(node) = &mut self.masters[index].node {
            node.handle(now, input);
            self.obey(index);
        }
    }

    /// Carries out what the role of a master wants.
    fn obey(&mut self, index: usize) {
        let process = self.process(index);
        let now = self.clock(index);
        let Some(node) = &mut self.masters[index].node else { return };
        let commands = node.take_commands();
        let status = node.status(now);
        let leads = status.role == moonkeeper::replication::node::status::Role::Primary;
        if leads && self.masters[index].term != status.term.0 {
            self.masters[index].term = status.term.0;
            self.check_promotion(index, status.term, status.applied);
        }
        let told = format!("{:?} t{}", status.activity, status.term.0);
        if told != self.masters[index].told {
            self.note(&format!("m{index} {told} applied {}", status.applied.0));
            self.masters[index].told = told;
        }
        let mut stopped = false;
        for command in commands {
            match command {
                Command::Call { call, request, timeout } => {
                    self.note(&format!("m{index} #{} {}", call.0, brief_request(&request)));
                    self.ask(process, call, request, timeout);
                }
                Command::Watch { watch, request } => {
                    if request.range == self.keys.batches() {
                        self.check_watch(index, status.applied, request.from_revision);
                    }
                    let delay = self.plan.delay;
                    self.after(delay, Event::WatchBegins { from: process, watch, request });
                }
                Command::Unwatch { watch } => self.end_watch(process, watch),
                Command::Open { replica, clock, term } => self.open(index, replica, clock, term),
                Command::Close => {
                    let delay = self.chance.below(30 * MS);
                    self.after(delay, Event::Closing { to: process });
                }
                Command::FollowPeer(peer) => self.masters[index].followed = peer,
                Command::HandedOver { id, result } => {
                    self.note(&format!("m{index} hand-over {}: {result:?}", id.0));
                    self.counts.handed_over += u64::from(result.is_ok());
                }
                Command::Stopped => stopped = true,
            }
        }
        self.answer_parked(index);
        self.compare(index);
        if stopped {
            self.note(&format!("m{index} has stopped"));
            self.die(index);
        }
    }

    /// A standby tells whom it follows how far it is.
    fn report(&mut self, index: usize) {
        let now = self.now;
        let master = &mut self.masters[index];
        let (Some(node), Some(peer)) = (&master.node, &master.followed) else { return };
        if now < master.next_report {
            return;
        }
        master.next_report = now + 60 * MS;
        let (name, applied) = (master.name.clone(), node.replica().engine.applied());
        let leader = peer.boot_id;
        let boot = Self::boot_id(self.process(index));
        let to =
            (0..self.masters.len()).map(|other| self.process(other)).find(|to| Self::boot_id(*to) == leader);
        if let Some(to) = to {
            let delay = self.plan.delay;
            self.after(delay, Event::Report { to, name, boot, applied });
        }
    }

    /// Who leads in etcd, if its process is there.
    pub fn leader(&self) -> Option<usize> {
        let (Term(term), _) = self.truth.leader?;
        (0..self.masters.len()).find(|index| {
            let master = &self.masters[*index];
            master.node.is_some() && master.term == term
        })
    }
}

fn brief(
    result: &Result<moonkeeper::coordination::types::Response, moonkeeper::coordination::types::Failure>,
) -> String {
    use moonkeeper::coordination::types::Response;
    match result {
        Ok(Response::Txn { revision, succeeded, .. }) => format!("txn {succeeded} at {revision}"),
        Ok(Response::Got { revision, page }) => format!("got {} at {revision}", page.entries.len()),
        Ok(other) => format!("{other:?}"),
        Err(failure) => format!("{failure}"),
    }
}

fn brief_request(request: &Request) -> String {
    match request {
        Request::Txn(txn) => {
            let mut text = String::from("txn");
            for op in &txn.success {
                let key = match op {
                    Op::Put { key, .. } => key,
                    Op::Delete(range) => &range.start,
                    Op::Get(get) => &get.range.start,
                };
                let key = String::from_utf8_lossy(key);
                text.push(' ');
                text.push_str(key.trim_start_matches("mooncake-store/"));
            }
            text
        }
        Request::Get(get) => format!("get {}", String::from_utf8_lossy(&get.range.start)),
        other => format!("{other:?}"),
    }
}
