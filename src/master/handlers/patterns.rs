//! Calls about all objects, or about those whose key matches a pattern. They visit every key, so they run on blocking
//! threads while the connection goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Handled, Handlers, INVALID, constant};
use crate::engine::Engine;
use crate::engine::pattern::{self, Pattern};
use crate::engine::types::{ObjectId, SequenceId};
use crate::engine::walk::{Cursor, Keys};
use crate::master::admission::ChunkPermits;
use crate::master::effects;
use crate::master::reply_encoding::Located;
use crate::master::rpc_failures::NOT_LEADING;
use crate::replication::admission::Refusal;
use crate::replication::time::RunningClock;
use crate::wire::frame;
use crate::wire::functions::{Function, Rpc, encode_response};
use crate::wire::messages::{KeyRequest, RemoveAllRequest, RemoveRequest};
use crate::wire::server::{Failure, Offload, Outcome};
use crate::wire::struct_pack::Map;
use crate::wire::types::ErrorCode;

/// Most objects that a pattern may find for one reply.
const MAX_FOUND: usize = 1 << 18;

/// Most bytes of these objects in the reply. All connections together may hold twice as much in replies that clients
/// have not read yet, so two such replies can be under way.
const MAX_FOUND_BYTES: usize = 16 << 20;

/// How long a search may match keys: a pattern that costs more is refused. What is done with the keys that were found does
/// not count: a removal goes on to its end, also when its caller, who waits as long, has hung up.
const MATCHING_LIMIT: Duration = Duration::from_secs(30);

/// Returns the error for long work that had to stop before its end: what was removed until then stays removed.
fn stopped(refusal: Refusal) -> Failure {
    let message = match refusal {
        Refusal::NotLeading => return NOT_LEADING,
        Refusal::OutOfSpace => {
            "the log is full or refused by etcd (see the status), not everything was removed"
        }
        Refusal::QueueFull => "the master's queue of unwritten changes is full, not everything was removed",
    };
    Failure { code: frame::TIMED_OUT, message }
}

impl Handlers {
    /// Runs `work` outside the loop of the connection. It writes the reply and returns what that depends on, or why it
    /// stopped. The pattern is compiled there as well, and its text kept until then. The work holds a guard of the
    /// term, which also cancels it.
    fn offload<W>(&self, function: Function, pattern: &[u8], work: W) -> Handled
    where
        W: FnOnce(&mut ChunkPermits<'_>, &mut Vec<u8>) -> Result<SequenceId, Refusal> + Send + 'static,
    {
        let (answer_gate, guard) = (self.answer_gate.clone(), self.guards.guard());
        let outcome = match guard {
            None => Outcome::Error(NOT_LEADING),
            Some(guard) => Outcome::Offload(Box::new(Offload {
                work: Box::new(move |out| {
                    let mut chunks = ChunkPermits::new(&answer_gate, Some(&guard));
                    work(&mut chunks, out).map_err(stopped)
                }),
                keeps: pattern.len(),
                holds_back: effects::may_change(function),
            })),
        };
        Handled { outcome, batch: false, items: 1, failed: 0, starved: 0 }
    }

    pub(super) fn remove_all<F: Rpc>(&self, request: RemoveAllRequest<'_>, _out: &mut Vec<u8>) -> Handled {
        let (engine, clock, force) = (Arc::clone(&self.engine), self.clock, request.force);
        self.offload(F::FUNCTION, b"", move |chunks, out| {
            let (count, depends_on) = engine.remove_all_while(force, clock.now(), chunks);
            if let Some(refusal) = chunks.refusal() {
                return Err(refusal);
            }
            encode_response::<F, _>(&(count as i64), out);
            Ok(depends_on)
        })
    }

    pub(super) fn remove_by_regex<F: Rpc>(&self, request: RemoveRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let Some(text) = sensible(request.key) else { return constant::<F, i64>(Err(INVALID), out) };
        let (engine, metrics) = (Arc::clone(&self.engine), Arc::clone(&self.metrics));
        let (clock, force) = (self.clock, request.force);
        self.offload(F::FUNCTION, request.key, move |chunks, out| {
            let (result, depends_on) = remove_matching(&engine, &text, force, clock, chunks)?;
            if result.is_err() {
                metrics.rpc.failed(F::FUNCTION);
            }
            encode_response::<F, _>(&result, out);
            Ok(depends_on)
        })
    }

    pub(super) fn get_replica_list_by_regex<F: Rpc>(
        &self,
        request: KeyRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let Some(text) = sensible(request.key) else {
            return constant::<F, Map<&[u8], Located>>(Err(INVALID), out);
        };
        let (engine, metrics) = (Arc::clone(&self.engine), Arc::clone(&self.metrics));
        let clock = self.clock;
        self.offload(F::FUNCTION, request.key, move |chunks, out| {
            let (found, depends_on) = find_matching(&engine, &text, clock, chunks)?;
            match found {
                Ok((keys, located)) => {
                    let map = Map(keys.iter().map(AsRef::as_ref).zip(located).collect::<Vec<(&[u8], _)>>());
                    encode_response::<F, _>(&Ok::<_, ErrorCode>(map), out);
                }
                Err(error) => {
                    metrics.rpc.failed(F::FUNCTION);
                    encode_response::<F, _>(&Err::<Map<&[u8], Located>, _>(error), out);
                }
            }
            Ok(depends_on)
        })
    }
}

/// Copies a pattern, unless it is longer than any that is accepted.
fn sensible(pattern: &[u8]) -> Option<Box<[u8]>> {
    (pattern.len() <= pattern::MAX_LENGTH).then(|| pattern.into())
}

/// Keys of readable objects, and their replicas.
type Found = (Vec<Box<[u8]>>, Vec<Located>);

/// Result of a search, and the record that it depends on; or why it stopped.
type Searched<T> = Result<(Result<T, ErrorCode>, SequenceId), Refusal>;

fn find_matching(
    engine: &Engine,
    text: &[u8],
    clock: RunningClock,
    chunks: &ChunkPermits<'_>,
) -> Searched<Found> {
    let Ok(pattern) = Pattern::parse(text) else { return Ok((Err(INVALID), SequenceId(0))) };
    let mut search = Search::new(engine, pattern);
    let ((mut keys, mut found), mut bytes) = (Found::default(), 0);
    while let Some(matching) = search.next(chunks)? {
        for (_, key) in matching {
            let answer = engine.get(&key, clock.now(), Located::new);
            search.depends_on = search.depends_on.max(answer.depends_on);
            if let Ok(located) = answer.result {
                bytes += key.len() + located.bytes();
                keys.push(key);
                found.push(located);
            }
        }
        search.failed |= found.len() > MAX_FOUND || bytes > MAX_FOUND_BYTES;
    }
    let result = if search.failed { Err(INVALID) } else { Ok((keys, found)) };
    Ok((result, search.rests_on()))
}

/// A walk over all keys with a pattern. It holds no lock while it matches, and gives up when that has cost too much.
struct Search<'e> {
    engine: &'e Engine,
    cursor: Cursor,
    pattern: Pattern,
    /// How long it has matched keys, and how long it may.
    spent: Duration,
    limit: Duration,
    /// The pattern cost too much; nothing more is found.
    failed: bool,
    /// The last record that the keys found depend on.
    depends_on: SequenceId,
}

impl<'e> Search<'e> {
    fn new(engine: &'e Engine, pattern: Pattern) -> Self {
        let (spent, limit, depends_on) = (Duration::ZERO, MATCHING_LIMIT, SequenceId(0));
        Self { engine, cursor: Cursor::default(), pattern, spent, limit, failed: false, depends_on }
    }

    /// Returns the objects of the next piece of the store whose key matches, or `None` at its end and after a failure.
    /// Stops between two keys when its term has ended.
    fn next(&mut self, chunks: &ChunkPermits<'_>) -> Result<Option<Keys>, Refusal> {
        if chunks.is_cancelled() {
            return Err(Refusal::NotLeading);
        }
        if self.failed {
            return Ok(None);
        }
        let start = Instant::now();
        let Some(mut keys) = self.engine.keys(&mut self.cursor) else { return Ok(None) };
        keys.retain(|(_, key)| {
            let over = self.failed || chunks.is_cancelled();
            let matches = if over { Ok(false) } else { self.pattern.is_match(key) };
            self.failed |= matches.is_err() || self.spent + start.elapsed() > self.limit;
            matches.unwrap_or(false)
        });
        self.spent += start.elapsed();
        if chunks.is_cancelled() {
            return Err(Refusal::NotLeading);
        }
        Ok((!self.failed).then_some(keys))
    }

    /// Returns the record that the whole answer depends on. A key that was not found may have gone with a segment,
    /// which leaves no mark in its shard, so this is the last record (INV-3).
    fn rests_on(&self) -> SequenceId {
        self.depends_on.max(self.engine.last_visible())
    }
}

fn remove_matching(
    engine: &Engine,
    text: &[u8],
    force: bool,
    clock: RunningClock,
    chunks: &mut ChunkPermits<'_>,
) -> Searched<i64> {
    let Ok(pattern) = Pattern::parse(text) else { return Ok((Err(INVALID), SequenceId(0))) };
    let mut search = Search::new(engine, pattern);
    let mut total = 0;
    while let Some(matching) = search.next(chunks)? {
        let ids: Vec<ObjectId> = matching.into_iter().map(|(id, _)| id).collect();
        let (count, rests_on) = engine.remove_matching_while(&ids, force, clock.now(), chunks);
        total += count as i64;
        search.depends_on = search.depends_on.max(rests_on);
        if let Some(refusal) = chunks.refusal() {
            return Err(refusal);
        }
        // Give the permit back, so that no space in the log is reserved while keys are matched.
        chunks.end_chunk();
    }
    let result = if search.failed { Err(INVALID) } else { Ok(total) };
    Ok((result, search.rests_on()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::{ReplicaTypes, WriteConfig};
    use crate::engine::segment::SegmentSpec;
    use crate::engine::settings::EngineSettings;
    use crate::engine::types::{LogTime, Uuid};
    use crate::master::live_state::AnswerGate;

    const CLIENT: Uuid = Uuid { first: 1, second: 1 };

    /// A store with objects of these keys.
    fn store(keys: &[String]) -> Engine {
        let engine = Engine::new(EngineSettings::default());
        let mut sequencer = engine.sequencer(LogTime(1));
        let (base, size) = (1 << 32, 1 << 20);
        let spec = SegmentSpec {
            id: CLIENT,
            name: b"a",
            base,
            size,
            te_endpoint: b"a:1",
            protocol: b"tcp",
            host_id: b"",
        };
        sequencer.mount(&spec, CLIENT).result.unwrap();
        let config = WriteConfig { replicas: 1, ..WriteConfig::default() };
        for key in keys {
            sequencer.put_start(CLIENT, key.as_bytes(), 64, &config).result.unwrap();
            sequencer.end(CLIENT, key.as_bytes(), ReplicaTypes::Memory, None).result.unwrap();
        }
        drop(sequencer);
        engine
    }

    #[test]
    fn a_search_rests_on_the_unmount_that_hid_an_object_from_it() {
        let engine = store(&["key".to_owned()]);
        let unmount = engine.sequencer(LogTime(1)).unmount(CLIENT).depends_on;
        // INV-3: after a crash before the unmount is durable, the key would exist again.
        let answer_gate = AnswerGate(None);
        let mut chunks = ChunkPermits::new(&answer_gate, None);
        let (found, depends_on) = find_matching(&engine, b".*", RunningClock::start(), &chunks).unwrap();
        assert_eq!((found.map(|found| found.0.len()), depends_on), (Ok(0), unmount));
        let removed = remove_matching(&engine, b".*", true, RunningClock::start(), &mut chunks);
        assert_eq!(removed.unwrap(), (Ok(0), unmount));
    }

    #[test]
    fn a_removal_between_two_pieces_is_no_time_of_matching() {
        let keys: Vec<String> = (0..300).map(|nth| format!("key {nth}")).collect();
        let engine = store(&keys);
        let answer_gate = AnswerGate(None);
        let chunks = ChunkPermits::new(&answer_gate, None);
        let mut search = Search::new(&engine, Pattern::parse(b".*").unwrap());
        search.limit = Duration::from_secs(2);
        let mut found = 0;
        while let Some(matching) = search.next(&chunks).unwrap() {
            if found == 0 && !matching.is_empty() {
                std::thread::sleep(search.limit + Duration::from_millis(100));
            }
            found += matching.len();
        }
        assert_eq!((found, search.failed), (keys.len(), false));
    }
}
