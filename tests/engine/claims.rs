//! A model of who may use which bytes: what writers were told, what readers were promised, and until when.
//!
//! It knows only what clients know. Whatever the state machine does with bytes, it must not give those out that
//! somebody here may still use (R4, INV-5, INV-7).

use std::collections::HashMap;
use std::ops::Range;

use moonkeeper::engine::Engine;
use moonkeeper::engine::extents::Extents;
use moonkeeper::engine::object::Replica;
use moonkeeper::engine::shard::SHARDS;
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber};

/// Bytes of one mount.
pub type Bytes = (SegmentNumber, Range<u64>);

/// What a writer was told.
#[derive(Clone, Debug)]
struct Writing {
    bytes: Vec<Bytes>,
    /// From then on nobody writes there any more.
    until: LogTime,
}

/// What a reader was promised.
#[derive(Clone, Debug)]
struct Promise {
    object: ObjectId,
    bytes: Bytes,
    until: LogTime,
}

/// All that clients may rely on.
#[derive(Default)]
pub struct Claims {
    /// The write, or the copy or move, of each key that may still end.
    writes: HashMap<(String, bool), Writing>,
    /// Writes that others have taken over.
    superseded: Vec<Writing>,
    promises: Vec<Promise>,
}

/// The bytes that a replica occupies.
pub fn bytes_of(replica: &Replica, size: u64) -> Bytes {
    let end = (replica.offset + size).next_multiple_of(Extents::GRANULE).min(replica.segment.size);
    (replica.segment.number, replica.offset..end)
}

fn overlap(one: &Bytes, other: &Bytes) -> bool {
    one.0 == other.0 && one.1.start < other.1.end && other.1.start < one.1.end
}

impl Claims {
    /// A writer was told bytes that were free before. `copy` tells a copy or move from a write.
    pub fn told(&mut self, key: &str, copy: bool, bytes: Vec<Bytes>, now: LogTime, until: LogTime) {
        for new in &bytes {
            for writing in self.writes.values().chain(&self.superseded).filter(|writing| writing.until > now)
            {
                let taken = writing.bytes.iter().find(|old| overlap(old, new));
                assert!(taken.is_none(), "R4: told {new:?} at {now:?} that {writing:?} may still write");
            }
            let promised = self.promises.iter().find(|old| old.until > now && overlap(&old.bytes, new));
            assert!(promised.is_none(), "INV-7: told {new:?} at {now:?} that a reader has: {promised:?}");
        }
        self.takes_over(key, copy, bytes, until);
    }

    /// A writer was told the bytes that the object had: whoever had them before has lost them.
    pub fn told_in_place(&mut self, key: &str, object: ObjectId, bytes: Vec<Bytes>, until: LogTime) {
        self.forget_promises(|promised| promised == object);
        self.takes_over(key, false, bytes, until);
    }

    fn takes_over(&mut self, key: &str, copy: bool, bytes: Vec<Bytes>, until: LogTime) {
        let old = self.writes.insert((key.to_owned(), copy), Writing { bytes, until });
        self.superseded.extend(old);
    }

    /// The writer is done or has given up.
    pub fn ended(&mut self, key: &str, copy: bool) {
        self.writes.remove(&(key.to_owned(), copy));
    }

    /// A reader was promised bytes.
    pub fn promised(&mut self, object: ObjectId, bytes: impl Iterator<Item = Bytes>, until: LogTime) {
        self.promises.extend(bytes.map(|bytes| Promise { object, bytes, until }));
    }

    /// Promises that somebody overrode.
    pub fn forget_promises(&mut self, gone: impl Fn(ObjectId) -> bool) {
        self.promises.retain(|promise| !gone(promise.object));
    }

    /// INV-5, the count of used bytes, and that all that is claimed is still reserved.
    pub fn check(&mut self, engine: &Engine, now: LogTime, what: &str) {
        let mounted: HashMap<_, _> =
            engine.segments().into_iter().map(|segment| (segment.number, segment)).collect();
        let reserved = reserved(engine);
        let mut used: HashMap<SegmentNumber, u64> = HashMap::new();
        for (number, bytes) in &reserved {
            *used.entry(*number).or_default() += bytes.end - bytes.start;
            assert!(bytes.end <= mounted[number].size, "{what}: {bytes:?} leaves {number:?}");
        }
        for pair in reserved.windows(2) {
            assert!(!overlap(&pair[0], &pair[1]), "{what}: INV-5: {pair:?}");
        }
        for (number, segment) in &mounted {
            let sum = used.get(number).copied().unwrap_or_default();
            assert_eq!(segment.used(), sum, "{what}: used bytes of {number:?}");
        }
        let there = |bytes: &Bytes| {
            !mounted.contains_key(&bytes.0)
                || reserved
                    .binary_search_by(|other| {
                        (other.0, other.1.start, other.1.end).cmp(&(bytes.0, bytes.1.start, bytes.1.end))
                    })
                    .is_ok()
        };
        self.promises.retain(|promise| promise.until > now && mounted.contains_key(&promise.bytes.0));
        let lost = self.promises.iter().find(|promise| !there(&promise.bytes));
        assert!(lost.is_none(), "{what}: INV-7: at {now:?} a reader lost {lost:?}");
        self.superseded.retain(|writing| writing.until > now);
        self.writes.retain(|_, writing| writing.until > now);
        let lost =
            self.writes.values().chain(&self.superseded).find(|writing| !writing.bytes.iter().all(there));
        assert!(lost.is_none(), "{what}: R4: at {now:?} a writer lost {lost:?}");
    }
}

/// Every byte range of a mounted segment that belongs to an object or is held for somebody, in order.
fn reserved(engine: &Engine) -> Vec<Bytes> {
    let mut all = Vec::new();
    let mut add = |replica: &Replica, size| {
        if replica.segment.is_alive() {
            all.push(bytes_of(replica, size));
        }
    };
    for shard in 0..SHARDS {
        engine.walk(shard, |object| object.replicas().for_each(|replica| add(replica, object.size)));
    }
    engine.sequencer(LogTime(0)).each_discarded(|_, _, size, replicas| {
        replicas.iter().for_each(|replica| add(replica, size));
    });
    all.sort_by_key(|(number, bytes)| (*number, bytes.start, bytes.end));
    all
}
