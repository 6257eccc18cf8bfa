//! Calls about all objects, or those whose key matches a pattern. They look at every key, so they run aside and the
//! connection goes on meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Handled, Handlers, INVALID, constant};
use crate::engine::Engine;
use crate::engine::pattern::{self, Pattern};
use crate::engine::types::{ObjectId, SequenceId};
use crate::engine::walk::{Cursor, Keys};
use crate::master::admission::ChunkPermits;
use crate::master::clock::Clock;
use crate::master::describe::Located;
use crate::master::effects;
use crate::master::service::NOT_LEADING;
use crate::replication::admission::Refusal;
use crate::wire::frame;
use crate::wire::functions::{Function, Rpc, encode_response};
use crate::wire::messages::{KeyRequest, RemoveAllRequest, RemoveRequest};
use crate::wire::server::{Aside, Failure, Outcome};
use crate::wire::struct_pack::Map;
use crate::wire::types::ErrorCode;

/// How many objects a pattern may find for one reply.
const MAX_FOUND: usize = 1 << 18;

/// How many bytes they may have in the reply. All connections together may hold twice as much in replies that are not
/// read yet, so two such replies can be under way.
const MAX_FOUND_BYTES: usize = 16 << 20;

/// Clients give a call up after so long.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What long work is told that had to stop before its end: what was removed until then stays removed.
fn stopped(refusal: Refusal) -> Failure {
    let message = match refusal {
        Refusal::NotLeading => return NOT_LEADING,
        Refusal::OutOfSpace => "the log is full (etcd: out of space), not everything was removed",
        Refusal::QueueFull => "the log is full, not everything was removed",
    };
    Failure { code: frame::TIMED_OUT, message }
}

impl Handlers {
    /// Has `work` done outside the loop of the connection: it makes the reply and says what that depends on, or why it
    /// stopped. The pattern is compiled there as well, and its text kept until then. A guard of the term is held until it
    /// is done, and cancels it.
    fn aside<W>(&self, function: Function, pattern: &[u8], work: W) -> Handled
    where
        W: FnOnce(&mut ChunkPermits<'_>, &mut Vec<u8>) -> Result<SequenceId, Refusal> + Send + 'static,
    {
        let (passage, guard) = (self.passage.clone(), self.guards.guard());
        let outcome = match guard {
            None => Outcome::Error(NOT_LEADING),
            Some(guard) => Outcome::Aside(Box::new(Aside {
                work: Box::new(move |out| {
                    let mut chunks = ChunkPermits::new(&passage, Some(&guard));
                    work(&mut chunks, out).map(|depends_on| depends_on.0).map_err(stopped)
                }),
                keeps: pattern.len(),
                holds_back: effects::may_change(function),
            })),
        };
        Handled { outcome, batch: false, items: 1, failed: 0, starved: 0 }
    }

    pub(super) fn remove_all<F: Rpc>(&self, request: RemoveAllRequest<'_>, _out: &mut Vec<u8>) -> Handled {
        let (engine, clock, force) = (Arc::clone(&self.engine), self.clock, request.force);
        self.aside(F::FUNCTION, b"", move |chunks, out| {
            let (count, depends_on) =
                engine.remove_all_while(force, clock.now(), &mut || chunks.next_chunk());
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
        self.aside(F::FUNCTION, request.key, move |chunks, out| {
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
        self.aside(F::FUNCTION, request.key, move |chunks, out| {
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

/// A copy of a pattern, unless it is longer than any that is taken.
fn sensible(pattern: &[u8]) -> Option<Box<[u8]>> {
    (pattern.len() <= pattern::MAX_LENGTH).then(|| pattern.into())
}

/// The keys of readable objects, and where these are.
type Found = (Vec<Box<[u8]>>, Vec<Located>);

/// What a search gives, and the record that it rests on; or why it stopped.
type Searched<T> = Result<(Result<T, ErrorCode>, SequenceId), Refusal>;

fn find_matching(engine: &Engine, text: &[u8], clock: Clock, chunks: &ChunkPermits<'_>) -> Searched<Found> {
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

/// A walk over all keys with a pattern. It holds no lock while it matches, and gives up when it has cost too much: the
/// caller has long hung up by then.
struct Search<'e> {
    engine: &'e Engine,
    cursor: Cursor,
    pattern: Pattern,
    deadline: Instant,
    /// The pattern cost too much; nothing more is found.
    failed: bool,
    /// What the keys that were found rest on.
    depends_on: SequenceId,
}

impl<'e> Search<'e> {
    fn new(engine: &'e Engine, pattern: Pattern) -> Self {
        let (deadline, depends_on) = (Instant::now() + TIME_LIMIT, SequenceId(0));
        Self { engine, cursor: Cursor::default(), pattern, deadline, failed: false, depends_on }
    }

    /// The objects of the next piece of the store whose key matches, or `None` at its end and after a failure. Stops
    /// between two keys when its term has ended.
    fn next(&mut self, chunks: &ChunkPermits<'_>) -> Result<Option<Keys>, Refusal> {
        if chunks.is_cancelled() {
            return Err(Refusal::NotLeading);
        }
        if self.failed {
            return Ok(None);
        }
        let Some(mut keys) = self.engine.keys(&mut self.cursor) else { return Ok(None) };
        keys.retain(|(_, key)| {
            let over = self.failed || chunks.is_cancelled();
            let matches = if over { Ok(false) } else { self.pattern.is_match(key) };
            self.failed |= matches.is_err() || Instant::now() > self.deadline;
            matches.unwrap_or(false)
        });
        if chunks.is_cancelled() {
            return Err(Refusal::NotLeading);
        }
        Ok((!self.failed).then_some(keys))
    }

    /// What the whole answer rests on. A key that was not found may have gone with a segment, which leaves no mark in its
    /// shard, so it rests on the last record (INV-3).
    fn rests_on(&self) -> SequenceId {
        self.depends_on.max(self.engine.settled())
    }
}

fn remove_matching(
    engine: &Engine,
    text: &[u8],
    force: bool,
    clock: Clock,
    chunks: &mut ChunkPermits<'_>,
) -> Searched<i64> {
    let Ok(pattern) = Pattern::parse(text) else { return Ok((Err(INVALID), SequenceId(0))) };
    let mut search = Search::new(engine, pattern);
    let mut total = 0;
    while let Some(matching) = search.next(chunks)? {
        let ids: Vec<ObjectId> = matching.into_iter().map(|(id, _)| id).collect();
        let mut go_on = || chunks.next_chunk();
        let (count, rests_on) = engine.remove_matching_while(&ids, force, clock.now(), &mut go_on);
        total += count as i64;
        search.depends_on = search.depends_on.max(rests_on);
        if let Some(refusal) = chunks.refusal() {
            return Err(refusal);
        }
        // Space in the log is not kept while keys are matched.
        chunks.end_chunk();
    }
    let result = if search.failed { Err(INVALID) } else { Ok(total) };
    Ok((result, search.rests_on()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::{ReplicaTypes, WriteConfig};
    use crate::engine::rules::Rules;
    use crate::engine::segment::SegmentSpec;
    use crate::engine::types::{LogTime, Uuid};
    use crate::master::current::Passage;

    const CLIENT: Uuid = Uuid { first: 1, second: 1 };

    #[test]
    fn a_search_rests_on_the_unmount_that_hid_an_object_from_it() {
        let engine = Engine::new(Rules::default());
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
        sequencer.put_start(CLIENT, b"key", 64, &config).result.unwrap();
        sequencer.end(CLIENT, b"key", ReplicaTypes::Memory, None).result.unwrap();
        let unmount = sequencer.unmount(CLIENT).depends_on;
        drop(sequencer);
        // INV-3: after a crash before the unmount is durable, the key would be there again.
        let passage = Passage(None);
        let mut chunks = ChunkPermits::new(&passage, None);
        let (found, depends_on) = find_matching(&engine, b".*", Clock::start(), &chunks).unwrap();
        assert_eq!((found.map(|found| found.0.len()), depends_on), (Ok(0), unmount));
        let removed = remove_matching(&engine, b".*", true, Clock::start(), &mut chunks);
        assert_eq!(removed.unwrap(), (Ok(0), unmount));
    }
}
