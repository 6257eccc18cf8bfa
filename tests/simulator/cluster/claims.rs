//! Who may use which bytes, as clients know it and in real time: what writers were told and may still write to (R4,
//! INV-5), and what readers were promised (INV-7).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use moonkeeper::engine::Engine;
use moonkeeper::engine::key::SHARDS;
use moonkeeper::engine::object::Replica;
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber};

/// Bytes that somebody was told. Writers know an endpoint and addresses, and nothing of mounts: they write on when the
/// memory is unmounted, and when it is mounted again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes {
    endpoint: Box<[u8]>,
    start: u64,
    end: u64,
    /// When the memory was mounted: readers lose what is unmounted (R6 excepts it).
    mount: SegmentNumber,
}

impl Bytes {
    /// Where transfers to them go.
    pub fn endpoint(&self) -> &[u8] {
        &self.endpoint
    }
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

/// What a writer was told: by whom it is written, where, and until when at most.
#[derive(Clone, Debug)]
#[allow(dead_code)] // the key is for people
struct Writing {
    key: String,
    bytes: Vec<Bytes>,
    until: u64,
}

/// What a reader was promised.
#[derive(Clone, Debug)]
struct Promise {
    object: ObjectId,
    bytes: Vec<Bytes>,
    until: u64,
}

/// All that clients may rely on.
#[derive(Default)]
pub struct Claims {
    /// By the number of the call that began the write.
    writes: BTreeMap<u64, Writing>,
    promises: Vec<Promise>,
    /// Objects that somebody removed by force: readers lose them (R6 excepts it).
    pub forced: BTreeSet<ObjectId>,
}

impl Claims {
    /// A writer is told bytes; those of an object that is there already if `in_place`.
    pub fn told(&mut self, now: u64, told: &Told) -> Result<(), (&'static str, String)> {
        if !told.in_place {
            for new in &told.bytes {
                let writing = self.writes.values().filter(|writing| writing.until > now);
                if let Some(taken) = writing.clone().find(|old| old.bytes.iter().any(|old| overlap(old, new)))
                {
                    return Err(("R4", format!("told {new:?} that somebody may still write: {taken:?}")));
                }
                let promised = self.promises.iter().filter(|promise| promise.until > now);
                let mut promised = promised.filter(|promise| !self.forced.contains(&promise.object));
                let meets = |old: &Bytes| old.mount == new.mount && overlap(old, new);
                if let Some(taken) = promised.find(|old| old.bytes.iter().any(meets)) {
                    return Err(("INV-7", format!("told {new:?} that a reader was promised: {taken:?}")));
                }
            }
        }
        let Told { key, bytes, until, .. } = told.clone();
        self.writes.insert(told.write, Writing { key, bytes, until });
        Ok(())
    }

    /// The writer writes no more.
    pub fn ended(&mut self, write: u64) {
        self.writes.remove(&write);
    }

    /// A reader is promised bytes.
    pub fn promised(&mut self, object: ObjectId, bytes: Vec<Bytes>, until: u64) {
        self.promises.push(Promise { object, bytes, until });
    }

    /// Until when readers were promised the bytes of an object.
    pub fn promised_until(&self, object: ObjectId) -> Option<u64> {
        let promises = self.promises.iter().filter(|promise| promise.object == object);
        promises.map(|promise| promise.until).max()
    }

    /// All that is claimed is still kept from others.
    pub fn check(
        &mut self,
        engine: &Engine,
        now: u64,
        rewritten: &Rewritten,
    ) -> Result<(), (&'static str, String)> {
        let mounted: BTreeSet<SegmentNumber> =
            engine.segments().into_iter().map(|segment| segment.number).collect();
        // What a reader has in a segment that is gone is gone (R6 excepts it); what a writer has is not (R4).
        let gone = |bytes: &[Bytes]| bytes.iter().any(|bytes| !mounted.contains(&bytes.mount));
        self.promises.retain_mut(|promise| {
            // Bytes that were written in place are under another id; they stay what a reader was promised, unless that
            // write was given up (R6 excepts it).
            let forced = self.forced.contains(&promise.object);
            promise.object = rewritten.newest(promise.object);
            promise.until > now
                && !gone(&promise.bytes)
                && !forced
                && !self.forced.contains(&promise.object)
                && !rewritten.given_up.contains(&promise.object)
        });
        self.writes.retain(|_, writing| writing.until > now);
        if self.promises.is_empty() && self.writes.is_empty() {
            return Ok(());
        }
        let reserved = reserved(engine);
        for pair in reserved.windows(2) {
            if overlap(&pair[0], &pair[1]) {
                return Err(("INV-5", format!("{pair:?}")));
            }
        }
        let kept = |bytes: &Bytes| reserved.binary_search_by(|other| place(other).cmp(&place(bytes))).is_ok();
        if let Some(lost) = self.promises.iter().find(|promise| !promise.bytes.iter().all(kept)) {
            return Err(("INV-7", format!("a reader lost {lost:?}")));
        }
        if let Some(lost) = self.writes.values().find(|writing| !writing.bytes.iter().all(kept)) {
            return Err(("R4", format!("a writer lost {lost:?}")));
        }
        Ok(())
    }
}

/// What became of objects that were written in place: the same bytes have another id then.
#[derive(Default)]
pub struct Rewritten {
    ids: BTreeMap<ObjectId, ObjectId>,
    writing: BTreeSet<ObjectId>,
    /// The writer gave up, and the bytes went.
    given_up: BTreeSet<ObjectId>,
}

impl Rewritten {
    /// An object is about to be written in place under another id.
    pub fn begun(&mut self, old: Option<ObjectId>, new: ObjectId) {
        self.ids.extend(old.map(|old| (old, new)));
        self.writing.insert(new);
    }

    /// A write has ended; one that is not in place does not matter.
    pub fn ended(&mut self, id: ObjectId, given_up: bool) {
        if self.writing.remove(&id) && given_up {
            self.given_up.insert(id);
        }
    }

    fn newest(&self, mut id: ObjectId) -> ObjectId {
        while let Some(next) = self.ids.get(&id) {
            id = *next;
        }
        id
    }
}

/// What a writer is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// The number of the call.
    pub write: u64,
    pub key: String,
    pub bytes: Vec<Bytes>,
    pub in_place: bool,
    pub until: u64,
}

fn place(bytes: &Bytes) -> (&[u8], u64, u64) {
    (&bytes.endpoint, bytes.start, bytes.end)
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
