//! Records that cannot be applied: the same is dropped everywhere, counted and named.

use crate::support::uuid;
use moonkeeper::engine::Engine;
use moonkeeper::engine::faults::{Fault, Reason};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::key::Key;
use moonkeeper::engine::record::{ObjectRef, Place, Record, SoftPin, Start};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId};

const SEGMENT: SegmentNumber = SegmentNumber(0);

fn begin<'a>(key: &'a [u8], size: u64, places: &'a [Place]) -> Record<'a> {
    Record::PutStart(Start {
        key: Key::new(key),
        client: uuid(1),
        size,
        places,
        hard_pin: false,
        soft_pin: SoftPin::Preserve,
        group: None,
        data_type: 0,
    })
}

fn apply(engine: &Engine, id: u64, record: &Record<'_>) {
    let at = LogTime(1_000 + id);
    engine.sequencer(at).apply(Format::NEWEST, SequenceId(id), at, record);
}

/// A store with three objects: `one` and `two` side by side, and `far`.
fn store() -> Engine {
    let engine = Engine::new(EngineSettings::default());
    let segment = SegmentSpec {
        id: uuid(1),
        name: b"segment",
        base: 1 << 32,
        size: 1 << 20,
        te_endpoint: b"host:1",
        protocol: b"tcp",
        host_id: b"host",
    };
    apply(&engine, 1, &Record::MountSegment { segment, number: SEGMENT, client: uuid(1) });
    for (nth, (key, offset)) in [(&b"one"[..], 0), (b"two", 1_024), (b"far", 65_536)].into_iter().enumerate()
    {
        let id = 2 + 2 * nth as u64;
        apply(&engine, id, &begin(key, 1_024, &[Place { segment: SEGMENT, offset }]));
        let object = ObjectRef { id: ObjectId(id), after: SequenceId(id) };
        apply(&engine, id + 1, &Record::End { object, checksum: None });
    }
    engine
}

fn present(engine: &Engine) -> Vec<&'static str> {
    let keys = ["one", "two", "far", "new"];
    keys.into_iter().filter(|key| engine.is_present(key.as_bytes()).result == Ok(true)).collect()
}

#[test]
fn an_overlap_drops_both() {
    let engines = [store(), store()];
    for engine in &engines {
        apply(engine, 8, &begin(b"new", 1_024, &[Place { segment: SEGMENT, offset: 512 }]));
        assert_eq!(present(engine), ["far"]);
        assert_eq!(engine.faults(), 1);
        let objects = vec![ObjectId(2), ObjectId(4), ObjectId(8)];
        let fault = Fault { record: SequenceId(8), objects, reason: Reason::Overlap };
        assert_eq!(engine.recent_faults(), [fault]);
        // Two clients may be using these bytes for a while (R4).
        assert_eq!(engine.segments()[0].used(), 3_072);
        engine.upkeep(LogTime(600_000));
        assert_eq!(engine.segments()[0].used(), 3_072);
        engine.upkeep(LogTime(602_000));
        assert_eq!(engine.segments()[0].used(), 1_024);
    }
    let [one, other] = engines.map(|engine| engine.reading().digest);
    assert_eq!(one, other, "INV-8");
}

#[test]
fn an_unknown_segment_drops_the_new_object_alone() {
    let engine = store();
    let places = [Place { segment: SEGMENT, offset: 8_192 }, Place { segment: SegmentNumber(9), offset: 0 }];
    apply(&engine, 8, &begin(b"new", 1_024, &places));
    assert_eq!(present(&engine), ["one", "two", "far"]);
    let fault = Fault { record: SequenceId(8), objects: vec![ObjectId(8)], reason: Reason::UnknownSegment };
    assert_eq!(engine.recent_faults(), [fault]);
    assert_eq!(engine.segments()[0].used(), 3_072);
}

#[test]
fn only_the_last_few_are_named() {
    let engine = store();
    for id in 8..40 {
        apply(&engine, id, &begin(b"one", 64, &[Place { segment: SEGMENT, offset: 8_192 }]));
    }
    assert_eq!(engine.faults(), 32);
    let named = engine.recent_faults();
    assert_eq!(named.last().unwrap().reason, Reason::KeyTaken);
    assert_eq!((named.len(), named.last().unwrap().record), (8, SequenceId(39)));
    assert_eq!(present(&engine), ["one", "two", "far"]);
}
