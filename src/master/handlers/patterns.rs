//! Calls about all objects, or those whose key matches a pattern. They look at every key, so they run aside and the
//! connection goes on meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Handled, Handlers, INVALID, constant};
use crate::engine::Engine;
use crate::engine::pattern::Pattern;
use crate::engine::read::Keys;
use crate::engine::shard::SHARDS;
use crate::engine::types::{ObjectId, SequenceId};
use crate::master::clock::Clock;
use crate::master::describe::Located;
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{KeyRequest, RemoveAllRequest, RemoveRequest};
use crate::wire::server::Outcome;
use crate::wire::struct_pack::Map;
use crate::wire::types::ErrorCode;

/// What a pattern may find at most for one reply: a reply has to fit into a frame.
const MAX_FOUND: usize = 1 << 18;

/// Clients give a call up after so long.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Runs `work` on a thread of its own; the reply follows when it is done.
fn later(work: impl FnOnce() -> (Vec<u8>, SequenceId) + Send + 'static) -> Handled {
    let task = tokio::task::spawn_blocking(work);
    let outcome = Outcome::Later(Box::pin(async move {
        match task.await {
            Ok((body, depends_on)) => (body, depends_on.0),
            // Only a panic or the end of the process gets here; an empty body makes the client fail the call.
            Err(error) => {
                tracing::error!(%error, "a request that looks at all keys failed");
                (Vec::new(), 0)
            }
        }
    }));
    Handled { outcome, batch: false, items: 1, failed: 0 }
}

impl Handlers {
    pub(super) fn remove_all<F: Rpc>(&self, request: RemoveAllRequest<'_>, _out: &mut Vec<u8>) -> Handled {
        let (engine, now, force) = (Arc::clone(&self.engine), self.now(), request.force);
        later(move || {
            let (count, depends_on) = engine.remove_all(force, now);
            let mut body = Vec::new();
            encode_response::<F, _>(&(count as i64), &mut body);
            (body, depends_on)
        })
    }

    pub(super) fn remove_by_regex<F: Rpc>(&self, request: RemoveRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let Ok(pattern) = Pattern::parse(request.key) else { return constant::<F, i64>(Err(INVALID), out) };
        let (engine, clock, force) = (Arc::clone(&self.engine), self.clock, request.force);
        later(move || {
            let mut body = Vec::new();
            let (result, depends_on) = remove_matching(&engine, pattern, force, clock);
            encode_response::<F, _>(&result, &mut body);
            (body, depends_on)
        })
    }

    pub(super) fn get_replica_list_by_regex<F: Rpc>(
        &self,
        request: KeyRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let Ok(pattern) = Pattern::parse(request.key) else {
            return constant::<F, Map<&[u8], Located>>(Err(INVALID), out);
        };
        let (engine, clock) = (Arc::clone(&self.engine), self.clock);
        later(move || {
            let mut search = Search::new(pattern);
            let mut found: Vec<(Box<[u8]>, Located)> = Vec::new();
            for shard in 0..SHARDS {
                for (_, key) in search.matching(&engine, shard) {
                    let answer = engine.get(&key, clock.now(), Located::new);
                    search.depends_on = search.depends_on.max(answer.depends_on);
                    found.extend(answer.result.ok().map(|located| (key, located)));
                }
                if search.failed || found.len() > MAX_FOUND {
                    search.failed = true;
                    break;
                }
            }
            let mut body = Vec::new();
            if search.failed {
                encode_response::<F, _>(&Err::<Map<&[u8], Located>, _>(INVALID), &mut body);
            } else {
                let (keys, located): (Vec<Box<[u8]>>, Vec<Located>) = found.into_iter().unzip();
                let map = Map(keys.iter().map(AsRef::as_ref).zip(located).collect::<Vec<_>>());
                encode_response::<F, _>(&Ok::<_, ErrorCode>(map), &mut body);
            }
            (body, search.depends_on)
        })
    }
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
    pattern: Pattern,
    force: bool,
    clock: Clock,
) -> (Result<i64, ErrorCode>, SequenceId) {
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
