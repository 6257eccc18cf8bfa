//! Reads and removals by pattern, as the handlers of a master make them: a walk over all keys that holds no lock.

use std::collections::BTreeSet;

use moonkeeper::engine::Engine;
use moonkeeper::engine::pattern::Pattern;
use moonkeeper::engine::types::{LogTime, ObjectId, SequenceId};
use moonkeeper::engine::walk::Cursor;

use super::truth::Seen;

/// The objects whose key starts with a prefix.
fn matching(engine: &Engine, prefix: &str) -> Vec<(ObjectId, String)> {
    let pattern = Pattern::parse(format!("^{prefix}").as_bytes()).unwrap();
    let (mut found, mut cursor) = (Vec::new(), Cursor::default());
    while let Some(keys) = engine.keys(&mut cursor) {
        let matches = keys.iter().filter(|(_, key)| pattern.is_match(key).unwrap());
        found.extend(matches.map(|(id, key)| (*id, String::from_utf8_lossy(key).into_owned())));
    }
    found
}

/// What a search says of every key that there may be, and what it rests on.
pub fn search(engine: &Engine, prefix: &str, keys: u64, now: LogTime) -> (Vec<(String, Seen)>, SequenceId) {
    let (found, mut rests_on) = (matching(engine, prefix), SequenceId(0));
    let mut all: BTreeSet<String> =
        (0..keys).map(|key| format!("k{key}")).filter(|key| key.starts_with(prefix)).collect();
    let mut reads = Vec::new();
    for (_, key) in found {
        let answer = engine.get(key.as_bytes(), now, Seen::of);
        rests_on = rests_on.max(answer.depends_on);
        all.remove(&key);
        reads.push((key, Seen::answer(answer.result)));
    }
    reads.extend(all.into_iter().map(|key| (key, Seen::Nothing)));
    // That other keys are absent rests on the last record, which may have unmounted a segment (INV-3).
    (reads, rests_on.max(engine.last_visible()))
}

/// Removes what matches.
pub fn remove(engine: &Engine, prefix: &str, force: bool, now: LogTime) -> SequenceId {
    let ids = named(engine, prefix);
    engine.remove_matching(&ids, force, now).1.max(engine.last_visible())
}

/// The objects that a removal by pattern names.
pub fn named(engine: &Engine, prefix: &str) -> Vec<ObjectId> {
    matching(engine, prefix).into_iter().map(|(id, _)| id).collect()
}
