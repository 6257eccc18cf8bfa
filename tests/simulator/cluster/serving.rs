//! Serving clients, as a master does that has an open port. Admission (R2), client deadlines, guards of the term and
//! upkeep are the code of the master; here is only what carries it out.

use std::sync::Arc;
use std::time::Duration;

use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::ops::{ReplicaTypes, Started, WriteConfig};
use moonkeeper::engine::record::{DynamicLease, ReplicationKind, SoftPin};
use moonkeeper::engine::types::{Answer, ErrorCode, LogTime, ObjectId, SequenceId, Term};
use moonkeeper::replication::admission::{Admission, Refusal};
use moonkeeper::replication::liveness::Liveness;
use moonkeeper::replication::node::Input;
use moonkeeper::replication::parked_answers::ParkedAnswers;
use moonkeeper::replication::parked_puts::ParkedPuts;
use moonkeeper::replication::queue_space::{Permit, Ticket};
use moonkeeper::replication::replica::Replica;
use moonkeeper::replication::time::{LogClock, Monotonic};
use moonkeeper::replication::upkeep::{Chores, Timetable};

use super::claims::{Told, bytes_of};
use super::clients::{Op, Reply};
use super::plan::MS;
use super::truth::Seen;
use super::waiting::{Call, Parked};
use super::{Event, Sim, searches};

/// How often upkeep looks.
const UPKEEP: u64 = 40 * MS;

/// More than any record of these clients takes.
const RECORD: usize = 300;

/// How often promises to readers are written down.
const LEASE_SYNC_MS: u64 = 1_000;

/// An open port, or one that is being opened.
pub struct Server {
    pub serial: u64,
    pub replica: Arc<Replica>,
    clock: LogClock,
    pub term: Term,
    pub open: bool,
    /// Answers that wait for the log.
    pub parked: ParkedAnswers<Parked>,
    /// Calls that wait for space in the queue.
    pub line: Vec<Call>,
    /// When the line is looked at next.
    pub look_at: Option<u64>,
    /// Puts that wait for clients to rejoin.
    pub parked_puts: ParkedPuts<Call>,
    /// When the port opened.
    pub opened_at: Monotonic,
    liveness: Arc<Liveness>,
    timetable: Timetable,
    /// The place of upkeep in the line for space in the queue.
    ticket: Option<Ticket>,
}

/// Admission of long work, chunk by chunk.
struct Chunks<'r> {
    replica: &'r Replica,
    now: Monotonic,
    permit: Option<Permit<'r>>,
    /// The permit of the first chunk, if there is one already.
    first: Option<Permit<'r>>,
    refused: bool,
}

impl<'r> Chunks<'r> {
    fn new(replica: &'r Replica, now: Monotonic, first: Option<Permit<'r>>) -> Self {
        Self { replica, now, permit: None, first, refused: false }
    }

    /// Whether the next chunk may begin. Time stands still here: work that has to wait stops, and goes on with its ticket.
    fn go_on(&mut self, ticket: &mut Option<Ticket>) -> bool {
        self.permit = self.first.take();
        if self.permit.is_some() {
            return true;
        }
        match self.replica.admit(self.now, RECORD, ticket, Duration::ZERO) {
            Admission::Admitted(permit) => self.permit = Some(permit),
            Admission::Waiting | Admission::Refused(_) => self.refused = true,
        }
        self.permit.is_some()
    }
}

/// What became of an attempt to carry a call out.
pub enum Executed {
    /// It waits for space in the queue, with the ticket that it has now.
    Waits,
    /// It has an answer, which may leave when what it rests on is durable.
    Answered { reply: Reply, depends_on: SequenceId, facts: Facts },
}

impl Executed {
    fn refused(reply: Reply) -> Self {
        Self::Answered { reply, depends_on: SequenceId(0), facts: Facts::default() }
    }
}

/// What whoever checks knows of an answer.
#[derive(Default)]
pub struct Facts {
    /// When it was made.
    pub made: u64,
    /// The last record that was applied then.
    pub applied: SequenceId,
    /// Whether it made records and says that it succeeded.
    pub changed: bool,
    /// What was looked at, and what was found.
    pub reads: Vec<(String, Seen)>,
    /// What readers are promised.
    pub promises: Vec<String>,
    /// So many of the last records need not be durable when it leaves.
    pub may_be_lost: u64,
    /// What a writer is told, and the record that reserved it.
    pub told: Option<(Told, Option<SequenceId>)>,
}

impl Sim {
    /// The role of a master wants clients to be served.
    pub fn open(&mut self, index: usize, replica: Arc<Replica>, clock: LogClock, term: Term) {
        let again = self.masters[index].deadlines.as_ref().is_some_and(|(of, _)| *of == term);
        self.check_open(&replica, term, again);
        self.next += 1;
        let serial = self.next;
        // A hand-over that is given up opens the port again in the same term, and clients keep their deadlines.
        let liveness = match &self.masters[index].deadlines {
            Some((of, liveness)) if *of == term => Arc::clone(liveness),
            _ => Arc::new(Liveness::new(self.plan.client_ttl)),
        };
        self.masters[index].deadlines = Some((term, Arc::clone(&liveness)));
        let opened_at = self.clock(index);
        self.masters[index].server = Some(Server {
            serial,
            replica,
            clock,
            term,
            open: false,
            parked: ParkedAnswers::default(),
            line: Vec::new(),
            look_at: None,
            parked_puts: ParkedPuts::new(opened_at),
            opened_at,
            liveness,
            timetable: Timetable::new(LEASE_SYNC_MS),
            ticket: None,
        });
        let (to, delay) = (self.process(index), self.chance.below(5 * MS));
        self.after(delay, Event::Opened { to, serial });
    }

    /// The port is open.
    pub fn opened(&mut self, index: usize, serial: u64) {
        if self.masters[index].server.as_ref().is_none_or(|server| server.serial != serial) {
            return;
        }
        if !self.calm && self.chance.percent(2) {
            note!(self, "m{index} cannot open its port");
            return self.input(index, Input::OpenFailed("address in use".into()));
        }
        let (now, inherited_ttl, seed) = (self.log_time(index), self.plan.inherited_ttl, self.chance.next());
        let opened_at = self.clock(index);
        if let Some(server) = &mut self.masters[index].server {
            server.open = true;
            (server.parked_puts, server.opened_at) = (ParkedPuts::new(opened_at), opened_at);
            server.replica.engine.sequencer(now).seed_chance(seed);
            server.liveness.resume(server.replica.engine.known_clients(), now, inherited_ttl);
            server.replica.guards.open();
        }
        self.input(index, Input::Opened);
        let of = self.process(index);
        self.after(UPKEEP, Event::Upkeep { of, serial });
    }

    /// The port is closed; clients that waited do not know what became of their call.
    pub fn closing(&mut self, index: usize) {
        self.hang_up(index);
        let now = self.log_time(index);
        if let Some(server) = self.masters[index].server.take() {
            self.leave_straggler(index, &server.replica, server.clock);
            server.replica.guards.close();
            server.liveness.pause(now);
        }
        let (to, delay) = (self.process(index), self.chance.below(10 * MS));
        self.after(delay, Event::Closed { to, since: self.now });
    }

    fn log_time(&self, index: usize) -> LogTime {
        let now = self.clock(index);
        self.masters[index].server.as_ref().map_or(LogTime(0), |server| server.clock.at(now))
    }

    /// Carries a call out if it may enter.
    pub fn execute(&mut self, index: usize, call: &mut Call) -> Executed {
        let (clock, now) = (self.clock(index), self.log_time(index));
        let Call { client, number, ref op, ref mut ticket, since, begun, .. } = *call;
        let Some(server) = &mut self.masters[index].server else { return Executed::refused(Reply::Closed) };
        let replica = Arc::clone(&server.replica);
        let engine = &replica.engine;
        let before = engine.applied();
        let mut facts = Facts { made: self.now, ..Facts::default() };
        let uuid = self.clients[client].uuid;
        // Reads are answered, and changes admitted, while this master may answer.
        let bytes = RECORD * op.size();
        let admission = op.changes().then(|| replica.admit(clock, bytes, ticket, clock.since(since)));
        let permit = match admission {
            Some(Admission::Refused(Refusal::NotLeading)) => return Executed::refused(Reply::Closed),
            None if !replica.gate.may_answer(clock) => return Executed::refused(Reply::Closed),
            Some(Admission::Waiting) => return Executed::Waits,
            Some(Admission::Refused(_)) => {
                self.counts.refused += 1;
                // What was changed until then stays changed.
                return Executed::refused(if begun { Reply::Unknown } else { Reply::Busy });
            }
            Some(Admission::Admitted(permit)) => Some(permit),
            None => None,
        };
        let plain = DynamicLease::default();
        let answer: Answer<Reply> = match op {
            Op::Ping => {
                server.liveness.heard(uuid, now);
                engine.is_joined(uuid).map(Reply::Joined)
            }
            Op::Remount(all) => {
                server.liveness.heard(uuid, now);
                let specs: Vec<_> = all.iter().map(super::clients::Memory::spec).collect();
                engine.remount(&specs, uuid, now).map(|()| Reply::Done)
            }
            Op::Mount(memory) => engine.sequencer(now).mount(&memory.spec(), uuid).map(|()| Reply::Done),
            Op::Unmount(id) => engine.sequencer(now).unmount(*id).map(|()| Reply::Done),
            Op::Drain(id) => engine.sequencer(now).graceful_unmount(*id, uuid, 2_000).map(|()| Reply::Done),
            Op::Start { key, size, upsert, replicas, group, soft_pin } => {
                let group = group.map(|group| format!("group-{group}"));
                let soft_pin = if *soft_pin { SoftPin::Enable(3_000) } else { SoftPin::Preserve };
                let config = WriteConfig {
                    replicas: *replicas,
                    soft_pin,
                    group: group.as_ref().map(|group| group.as_bytes()),
                    ..WriteConfig::default()
                };
                let mut sequencer = engine.sequencer(now);
                let answer = if *upsert {
                    sequencer.upsert_start(uuid, key.as_bytes(), *size, &config)
                } else {
                    sequencer.put_start(uuid, key.as_bytes(), *size, &config)
                };
                drop(sequencer);
                if let Ok(started) = &answer.result {
                    let until = self.now + self.plan.rules.release_timeout * MS - 2 * MS;
                    facts.told = Some(told(key, number, started, before, until));
                    self.counts.starts += 1;
                }
                answer.map(|_| Reply::Started)
            }
            Op::End { key, .. } => engine
                .sequencer(now)
                .end(uuid, key.as_bytes(), ReplicaTypes::Memory, None)
                .map(|()| Reply::Done),
            Op::Revoke { key, .. } => {
                engine.sequencer(now).revoke(uuid, key.as_bytes(), ReplicaTypes::Memory).map(|()| Reply::Done)
            }
            Op::Get(keys) => {
                let mut depends_on = SequenceId(0);
                for key in keys {
                    let answer = engine.get(key.as_bytes(), now, Seen::of);
                    depends_on = depends_on.max(answer.depends_on);
                    facts.promises.extend(answer.result.is_ok().then(|| key.clone()));
                    facts.reads.push((key.clone(), Seen::answer(answer.result)));
                }
                self.counts.reads += 1;
                Answer::ok(Reply::Done, depends_on)
            }
            Op::Exist(key) => {
                let answer = engine.exist(key.as_bytes(), now);
                // What is there is not part of the answer, but of what the reader is promised.
                if answer.result == Ok(true) {
                    let seen = engine.peek(key.as_bytes(), Seen::of);
                    facts.promises.push(key.clone());
                    facts.reads.push((key.clone(), Seen::answer(seen.result)));
                }
                answer.map(Reply::Joined)
            }
            Op::Remove { keys, force } => {
                let seen: Vec<ObjectId> =
                    keys.iter().filter_map(|key| engine.peek(key.as_bytes(), |o| o.id).result.ok()).collect();
                if *force {
                    self.claims.forced.extend(seen);
                }
                let mut sequencer = engine.sequencer(now);
                match keys.as_slice() {
                    [key] => sequencer.remove(key.as_bytes(), *force).map(|()| Reply::Done),
                    keys => {
                        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
                        let depends_on = sequencer.batch_remove(&keys, *force, |_| ());
                        Answer::ok(Reply::Done, depends_on)
                    }
                }
            }
            Op::RemoveAll { force } => {
                if *force {
                    for shard in 0..SHARDS {
                        engine.walk(shard, |object| _ = self.claims.forced.insert(object.id));
                    }
                }
                let mut chunks = Chunks::new(&replica, clock, permit);
                let (_, depends_on) = engine.remove_all_while(*force, now, &mut || chunks.go_on(ticket));
                if ticket.is_some() {
                    return Executed::Waits;
                }
                // What was removed until then stays removed.
                let reply = if chunks.refused { Reply::Unknown } else { Reply::Done };
                let facts = Facts { applied: engine.applied(), ..facts };
                return Executed::Answered { reply, depends_on, facts };
            }
            Op::RemoveMatching { prefix, force } => {
                if *force {
                    self.claims.forced.extend(searches::named(engine, prefix));
                }
                Answer::ok(Reply::Done, searches::remove(engine, prefix, *force, now))
            }
            Op::Search { prefix } => {
                let (reads, depends_on) = searches::search(engine, prefix, self.plan.keys, now);
                let readable = reads.iter().filter(|(_, seen)| matches!(seen, Seen::Readable(..)));
                facts.promises.extend(readable.map(|(key, _)| key.clone()));
                facts.reads = reads;
                self.counts.reads += 1;
                Answer::ok(Reply::Done, depends_on)
            }
            Op::Copy { key, kind, target } => {
                let name_of = |object: &moonkeeper::engine::object::Object| {
                    let mut readable = object.replicas().filter(|replica| replica.is_readable());
                    readable.next().map(|replica| replica.segment.name.clone())
                };
                let source = engine.peek(key.as_bytes(), name_of).result.ok().flatten().unwrap_or_default();
                let mut sequencer = engine.sequencer(now);
                let answer = match kind {
                    ReplicationKind::Copy => {
                        sequencer.copy_start(uuid, key.as_bytes(), &source, &[target.as_bytes()], plain)
                    }
                    ReplicationKind::Move => {
                        sequencer.move_start(uuid, key.as_bytes(), &source, target.as_bytes())
                    }
                };
                drop(sequencer);
                if let Ok(copy) = &answer.result {
                    let until = self.now + self.plan.rules.release_timeout * MS - 2 * MS;
                    let started = Started { size: copy.size, replicas: copy.targets.clone() };
                    facts.told = Some(told(key, number, &started, before, until));
                }
                answer.map(|_| Reply::Started)
            }
            Op::CopyEnd { key, kind, revoke, .. } => {
                let mut sequencer = engine.sequencer(now);
                if *revoke {
                    sequencer.replication_revoke(uuid, key.as_bytes(), *kind, plain).map(|()| Reply::Done)
                } else {
                    sequencer.replication_end(uuid, key.as_bytes(), *kind, plain).map(|()| Reply::Done)
                }
            }
        };
        facts.applied = engine.applied();
        facts.changed = facts.applied != before && answer.result.is_ok();
        let reply = answer.result.unwrap_or_else(Reply::Refused);
        let mut depends_on = answer.depends_on;
        if let Some((records, time)) = self.plan.relaxed
            && op.may_be_answered_early()
        {
            depends_on = replica.gate.relaxed(depends_on, records, time, clock);
            facts.may_be_lost = records;
        }
        drop(permit);
        Executed::Answered { reply, depends_on, facts }
    }

    /// What time brings.
    pub fn upkeep(&mut self, index: usize, serial: u64) {
        let now = self.log_time(index);
        let clock = self.clock(index);
        let Some(server) = &mut self.masters[index].server else { return };
        if server.serial != serial || !server.open {
            return;
        }
        let replica = Arc::clone(&server.replica);
        let (engine, serves, mut stopped) = (&replica.engine, replica.gate.may_answer(clock), false);
        for chore in server.timetable.due(now, engine, &server.liveness, serves) {
            let (mut chunks, ticket) = (Chunks::new(&replica, clock, None), &mut server.ticket);
            let go_on = || chunks.go_on(ticket);
            let done = Chores::default().perform(&chore, engine, &server.liveness, now, go_on, || false);
            server.timetable.finished(&chore, &done);
            stopped |= done.stopped;
            self.counts.evicted += done.evicted;
        }
        if !stopped {
            // Nothing waits for what it may have reserved.
            server.ticket = None;
        }
        self.wake_writer(index);
        self.try_parked_puts(index);
        self.check_parked_puts(index);
        let of = self.process(index);
        self.after(UPKEEP, Event::Upkeep { of, serial });
    }
}

/// What a writer is told. A replica's id tells the record that reserved it: bytes that were reserved before the call
/// are those of an object that is written in place.
fn told(
    key: &str,
    write: u64,
    started: &Started,
    before: SequenceId,
    until: u64,
) -> (Told, Option<SequenceId>) {
    let bytes = started.replicas.iter().map(|replica| bytes_of(replica, started.size)).collect();
    let reserved = started.replicas.iter().map(|replica| SequenceId(replica.id().0 >> 8)).max();
    let in_place = reserved.is_none_or(|reserved| reserved <= before);
    (Told { write, key: key.to_owned(), bytes, in_place, until }, reserved)
}

impl Reply {
    /// Whether the call was refused for a reason that clients know.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Reply::Refused(code) if *code != ErrorCode::OK)
    }
}
