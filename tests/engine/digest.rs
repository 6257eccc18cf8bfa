//! What the digest covers: two histories that left something different behind have different digests (INV-8), however
//! small the difference, and the same one when the difference is forgotten.

use std::sync::Arc;

use crate::support::{assert_sound, restored, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::{CopyOrMove, Record};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::{LogTime, SegmentNumber, SequenceId, Term, Uuid};

/// How the story of one task may differ in ways that a record tells.
#[derive(Clone, Copy)]
struct Story {
    tenant: &'static [u8],
    created: u64,
    assigned: u64,
    ended: u64,
    success: bool,
    message: &'static [u8],
    /// How many records of it there are.
    length: usize,
}

const STORY: Story = Story {
    tenant: b"default",
    created: 100,
    assigned: 200,
    ended: 300,
    success: true,
    message: b"done",
    length: usize::MAX,
};

/// So many ended tasks are remembered.
const KEPT: u32 = 2;

fn new_term() -> Record<'static> {
    Record::NewTerm {
        term: Term(1),
        primary: b"master-0",
        boot_id: 7,
        hold_until: LogTime(0),
        lease_ttl: 1_000,
        leader_ttl: 5_000,
        kept_tasks: KEPT,
    }
}

fn task(id: Uuid, tenant: &'static [u8]) -> Record<'static> {
    Record::TaskCreated {
        id,
        kind: CopyOrMove::Copy,
        key: b"key",
        tenant,
        source: b"segment-1",
        targets: &[b"segment-2"],
        client: uuid(1),
    }
}

fn apply_all(records: &[(u64, Record<'_>)]) -> Arc<Engine> {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    for (nth, (at, record)) in records.iter().enumerate() {
        engine.sequencer(LogTime(*at)).apply(
            Format::NEWEST,
            SequenceId(nth as u64 + 1),
            LogTime(*at),
            record,
        );
    }
    assert_sound(&engine, "after the records");
    engine
}

fn digest(engine: &Arc<Engine>) -> Digest {
    let found = engine.sequencer(LogTime(0)).digest();
    assert_eq!(restored(engine).sequencer(LogTime(0)).digest(), found, "a snapshot has another digest");
    found
}

fn told(story: Story) -> Arc<Engine> {
    let ids = [uuid(9)];
    let records = [
        (0, new_term()),
        (story.created, task(uuid(9), story.tenant)),
        (story.assigned, Record::TaskAssigned { ids: &ids }),
        (story.ended, Record::TaskDone { id: uuid(9), success: story.success, message: story.message }),
    ];
    apply_all(&records[..records.len().min(story.length)])
}

#[test]
fn everything_that_a_task_tells_counts() {
    let others = [
        (
            "tenant of a task that waits",
            Story { length: 2, ..STORY },
            Story { tenant: b"other", length: 2, ..STORY },
        ),
        ("when it was asked for", Story { length: 2, ..STORY }, Story { created: 101, length: 2, ..STORY }),
        ("when it was fetched", Story { length: 3, ..STORY }, Story { assigned: 201, length: 3, ..STORY }),
        ("tenant of an ended one", STORY, Story { tenant: b"other", ..STORY }),
        ("when an ended one was asked for", STORY, Story { created: 101, ..STORY }),
        ("when it ended", STORY, Story { ended: 301, ..STORY }),
        ("how it ended", STORY, Story { success: false, ..STORY }),
        ("what was said of it", STORY, Story { message: b"gone", ..STORY }),
        ("whether it ended", STORY, Story { length: 3, ..STORY }),
    ];
    for (what, one, other) in others {
        assert_eq!(digest(&told(one)), digest(&told(one)), "{what}");
        assert_ne!(digest(&told(one)), digest(&told(other)), "{what}");
    }
}

#[test]
fn a_forgotten_task_no_longer_counts() {
    let story = |message: &'static [u8], later: u64| {
        let mut records = vec![(0, new_term())];
        for nth in 0..=later {
            records.push((10, task(uuid(nth), b"default")));
            let message = if nth == 0 { message } else { b"" };
            records.push((20, Record::TaskDone { id: uuid(nth), success: true, message }));
        }
        digest(&apply_all(&records))
    };
    let kept = u64::from(KEPT);
    assert_ne!(story(b"one", kept - 1), story(b"other", kept - 1), "still remembered");
    assert_eq!(story(b"one", kept), story(b"other", kept), "one more ended");
}

/// Fewer are remembered from the next term on.
#[test]
fn tasks_that_a_new_term_forgets_no_longer_count() {
    let story = |message: &'static [u8]| {
        let done = Record::TaskDone { id: uuid(1), success: true, message };
        let next = Record::NewTerm {
            term: Term(2),
            primary: b"master-1",
            boot_id: 8,
            hold_until: LogTime(0),
            lease_ttl: 1_000,
            leader_ttl: 5_000,
            kept_tasks: 0,
        };
        digest(&apply_all(&[(0, new_term()), (10, task(uuid(1), b"default")), (20, done), (30, next)]))
    };
    assert_eq!(story(b"one"), story(b"other"));
}

/// The next mount gets the next number, whatever became of the last one.
#[test]
fn the_number_of_the_next_mount_counts() {
    let story = |number: u32| {
        let segment = SegmentSpec {
            id: uuid(5),
            name: b"segment",
            base: 4096,
            size: 4096,
            te_endpoint: b"host:1",
            protocol: b"tcp",
            host_id: b"host",
        };
        let number = SegmentNumber(number);
        let mount = Record::MountSegment { segment, number, client: uuid(1) };
        digest(&apply_all(&[(0, new_term()), (1, mount), (2, Record::UnmountSegment { number })]))
    };
    assert_eq!(story(0), story(0));
    assert_ne!(story(0), story(1));
}

/// A successor that boots later reads them from the state (R6).
#[test]
fn what_the_primary_leads_with_counts() {
    let story = |boot_id: u64, leader_ttl: u64| {
        let term = Record::NewTerm {
            term: Term(1),
            primary: b"master-0",
            boot_id,
            hold_until: LogTime(0),
            lease_ttl: 1_000,
            leader_ttl,
            kept_tasks: KEPT,
        };
        let engine = apply_all(&[(5, term)]);
        let found = restored(&engine).term_state();
        assert_eq!(found, engine.term_state(), "a snapshot has another state of the term");
        assert_eq!((found.boot_id, found.leader_ttl), (boot_id, leader_ttl));
        digest(&engine)
    };
    assert_ne!(story(7, 5_000), story(7, 5_001));
    assert_ne!(story(7, 5_000), story(8, 5_000));
    assert_eq!(story(7, 5_000), story(7, 5_000));
}
