//! Calls about all objects, or those whose key matches a pattern. They look at every key, so they run aside and the
//! connection goes on meanwhile.

use std::sync::Arc;

use super::{Handled, Handlers, INVALID, constant};
use crate::engine::Engine;
use crate::engine::pattern::Pattern;
use crate::engine::shard::SHARDS;
use crate::engine::types::{LogTime, ObjectId, SequenceId};
use crate::master::describe::Located;
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{KeyRequest, RemoveAllRequest, RemoveRequest};
use crate::wire::server::Outcome;
use crate::wire::struct_pack::Map;
use crate::wire::types::ErrorCode;

/// What a pattern may find at most for one reply: a reply has to fit into a frame.
const MAX_FOUND: usize = 1 << 18;

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
        let (engine, now, force) = (Arc::clone(&self.engine), self.now(), request.force);
        later(move || {
            let mut body = Vec::new();
            let (result, depends_on) = remove_matching(&engine, &pattern, force, now);
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
        let (engine, now) = (Arc::clone(&self.engine), self.now());
        later(move || {
            let mut found: Vec<(Box<[u8]>, Located)> = Vec::new();
            let mut depends_on = SequenceId(0);
            let mut too_costly = false;
            for shard in 0..SHARDS {
                let rests_on = engine.get_matching(
                    shard,
                    now,
                    |key| matches(&pattern, key, &mut too_costly),
                    |object| found.push((object.key.clone(), Located::new(object))),
                );
                depends_on = depends_on.max(rests_on);
                if too_costly || found.len() > MAX_FOUND {
                    break;
                }
            }
            let mut body = Vec::new();
            if too_costly || found.len() > MAX_FOUND {
                encode_response::<F, _>(&Err::<Map<&[u8], Located>, _>(INVALID), &mut body);
            } else {
                let (keys, located): (Vec<Box<[u8]>>, Vec<Located>) = found.into_iter().unzip();
                let map = Map(keys.iter().map(AsRef::as_ref).zip(located).collect::<Vec<_>>());
                encode_response::<F, _>(&Ok::<_, ErrorCode>(map), &mut body);
            }
            (body, depends_on)
        })
    }
}

/// Whether a key matches. A pattern that costs too much matches nothing from then on, and the call fails.
fn matches(pattern: &Pattern, key: &[u8], too_costly: &mut bool) -> bool {
    !*too_costly
        && pattern.is_match(key).unwrap_or_else(|_| {
            *too_costly = true;
            false
        })
}

fn remove_matching(
    engine: &Engine,
    pattern: &Pattern,
    force: bool,
    now: LogTime,
) -> (Result<i64, ErrorCode>, SequenceId) {
    let mut total = 0;
    let mut depends_on = SequenceId(0);
    let mut too_costly = false;
    for shard in 0..SHARDS {
        let ids: Vec<ObjectId> = engine.matching(shard, |key| matches(pattern, key, &mut too_costly));
        if too_costly {
            return (Err(INVALID), depends_on);
        }
        let (count, rests_on) = engine.remove_matching(&ids, force, now);
        total += count as i64;
        depends_on = depends_on.max(rests_on);
    }
    (Ok(total), depends_on)
}
