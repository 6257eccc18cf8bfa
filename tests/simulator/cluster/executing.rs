//! Carrying calls out: what the handlers of a master do with them.

use std::sync::Arc;

use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::ops::{ReplicaTypes, Started, WriteConfig};
use moonkeeper::engine::record::{CopyOrMove, DynamicLease, SoftPin};
use moonkeeper::engine::types::{Answer, ObjectId, SequenceId};
use moonkeeper::replication::admission::{Admission, Refusal};

use super::chunks::{Chunks, RECORD};
use super::claims::{Told, bytes_of};
use super::clients::{Op, Reply};
use super::plan::MS;
use super::serving::{Executed, Facts};
use super::truth::Seen;
use super::waiting::Call;
use super::{Sim, searches};

impl Sim {
    /// Carries a call out if it may enter.
    pub fn execute(&mut self, index: usize, call: &mut Call) -> Executed {
        let (clock, now) = (self.clock(index), self.log_time(index));
        let Call { client, number, ref op, ref mut ticket, since, begun, .. } = *call;
        let Some(server) = &mut self.masters[index].server else { return Executed::refused(Reply::Closed) };
        let incarnation = Arc::clone(&server.incarnation);
        let engine = &incarnation.engine;
        let before = engine.applied();
        let mut facts = Facts { made: self.now, ..Facts::default() };
        let uuid = self.clients[client].uuid;
        // Reads are answered, and changes admitted, while this master may answer.
        let bytes = RECORD * op.size();
        let admission = op.changes().then(|| incarnation.admit(clock, bytes, ticket, clock.since(since)));
        let permit = match admission {
            Some(Admission::Refused(Refusal::NotLeading)) => return Executed::refused(Reply::Closed),
            None if !incarnation.gate.may_answer(clock) => return Executed::refused(Reply::Closed),
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
                    let until = self.now + self.plan.settings.release_timeout_ms * MS - 2 * MS;
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
                let (depends_on, refused) = {
                    let mut chunks = Chunks::new(&incarnation, clock, permit, ticket);
                    let (_, depends_on) = engine.remove_all_while(*force, now, &mut chunks);
                    (depends_on, chunks.refused)
                };
                if ticket.is_some() {
                    return Executed::Waits;
                }
                // What was removed until then stays removed.
                let reply = if refused { Reply::Unknown } else { Reply::Done };
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
                    let mut readable = object.replicas().filter(|incarnation| incarnation.is_readable());
                    readable.next().map(|incarnation| incarnation.segment.name.clone())
                };
                let source = engine.peek(key.as_bytes(), name_of).result.ok().flatten().unwrap_or_default();
                let mut sequencer = engine.sequencer(now);
                let answer = match kind {
                    CopyOrMove::Copy => {
                        sequencer.copy_start(uuid, key.as_bytes(), &source, &[target.as_bytes()], plain)
                    }
                    CopyOrMove::Move => {
                        sequencer.move_start(uuid, key.as_bytes(), &source, target.as_bytes())
                    }
                };
                drop(sequencer);
                if let Ok(copy) = &answer.result {
                    let until = self.now + self.plan.settings.release_timeout_ms * MS - 2 * MS;
                    let started = Started { size: copy.size, replicas: copy.targets.clone() };
                    facts.told = Some(told(key, number, &started, before, until));
                }
                answer.map(|_| Reply::Started)
            }
            Op::CopyEnd { key, kind, revoke, .. } => {
                let mut sequencer = engine.sequencer(now);
                if *revoke {
                    sequencer.revoke_copy_or_move(uuid, key.as_bytes(), *kind, plain).map(|()| Reply::Done)
                } else {
                    sequencer.end_copy_or_move(uuid, key.as_bytes(), *kind, plain).map(|()| Reply::Done)
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
            depends_on = incarnation.gate.relaxed(depends_on, records, time, clock);
            facts.may_be_lost = records;
        }
        drop(permit);
        Executed::Answered { reply, depends_on, facts }
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
    let bytes = started.replicas.iter().map(|incarnation| bytes_of(incarnation, started.size)).collect();
    let reserved = started.replicas.iter().map(|incarnation| SequenceId(incarnation.id().0 >> 8)).max();
    let in_place = reserved.is_none_or(|reserved| reserved <= before);
    (Told { write, key: key.to_owned(), bytes, in_place, until }, reserved)
}
