//! Calls about all objects, or those whose key matches a pattern. They look at every key, so they run aside and the
//! connection goes on meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Handled, Handlers, INVALID, constant};
use crate::engine::Engine;
use crate::engine::pattern::{self, Pattern};
use crate::engine::read::Keys;
use crate::engine::shard::SHARDS;
use crate::engine::types::{ObjectId, SequenceId};
use crate::master::clock::Clock;
use crate::master::describe::Located;
use crate::master::effects;
use crate::wire::functions::{Function, Rpc, encode_response};
use crate::wire::messages::{KeyRequest, RemoveAllRequest, RemoveRequest};
use crate::wire::server::{Aside, Outcome};
use crate::wire::struct_pack::Map;
use crate::wire::types::ErrorCode;

/// How many objects a pattern may find for one reply.
const MAX_FOUND: usize = 1 << 18;

/// How many bytes they may have in the reply. All connections together may hold twice as much in replies that are not
/// read yet, so two such replies can be under way.
const MAX_FOUND_BYTES: usize = 16 << 20;

/// Clients give a call up after so long.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Has `work` done outside the loop of the connection: it makes the reply and says what that depends on. The pattern is
/// compiled there as well, and its text kept until then.
fn aside<W>(function: Function, pattern: &[u8], work: W) -> Handled
where
    W: FnOnce(&mut Vec<u8>) -> SequenceId + Send + 'static,
{
    let aside = Aside {
        work: Box::new(|out| work(out).0),
        keeps: pattern.len(),
        holds_back: effects::may_change(function),
    };
    Handled { outcome: Outcome::Aside(Box::new(aside)), batch: false, items: 1, failed: 0 }
}

impl Handlers {
    pub(super) fn remove_all<F: Rpc>(&self, request: RemoveAllRequest<'_>, _out: &mut Vec<u8>) -> Handled {
        let (engine, clock, force) = (Arc::clone(&self.engine), self.clock, request.force);
        aside(F::FUNCTION, b"", move |out| {
            let (count, depends_on) = engine.remove_all(force, clock.now());
            encode_response::<F, _>(&(count as i64), out);
            depends_on
        })
    }

    pub(super) fn remove_by_regex<F: Rpc>(&self, request: RemoveRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let Some(text) = sensible(request.key) else { return constant::<F, i64>(Err(INVALID), out) };
        let (engine, metrics) = (Arc::clone(&self.engine), Arc::clone(&self.metrics));
        let (clock, force) = (self.clock, request.force);
        aside(F::FUNCTION, request.key, move |out| {
            let (result, depends_on) = remove_matching(&engine, &text, force, clock);
            if result.is_err() {
                metrics.rpc.failed(F::FUNCTION);
            }
            encode_response::<F, _>(&result, out);
            depends_on
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
        aside(F::FUNCTION, request.key, move |out| {
            let (found, depends_on) = find_matching(&engine, &text, clock);
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
            depends_on
        })
    }
}

/// A copy of a pattern, unless it is longer than any that is taken.
fn sensible(pattern: &[u8]) -> Option<Box<[u8]>> {
    (pattern.len() <= pattern::MAX_LENGTH).then(|| pattern.into())
}

/// The keys of readable objects, and where these are.
type Found = (Vec<Box<[u8]>>, Vec<Located>);

fn find_matching(engine: &Engine, text: &[u8], clock: Clock) -> (Result<Found, ErrorCode>, SequenceId) {
    let Ok(pattern) = Pattern::parse(text) else { return (Err(INVALID), SequenceId(0)) };
    let mut search = Search::new(pattern);
    let ((mut keys, mut found), mut bytes) = (Found::default(), 0);
    for shard in 0..SHARDS {
        for (_, key) in search.matching(engine, shard) {
            let answer = engine.get(&key, clock.now(), Located::new);
            search.depends_on = search.depends_on.max(answer.depends_on);
            if let Ok(located) = answer.result {
                bytes += key.len() + located.bytes();
                keys.push(key);
                found.push(located);
            }
            search.failed |= found.len() > MAX_FOUND || bytes > MAX_FOUND_BYTES;
            if search.failed {
                return (Err(INVALID), search.depends_on);
            }
        }
    }
    let result = if search.failed { Err(INVALID) } else { Ok((keys, found)) };
    (result, search.depends_on)
}

/// A walk over all keys with a pattern. It holds no lock while it matches, and gives up when it has cost too much: the
/// caller has long hung up by then.
struct Search {
    pattern: Pattern,
    deadline: Instant,
    /// The pattern cost too much; nothing more is found.
    failed: bool,
    /// What the absence of keys rests on.
    depends_on: SequenceId,
}

impl Search {
    fn new(pattern: Pattern) -> Self {
        Self { pattern, deadline: Instant::now() + TIME_LIMIT, failed: false, depends_on: SequenceId(0) }
    }

    /// The objects of a shard whose key matches.
    fn matching(&mut self, engine: &Engine, shard: usize) -> Keys {
        let (mut keys, last_removal) = engine.keys(shard);
        self.depends_on = self.depends_on.max(last_removal);
        keys.retain(|(_, key)| {
            let matches = if self.failed { Ok(false) } else { self.pattern.is_match(key) };
            self.failed |= matches.is_err() || Instant::now() > self.deadline;
            matches.unwrap_or(false)
        });
        keys
    }
}

fn remove_matching(
    engine: &Engine,
    text: &[u8],
    force: bool,
    clock: Clock,
) -> (Result<i64, ErrorCode>, SequenceId) {
    let Ok(pattern) = Pattern::parse(text) else { return (Err(INVALID), SequenceId(0)) };
    let mut search = Search::new(pattern);
    let mut total = 0;
    for shard in 0..SHARDS {
        let ids: Vec<ObjectId> = search.matching(engine, shard).into_iter().map(|(id, _)| id).collect();
        if search.failed {
            return (Err(INVALID), search.depends_on);
        }
        let (count, rests_on) = engine.remove_matching(&ids, force, clock.now());
        total += count as i64;
        search.depends_on = search.depends_on.max(rests_on);
    }
    (Ok(total), search.depends_on)
}
