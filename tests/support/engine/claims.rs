//! A model of who may use which bytes: what writers were told, what readers were promised, and until when.
//!
//! It knows only what clients know. Whatever the state machine does with bytes, it must not give those out that
//! somebody here may still use (R4, INV-5, INV-7). Writers know an endpoint and addresses, and nothing of mounts: they
//! write on when the memory is unmounted, and when it is mounted again.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use moonkeeper::engine::Engine;
use moonkeeper::engine::extents::Extents;
use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::object::Replica;
use moonkeeper::engine::segment::Segment;
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber};

/// Bytes that somebody was told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes {
    endpoint: Box<[u8]>,
    start: u64,
    end: u64,
    /// When the memory was mounted: readers lose what is unmounted (R6 excepts it).
    mount: SegmentNumber,
}

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
    Bytes {
        endpoint: replica.segment.te_endpoint.clone(),
        start: replica.address(),
        end: replica.address() + size,
        mount: replica.segment.number,
    }
}

fn overlap(one: &Bytes, other: &Bytes) -> bool {
    one.endpoint == other.endpoint && one.start < other.end && other.start < one.end
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
            let mut promised = self.promises.iter().filter(|old| old.until > now);
            let promised = promised.find(|old| old.bytes.mount == new.mount && overlap(&old.bytes, new));
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
        for pair in reserved.windows(2) {
            assert!(!overlap(&pair[0], &pair[1]), "{what}: INV-5: {pair:?}");
        }
        for (number, segment) in &mounted {
            assert_eq!(segment.used(), used(segment, &reserved), "{what}: used bytes of {number:?}");
        }
        let there = |bytes: &Bytes| {
            reserved.binary_search_by(|other| same_place(other).cmp(&same_place(bytes))).is_ok()
        };
        self.promises.retain(|promise| promise.until > now && mounted.contains_key(&promise.bytes.mount));
        let lost = self.promises.iter().find(|promise| !there(&promise.bytes));
        assert!(lost.is_none(), "{what}: INV-7: at {now:?} a reader lost {lost:?}");
        self.superseded.retain(|writing| writing.until > now);
        self.writes.retain(|_, writing| writing.until > now);
        let lost =
            self.writes.values().chain(&self.superseded).find(|writing| !writing.bytes.iter().all(there));
        assert!(lost.is_none(), "{what}: R4: at {now:?} a writer lost {lost:?}");
    }
}

fn same_place(bytes: &Bytes) -> (&[u8], u64, u64) {
    (&bytes.endpoint, bytes.start, bytes.end)
}

/// How many bytes of a segment are used, if these are: all granules that have a part in one of them.
fn used(segment: &Segment, reserved: &[Bytes]) -> u64 {
    let there = reserved.iter().filter(|bytes| bytes.endpoint == segment.te_endpoint);
    let mut granules = BTreeSet::new();
    for bytes in there {
        let (start, end) = (bytes.start.max(segment.base), bytes.end.min(segment.base + segment.size));
        if start < end {
            let granule = |address: u64| (address - segment.base) / Extents::GRANULE;
            granules.extend(granule(start)..=granule(end - 1));
        }
    }
    let last = |nth: u64| segment.size.min((nth + 1) * Extents::GRANULE) - nth * Extents::GRANULE;
    granules.into_iter().map(last).sum()
}

/// Every byte range that belongs to an object in a mounted segment or is held for somebody, in order.
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
    let sequencer = engine.sequencer(LogTime(0));
    sequencer.each_discarded(|_, _, size, replicas| {
        replicas.iter().for_each(|replica| add(replica, size));
    });
    sequencer.each_stray(|endpoint, Range { start, end }| {
        all.push(Bytes { endpoint: endpoint.into(), start, end, mount: SegmentNumber::default() });
    });
    all.sort();
    all
}
