//! A primary, and a mirror that applies every record of it at once and can take over.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use moonkeeper::engine::divergence::Divergence;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::object::Object;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::record_size::MAX_RECORD;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::term_state::Primary;
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::engine::walk::Cursor;
use moonkeeper::engine::{Engine, Log};
use parking_lot::Mutex;

use super::recording::Recording;

/// A primary with its mirror.
pub struct Pair {
    pub primary: Arc<Engine>,
    pub mirror: Arc<Engine>,
    /// Whom the primary tells, and whom the mirror would.
    told: (Other, Other),
    term: u64,
    log: Arc<Mutex<Written>>,
}

/// The other one, which may be replaced.
type Other = Arc<Mutex<Weak<Engine>>>;

/// What was written so far.
#[derive(Debug, Default)]
pub struct Written {
    pub last: (SequenceId, LogTime),
    /// How many promises to readers.
    pub renewals: usize,
    /// How many records that evict.
    pub evictions: usize,
    /// The most objects that one record removed.
    pub most_removed: u64,
    /// The most segments that one record unmounted.
    pub most_unmounted: u64,
    /// The most soft pins that one record took off.
    pub most_pins_ended: u64,
    /// The log as bytes, if a test asks for it.
    pub recording: Option<Recording>,
}

/// Applies what it is told to the other one; records have no gaps, fit into a batch, and time does not go back.
#[derive(Debug)]
struct Mirroring {
    other: Other,
    log: Arc<Mutex<Written>>,
}

impl Log for Mirroring {
    fn append(&self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        let mut log = self.log.lock();
        assert_eq!(id.0, log.last.0.0 + 1, "a gap in the log");
        assert!(at >= log.last.1, "log time went back from {:?} to {at:?}", log.last.1);
        assert!(record.size_bound() <= MAX_RECORD, "a record that fits into no batch");
        log.last = (id, at);
        match record {
            Record::RenewLeases { leases } => log.renewals += leases.len(),
            Record::Evict(_) => log.evictions += 1,
            _ => {}
        }
        let other = self.other.lock().upgrade();
        if let Some(other) = other {
            let objects = other.len();
            let unmounts = other.counts.unmounts.load(Ordering::Relaxed);
            let pinned = || other.counts.soft_pinned.load(Ordering::Relaxed);
            let before = pinned();
            other.sequencer(at).apply(format, id, at, record);
            let unmounts = other.counts.unmounts.load(Ordering::Relaxed) - unmounts;
            log.most_unmounted = log.most_unmounted.max(unmounts);
            log.most_removed = log.most_removed.max(objects.saturating_sub(other.len()));
            log.most_pins_ended = log.most_pins_ended.max(before.saturating_sub(pinned()));
            if let Some(recording) = &mut log.recording {
                recording.push(id, at, record, &other);
            }
        }
    }
}

impl Pair {
    /// Settings shape records and never enter `apply`, so the mirror has others.
    pub fn new(settings: EngineSettings) -> Self {
        Self::with(settings, EngineSettings::default())
    }

    /// Both with their own settings.
    pub fn with(settings: EngineSettings, of_the_mirror: EngineSettings) -> Self {
        let log = Arc::new(Mutex::default());
        let engine = |settings| {
            let other = Other::default();
            let mirroring = Mirroring { other: Arc::clone(&other), log: Arc::clone(&log) };
            (Arc::new(Engine::with_log(settings, Box::new(mirroring))), other)
        };
        let ((primary, after), (mirror, before)) = (engine(settings), engine(of_the_mirror));
        *after.lock() = Arc::downgrade(&mirror);
        *before.lock() = Arc::downgrade(&primary);
        Self { primary, mirror, told: (after, before), term: 0, log }
    }

    /// Another mirror takes the place of the one that there is; it is given where its records go should it take over.
    pub fn replace_mirror(&mut self, make: impl FnOnce(Box<dyn Log>) -> Engine) {
        let mirroring = Mirroring { other: Arc::clone(&self.told.1), log: Arc::clone(&self.log) };
        self.mirror = Arc::new(make(Box::new(mirroring)));
        *self.told.0.lock() = Arc::downgrade(&self.mirror);
    }

    /// The mirror takes over, and the old primary may answer for a while. Says what the new one was told to wait for.
    pub fn promote(&mut self, now: LogTime, answers_for: i64) -> SequenceId {
        std::mem::swap(&mut self.primary, &mut self.mirror);
        self.told = (Arc::clone(&self.told.1), Arc::clone(&self.told.0));
        self.begin(now, answers_for)
    }

    /// The primary begins another term.
    pub fn begin(&mut self, now: LogTime, answers_for: i64) -> SequenceId {
        self.term += 1;
        let primary = Primary { name: b"master-0", boot_id: self.term << 32, leader_ttl: 5_000 + self.term };
        self.primary.sequencer(now).begin_term(Term(self.term), &primary, answers_for)
    }

    /// Records the log as bytes from here on, which is its beginning.
    pub fn record(&self, recording: Recording) {
        self.log.lock().recording = Some(recording);
    }

    /// What was written so far.
    pub fn written<R>(&self, look: impl FnOnce(&Written) -> R) -> R {
        look(&self.log.lock())
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
        for engine in [&self.primary, &self.mirror] {
            assert_eq!(engine.divergence(), Divergence::default(), "{what}");
        }
    }
}

/// Everything that records say, as text by name.
pub fn picture(engine: &Engine) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for shard in 0..SHARDS {
        engine.walk(shard, |object| {
            all.insert(format!("object {:?}", String::from_utf8_lossy(&object.key)), describe(object));
        });
        all.insert(format!("removal {shard:3}"), format!("{:?}", engine.last_removal(shard)));
    }
    let mut cursor = Cursor::default();
    let stale = std::iter::from_fn(|| engine.stale(&mut cursor)).flatten().collect();
    all.insert("stale".into(), format!("{:?}", sorted(stale)));
    for segment in engine.segments() {
        let (status, used) = (segment.status(), segment.used());
        let text = format!(
            "{:?} {:?} {:?} {status:?} {used} {:?}",
            segment.id,
            segment.client,
            segment.last_record(),
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
    drop(sequencer);
    all.insert("inherited".into(), format!("{:?}", sorted(engine.inherited())));
    let (term, hold_until, resigned) = (engine.term(), engine.hold_until(), engine.resigned());
    all.insert("term".into(), format!("{term:?} {hold_until:?} {resigned} {:?}", engine.term_report()));
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
        object.copy_move(),
        object.data_type,
    )
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}
