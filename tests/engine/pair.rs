//! A primary, and a mirror that applies every record of it at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonkeeper::engine::object::Object;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::rules::Rules;
use moonkeeper::engine::shard::SHARDS;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::engine::{Engine, Log};
use parking_lot::Mutex;

/// A primary with its mirror.
pub struct Pair {
    pub primary: Engine,
    pub mirror: Arc<Engine>,
}

/// Applies what it is told to the mirror; records have no gaps and time does not go back.
#[derive(Debug)]
struct Mirroring {
    mirror: Arc<Engine>,
    last: Mutex<(SequenceId, LogTime)>,
}

impl Log for Mirroring {
    fn append(&self, id: SequenceId, at: LogTime, record: &Record<'_>) {
        let mut last = self.last.lock();
        assert_eq!(id.0, last.0.0 + 1, "a gap in the log");
        assert!(at >= last.1, "log time went back from {:?} to {at:?}", last.1);
        *last = (id, at);
        self.mirror.sequencer(at).apply(id, at, record);
    }
}

impl Pair {
    pub fn new(rules: Rules) -> Self {
        // Settings shape records and never enter `apply`, so the mirror can have others.
        let mirror = Arc::new(Engine::new(Rules::default()));
        let log = Mirroring { mirror: mirror.clone(), last: Mutex::default() };
        Self { primary: Engine::with_log(rules, Box::new(log)), mirror }
    }

    /// INV-8: same sequence id, same digest.
    pub fn assert_same_digest(&self, what: &str) {
        let primary = self.primary.sequencer(LogTime(0)).reading();
        let mirror = self.mirror.sequencer(LogTime(0)).reading();
        assert_eq!(primary.sequence_id, mirror.sequence_id, "{what}");
        assert_eq!(primary.digest, mirror.digest, "{what}: INV-8");
    }

    /// Both are sound, and everything that can be seen is the same on both.
    pub fn assert_same(&self, what: &str) {
        self.assert_same_digest(what);
        super::assert_sound(&self.primary, what);
        super::assert_sound(&self.mirror, what);
        assert_eq!(picture(&self.primary), picture(&self.mirror), "{what}");
    }
}

/// Everything that records say, as text by name.
fn picture(engine: &Engine) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for shard in 0..SHARDS {
        let removal = engine.walk(shard, |object| {
            all.insert(format!("object {:?}", String::from_utf8_lossy(&object.key)), describe(object));
        });
        all.insert(format!("removal {shard:3}"), format!("{removal:?}"));
        all.insert(format!("stale {shard:3}"), format!("{:?}", sorted(engine.stale(shard))));
    }
    for segment in engine.segments() {
        let (status, used) = (segment.status(), segment.used());
        let text = format!(
            "{:?} {:?} {status:?} {used} {:?}",
            segment.id,
            segment.client,
            engine.client(segment.client)
        );
        all.insert(format!("segment {:?}", segment.number), text);
    }
    let sequencer = engine.sequencer(LogTime(0));
    sequencer.each_discarded(|record, release_at, size, replicas| {
        let places: Vec<_> =
            replicas.iter().map(|replica| (replica.segment.number, replica.offset)).collect();
        all.insert(format!("discarded {record:?}"), format!("{release_at:?} {size} {places:?}"));
    });
    let reading = sequencer.reading();
    all.insert("tasks".into(), format!("{} {}", reading.tasks_pending, reading.tasks_processing));
    all.insert("metadata".into(), engine.metadata_len().to_string());
    all.insert("clients".into(), engine.joined_clients().to_string());
    all
}

fn describe(object: &Object) -> String {
    let replicas: Vec<_> = object
        .replicas()
        .map(|replica| (replica.segment.number, replica.offset, replica.id(), replica.status))
        .collect();
    format!(
        "{:?} {:?} {} {:?} {} {:?} {:?} {:?} {:?} {} {replicas:?}",
        object.id,
        object.last_record,
        object.size,
        object.replicated_lease,
        object.hard_pinned,
        object.soft_pin_until(),
        object.group().map(|group| group.id.clone()),
        object.checksum(),
        object.replication(),
        object.data_type,
    )
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}
