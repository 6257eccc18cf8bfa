//! The pure parts of a recovery: what a state keeps, the batches of the new log, and the transactions.

use bytes::Bytes;
use moonkeeper::cluster::keys::Keys;
use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::coordination::types::{LeaseId, Op};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId, Term, Uuid};
use moonkeeper::replication::batch::{Batch, seal};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::recovery::{NewLog, Replay, ReplayError, chunks};
use std::sync::Arc;

const OLD: LogId = LogId(7);
const NEW: LogId = LogId(9);
const CLIENT: Uuid = Uuid { first: 1, second: 1 };

/// A primary whose batches are kept.
struct Old {
    incarnation: Arc<Incarnation>,
    batches: Vec<Bytes>,
    checksum: Checksum,
    now: LogTime,
}

impl Old {
    fn new() -> Self {
        let incarnation = Incarnation::new(EngineSettings::default(), 1 << 20);
        let mut old =
            Self { incarnation, batches: Vec::new(), checksum: Checksum(0), now: LogTime(1_000_000) };
        for number in [1, 2] {
            let name = format!("segment-{number}");
            let endpoint = format!("host:{number}");
            let segment = SegmentSpec {
                id: Uuid { first: 5, second: number },
                name: name.as_bytes(),
                base: 1 << 32,
                size: 64 << 20,
                te_endpoint: endpoint.as_bytes(),
                protocol: b"tcp",
                host_id: b"",
            };
            assert!(old.incarnation.engine.sequencer(old.now).mount(&segment, CLIENT).result.is_ok());
        }
        old.cut();
        old
    }

    /// Writes what was changed as a batch, and returns its last record.
    fn cut(&mut self) -> u64 {
        while let Some(chunk) = self.incarnation.queue.take() {
            let sealed = seal(OLD, Term(3), chunk.first, self.checksum, &chunk.body);
            self.checksum = sealed.checksum;
            self.batches.push(sealed.bytes);
            self.incarnation.queue.done(chunk);
        }
        self.incarnation.engine.applied().0
    }

    fn put(&self, key: &str, segment: &str) {
        let config = WriteConfig { replicas: 1, preferred: &[segment.as_bytes()], ..WriteConfig::default() };
        let mut sequencer = self.incarnation.engine.sequencer(self.now);
        assert!(sequencer.put_start(CLIENT, key.as_bytes(), 4096, &config).result.is_ok());
        assert!(sequencer.end(CLIENT, key.as_bytes(), ReplicaTypes::Memory, None).result.is_ok());
    }
}

/// Replays batches up to a record, and returns what comes after them.
fn replay(old: &Old, keep: u64) -> (Replay, usize) {
    let mut replay = Replay::default();
    for (nth, bytes) in old.batches.iter().enumerate() {
        let batch = replay.open(bytes).unwrap();
        replay.apply(&batch, SequenceId(keep));
        if batch.header.last.0 >= keep {
            return (replay, nth + 1);
        }
    }
    panic!("there is no record {keep}");
}

#[test]
fn objects_that_dropped_records_have_changed_are_named_and_no_others() {
    let mut old = Old::new();
    ["same", "removed", "rewritten", "read"].iter().for_each(|key| old.put(key, "segment-1"));
    old.put("unmounted", "segment-2");
    let keep = old.cut();
    old.now = LogTime(2_000_000);
    {
        let mut sequencer = old.incarnation.engine.sequencer(old.now);
        assert!(sequencer.remove(b"removed", true).result.is_ok());
        let config = WriteConfig { replicas: 1, ..WriteConfig::default() };
        assert!(sequencer.upsert_start(CLIENT, b"rewritten", 4096, &config).result.is_ok());
        assert!(sequencer.unmount(Uuid { first: 5, second: 2 }).result.is_ok());
    }
    old.put("new", "segment-1");
    old.cut();

    let (mut replay, next) = replay(&old, keep);
    let (kept, objects) = (replay.contents(), replay.objects());
    assert_eq!((kept.last.0, kept.objects, kept.bytes, kept.writing), (keep, 5, 5 * 4096, 0));
    assert_eq!(kept.log_time, LogTime(1_000_000));
    for bytes in &old.batches[next..] {
        let batch = replay.open(bytes).unwrap();
        replay.apply(&batch, SequenceId(u64::MAX));
    }
    assert_eq!(replay.contents().log_time, LogTime(2_000_000));
    let changed = replay.changed_since(objects.clone());
    let ids: Vec<u64> = changed.iter().map(|object| object.id.0).collect();
    // Records 1 and 2 mount the segments; each put is a Start and an End.
    let start = |nth: u64| 3 + 2 * nth;
    assert_eq!(ids, [start(1), start(2), start(4)]);
    assert!(changed.iter().all(|object| objects[&object.id] == object.after));
}

#[test]
fn the_new_log_has_the_kept_records_and_begins_with_their_digest() {
    let mut old = Old::new();
    for key in ["a", "b", "c"] {
        old.put(key, "segment-1");
        old.cut();
    }
    let keys = Keys::new("demo");
    // In the middle of a batch.
    let keep = 5;
    let (replayed, _) = replay(&old, keep);
    let kept = replayed.contents();
    assert_eq!((kept.last.0, kept.objects, kept.writing), (keep, 1, 1));
    // The term of the recovery is lower than that of the log: etcd is another one.
    let mut new = NewLog::new(keys.clone(), NEW, Term(2), None);
    let mut ops = Vec::new();
    for bytes in &old.batches {
        ops.extend(new.copy(&Batch::open(bytes).unwrap(), SequenceId(keep)).unwrap());
    }
    assert_eq!(new.end().last.0, keep);
    let removed = replayed.changed_since(replayed.objects());
    assert_eq!(removed, []);
    ops.extend(new.begin(Format::NEWEST, kept.log_time, kept.digest, &[]));
    let mut state = Replay::default();
    for op in &ops {
        let Op::Put { key, value, .. } = op else { panic!("{op:?}") };
        let batch = state.open(value).unwrap();
        assert_eq!((batch.header.log, batch.header.term), (NEW, Term(2)));
        assert_eq!(*key, keys.batch(NEW, batch.header.first));
        state.apply(&batch, SequenceId(u64::MAX));
    }
    assert_eq!((state.last().0, new.end().last.0), (keep + 1, keep + 1));
    assert_eq!(state.contents().digest, kept.digest);
}

#[test]
fn the_new_log_follows_a_snapshot_and_removes_what_was_changed() {
    let mut old = Old::new();
    (0..3000).for_each(|nth| old.put(&format!("key-{nth}"), "segment-1"));
    let keep = old.cut();
    let (replayed, _) = replay(&old, keep);
    let removed = replayed.changed_since(replayed.objects());
    assert_eq!(removed, [], "nothing was changed");
    let base = Latest { log: OLD, term: Term(3), last: SequenceId(keep), checksum: old.checksum };
    let mut new = NewLog::new(Keys::new("demo"), NEW, Term(2), Some(&base));
    let objects: Vec<_> = replayed
        .objects()
        .into_iter()
        .map(|(id, after)| moonkeeper::engine::record::ObjectRef { id, after })
        .collect();
    let kept = replayed.contents();
    let ops = new.begin(Format::NEWEST, kept.log_time, kept.digest, &objects);
    let mut first = None;
    let mut removals = 0;
    for op in &ops {
        let Op::Put { value, .. } = op else { panic!("{op:?}") };
        let batch = Batch::open(value).unwrap();
        first.get_or_insert((batch.header.first.0, batch.header.previous));
        removals += batch.records();
    }
    assert_eq!(first, Some((keep + 1, old.checksum)));
    // A digest, and 3,000 objects in records of 1,024.
    assert_eq!(removals, 4);
}

#[test]
fn what_does_not_follow_is_refused() {
    let mut old = Old::new();
    for key in ["a", "b"] {
        old.put(key, "segment-1");
        old.cut();
    }
    let mut replay = Replay::default();
    assert!(matches!(replay.open(&old.batches[1]), Err(ReplayError::Missing(1))));
    let batch = replay.open(&old.batches[0]).unwrap();
    replay.apply(&batch, SequenceId(u64::MAX));
    assert!(matches!(replay.open(&old.batches[0]), Err(ReplayError::Foreign(1))));
    let mut damaged = old.batches[1].to_vec();
    damaged[60] ^= 1;
    assert!(matches!(replay.open(&damaged), Err(ReplayError::Batch(_))));
    assert!(replay.open(&old.batches[1]).is_ok());
}

#[test]
fn transactions_stay_within_what_etcd_takes() {
    let put = |bytes: usize| Op::Put {
        key: Bytes::from_static(b"key"),
        value: Bytes::from(vec![0; bytes]),
        lease: LeaseId(0),
    };
    let sizes = |ops: Vec<Op>| chunks(ops).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes((0..130).map(|_| put(10)).collect()), [64, 64, 2]);
    assert_eq!(sizes((0..4).map(|_| put(300 << 10)).collect()), [2, 2]);
    assert_eq!(sizes(Vec::new()), Vec::<usize>::new());
}
