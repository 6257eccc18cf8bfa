//! Records to encode: one fixed example of each kind, and random ones.

use moonkeeper::engine::format::Format;
use moonkeeper::engine::key::Key;
use moonkeeper::engine::record::{
    CopyOrMove, DynamicLease, EvictRule, LeaseBucket, ObjectRef, Place, Record, RemoveSource, SoftPin, Start,
};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::ReplicaId;
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid};

use crate::support::rng::Rng;

/// How many kinds there are.
pub const KINDS: usize = 28;

/// The number of a record's kind. A new kind does not compile until it has one here, and then `KINDS` has to grow and
/// with it the examples and the random records.
pub fn kind(record: &Record<'_>) -> usize {
    match record {
        Record::PutStart(_) => 0,
        Record::UpsertStart { .. } => 1,
        Record::End { .. } => 2,
        Record::Revoke { .. } => 3,
        Record::Discard { .. } => 4,
        Record::Release { .. } => 5,
        Record::Remove { .. } => 6,
        Record::ClearReplicas { .. } => 7,
        Record::Sweep { .. } => 8,
        Record::RemoveAll { .. } => 9,
        Record::Evict(_) => 10,
        Record::ReplicationStart { .. } => 11,
        Record::ReplicationEnd { .. } => 12,
        Record::ReplicationRevoke { .. } => 13,
        Record::MountSegment { .. } => 14,
        Record::ClientJoined { .. } => 15,
        Record::DrainSegment { .. } => 16,
        Record::UnmountSegment { .. } => 17,
        Record::ClientExpired { .. } => 18,
        Record::TaskCreated { .. } => 19,
        Record::TaskAssigned { .. } => 20,
        Record::TaskDone { .. } => 21,
        Record::MetadataPut { .. } => 22,
        Record::MetadataDelete { .. } => 23,
        Record::RenewLeases { .. } => 24,
        Record::NewTerm { .. } => 25,
        Record::Resign { .. } => 26,
        Record::Digest { .. } => 27,
    }
}

const WRITER: Uuid = Uuid { first: 0x0123_4567_89ab_cdef, second: 0xfedc_ba98_7654_3210 };
const OTHER: Uuid = Uuid { first: 1, second: 2 };
const PLACES: [Place; 2] = [
    Place { segment: SegmentNumber(3), offset: 4096 },
    Place { segment: SegmentNumber(300), offset: 1 << 40 },
];

fn object(id: u64, after: u64) -> ObjectRef {
    ObjectRef { id: ObjectId(id), after: SequenceId(after) }
}

/// A put that asks for nothing special.
pub fn plain() -> Start<'static> {
    Start {
        key: Key::new(b"a key"),
        client: WRITER,
        size: 1 << 20,
        places: &PLACES[..1],
        hard_pin: false,
        soft_pin: SoftPin::Preserve,
        group: None,
        data_type: 0,
    }
}

/// The fixed examples of a format. They never change; a new kind gets a new one at the end.
pub fn each_example(format: Format, mut visit: impl FnMut(LogTime, &Record<'_>)) {
    let at = LogTime(1_700_000_000_000);
    let full = Start {
        places: &PLACES,
        hard_pin: true,
        soft_pin: SoftPin::Enable(1_800_000),
        group: Some(b"group"),
        data_type: 2,
        ..plain()
    };
    visit(at, &Record::PutStart(plain()));
    visit(at.plus(1), &Record::PutStart(full));
    let start = Start { soft_pin: SoftPin::Disable, places: &[], ..plain() };
    let replaces = Some(object(70, 75));
    visit(at.plus(3), &Record::UpsertStart { start, replaces, release_at: at.plus(600_003) });
    visit(at.plus(3), &Record::UpsertStart { start: plain(), replaces: None, release_at: LogTime(0) });
    visit(at.plus(4), &Record::End { object: object(100, 100), checksum: None });
    visit(at.plus(4), &Record::End { object: object(101, 103), checksum: Some(0xdead_beef_0bad_f00d) });
    visit(at.plus(5), &Record::Revoke { object: object(102, 102) });
    visit(at.plus(5), &Record::Discard { object: object(90, 90), release_at: at.plus(600_005) });
    visit(at.plus(6), &Record::Release { reservation: SequenceId(91) });
    let objects = [object(104, 110), object(60, 61), object(106, 106)];
    let sources =
        [RemoveSource::Explicit, RemoveSource::Regex, RemoveSource::ReplicaClear, RemoveSource::Unmount];
    for source in sources {
        visit(at.plus(7), &Record::Remove { objects: &objects, source });
    }
    visit(at.plus(8), &Record::ClearReplicas { object: object(107, 108), segment_name: b"segment" });
    visit(at.plus(8), &Record::Sweep { objects: &[ObjectId(5), ObjectId(6), ObjectId(2)] });
    let (from, up_to) = (ObjectId(3), ObjectId(4_099));
    let all = SequenceId(0);
    visit(at.plus(9), &Record::RemoveAll { from, up_to, force: true, reserved_since: all });
    let (first, place) = ((LeaseBucket(0), ObjectId(0)), (LeaseBucket(26_562_500_000), ObjectId(99)));
    let rule = EvictRule { from: first, up_to: place, soft_pinned: false, reserved_since: all };
    visit(at.plus(9), &Record::Evict(rule));
    visit(at.plus(9), &Record::Evict(EvictRule { soft_pinned: true, ..rule }));
    if format >= Format::Two {
        let reserved_since = SequenceId(70_000);
        visit(at.plus(9), &Record::RemoveAll { from, up_to, force: false, reserved_since });
        let from = (LeaseBucket(26_562_499_999), ObjectId(7));
        visit(at.plus(9), &Record::Evict(EvictRule { from, reserved_since, ..rule }));
    }
    let dynamic = DynamicLease { id: OTHER, epoch: 7 };
    for (kind, dynamic) in [(CopyOrMove::Copy, dynamic), (CopyOrMove::Move, DynamicLease::default())] {
        let source = ReplicaId::new(SequenceId(100), 1);
        let record = Record::ReplicationStart {
            object: object(100, 112),
            kind,
            client: OTHER,
            source,
            places: &PLACES,
            dynamic,
        };
        visit(at.plus(10), &record);
    }
    visit(at.plus(11), &Record::ReplicationEnd { object: object(100, 130), release_at: at.plus(20_000) });
    visit(at.plus(11), &Record::ReplicationRevoke { object: object(100, 131) });
    let segment = SegmentSpec {
        id: OTHER,
        name: b"segment",
        base: 0x7f00_0000_0000,
        size: 16 << 30,
        te_endpoint: b"10.0.0.1:12345",
        protocol: b"rdma",
        host_id: b"host",
    };
    visit(at.plus(12), &Record::MountSegment { segment, number: SegmentNumber(301), client: WRITER });
    visit(at.plus(12), &Record::ClientJoined { client: WRITER });
    visit(at.plus(13), &Record::DrainSegment { number: SegmentNumber(301), until: at.plus(90_000) });
    visit(at.plus(13), &Record::UnmountSegment { number: SegmentNumber(301) });
    visit(at.plus(14), &Record::ClientExpired { client: OTHER });
    let created = Record::TaskCreated {
        id: OTHER,
        kind: CopyOrMove::Move,
        key: b"a key",
        tenant: b"default",
        source: b"from",
        targets: &[b"to", b""],
        client: WRITER,
    };
    visit(at.plus(15), &created);
    visit(at.plus(15), &Record::TaskAssigned { ids: &[OTHER, WRITER] });
    visit(at.plus(16), &Record::TaskDone { id: OTHER, success: false, message: b"no" });
    visit(at.plus(16), &Record::MetadataPut { key: b"mooncake/ram/x", value: b"{}" });
    visit(at.plus(16), &Record::MetadataDelete { key: b"mooncake/ram/x" });
    let leases = [(ObjectId(100), at.plus(10_000)), (ObjectId(99), at.plus(9_000))];
    visit(at.plus(17), &Record::RenewLeases { leases: &leases });
    let term = Record::NewTerm {
        term: Term(1234),
        primary: b"master-0",
        boot_id: 0x1234_5678_9abc_def0,
        hold_until: at.plus(15_000),
        lease_ttl: 10_000,
        leader_ttl: 5_000,
        kept_tasks: 10_000,
    };
    visit(at.plus(18), &term);
    visit(at.plus(18), &Record::Resign { term: Term(1234), hold_until: LogTime(0) });
    visit(at.plus(19), &Record::Digest { digest: Digest(0x0102_0304_0506_0708) });
}

/// A number that is small, near a power of two, or anything.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => u64::MAX - rng.below(2),
        2 => (1 << rng.below(64)) - rng.below(2),
        3 => rng.next(),
        _ => rng.below(1000),
    }
}

fn uuid(rng: &mut Rng) -> Uuid {
    Uuid { first: number(rng), second: number(rng) }
}

fn list<T>(rng: &mut Rng, mut item: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    let length = if rng.percent(5) { rng.below(300) } else { rng.below(4) };
    (0..length).map(|_| item(rng)).collect()
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    list(rng, |rng| rng.next() as u8)
}

fn reference(rng: &mut Rng) -> ObjectRef {
    object(number(rng), number(rng))
}

/// A random record of one kind.
pub fn random<R>(rng: &mut Rng, nth: usize, use_it: impl FnOnce(LogTime, &Record<'_>) -> R) -> R {
    let at = LogTime(number(rng));
    let time = |rng: &mut Rng| LogTime(number(rng));
    let replication = if rng.percent(50) { CopyOrMove::Copy } else { CopyOrMove::Move };
    let (key, value, other) = (bytes(rng), bytes(rng), bytes(rng));
    let places = list(rng, |rng| Place { segment: SegmentNumber(number(rng) as u32), offset: number(rng) });
    let objects = list(rng, reference);
    let ids = list(rng, |rng| ObjectId(number(rng)));
    let names = list(rng, bytes);
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let uuids = list(rng, uuid);
    let leases = list(rng, |rng| (ObjectId(number(rng)), LogTime(number(rng))));
    let sources =
        [RemoveSource::Explicit, RemoveSource::Regex, RemoveSource::ReplicaClear, RemoveSource::Unmount];
    let start = Start {
        key: Key::new(&key),
        client: if rng.percent(50) { WRITER } else { uuid(rng) },
        size: number(rng),
        places: &places,
        hard_pin: rng.percent(50),
        soft_pin: [SoftPin::Preserve, SoftPin::Disable, SoftPin::Enable(number(rng))][rng.below(3) as usize],
        group: rng.percent(50).then_some(&value),
        data_type: number(rng) as u8,
    };
    let record = match nth {
        0 => Record::PutStart(start),
        1 => Record::UpsertStart {
            start,
            replaces: rng.percent(50).then(|| reference(rng)),
            release_at: time(rng),
        },
        2 => {
            let checksum = rng.percent(50).then(|| rng.next());
            Record::End { object: reference(rng), checksum }
        }
        3 => Record::Revoke { object: reference(rng) },
        4 => Record::Discard { object: reference(rng), release_at: time(rng) },
        5 => Record::Release { reservation: SequenceId(number(rng)) },
        6 => Record::Remove { objects: &objects, source: sources[rng.below(4) as usize] },
        7 => Record::ClearReplicas { object: reference(rng), segment_name: &value },
        8 => Record::Sweep { objects: &ids },
        9 => Record::RemoveAll {
            from: ObjectId(number(rng)),
            up_to: ObjectId(number(rng)),
            force: rng.percent(50),
            reserved_since: SequenceId(number(rng)),
        },
        10 => Record::Evict(EvictRule {
            from: (LeaseBucket(number(rng)), ObjectId(number(rng))),
            up_to: (LeaseBucket(number(rng)), ObjectId(number(rng))),
            soft_pinned: rng.percent(50),
            reserved_since: SequenceId(number(rng)),
        }),
        11 => Record::ReplicationStart {
            object: reference(rng),
            kind: replication,
            client: uuid(rng),
            source: ReplicaId(number(rng)),
            places: &places,
            dynamic: DynamicLease { id: uuid(rng), epoch: number(rng) },
        },
        12 => Record::ReplicationEnd { object: reference(rng), release_at: time(rng) },
        13 => Record::ReplicationRevoke { object: reference(rng) },
        14 => Record::MountSegment {
            segment: SegmentSpec {
                id: uuid(rng),
                name: &key,
                base: number(rng),
                size: number(rng),
                te_endpoint: &value,
                protocol: &other,
                host_id: &value,
            },
            number: SegmentNumber(number(rng) as u32),
            client: uuid(rng),
        },
        15 => Record::ClientJoined { client: uuid(rng) },
        16 => Record::DrainSegment { number: SegmentNumber(number(rng) as u32), until: time(rng) },
        17 => Record::UnmountSegment { number: SegmentNumber(number(rng) as u32) },
        18 => Record::ClientExpired { client: uuid(rng) },
        19 => Record::TaskCreated {
            id: uuid(rng),
            kind: replication,
            key: &key,
            tenant: &value,
            source: &other,
            targets: &names,
            client: uuid(rng),
        },
        20 => Record::TaskAssigned { ids: &uuids },
        21 => Record::TaskDone { id: uuid(rng), success: rng.percent(50), message: &value },
        22 => Record::MetadataPut { key: &key, value: &value },
        23 => Record::MetadataDelete { key: &key },
        24 => Record::RenewLeases { leases: &leases },
        25 => Record::NewTerm {
            term: Term(number(rng)),
            primary: &key,
            boot_id: number(rng),
            hold_until: time(rng),
            lease_ttl: number(rng),
            leader_ttl: number(rng),
            kept_tasks: number(rng) as u32,
        },
        26 => Record::Resign { term: Term(number(rng)), hold_until: LogTime(number(rng)) },
        _ => Record::Digest { digest: Digest(rng.next()) },
    };
    assert_eq!(kind(&record), nth.min(KINDS - 1), "the random records are in the order of their kinds");
    use_it(at, &record)
}
