//! Clients: they offer memory, write, read and remove, follow the primary, and believe what they are told.

use std::collections::BTreeSet;

use moonkeeper::coordination::types::{Get, KeyRange, Request, Response};
use moonkeeper::engine::record::CopyOrMove;
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::types::{ErrorCode, Uuid};

use super::plan::{Focus, MS};
use super::rewriting::Rewrite;
use super::{Event, Sim};

/// Memory that a client offers.
#[derive(Clone, Debug)]
pub struct Memory {
    id: Uuid,
    name: String,
    endpoint: String,
    base: u64,
    size: u64,
}

impl Memory {
    pub fn spec(&self) -> SegmentSpec<'_> {
        SegmentSpec {
            id: self.id,
            name: self.name.as_bytes(),
            base: self.base,
            size: self.size,
            te_endpoint: self.endpoint.as_bytes(),
            protocol: b"tcp",
            host_id: self.name.as_bytes(),
        }
    }
}

/// A call.
#[derive(Clone)]
pub enum Op {
    Ping,
    Remount(Vec<Memory>),
    Mount(Memory),
    Unmount(Uuid),
    Drain(Uuid),
    Start {
        key: String,
        size: u64,
        upsert: bool,
        replicas: u64,
        group: Option<u64>,
        soft_pin: bool,
    },
    End {
        key: String,
        write: u64,
    },
    Revoke {
        key: String,
        write: u64,
    },
    Get(Vec<String>),
    Exist(String),
    Remove {
        keys: Vec<String>,
        force: bool,
    },
    RemoveAll {
        force: bool,
    },
    /// By a pattern that matches all keys with this prefix.
    RemoveMatching {
        prefix: String,
        force: bool,
    },
    /// Reads all keys with this prefix, by a pattern.
    Search {
        prefix: String,
    },
    Copy {
        key: String,
        kind: CopyOrMove,
        target: String,
    },
    CopyEnd {
        key: String,
        kind: CopyOrMove,
        write: u64,
        revoke: bool,
    },
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Op::Ping => f.write_str("ping"),
            Op::Remount(all) => write!(f, "remount {}", all.len()),
            Op::Mount(memory) => write!(f, "mount {}", memory.id),
            Op::Unmount(id) => write!(f, "unmount {id}"),
            Op::Drain(id) => write!(f, "drain {id}"),
            Op::Start { key, size, upsert: false, .. } => write!(f, "put {key} {size}"),
            Op::Start { key, size, upsert: true, .. } => write!(f, "upsert {key} {size}"),
            Op::End { key, write } => write!(f, "end {key} #{write}"),
            Op::Revoke { key, write } => write!(f, "revoke {key} #{write}"),
            Op::Get(keys) => write!(f, "get {}", keys.join(",")),
            Op::Exist(key) => write!(f, "exist {key}"),
            Op::Remove { keys, force } => write!(f, "remove {} {force}", keys.join(",")),
            Op::RemoveAll { force } => write!(f, "remove all {force}"),
            Op::RemoveMatching { prefix, force } => write!(f, "remove ^{prefix} {force}"),
            Op::Search { prefix } => write!(f, "search ^{prefix}"),
            Op::Copy { key, kind, target } => write!(f, "{kind:?} {key} to {target}"),
            Op::CopyEnd { key, kind, write, revoke } => write!(f, "end {kind:?} {key} #{write} {revoke}"),
        }
    }
}

impl Op {
    /// Whether it may make records.
    pub fn changes(&self) -> bool {
        !matches!(self, Op::Ping | Op::Get(_) | Op::Exist(_) | Op::Search { .. })
    }

    /// Whether its answer need not wait for its own record where durability is relaxed.
    pub fn may_be_answered_early(&self) -> bool {
        matches!(self, Op::End { .. } | Op::Revoke { .. } | Op::CopyEnd { .. })
    }

    /// About how many records it makes.
    pub fn size(&self) -> usize {
        match self {
            Op::Remount(all) => 1 + all.len(),
            Op::Remove { keys, .. } => keys.len(),
            Op::RemoveMatching { .. } => 8,
            _ => 1,
        }
    }

    /// The key that it writes.
    fn written(&self) -> Option<&String> {
        match self {
            Op::Start { key, .. } | Op::End { key, .. } | Op::Revoke { key, .. } => Some(key),
            Op::Copy { key, .. } | Op::CopyEnd { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// What a client hears.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Nobody listens there.
    Closed,
    /// Nothing.
    Unknown,
    /// Later.
    Busy,
    /// No.
    Refused(ErrorCode),
    Done,
    Joined(bool),
    Started,
}

/// A write that was begun.
#[derive(Clone, Debug)]
struct Write {
    number: u64,
    key: String,
    copy: Option<CopyOrMove>,
    /// When its bytes are written.
    done_at: u64,
    attempts: u32,
}

/// A client.
pub struct Client {
    pub uuid: Uuid,
    number: u64,
    memory: Vec<Memory>,
    mounts: u64,
    segment: u64,
    joined: bool,
    next_ping: u64,
    /// Whom it takes for the primary.
    target: usize,
    call: Option<(u64, Op)>,
    writes: Vec<Write>,
    /// It does nothing until then.
    pub silent_until: u64,
    /// Keys that a call of this client may still write without its knowing: it keeps away from them.
    doubtful: BTreeSet<String>,
    /// An object that it replaces and removes before anything else.
    pub rewrite: Option<Rewrite>,
}

impl Client {
    pub fn new(number: u64, segment: u64) -> Self {
        let mut client = Self {
            uuid: Uuid { first: 100 + number, second: 7 },
            number,
            memory: Vec::new(),
            mounts: 0,
            segment,
            joined: false,
            next_ping: 0,
            target: 0,
            call: None,
            writes: Vec::new(),
            silent_until: 0,
            doubtful: BTreeSet::new(),
            rewrite: None,
        };
        // Some only read and write.
        if number != 3 {
            let memory = client.next_memory();
            client.memory.push(memory);
        }
        client
    }

    /// Whether it offers memory.
    pub fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Whether a call of this client may still write that key.
    pub fn is_writing(&self, key: &str) -> bool {
        self.doubtful.contains(key) || self.writes.iter().any(|write| write.key == key)
    }

    /// Where transfers to its memory go.
    pub fn endpoint(&self) -> String {
        format!("host-{}", self.number)
    }

    fn next_memory(&mut self) -> Memory {
        self.mounts += 1;
        Memory {
            id: Uuid { first: self.number * 1000 + self.mounts, second: 9 },
            name: format!("segment-{}", self.number % 4),
            endpoint: self.endpoint(),
            base: 0x10_0000,
            size: self.segment,
        }
    }
}

impl Sim {
    fn key(&mut self) -> String {
        format!("k{}", self.rng.below(self.plan.keys))
    }

    pub fn prefix(&mut self) -> String {
        format!("k{}", self.rng.below(10))
    }

    fn some_keys(&mut self) -> Vec<String> {
        let count = if self.rng.percent(75) { 1 } else { 1 + self.rng.below(4) };
        (0..count).map(|_| self.key()).collect()
    }

    /// A client does something, unless it waits for an answer or work is over.
    pub fn step(&mut self, client: usize) {
        if self.now > self.plan.work_until || self.clients[client].call.is_some() {
            return;
        }
        let silent = self.clients[client].silent_until.saturating_sub(self.now);
        if silent > 0 {
            return self.after(silent, Event::Step { client });
        }
        let op = self.choose(client);
        self.next += 1;
        let number = self.next;
        match &op {
            // From here on the writer writes no more.
            Op::End { write, .. } | Op::Revoke { write, .. } | Op::CopyEnd { write, .. } => {
                self.claims.ended(*write);
            }
            Op::Unmount(id) => {
                self.clients[client].memory.retain(|memory| memory.id != *id);
                let uuid = self.clients[client].uuid;
                self.model.give_up(uuid);
            }
            _ => {}
        }
        self.clients[client].call = Some((number, op.clone()));
        let master = self.clients[client].target;
        let delay = self.plan.delay + self.rng.below(self.plan.delay);
        self.after(delay, Event::Call { client, number, master, op });
        let patience = self.plan.client_patience;
        self.after(patience, Event::GiveUp { client, number });
    }

    fn choose(&mut self, client: usize) -> Op {
        let now = self.now;
        let me = &mut self.clients[client];
        if !me.joined {
            return Op::Remount(me.memory.clone());
        }
        if now >= me.next_ping {
            me.next_ping = now + 700 * MS;
            return Op::Ping;
        }
        if let Some(at) = me.writes.iter().position(|write| write.done_at <= now) {
            let write = me.writes.remove(at);
            if let Some(op) = self.finish(client, write) {
                return op;
            }
        }
        if let Some(op) = self.continue_rewrite(client) {
            return op;
        }
        if self.plan.focus == Focus::Memory && self.rng.percent(10) {
            return match self.rng.below(3) {
                0 => Op::Search { prefix: self.prefix() },
                _ => self.change_memory(client),
            };
        }
        let key = self.key();
        let doubtful = self.clients[client].is_writing(&key);
        match self.rng.below(1000) {
            0..360 if !doubtful => {
                let usual = [512, 1024, 2048][self.rng.below(3) as usize];
                let size = if self.rng.percent(70) { usual } else { 64 + self.rng.below(4_000) };
                let group = self.rng.percent(self.plan.groups).then(|| self.rng.below(3));
                Op::Start {
                    key,
                    size,
                    upsert: self.rng.percent(30),
                    replicas: if self.rng.percent(80) { 1 } else { 2 },
                    group,
                    soft_pin: self.rng.percent(5),
                }
            }
            360..400 if !doubtful => {
                let kind = if self.rng.percent(50) { CopyOrMove::Copy } else { CopyOrMove::Move };
                Op::Copy { key, kind, target: format!("segment-{}", self.rng.below(4)) }
            }
            0..400 => Op::Exist(key),
            400..780 => Op::Get(self.some_keys()),
            780..840 => Op::Exist(key),
            840..860 => Op::Search { prefix: self.prefix() },
            860..940 => Op::Remove { keys: self.some_keys(), force: self.rng.percent(25) },
            940..960 => Op::RemoveMatching { prefix: self.prefix(), force: self.rng.percent(25) },
            960..965 => Op::RemoveAll { force: self.rng.percent(20) },
            965..985 => self.change_memory(client),
            _ => Op::Ping,
        }
    }

    fn change_memory(&mut self, client: usize) -> Op {
        let calm = self.calm;
        let me = &mut self.clients[client];
        match me.memory.first() {
            None => Op::Mount(me.next_memory()),
            // In the end everybody offers what they have.
            Some(_) if calm => Op::Ping,
            Some(memory) => {
                let id = memory.id;
                if self.rng.percent(50) { Op::Unmount(id) } else { Op::Drain(id) }
            }
        }
    }

    /// Ends a write, gives it up, or forgets it.
    fn finish(&mut self, client: usize, write: Write) -> Option<Op> {
        let Write { number, key, copy, attempts, .. } = write.clone();
        let choice = self.rng.below(100);
        if choice < 8 && attempts == 0 {
            // The client has forgotten it, and may write to it for as long as anybody may.
            self.clients[client].doubtful.insert(key);
            return None;
        }
        self.clients[client].writes.push(Write { attempts: attempts + 1, done_at: u64::MAX, ..write });
        let revoke = choice < 18;
        Some(match copy {
            Some(kind) => Op::CopyEnd { key, kind, write: number, revoke },
            None if revoke => Op::Revoke { key, write: number },
            None => Op::End { key, write: number },
        })
    }

    /// A client hears something, or nothing for too long.
    pub fn replied(&mut self, client: usize, number: u64, reply: Reply) {
        let now = self.now;
        if self.clients[client].call.as_ref().is_none_or(|call| call.0 != number) {
            return;
        }
        let Some((_, op)) = self.clients[client].call.take() else { return };
        let unknown = matches!(reply, Reply::Unknown);
        self.counts.unknown += u64::from(unknown);
        let done_at = now + self.rng.below(400 * MS);
        let me = &mut self.clients[client];
        if unknown && let Some(key) = op.written() {
            me.doubtful.insert(key.clone());
        }
        match (&op, &reply) {
            (Op::Ping, Reply::Joined(joined)) => me.joined = *joined,
            (Op::Remount(_), Reply::Done) => me.joined = true,
            (Op::Mount(memory), Reply::Done) => {
                me.memory.push(memory.clone());
                self.model.mounted(number);
            }
            (Op::Drain(id), Reply::Done) => me.memory.retain(|memory| memory.id != *id),
            (Op::Start { key, .. }, Reply::Started) => {
                let soon = me.rewrite.as_ref().is_some_and(|rewrite| rewrite.key == *key);
                let done_at = if soon { now } else { done_at };
                me.writes.push(Write { number, key: key.clone(), copy: None, done_at, attempts: 0 });
            }
            (Op::Copy { key, kind, .. }, Reply::Started) => {
                me.writes.push(Write { number, key: key.clone(), copy: Some(*kind), done_at, attempts: 0 });
            }
            (Op::End { write, .. } | Op::Revoke { write, .. } | Op::CopyEnd { write, .. }, reply) => {
                if let (Op::End { key, .. }, Reply::Done, Some(rewrite)) = (&op, reply, &mut me.rewrite) {
                    rewrite.ended |= rewrite.key == *key;
                }
                // Whoever does not know tries again a few times.
                let again = !matches!(reply, Reply::Done) && !reply.is_refusal();
                let known = me.writes.iter().position(|known| known.number == *write);
                if let Some(at) = known {
                    if again && me.writes[at].attempts < 6 {
                        me.writes[at].done_at = now + 100 * MS;
                    } else {
                        me.writes.remove(at);
                    }
                }
            }
            _ => {}
        }
        let mut wait = self.rng.below(self.plan.think);
        if matches!(reply, Reply::Closed | Reply::Unknown) {
            self.find_primary(client);
            wait += 50 * MS + self.rng.below(200 * MS);
        } else if matches!(reply, Reply::Busy) {
            wait += 10 * MS;
        }
        self.after(wait, Event::Step { client });
    }

    /// Reads which master is the primary; without one, tries any.
    fn find_primary(&mut self, client: usize) {
        let key = KeyRange::key(self.keys.master_view());
        let found = match self.by_hand(&Request::Get(Get::all(key))) {
            Ok(Response::Got { page, .. }) => page.entries.first().map(|entry| entry.value.clone()),
            _ => None,
        };
        let named = found.and_then(|address| {
            self.masters.iter().position(|master| address.starts_with(format!("{}:", master.name).as_bytes()))
        });
        let any = self.any_master();
        self.clients[client].target = if self.rng.percent(85) { named.unwrap_or(any) } else { any };
        // Another primary asks for it anyway; one that came back does, too.
        self.clients[client].next_ping = self.now;
    }
}
