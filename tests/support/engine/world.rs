//! Random operations on a primary with a mirror, all kinds of them, with the claims of every client kept.

use std::collections::HashMap;

use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::object::{Object, Replica};
use moonkeeper::engine::ops::{ReplicaTypes, Started, WriteConfig};
use moonkeeper::engine::record::{CopyOrMove, DynamicLease, SoftPin};
use moonkeeper::engine::segment::{Segment, SegmentSpec};
use moonkeeper::engine::settings::{EngineSettings, Strategy};
use moonkeeper::engine::term_state::Primary;
use moonkeeper::engine::types::{
    Answer, ErrorCode, LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid,
};
use moonkeeper::engine::walk::Cursor;

use super::claims::{Bytes, bytes_of};
use super::recording::Recording;
use super::{Claims, Pair, Rng, uuid};

const KEYS: u64 = 80;
const CLIENTS: u64 = 4;
const SEGMENTS: u64 = 9;
const NAMES: u64 = 6;
const GROUPS: u64 = 5;
const TASKS: u64 = 40;

/// A store under random use.
pub struct World {
    pub pair: Pair,
    pub claims: Claims,
    rng: Rng,
    clock: u64,
    settings: EngineSettings,
    /// Segments whose client has not told them to this primary yet.
    closed: HashMap<SegmentNumber, Uuid>,
    /// How often each kind of operation succeeded.
    pub done: HashMap<&'static str, u64>,
}

/// What a reader learns of an object.
fn see(object: &Object) -> (ObjectId, Vec<Bytes>) {
    let readable = object.replicas().filter(|replica| replica.is_readable());
    (object.id, readable.map(|replica| bytes_of(replica, object.size)).collect())
}

/// What a client hears: an answer that depends on a refused change is never sent.
fn heard<T>(answer: Answer<T>) -> Answer<T> {
    if answer.depends_on == SequenceId::NEVER {
        return Answer::refuse(ErrorCode::INTERNAL_ERROR, answer.depends_on);
    }
    answer
}

fn spec_of(segment: &Segment) -> SegmentSpec<'_> {
    SegmentSpec {
        id: segment.id,
        name: &segment.name,
        base: segment.base,
        size: segment.size,
        te_endpoint: &segment.te_endpoint,
        protocol: &segment.protocol,
        host_id: &segment.host_id,
    }
}

fn settings(rng: &mut Rng) -> EngineSettings {
    let strategies = [Strategy::Random, Strategy::FreeRatioFirst, Strategy::LocalFirst];
    EngineSettings {
        lease_ttl_ms: 500 + rng.below(10_000),
        soft_pin_ttl_ms: 20_000,
        evict_soft_pinned: rng.percent(70),
        high_watermark: 0.3 + rng.below(60) as f64 / 100.0,
        eviction_ratio: 0.02 + rng.below(30) as f64 / 100.0,
        discard_timeout_ms: 5_000 + rng.below(10_000),
        release_timeout_ms: 5_000 + rng.below(60_000),
        strategy: strategies[rng.below(3) as usize],
        max_pending_tasks: 12,
        max_processing_tasks: 6,
        max_finished_tasks: 5,
        pending_task_timeout_ms: 30_000,
        processing_task_timeout_ms: if rng.percent(50) { 0 } else { 20_000 },
        ..EngineSettings::default()
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        // Whoever takes over may be set up otherwise; how long writers have is the same, or nobody could say.
        let others = EngineSettings {
            lease_ttl_ms: 500 + rng.below(10_000),
            max_finished_tasks: 3,
            ..settings.clone()
        };
        let pair = Pair::with(settings.clone(), others);
        Self::on(pair, settings, rng, seed)
    }

    /// Like [`World::new`], with the log recorded as bytes.
    pub fn recorded(seed: u64, recording: Recording) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let pair = Pair::new(settings.clone());
        pair.record(recording);
        Self::on(pair, settings, rng, seed)
    }

    fn on(mut pair: Pair, settings: EngineSettings, rng: Rng, seed: u64) -> Self {
        pair.primary.sequencer(LogTime(0)).seed_rng(seed);
        let clock = 1_000_000;
        pair.begin(LogTime(clock), 0);
        let (claims, closed, done) = (Claims::default(), HashMap::new(), HashMap::new());
        Self { pair, claims, rng, clock, settings, closed, done }
    }

    /// One random operation at a random moment, and the checks that are cheap.
    pub fn step(&mut self) {
        self.pass_time();
        let kind = self.act();
        self.pair.assert_same_digest(kind);
    }

    /// All checks.
    pub fn check(&mut self, what: &str) {
        let now = LogTime(self.clock);
        self.pair.assert_same(what);
        self.claims.check(&self.pair.primary, now, what);
    }

    fn pass_time(&mut self) {
        self.clock += match self.rng.below(1000) {
            0..900 => self.rng.below(20),
            900..985 => self.rng.below(1_000),
            985..998 => self.rng.below(15_000),
            _ => self.rng.below(200_000),
        };
    }

    /// Now; but now and then whoever asks has a clock that is behind.
    fn now(&mut self) -> LogTime {
        LogTime(self.clock - if self.rng.percent(2) { self.rng.below(900_000) } else { 0 })
    }

    fn key(&mut self) -> String {
        format!("key-{}", self.rng.below(KEYS))
    }

    fn client(&mut self) -> Uuid {
        uuid(100 + self.rng.below(CLIENTS))
    }

    fn name(&mut self) -> Vec<u8> {
        format!("name-{}", self.rng.below(NAMES)).into_bytes()
    }

    fn count(&mut self, kind: &'static str, success: bool) -> &'static str {
        *self.done.entry(kind).or_default() += u64::from(success);
        kind
    }

    fn act(&mut self) -> &'static str {
        match self.rng.below(1030) {
            0..40 => self.mount(),
            40..45 => self.unmount(),
            45..50 => self.drain(),
            50..52 => {
                let (client, now) = (self.client(), self.now());
                let known = self.pair.primary.client(client).is_some();
                self.pair.primary.expire_client(client, now);
                self.count("expire", known)
            }
            52..260 => self.write(false),
            260..360 => self.write(true),
            360..540 => self.end(),
            540..565 => self.revoke(),
            565..725 => self.read(),
            725..750 => self.remove(),
            750..760 => self.batch_remove(),
            760..766 => self.remove_matching(),
            766..769 => self.remove_all(),
            769..785 => self.clear(),
            785..840 => self.replicate(),
            840..890 => self.end_replication(),
            890..915 => self.task(),
            915..930 => self.metadata(),
            930..955 => {
                let now = self.now();
                let evicted = self.pair.primary.evict(now);
                self.count("evict", evicted > 0)
            }
            955..975 => {
                let now = self.now();
                let done = self.pair.primary.upkeep(now);
                self.count("release", done.released > 0);
                self.count("drained", done.unmounted > 0);
                self.count("task time-out", done.tasks_failed > 0)
            }
            975..992 => {
                let now = self.now();
                let renewed = self.pair.primary.replicate_leases(now);
                self.count("renew", renewed > 0)
            }
            992..1000 => {
                let now = self.now();
                let swept = self.pair.primary.sweep(now);
                self.count("sweep", swept > 0)
            }
            1000..1004 if self.pair.primary.is_sealed() => self.end_sealed_term(),
            1000..1002 => self.fail_over(),
            1002..1004 => self.hand_over(),
            1004..1020 => self.rejoin(),
            1020..1026 => {
                let now = self.now();
                self.pair.primary.sequencer(now).commit_digest();
                self.count("digest", true)
            }
            _ => self.evict_expired(),
        }
    }

    /// The primary is lost, but goes on answering reads for a while. Nobody else knows of the promises in them.
    fn fail_over(&mut self) -> &'static str {
        let (now, answers_for) = (LogTime(self.clock), 1 + self.rng.below(3_000));
        for _ in 0..self.rng.below(20) {
            let (key, later) = (self.key(), now.plus(self.rng.below(answers_for)));
            let until = later.plus(self.pair.primary.settings.lease_ttl_ms);
            if let Ok((object, bytes)) = heard(self.pair.primary.get(key.as_bytes(), later, see)).result {
                self.claims.promised(object, bytes.into_iter(), until);
            }
        }
        self.pair.promote(now, i64::try_from(answers_for).unwrap());
        self.close();
        self.count("failover", true)
    }

    /// Neither the first nor the last record of a term comes out of a sealed engine.
    fn end_sealed_term(&mut self) -> &'static str {
        let (now, engine) = (LogTime(self.clock), &self.pair.primary);
        assert_eq!(engine.flush_leases(now), 0);
        assert_eq!(engine.resign(now, true), SequenceId::NEVER);
        let term = Term(engine.term().0 + 1);
        let primary = Primary { name: b"master-0", boot_id: 1, leader_ttl: 1 };
        assert_eq!(engine.sequencer(now).begin_term(term, &primary, 1), SequenceId::NEVER);
        self.count("hand-over", false);
        self.count("failover", false)
    }

    /// The primary hands over: all that it promised is known, and there is nothing to wait for.
    fn hand_over(&mut self) -> &'static str {
        let now = LogTime(self.clock);
        let held = self.pair.primary.hold_until();
        self.pair.primary.flush_leases(now);
        self.pair.primary.resign(now, true);
        assert!(self.pair.mirror.resigned());
        self.pair.promote(now, 3_000);
        assert!(!self.pair.mirror.resigned());
        assert_eq!(self.pair.primary.hold_until(), held, "R6: nothing to wait for");
        self.close();
        self.count("hand-over", true)
    }

    fn close(&mut self) {
        let segments = self.pair.primary.segments();
        self.closed = segments.iter().map(|segment| (segment.number, segment.client)).collect();
    }

    /// Nothing new is placed in the memory of a client that the primary has not heard from.
    fn assert_open<'a>(&self, replicas: impl IntoIterator<Item = &'a Replica>) {
        for replica in replicas {
            assert!(!self.closed.contains_key(&replica.segment.number), "placed in {:?}", replica.segment);
        }
    }

    /// A client tells all its segments, or nearly all.
    fn rejoin(&mut self) -> &'static str {
        let (now, client) = (self.now(), self.client());
        let mut segments = self.pair.primary.segments();
        segments.retain(|segment| segment.client == client);
        if self.rng.percent(20) {
            segments.pop();
        }
        let specs: Vec<SegmentSpec<'_>> = segments.iter().map(|segment| spec_of(segment)).collect();
        let inherited = self.pair.primary.inherited().contains(&client);
        let told = heard(self.pair.primary.remount(&specs, client, now)).result.is_ok();
        if told {
            self.closed.retain(|_, owner| *owner != client);
            assert_eq!(self.pair.primary.is_joined(client).result, Ok(true));
        }
        if told && inherited {
            for segment in &segments {
                assert!(segment.is_alive(), "a segment that was told went away");
            }
        }
        self.count("rejoin", told && inherited)
    }

    /// Objects of this term stay, whatever their lease.
    fn evict_expired(&mut self) -> &'static str {
        let (now, before, began) = (self.now(), self.ids(), self.pair.primary.term_report().began);
        let evicted = self.pair.primary.evict_expired(now);
        let after: HashMap<ObjectId, Vec<u8>> = self.ids().into_iter().map(|(key, id)| (id, key)).collect();
        for (key, id) in before.iter().filter(|(_, id)| !after.contains_key(id)) {
            assert!(id.0 < began.0, "{} of this term was evicted", key.escape_ascii());
        }
        self.count("evict expired", evicted > 0)
    }

    /// A segment by number is always the same but for its client, name and base now and then.
    fn mount(&mut self) -> &'static str {
        let now = self.now();
        let number = self.rng.below(SEGMENTS);
        let odd = u64::from(self.rng.percent(5));
        let shift = if self.rng.percent(20) { self.rng.below(3) * 32 } else { 0 };
        let name = format!("name-{}", (number + odd) % NAMES);
        let endpoint = format!("endpoint-{}", number % 4);
        let host = format!("host-{}", number % 3);
        let spec = SegmentSpec {
            id: uuid(200 + number + odd),
            name: name.as_bytes(),
            // Now and then the grain of a mount lies across that of the one before.
            base: 0x10_0000 * (1 + number / 4) + shift,
            size: 20_000 + number * 3_333,
            te_endpoint: endpoint.as_bytes(),
            protocol: b"tcp",
            host_id: host.as_bytes(),
        };
        let client = uuid(100 + (number + odd) % CLIENTS);
        let remount = self.rng.percent(50);
        let answer = if remount {
            self.pair.primary.remount(&[spec], client, now)
        } else {
            self.pair.primary.sequencer(now).mount(&spec, client)
        };
        let answer = heard(answer);
        if remount && answer.result.is_ok() {
            self.closed.retain(|_, owner| *owner != client);
        }
        self.count(if remount { "remount" } else { "mount" }, answer.result.is_ok())
    }

    fn unmount(&mut self) -> &'static str {
        let (now, id) = (self.now(), uuid(200 + self.rng.below(SEGMENTS)));
        let there = self.pair.primary.segment_status_by_id(id).result.is_ok();
        let _ = self.pair.primary.sequencer(now).unmount(id);
        self.count("unmount", there)
    }

    fn drain(&mut self) -> &'static str {
        let (now, number) = (self.now(), self.rng.below(SEGMENTS));
        let (id, client) = (uuid(200 + number), uuid(100 + number % CLIENTS));
        let grace = self.rng.below(3) * 10_000;
        let answer = self.pair.primary.sequencer(now).graceful_unmount(id, client, grace);
        self.count("drain", answer.result.is_ok())
    }

    fn write(&mut self, upsert: bool) -> &'static str {
        let (now, key, client, name) = (self.now(), self.key(), self.client(), self.name());
        let group = format!("group-{}", self.rng.below(GROUPS));
        let soft_pin = match self.rng.below(6) {
            0 => SoftPin::Enable(1 + self.rng.below(40_000)),
            1 => SoftPin::Disable,
            _ => SoftPin::Preserve,
        };
        let config = WriteConfig {
            replicas: if self.rng.percent(70) { 1 } else { 1 + self.rng.below(4) },
            soft_pin,
            hard_pin: self.rng.percent(4),
            preferred: if self.rng.percent(20) { &[&name] } else { &[] },
            host_id: if self.rng.percent(30) { b"host-1" } else { b"" },
            data_type: self.rng.below(3) as u8,
            group: self.rng.percent(if upsert { 5 } else { 40 }).then_some(group.as_bytes()),
        };
        let usual = [64, 1000, 2048, 4096][self.rng.below(4) as usize];
        let size = if self.rng.percent(70) { usual } else { 1 + self.rng.below(6_000) };
        let old = self.pair.primary.peek(key.as_bytes(), |object| object.id).result.ok();
        let mut sequencer = self.pair.primary.sequencer(now);
        let log_now = sequencer.now;
        let answer = if upsert {
            sequencer.upsert_start(client, key.as_bytes(), size, &config)
        } else {
            sequencer.put_start(client, key.as_bytes(), size, &config)
        };
        drop(sequencer);
        let answer = heard(answer);
        let success = answer.result.is_ok();
        let in_place = self.started(&key, &answer, old, log_now);
        match (in_place, upsert) {
            (true, _) => self.count("upsert in place", success),
            (_, true) => self.count("upsert", success),
            (_, false) => self.count("put", success),
        }
    }

    fn started(&mut self, key: &str, answer: &Answer<Started>, old: Option<ObjectId>, now: LogTime) -> bool {
        let Ok(started) = &answer.result else { return false };
        let bytes = started.replicas.iter().map(|replica| bytes_of(replica, started.size)).collect();
        let until = now.plus(self.settings.release_timeout_ms);
        // A replica's id tells the record that reserved it.
        let fresh = started.replicas.iter().all(|replica| replica.id().0 >> 8 == answer.depends_on.0);
        if fresh {
            self.assert_open(&started.replicas);
        }
        match old.filter(|_| !fresh) {
            Some(old) => self.claims.told_in_place(key, old, bytes, until),
            None => self.claims.told(key, false, bytes, now, until),
        }
        !fresh
    }

    /// The writer of a key, if it is there; mostly the right client ends a write.
    fn writer(&mut self) -> (String, Uuid) {
        let key = self.key();
        (key, self.client())
    }

    fn end(&mut self) -> &'static str {
        let (now, (key, first)) = (self.now(), self.writer());
        let checksum = self.rng.percent(30).then(|| self.rng.next());
        let types = if self.rng.percent(3) { ReplicaTypes::Others } else { ReplicaTypes::Memory };
        let (mut ended, mut gone) = (false, false);
        for client in (0..CLIENTS).map(|nth| uuid(100 + (first.first + nth) % CLIENTS)) {
            let answer = heard(self.pair.primary.sequencer(now).end(client, key.as_bytes(), types, checksum));
            ended |= answer.result.is_ok();
            // The writer has said that it writes no more, whatever it hears.
            gone |= answer.result == Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        if (ended || gone) && types == ReplicaTypes::Memory {
            self.claims.ended(&key, false);
        }
        self.count("end", ended)
    }

    fn revoke(&mut self) -> &'static str {
        let (now, (key, first)) = (self.now(), self.writer());
        let (mut revoked, mut gone) = (false, false);
        for client in (0..CLIENTS).map(|nth| uuid(100 + (first.first + nth) % CLIENTS)) {
            let mut sequencer = self.pair.primary.sequencer(now);
            let answer = heard(sequencer.revoke(client, key.as_bytes(), ReplicaTypes::Memory));
            revoked |= answer.result.is_ok();
            gone |= answer.result == Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        if revoked || gone {
            self.claims.ended(&key, false);
        }
        self.count("revoke", revoked)
    }

    fn read(&mut self) -> &'static str {
        let (now, key) = (self.now(), self.key());
        let until = now.plus(self.pair.primary.settings.lease_ttl_ms);
        let mut seen = Vec::new();
        let kind = match self.rng.below(10) {
            0..3 => {
                if heard(self.pair.primary.exist(key.as_bytes(), now)).result == Ok(true) {
                    seen.extend(self.pair.primary.peek(key.as_bytes(), see).result);
                }
                "exist"
            }
            3 => {
                let shard = self.rng.below(SHARDS as u64) as usize;
                let keys = self.pair.primary.keys(&mut Cursor::of_shard(shard)).unwrap();
                seen.extend(
                    keys.iter()
                        .filter_map(|(_, key)| heard(self.pair.primary.get(key, now, see)).result.ok()),
                );
                "get matching"
            }
            _ => {
                seen.extend(heard(self.pair.primary.get(key.as_bytes(), now, see)).result);
                "get"
            }
        };
        let success = !seen.is_empty();
        for (object, bytes) in seen {
            self.claims.promised(object, bytes.into_iter(), until);
        }
        self.count(kind, success)
    }

    fn ids(&self) -> Vec<(Vec<u8>, ObjectId)> {
        let mut all = Vec::new();
        (0..SHARDS).for_each(|shard| {
            self.pair.primary.walk(shard, |object| all.push((object.key.to_vec(), object.id)));
        });
        all
    }

    /// Runs a removal; with force, promises on what is gone afterwards no longer count.
    fn removing<R>(&mut self, force: bool, removal: impl FnOnce(&mut Self) -> R) -> R {
        let before = if force { self.ids() } else { Vec::new() };
        let result = removal(self);
        if force {
            let after: Vec<ObjectId> = self.ids().into_iter().map(|(_, id)| id).collect();
            let gone: Vec<ObjectId> =
                before.into_iter().map(|(_, id)| id).filter(|id| !after.contains(id)).collect();
            self.claims.forget_promises(|object| gone.contains(&object));
        }
        result
    }

    fn remove(&mut self) -> &'static str {
        let (now, key, force) = (self.now(), self.key(), self.rng.percent(30));
        let gone = self.removing(force, |world| {
            heard(world.pair.primary.sequencer(now).remove(key.as_bytes(), force)).result.is_ok()
        });
        self.count(if force { "forced remove" } else { "remove" }, gone)
    }

    fn batch_remove(&mut self) -> &'static str {
        let (now, force) = (self.now(), self.rng.percent(20));
        let keys: Vec<String> = (0..self.rng.below(6)).map(|_| self.key()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let mut gone = 0;
        self.removing(force, |world| {
            world
                .pair
                .primary
                .sequencer(now)
                .batch_remove(&keys, force, |each| gone += u64::from(each.is_ok()));
        });
        self.count("batch remove", gone > 0)
    }

    fn remove_matching(&mut self) -> &'static str {
        let (now, force, digit) = (self.now(), self.rng.percent(20), b'0' + self.rng.below(10) as u8);
        let mut cursor = Cursor::default();
        let ids: Vec<ObjectId> = std::iter::from_fn(|| self.pair.primary.keys(&mut cursor))
            .flatten()
            .filter(|(_, key)| key.last() == Some(&digit))
            .map(|(id, _)| id)
            .collect();
        let gone = self.removing(force, |world| world.pair.primary.remove_matching(&ids, force, now).0);
        self.count("remove matching", gone > 0)
    }

    fn remove_all(&mut self) -> &'static str {
        let (now, force) = (self.now(), self.rng.percent(20));
        let gone = self.removing(force, |world| world.pair.primary.remove_all(force, now).0);
        self.count("remove all", gone > 0)
    }

    fn clear(&mut self) -> &'static str {
        let (now, key, client, name) = (self.now(), self.key(), self.client(), self.name());
        let name = if self.rng.percent(30) { Vec::new() } else { name };
        let answer = self.pair.primary.sequencer(now).replica_clear(client, key.as_bytes(), &name);
        self.count("clear", answer.result == Ok(true))
    }

    fn replicate(&mut self) -> &'static str {
        let (now, key, client) = (self.now(), self.key(), self.client());
        let source = self.pair.primary.peek(key.as_bytes(), |object| {
            object
                .replicas()
                .find(|replica| replica.is_readable())
                .map(|replica| replica.segment.name.to_vec())
        });
        let source = source.result.ok().flatten().unwrap_or_default();
        let targets: Vec<Vec<u8>> = (0..1 + self.rng.below(2)).map(|_| self.name()).collect();
        let targets: Vec<&[u8]> = targets.iter().map(Vec::as_slice).collect();
        let copy = self.rng.percent(50);
        let mut sequencer = self.pair.primary.sequencer(now);
        let log_now = sequencer.now;
        let answer = if copy {
            sequencer.copy_start(client, key.as_bytes(), &source, &targets, DynamicLease::default())
        } else {
            sequencer.move_start(client, key.as_bytes(), &source, targets[0])
        };
        drop(sequencer);
        let answer = heard(answer);
        if let Ok(begun) = &answer.result {
            self.assert_open(&begun.targets);
            let bytes = begun.targets.iter().map(|replica| bytes_of(replica, begun.size)).collect();
            self.claims.told(&key, true, bytes, log_now, log_now.plus(self.settings.release_timeout_ms));
        }
        self.count(if copy { "copy" } else { "move" }, answer.result.is_ok())
    }

    fn end_replication(&mut self) -> &'static str {
        let (now, key, revoke) = (self.now(), self.key(), self.rng.percent(25));
        let (mut ended, mut gone) = (false, false);
        for client in (0..CLIENTS).map(|nth| uuid(100 + nth)) {
            for kind in [CopyOrMove::Copy, CopyOrMove::Move] {
                let mut sequencer = self.pair.primary.sequencer(now);
                let plain = DynamicLease::default();
                let answer = if revoke {
                    sequencer.revoke_copy_or_move(client, key.as_bytes(), kind, plain)
                } else {
                    sequencer.end_copy_or_move(client, key.as_bytes(), kind, plain)
                };
                let answer = heard(answer);
                ended |= matches!(answer.result, Ok(()) | Err(ErrorCode::REPLICA_IS_GONE));
                gone |= answer.result == Err(ErrorCode::OBJECT_NOT_FOUND);
            }
        }
        if ended || gone {
            self.claims.ended(&key, true);
        }
        self.count(if revoke { "revoke copy or move" } else { "end copy or move" }, ended)
    }

    fn task(&mut self) -> &'static str {
        let (now, key, client, name) = (self.now(), self.key(), self.client(), self.name());
        let id = uuid(1000 + self.rng.below(TASKS));
        let choice = self.rng.below(4);
        let success = self.rng.percent(50);
        let source = self.pair.primary.peek(key.as_bytes(), |object| {
            object.replicas().next().map(|replica| replica.segment.name.to_vec())
        });
        let source = source.result.ok().flatten().unwrap_or_default();
        let mut sequencer = self.pair.primary.sequencer(now);
        let fresh = sequencer.query_task(id).result.is_err();
        let (kind, done) = match choice {
            0 if fresh => {
                let answer = sequencer.create_copy_task(id, key.as_bytes(), b"", &[&name]);
                ("copy task", answer.result.is_ok())
            }
            1 if fresh => {
                let answer = sequencer.create_move_task(id, key.as_bytes(), b"", &source, &name);
                ("move task", answer.result.is_ok())
            }
            2 => {
                ("fetch tasks", sequencer.fetch_tasks(client, 3).result.is_ok_and(|tasks| !tasks.is_empty()))
            }
            _ => ("complete task", sequencer.complete_task(client, id, success, b"done").result.is_ok()),
        };
        drop(sequencer);
        self.count(kind, done)
    }

    fn metadata(&mut self) -> &'static str {
        let (now, key) = (self.now(), format!("entry-{}", self.rng.below(8)));
        let value = self.rng.next().to_le_bytes();
        let put = self.rng.percent(60);
        let mut sequencer = self.pair.primary.sequencer(now);
        let done = if put {
            sequencer.put_metadata(key.as_bytes(), &value, |_, _, _| Ok::<_, ()>(())).is_ok()
        } else {
            sequencer.delete_metadata(key.as_bytes()).is_some()
        };
        drop(sequencer);
        self.count(if put { "put metadata" } else { "delete metadata" }, done)
    }
}
