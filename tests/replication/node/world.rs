//! A few nodes and a model of etcd in virtual time, without faults but for those that a test asks for: what a node does
//! in one schedule, step by step. The simulator runs random schedules over the same code.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use moonkeeper::cluster::keys::Keys;
use moonkeeper::cluster::log_end::History;
use moonkeeper::cluster::member::{Addresses, BootId, MemberValue};
use moonkeeper::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use moonkeeper::coordination::model::{Model, WatchId as ModelWatch};
use moonkeeper::coordination::types::{
    Failure, Get, KeyRange, KeyValue, LeaseId, Op, Request, Response, Txn, WatchEvent,
};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::replication::batch::Batch;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::status::{Activity, NodeStatus};
use moonkeeper::replication::node::{
    CallId, Command, FlushId, HandedOver, HandoverError, HandoverId, Input, Node, Peer, Settings,
    SnapshotJob, SnapshotPolicy, WatchId,
};
use moonkeeper::replication::snapshot::Origin;
use moonkeeper::replication::time::{LogClock, Monotonic};

pub const STEP: u64 = 20_000;

/// How long a call is waited for, in microseconds.
const CALL_TIMEOUT: u64 = 2_000_000;

struct Watch {
    of: usize,
    watch: WatchId,
    model: ModelWatch,
}

/// A process.
pub struct Process {
    pub node: Node,
    pub boot_id: BootId,
    followed: Option<Peer>,
    pub open: Option<(Arc<Incarnation>, LogClock)>,
    /// It does nothing and says nothing.
    pub stopped: bool,
    /// Its watches tell nothing.
    pub deaf: bool,
    /// It never says that its port is closed.
    pub never_closes: bool,
    /// So often it was to close it.
    pub closed: u32,
    /// Another process has its port.
    pub cannot_open: bool,
    /// So often it was to open it and could not.
    pub not_opened: u32,
    /// etcd ends its watches of the log as soon as they begin.
    pub watch_refused: bool,
    /// So many of them it has begun since.
    pub watches_begun: u32,
    pub ended: bool,
    pub handed_over: Vec<Result<HandedOver, HandoverError>>,
    /// Jobs for its directory of snapshots that are to be done.
    pub jobs: VecDeque<SnapshotJob>,
    /// Requests for a snapshot that have ended.
    pub taken: Vec<Result<HeldSnapshot, SnapshotRefused>>,
}

pub struct World {
    pub keys: Keys,
    pub model: Model,
    pub now: u64,
    pub processes: Vec<Process>,
    watches: Vec<Watch>,
    boots: u64,
    /// Writes to the log and new leases are refused for this reason.
    pub refused: Option<&'static str>,
    /// Leases that nodes were granted, newest last.
    pub granted: Vec<LeaseId>,
    /// etcd neither answers nor tells anything; its clock goes on, and leases that end meanwhile end when it is back.
    pub etcd_stopped: bool,
    /// Calls that were made meanwhile, and until when they are waited for.
    unanswered: Vec<(usize, CallId, u64)>,
    /// Answers to transactions that delete the election key are lost, and the requests with them.
    pub loses_handover: bool,
    /// Watches that have ended, which their masters do not know yet.
    refused_watches: Vec<(usize, WatchId)>,
    /// Transactions that create the election key stay on their way to etcd.
    pub holds_elections: bool,
    /// Those that do.
    pub held_elections: Vec<Request>,
    /// Live leases are written, and the masters are not told that they were.
    pub holds_flushes: bool,
    /// Those flushes.
    pub held_flushes: Vec<FlushId>,
    /// The most keys that etcd had to count for one page of the log.
    pub most_counted: usize,
    /// Masters that start have a directory of snapshots, and take one this often.
    pub snapshots_every: Option<Duration>,
    /// There is storage that all masters share.
    pub has_store: bool,
    /// How many members have to hold a snapshot before the log below it is deleted.
    pub snapshot_copies: usize,
    /// Directories of masters that start are lost with their machines.
    pub ephemeral: bool,
    /// Transactions that write the floor stay on their way to etcd.
    pub holds_floors: bool,
    /// Those that do, with who waits for their answers.
    pub held_floors: Vec<(usize, CallId, Request)>,
    /// Transactions that delete batches stay on their way to etcd.
    pub holds_deletions: bool,
    /// Those that do.
    pub held_deletions: Vec<Request>,
}

impl World {
    pub fn new(masters: usize) -> Self {
        let mut world = Self {
            keys: Keys::new("demo"),
            model: Model::new(),
            now: 1_000_000,
            processes: Vec::new(),
            watches: Vec::new(),
            boots: 0,
            refused: None,
            granted: Vec::new(),
            etcd_stopped: false,
            unanswered: Vec::new(),
            loses_handover: false,
            refused_watches: Vec::new(),
            holds_elections: false,
            held_elections: Vec::new(),
            holds_flushes: false,
            held_flushes: Vec::new(),
            most_counted: 0,
            snapshots_every: None,
            has_store: false,
            snapshot_copies: 2,
            ephemeral: false,
            holds_floors: false,
            held_floors: Vec::new(),
            holds_deletions: false,
            held_deletions: Vec::new(),
        };
        (0..masters).for_each(|_| world.add_master());
        world
    }

    /// Masters that take snapshots this often.
    pub fn with_snapshots(masters: usize, every: Duration) -> Self {
        let mut world = Self::new(0);
        world.snapshots_every = Some(every);
        (0..masters).for_each(|_| world.add_master());
        world
    }

    /// One more master starts.
    pub fn add_master(&mut self) {
        let index = self.processes.len();
        let process = self.boot(index, None, Origin::default());
        self.processes.push(process);
        self.obey(index);
    }

    fn boot(&mut self, index: usize, history: Option<History>, origin: Origin) -> Process {
        self.boots += 1;
        let boot_id = BootId(self.boots);
        let address = |kind: &str| format!("m{index}:{kind}");
        let settings = Settings {
            name: format!("m{index}"),
            boot_id,
            keys: self.keys.clone(),
            addresses: Addresses {
                rpc: address("rpc"),
                http: address("http"),
                peer: address("peer"),
                admin: address("admin"),
            },
            version: "test".into(),
            leader_ttl: Duration::from_secs(5),
            keep_alive: Duration::from_secs(1),
            call_timeout: Duration::from_secs(2),
            handover_timeout: Duration::from_secs(10),
            engine: EngineSettings::default(),
            queue_bytes: 1 << 20,
            wall: LogTime(1_700_000_000_000),
            seed: boot_id.0 * 7919,
            history,
            raise_after: Duration::from_secs(60),
            snapshot_copies: self.snapshot_copies,
            snapshots: self.snapshots_every.map(|every| SnapshotPolicy {
                interval: Some(every),
                kept: 2,
                durable: !self.ephemeral,
                has_store: self.has_store,
                origin,
            }),
        };
        Process {
            node: Node::new(settings, Monotonic(self.now)),
            boot_id,
            followed: None,
            open: None,
            stopped: false,
            deaf: false,
            never_closes: false,
            closed: 0,
            cannot_open: false,
            not_opened: 0,
            watch_refused: false,
            watches_begun: 0,
            ended: false,
            handed_over: Vec::new(),
            jobs: VecDeque::new(),
            taken: Vec::new(),
        }
    }

    /// The process of a master is started again, with what it kept in its data directory.
    pub fn restart(&mut self, index: usize, history: Option<History>) {
        self.restart_from(index, history, Origin::default());
    }

    /// The same, with what it finds in its directory of snapshots.
    pub fn restart_from(&mut self, index: usize, history: Option<History>, origin: Origin) {
        self.watches.retain(|watch| watch.of != index);
        let process = self.boot(index, history, origin);
        self.processes[index] = process;
        self.obey(index);
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    pub fn status(&self, index: usize) -> NodeStatus {
        self.processes[index].node.status(Monotonic(self.now))
    }

    /// Which masters serve.
    pub fn serving(&self) -> Vec<usize> {
        let serves = |index: &usize| {
            let process = &self.processes[*index];
            !process.ended && process.open.is_some() && self.status(*index).activity == Activity::Serving
        };
        (0..self.processes.len()).filter(serves).collect()
    }

    /// The one master that serves.
    pub fn primary(&self) -> usize {
        let serving = self.serving();
        assert_eq!(serving.len(), 1, "{serving:?} serve");
        serving[0]
    }

    pub fn input(&mut self, index: usize, input: Input) {
        if !self.processes[index].stopped && !self.processes[index].ended {
            self.processes[index].node.handle(Monotonic(self.now), input);
            self.obey(index);
        }
    }

    pub fn switchover(&mut self, from: usize, to: Option<&str>) {
        let to = to.map(str::to_owned);
        self.input(from, Input::Switchover { id: HandoverId(self.now), to });
    }

    fn obey(&mut self, index: usize) {
        for command in self.processes[index].node.take_commands() {
            match command {
                Command::Call { call, .. } if self.etcd_stopped => {
                    self.unanswered.push((index, call, self.now + CALL_TIMEOUT));
                }
                Command::Call { call, request, .. } if self.is_held(&request) => {
                    if self.holds_floors {
                        self.held_floors.push((index, call, request));
                    } else {
                        self.held_deletions.push(request);
                    }
                }
                Command::Call { call, request, .. } => {
                    let Some(result) = self.call(&request) else { continue };
                    self.input(index, Input::Answer { call, result });
                }
                Command::Watch { watch, request } => {
                    let of_log = request.range == self.keys.batches();
                    if of_log && self.processes[index].watch_refused {
                        self.processes[index].watches_begun += 1;
                        self.refused_watches.push((index, watch));
                        continue;
                    }
                    let model = self.model.watch(request);
                    self.watches.push(Watch { of: index, watch, model });
                }
                Command::Unwatch { watch } => {
                    self.watches.retain(|other| other.of != index || other.watch != watch);
                }
                Command::Open { incarnation, clock, .. } => {
                    if self.processes[index].cannot_open {
                        self.processes[index].not_opened += 1;
                        self.input(index, Input::OpenFailed("address in use".into()));
                        continue;
                    }
                    self.processes[index].open = Some((incarnation, clock));
                    self.input(index, Input::Opened);
                }
                Command::Close => {
                    self.processes[index].open = None;
                    self.processes[index].closed += 1;
                    if !self.processes[index].never_closes {
                        self.input(index, Input::Closed { quiet: true });
                    }
                }
                Command::FlushLeases { flush, incarnation, clock, .. } => {
                    let now = clock.at(Monotonic(self.now));
                    let written = incarnation.engine.flush_leases(now);
                    if self.holds_flushes {
                        self.held_flushes.push(flush);
                        continue;
                    }
                    self.input(index, Input::LeasesFlushed { flush, written, complete: true });
                }
                Command::FollowPeer(peer) => self.processes[index].followed = peer,
                Command::HandedOver { result, .. } => self.processes[index].handed_over.push(result),
                Command::Snapshot(job) => self.processes[index].jobs.push_back(job),
                Command::SnapshotTaken { result, .. } => self.processes[index].taken.push(result),
                Command::Stopped => self.processes[index].ended = true,
                Command::Discard(_) => {}
            }
        }
    }

    fn call(&mut self, request: &Request) -> Option<Result<Response, Failure>> {
        let writes_log = |op: &Op| matches!(op, Op::Put { key, .. } if *key == self.keys.latest());
        let hands_over = |op: &Op| matches!(op, Op::Delete(range) if range.start == self.keys.election());
        let elects = |op: &Op| matches!(op, Op::Put { key, .. } if *key == self.keys.election());
        let needs_space = match request {
            Request::Txn(txn) => txn.success.iter().any(writes_log),
            Request::LeaseGrant { .. } => true,
            _ => false,
        };
        if let Some(reason) = self.refused.filter(|_| needs_space) {
            return Some(Err(Failure::Refused(reason.to_owned())));
        }
        if let Request::Txn(txn) = request
            && self.holds_elections
            && txn.success.iter().any(elects)
        {
            self.held_elections.push(request.clone());
            return None;
        }
        if let Request::Txn(txn) = request
            && self.loses_handover
            && txn.success.iter().any(hands_over)
        {
            return None;
        }
        self.count(request);
        let result = self.model.call(self.time(), request);
        if let Ok(Response::LeaseGranted { lease, .. }) = &result {
            self.granted.push(*lease);
        }
        Some(result)
    }

    /// Whether a step of compaction stays on its way to etcd.
    fn is_held(&self, request: &Request) -> bool {
        let Request::Txn(txn) = request else { return false };
        txn.success.iter().any(|op| match op {
            Op::Put { key, .. } => self.holds_floors && *key == self.keys.floor(),
            Op::Delete(range) => self.holds_deletions && self.keys.batches().contains(&range.start),
            Op::Get(_) => false,
        })
    }

    /// The floor that stayed on its way arrives, and its master is told at once.
    pub fn release_floor(&mut self) {
        let (index, call, request) = self.held_floors.remove(0);
        let result = self.model.call(self.time(), &request);
        self.input(index, Input::Answer { call, result });
    }

    /// Counts the keys in the range of a page: etcd does, however few of them it returns.
    fn count(&mut self, request: &Request) {
        let Request::Get(page) = request else { return };
        if page.limit > 0 {
            let all = Request::Get(Get { limit: 0, keys_only: true, ..page.clone() });
            if let Ok(Response::Got { page, .. }) = self.model.call(self.time(), &all) {
                self.most_counted = self.most_counted.max(page.entries.len());
            }
        }
    }

    /// Time passes.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration.as_micros() as u64;
        while self.now < end {
            self.now += STEP;
            if !self.etcd_stopped {
                self.model.advance(self.time());
            }
            self.give_up_calls();
            for index in 0..self.processes.len() {
                self.input(index, Input::Tick);
            }
            self.tell_watches();
            self.tell_peers();
            for index in 0..self.processes.len() {
                self.input(index, Input::Queued);
            }
        }
    }

    fn give_up_calls(&mut self) {
        let now = self.now;
        let late: Vec<_> = self.unanswered.extract_if(.., |(.., until)| *until <= now).collect();
        for (index, call, _) in late {
            let result = Err(Failure::Unknown("nothing within 2s".to_owned()));
            self.input(index, Input::Answer { call, result });
        }
    }

    /// etcd ends the watches of a master.
    pub fn break_watches(&mut self, index: usize) {
        let ended = self.watches.extract_if(.., |watch| watch.of == index);
        self.refused_watches.extend(ended.map(|watch| (index, watch.watch)));
    }

    fn tell_watches(&mut self) {
        for (index, watch) in std::mem::take(&mut self.refused_watches) {
            let event = WatchEvent::Broken("refused".to_owned());
            self.input(index, Input::Watch { watch, event });
        }
        let mut events: Vec<(usize, WatchId, WatchEvent)> = Vec::new();
        for watch in &self.watches {
            if self.etcd_stopped || self.processes[watch.of].stopped || self.processes[watch.of].deaf {
                continue;
            }
            while let Some(event) = self.model.poll(watch.model) {
                events.push((watch.of, watch.watch, event));
            }
        }
        for (of, watch, event) in events {
            self.input(of, Input::Watch { watch, event });
        }
    }

    fn tell_peers(&mut self) {
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let Some(peer) = process.followed.clone() else { continue };
            let up = |process: &Process| !process.stopped && !process.ended;
            let leader =
                (0..self.processes.len()).find(|other| self.processes[*other].boot_id == peer.boot_id);
            let Some(leader) = leader else { continue };
            let (boot_id, applied) = (process.boot_id, process.node.incarnation().engine.applied());
            if up(process) {
                self.input(leader, Input::PeerReport { name: format!("m{index}"), boot_id, applied });
            }
            let status = self.status(leader);
            if up(&self.processes[leader])
                && let Some(log) = self.processes[leader].node.log()
            {
                let (term, durable, sent_ms) = (status.term, status.durable, self.now / 1000);
                self.input(index, Input::PrimaryTold { boot_id: peer.boot_id, term, log, durable, sent_ms });
            }
        }
    }

    /// A change as a client makes it, on the master that serves. Returns its record.
    pub fn change(&mut self, key: &str) {
        let primary = self.primary();
        let (incarnation, clock) = self.processes[primary].open.clone().unwrap();
        let now = clock.at(Monotonic(self.now));
        let put = incarnation
            .engine
            .sequencer(now)
            .put_metadata(key.as_bytes(), b"value", |_, _, _| Ok::<_, ()>(()));
        assert!(put.is_ok());
        self.input(primary, Input::Queued);
    }

    /// Which of these keys a master's state has.
    pub fn has(&self, index: usize, keys: &[String]) -> usize {
        let engine = &self.processes[index].node.incarnation().engine;
        keys.iter().filter(|key| engine.metadata(key.as_bytes()).is_some()).count()
    }

    /// All keys of the log.
    pub fn log_keys(&mut self) -> Vec<KeyValue> {
        let get = Request::Get(Get::all(self.keys.log()));
        match self.model.call(self.time(), &get) {
            Ok(Response::Got { page, .. }) => page.entries,
            other => panic!("{other:?}"),
        }
    }

    /// Batches up to this record are deleted, as when the log is truncated.
    pub fn truncate(&mut self, up_to: SequenceId) {
        for entry in self.log_keys() {
            let batch = Batch::open(&entry.value);
            if batch.is_ok_and(|batch| batch.header.last <= up_to) {
                self.delete(KeyRange::key(entry.key));
            }
        }
    }

    /// A transaction that stayed on its way arrives at etcd.
    pub fn carry_out(&mut self, request: &Request) -> Result<Response, Failure> {
        self.model.call(self.time(), request)
    }

    /// Whether etcd has an election key.
    pub fn has_leader(&mut self) -> bool {
        let get = Request::Get(Get::all(KeyRange::key(self.keys.election())));
        matches!(self.model.call(self.time(), &get), Ok(Response::Got { page, .. }) if !page.entries.is_empty())
    }

    /// The lease of the leader in etcd.
    pub fn leader_lease(&mut self) -> LeaseId {
        let get = Request::Get(Get::all(KeyRange::key(self.keys.election())));
        match self.model.call(self.time(), &get) {
            Ok(Response::Got { page, .. }) => page.entries[0].lease,
            other => panic!("{other:?}"),
        }
    }

    /// What a master has written to its member key.
    pub fn member(&mut self, index: usize) -> MemberValue {
        let get = Request::Get(Get::all(KeyRange::key(self.keys.member(&format!("m{index}")))));
        match self.model.call(self.time(), &get) {
            Ok(Response::Got { page, .. }) => serde_json::from_slice(&page.entries[0].value).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Deletes keys behind the back of the masters.
    pub fn delete(&mut self, range: KeyRange) {
        let txn = Txn { success: vec![Op::Delete(range)], ..Txn::default() };
        self.model.call(self.time(), &Request::Txn(txn)).unwrap();
    }

    /// Writes keys behind the back of the masters.
    pub fn put(&mut self, entries: &[KeyValue]) {
        for entry in entries {
            let put = Op::Put { key: entry.key.clone(), value: entry.value.clone(), lease: LeaseId(0) };
            let txn = Txn { success: vec![put], ..Txn::default() };
            self.model.call(self.time(), &Request::Txn(txn)).unwrap();
        }
    }

    /// etcd comes back with other data. Its watches break.
    pub fn replace_store(&mut self, model: Model) {
        self.model = model;
        let watches = std::mem::take(&mut self.watches);
        for watch in watches {
            let event = WatchEvent::Broken("etcd was restarted".to_owned());
            self.input(watch.of, Input::Watch { watch: watch.watch, event });
        }
    }

    /// The digests of all masters at the record that each has applied.
    pub fn digests(&self) -> BTreeSet<(u64, u64)> {
        let reading = |process: &Process| process.node.incarnation().engine.sequencer(LogTime(0)).reading();
        self.processes.iter().map(reading).map(|it| (it.sequence_id.0, it.digest.0)).collect()
    }
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
