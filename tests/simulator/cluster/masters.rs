//! Masters: a process with a clock of its own, its role, and what carries its commands out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use moonkeeper::cluster::log_end::History;
use moonkeeper::cluster::member::{Addresses, BootId};
use moonkeeper::coordination::types::{Op as EtcdOp, Request};
use moonkeeper::engine::types::{LogTime, Term};
use moonkeeper::replication::liveness::Liveness;
use moonkeeper::replication::node::status::Activity;
use moonkeeper::replication::node::{
    CallId, Command, HandoverError, Input, Node, Peer, Settings, TICK, WatchId,
};
use moonkeeper::replication::time::Monotonic;

use super::corruption::Corruption;
use super::machines::Machine;
use super::plan::{MS, SECOND};
use super::rng::Rng;
use super::serving::Server;
use super::{Event, Process, Sim};

/// How long calls have to end when the port is closed.
const DRAIN: u64 = 2 * SECOND;

/// A master.
pub struct Master {
    pub name: String,
    /// Which life it is in.
    pub boot: u64,
    pub node: Option<Node>,
    pub machine: Machine,
    pub paused: bool,
    /// What it finds when it goes on.
    pub inbox: Vec<Event>,
    /// It does not reach etcd until then.
    pub cut_until: u64,
    /// Its watches say nothing until then.
    pub stalled_until: u64,
    /// Answers to its keep-alives are as late as it takes them, until then.
    pub late_keep_alives_until: u64,
    /// It loses its lease when its next batch has reached etcd.
    pub relapses: bool,
    /// Its batches are slow to reach etcd until then.
    pub slow_writes_until: u64,
    /// The target of its hand-over stands still when its port closes: which master, and for how long.
    pub stalls_at_close: Option<(usize, u64)>,
    /// Calls that it waits for.
    pub waiting: BTreeSet<CallId>,
    pub server: Option<Server>,
    /// Client deadlines of the last term that it served in.
    pub deadlines: Option<(Term, Arc<Liveness>)>,
    pub followed: Option<Peer>,
    /// The term that it last led in.
    pub term: u64,
    next_report: u64,
    /// It has no connection to the primary until then.
    pub disconnected_until: u64,
    /// When standbys last reported to it.
    pub reports: BTreeMap<String, Monotonic>,
    next_told: u64,
    /// What its data directory says of the log.
    pub saved: Option<History>,
    next_save: u64,
    /// The files in its directory of snapshots.
    pub files: Vec<super::disks::File>,
    /// A call that outlived its connection.
    pub straggler: Option<super::straggler::Straggler>,
    /// What was compared last.
    pub compared: Option<(u64, u64)>,
    /// Its state is not what the log says.
    pub corruption: Option<Corruption>,
    /// How its role was last told.
    told: Option<(Activity, Term)>,
}

impl Master {
    pub fn new(index: usize, rng: &mut Rng) -> Self {
        Self {
            name: format!("m{index}"),
            boot: 0,
            node: None,
            machine: Machine::new(rng.below(1 << 40)),
            paused: false,
            inbox: Vec::new(),
            cut_until: 0,
            stalled_until: 0,
            late_keep_alives_until: 0,
            relapses: false,
            slow_writes_until: 0,
            stalls_at_close: None,
            waiting: BTreeSet::new(),
            server: None,
            deadlines: None,
            followed: None,
            term: 0,
            next_report: 0,
            disconnected_until: 0,
            reports: BTreeMap::new(),
            next_told: 0,
            saved: None,
            next_save: 0,
            files: Vec::new(),
            straggler: None,
            compared: None,
            corruption: None,
            told: None,
        }
    }
}

impl Sim {
    /// Which boot id a process has: no two have the same.
    pub fn boot_id(process: Process) -> BootId {
        BootId(process.boot * 10 + process.master as u64)
    }

    /// The process of a master as it is now.
    pub fn process(&self, master: usize) -> Process {
        Process { master, boot: self.masters[master].boot }
    }

    /// The monotonic clock of a master.
    pub fn clock(&self, master: usize) -> Monotonic {
        self.masters[master].machine.boottime(self.now, self.plan.rates[master])
    }

    /// A process starts.
    pub fn boot(&mut self, index: usize) {
        if self.masters[index].node.is_some() {
            return;
        }
        // A process that knows nothing cannot tell a log that was shortened by hand.
        if self.is_damaged() {
            return self.after(100 * MS, Event::Boot { master: index });
        }
        self.watchdog.trouble(self.now);
        self.masters[index].boot += 1;
        let process = self.process(index);
        let address = |kind: &str| format!("{}:{kind}", self.masters[index].name);
        let addresses = Addresses {
            rpc: address("rpc"),
            http: address("http"),
            peer: address("peer"),
            admin: address("admin"),
        };
        let history = self.masters[index].saved.filter(|_| self.plan.data_dir);
        note!(self, "m{index} boots as {}", process.boot);
        let (snapshots, shown_by) = self.read_disk(index, history).unzip();
        // No wall clock is right.
        let wall = 1_700_000_000_000 + self.rng.below(4_000_000_000);
        let settings = Settings {
            name: self.masters[index].name.clone(),
            boot_id: Self::boot_id(process),
            keys: self.keys.clone(),
            addresses,
            version: "simulated".into(),
            leader_ttl: self.plan.leader_ttl,
            keep_alive: self.plan.keep_alive,
            call_timeout: self.plan.call_timeout,
            handover_timeout: self.plan.handover_timeout,
            engine: self.plan.settings.clone(),
            queue_bytes: self.plan.queue_bytes,
            wall: LogTime(wall),
            seed: self.rng.next(),
            history,
            raise_after: self.witnesses.raise_after,
            snapshot_copies: self.snapshot_copies(),
            snapshots,
        };
        self.masters[index].machine.boot(self.now);
        let node = Node::new(settings, self.clock(index));
        if let Some(shown_by) = shown_by.flatten() {
            self.masters[index].corruption = Some(Corruption::of_snapshot(node.incarnation(), shown_by));
        }
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
        master.straggler = None;
        master.reports.clear();
        // Connections to it break.
        let inbox = std::mem::take(&mut master.inbox);
        master.boot += 1;
        for event in inbox {
            if let Event::Call { client, number, .. } = event {
                self.after(MS, Event::Reply { client, number, reply: super::Reply::Unknown });
            }
        }
        let boot = Self::boot_id(process);
        self.disconnect(index, boot);
        self.witness(index, boot);
        for other in 0..self.masters.len() {
            let follows = self.masters[other].followed.clone().filter(|peer| peer.boot_id == boot);
            if let Some(peer) = follows
                && self.rng.percent(80)
            {
                let delay = 20 * MS + self.rng.below(100 * MS);
                let to = self.process(other);
                self.after(delay, Event::Dead { to, boot, lease: peer.lease });
            }
        }
        let delay = 200 * MS + self.rng.below(4 * SECOND);
        self.watchdog.trouble(self.now + delay);
        self.after(delay, Event::Boot { master: index });
    }

    /// A process goes on; everything that it missed is there at once.
    pub fn resume(&mut self, index: usize) {
        if !self.masters[index].paused {
            return;
        }
        note!(self, "m{index} goes on");
        self.masters[index].paused = false;
        self.wake_up(index);
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
                self.tell_standbys(index);
                self.save_history(index);
                if self.masters[index].node.is_some() && self.process(index) == process {
                    self.after(TICK.as_micros() as u64, Event::Tick(process));
                }
            }
            Event::Answer { call, result, .. } if waiting.remove(&call) => {
                note!(self, "m{index} #{} {}", call.0, brief(&result));
                self.input(index, Input::Answer { call, result });
            }
            Event::Timeout { call, .. } if waiting.remove(&call) => {
                note!(self, "m{index} #{} timed out", call.0);
                let result = Err(moonkeeper::coordination::types::Failure::Unknown("timed out".into()));
                self.input(index, Input::Answer { call, result });
            }
            Event::Answer { .. } | Event::Timeout { .. } => {}
            Event::WatchTells { watch, event, .. } => self.input(index, Input::Watch { watch, event }),
            Event::Opened { serial, .. } => self.opened(index, serial),
            Event::Closing { .. } => self.closing(index),
            Event::Closed { since, .. } => {
                let node = self.masters[index].node.as_ref();
                let quiet = node.is_some_and(|node| node.incarnation().guards.is_drained());
                if !quiet && self.now < since + DRAIN {
                    let delay = 50 * MS;
                    return self.after(delay, Event::Closed { to: process, since });
                }
                self.input(index, Input::Closed { quiet });
            }
            Event::Flush { flush, incarnation, clock, .. } => {
                self.flush_leases(index, flush, &incarnation, clock);
            }
            Event::Straggle { .. } => self.straggle(index),
            Event::Gone { name, boot, .. } => {
                self.masters[index].reports.remove(&name);
                self.input(index, Input::PeerGone { name, boot_id: boot });
            }
            Event::Told { boot, term, log, durable, sent_ms, .. } => {
                self.input(index, Input::PrimaryTold { boot_id: boot, term, log, durable, sent_ms });
            }
            Event::Report { name, boot, applied, .. } => {
                let now = self.clock(index);
                self.masters[index].reports.insert(name.clone(), now);
                self.input(index, Input::PeerReport { name, boot_id: boot, applied });
            }
            Event::Dead { boot, lease, .. } => {
                note!(self, "m{index} is told that {} is dead", boot.0);
                self.input(index, Input::PeerDead { boot_id: boot, lease });
            }
            Event::Witness { boot, .. } => {
                note!(self, "m{index} hears of a witness that {} has ended", boot.0);
                self.witnesses.heard(process, boot);
                self.input(index, Input::ProcessEnded { boot_id: boot });
            }
            Event::SnapshotWrite { id, capture, progress, of_primary, .. } => {
                self.write_snapshot(index, id, *capture, &progress, of_primary);
            }
            Event::SnapshotRead { id, wanted, history, .. } => {
                self.read_snapshot(index, id, &wanted, history);
            }
            Event::SnapshotShare { log, last, .. } => self.share_snapshot(index, log, last),
            Event::SnapshotProve { log, last, by, .. } => self.prove_copy(index, log, last, by),
            Event::SnapshotAnnounced { id, result, .. } => {
                self.input(index, Input::SnapshotAnnounced { id, result });
            }
            Event::Upkeep { serial, .. } => self.upkeep(index, serial),
            Event::LookAgain { serial, .. } => self.look_again(index, serial),
            Event::Call { client, number, op, .. } => self.called(index, client, number, op),
            _ => {}
        }
    }

    /// Tells the role of a master something.
    pub fn input(&mut self, index: usize, input: Input) {
        if self.masters[index].node.is_none() {
            return;
        }
        let (now, jump) = (self.clock(index), self.clock_jump(index));
        if let Some(node) = &mut self.masters[index].node {
            if let Some(drift) = jump {
                node.handle(now, Input::ClockJumped { drift });
            }
            node.handle(now, input);
            self.obey(index);
        }
    }

    /// Carries out what the role of a master wants.
    fn obey(&mut self, index: usize) {
        let process = self.process(index);
        let Some(node) = &mut self.masters[index].node else { return };
        let commands = node.take_commands();
        let (activity, term) = node.brief();
        let applied = node.incarnation().engine.applied();
        if leads(activity) && self.masters[index].term != term.0 {
            self.masters[index].term = term.0;
            self.check_promotion(index, term, applied);
        }
        if self.masters[index].told != Some((activity, term)) {
            note!(self, "m{index} {activity:?} t{} applied {}", term.0, applied.0);
            self.masters[index].told = Some((activity, term));
        }
        let mut stopped = false;
        let ended = |watch: WatchId| {
            commands.iter().any(|command| matches!(command, Command::Unwatch { watch: of } if *of == watch))
        };
        let ended: Vec<bool> = commands
            .iter()
            .map(|command| matches!(command, Command::Watch { watch, .. } if ended(*watch)))
            .collect();
        for (command, ended) in commands.into_iter().zip(ended) {
            match command {
                Command::Call { call, request, timeout } => {
                    note!(self, "m{index} #{} {}", call.0, brief_request(&request));
                    self.ask(process, call, request, timeout);
                }
                Command::Watch { watch, request } => {
                    if request.range == self.keys.batches() && !ended {
                        self.check_watch(index, applied, request.from_revision);
                    }
                    let delay = self.plan.delay;
                    self.after(delay, Event::WatchBegins { from: process, watch, request });
                }
                Command::Unwatch { watch } => self.end_watch(process, watch),
                Command::Open { incarnation, clock, term } => self.open(index, incarnation, clock, term),
                Command::Close => {
                    let delay = self.rng.below(30 * MS);
                    self.after(delay, Event::Closing { to: process });
                    if let Some((target, long)) = self.masters[index].stalls_at_close.take()
                        && self.masters[target].node.is_some()
                    {
                        self.pause(target, long);
                    }
                }
                Command::FlushLeases { flush, incarnation, clock, .. } => {
                    let delay = self.rng.below(20 * MS);
                    self.after(delay, Event::Flush { to: process, flush, incarnation, clock });
                }
                Command::Discard(incarnation) => drop(incarnation),
                Command::FollowPeer(peer) => self.masters[index].followed = peer,
                Command::HandedOver { id, result } => {
                    note!(self, "m{index} hand-over {}: {result:?}", id.0);
                    self.masters[index].stalls_at_close = None;
                    self.counts.handed_over += u64::from(result.is_ok());
                    self.counts.given_up += u64::from(matches!(result, Err(HandoverError::Failed(_))));
                }
                Command::Snapshot(job) => self.snapshot_job(index, job),
                Command::SnapshotTaken { .. } => {}
                Command::Stopped => stopped = true,
            }
        }
        self.let_go(index);
        self.compare(index);
        if stopped {
            note!(self, "m{index} has stopped");
            self.die(index);
        }
    }

    /// A standby tells the primary how far it is.
    fn report(&mut self, index: usize) {
        let now = self.now;
        let master = &mut self.masters[index];
        let (Some(node), Some(peer)) = (&master.node, &master.followed) else { return };
        if now < master.next_report || now < master.disconnected_until {
            return;
        }
        master.next_report = now + 60 * MS;
        let (name, applied) = (master.name.clone(), node.incarnation().engine.applied());
        let leader = peer.boot_id;
        let boot = Self::boot_id(self.process(index));
        let to =
            (0..self.masters.len()).map(|other| self.process(other)).find(|to| Self::boot_id(*to) == leader);
        if let Some(to) = to {
            let delay = self.plan.delay;
            self.after(delay, Event::Report { to, name, boot, applied });
        }
    }

    /// The connection of a standby to the primary ends.
    pub fn disconnect(&mut self, index: usize, boot: BootId) {
        let name = self.masters[index].name.clone();
        for other in (0..self.masters.len()).filter(|other| *other != index) {
            let (to, delay) = (self.process(other), self.rng.below(20 * MS));
            self.after(delay, Event::Gone { to, name: name.clone(), boot });
        }
    }

    /// A primary tells its standbys how far its log is durable.
    fn tell_standbys(&mut self, index: usize) {
        let Some(node) = &self.masters[index].node else { return };
        if self.now < self.masters[index].next_told || !leads(node.brief().0) {
            return;
        }
        let Some(log) = node.log() else { return };
        let (term, durable) = (node.brief().1, node.incarnation().gate.durable());
        let boot = Self::boot_id(self.process(index));
        self.masters[index].next_told = self.now + SECOND;
        for other in 0..self.masters.len() {
            let master = &self.masters[other];
            let connected = self.now >= master.disconnected_until;
            if connected && master.followed.as_ref().is_some_and(|peer| peer.boot_id == boot) {
                let (to, delay) = (self.process(other), self.plan.delay);
                let sent_ms = self.clock(index).0 / 1000;
                self.after(delay, Event::Told { to, boot, term, log, durable, sent_ms });
            }
        }
    }

    /// What a master knows of the log goes to its data directory each second.
    fn save_history(&mut self, index: usize) {
        let now = self.now;
        let clock = self.clock(index);
        let master = &mut self.masters[index];
        if let Some(node) = &master.node
            && now >= master.next_save
        {
            master.next_save = now + SECOND;
            master.saved = node.status(clock).history;
        }
    }

    /// The leader in etcd, if its process is there.
    pub fn leader(&self) -> Option<usize> {
        let (Term(term), _) = self.truth.leader?;
        (0..self.masters.len()).find(|index| {
            let master = &self.masters[*index];
            master.node.is_some() && master.term == term
        })
    }
}

/// Whether a master that is at this leads.
pub fn leads(activity: Activity) -> bool {
    matches!(activity, Activity::Promoting | Activity::Serving | Activity::HandingOver)
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
                    EtcdOp::Put { key, .. } => key,
                    EtcdOp::Delete(range) => &range.start,
                    EtcdOp::Get(get) => &get.range.start,
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
