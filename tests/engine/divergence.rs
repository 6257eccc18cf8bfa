//! A replica that is not what the log says it should be finds out.

use crate::support::{Pair, mount, plain, put, uuid};
use moonkeeper::engine::Engine;
use moonkeeper::engine::divergence::{BrokenChain, OutOfOrder};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::{ObjectRef, Record, RemoveSource};
use moonkeeper::engine::record_size::MAX_RECORD;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::{LogTime, ObjectId, SequenceId};

const SIZE: u64 = 1 << 20;

fn store() -> Pair {
    let pair = Pair::new(EngineSettings::default());
    mount(&pair.primary, 1, 1, SIZE, 1);
    put(&pair.primary, "key", 64, &plain(), 1_000);
    pair
}

/// Applies a record that the primary never made.
fn invent(engine: &Engine, record: &Record<'_>) -> SequenceId {
    let mut sequencer = engine.sequencer(LogTime(2_000));
    let (id, now) = (sequencer.next_id(), sequencer.now);
    sequencer.apply(Format::NEWEST, id, now, record);
    id
}

#[test]
fn a_digest_that_differs_is_noticed() {
    let pair = store();
    pair.primary.sequencer(LogTime(1_500)).commit_digest();
    assert_eq!(pair.mirror.digest_mismatch(), None);
    let wrong = invent(&pair.mirror, &Record::Digest { digest: Digest(1) });
    invent(&pair.mirror, &Record::Digest { digest: Digest(2) });
    assert_eq!(pair.mirror.digest_mismatch(), Some(wrong), "the first one is remembered");
    assert_eq!(pair.mirror.divergence().digest_mismatches, 2);
    assert_eq!(pair.primary.digest_mismatch(), None);
}

#[test]
fn a_change_that_only_one_has_shows_in_the_digest() {
    let mine = Engine::new(EngineSettings::default());
    let other = Engine::new(EngineSettings::default());
    for engine in [&mine, &other] {
        invent(engine, &Record::ClientJoined { client: uuid(1) });
    }
    let missed = Record::ClientJoined { client: uuid(2) };
    invent(&mine, &missed);
    invent(&other, &Record::Resign { term: Default::default(), hold_until: Default::default() });
    let digest = mine.sequencer(LogTime(0)).digest();
    let id = invent(&other, &Record::Digest { digest });
    assert_eq!(other.digest_mismatch(), Some(id));
}

#[test]
fn a_record_that_follows_another_one_is_noticed() {
    let pair = store();
    let (object, last) = pair.mirror.peek(b"key", |object| (object.id, object.last_record)).result.unwrap();
    let objects = [ObjectRef { id: object, after: SequenceId(last.0 - 1) }];
    let remove = Record::Remove { objects: &objects, source: RemoveSource::Explicit };
    let record = invent(&pair.mirror, &remove);
    let expected = BrokenChain { object, record, after: SequenceId(last.0 - 1), found: Some(last) };
    assert_eq!(pair.mirror.broken_chain(), Some(expected));
    assert!(pair.mirror.is_present(b"key").result.unwrap(), "it has no effect");

    let unknown = [ObjectRef { id: ObjectId(77), after: SequenceId(77) }];
    invent(&pair.mirror, &Record::Remove { objects: &unknown, source: RemoveSource::Explicit });
    assert_eq!(pair.mirror.divergence().broken_chains, 2);
    assert_eq!(pair.mirror.broken_chain(), Some(expected), "the first one is remembered");
    assert_eq!(pair.primary.broken_chain(), None);
}

#[test]
fn a_record_that_is_not_the_next_one_is_not_applied() {
    let pair = store();
    let engine = &pair.mirror;
    let before = (engine.applied(), engine.sequencer(LogTime(0)).digest());
    let joined = Record::ClientJoined { client: uuid(8) };
    let (last, at) = (before.0, LogTime(9_000));
    for found in [SequenceId(last.0 + 2), last, SequenceId(0)] {
        engine.sequencer(at).apply(Format::NEWEST, found, at, &joined);
    }
    assert_eq!((engine.applied(), engine.sequencer(LogTime(0)).digest()), before, "INV-1");
    let expected = OutOfOrder { expected: SequenceId(last.0 + 1), found: SequenceId(last.0 + 2) };
    assert_eq!(engine.divergence().out_of_order, Some(expected), "the first one is remembered");
    assert_eq!(engine.divergence().records_out_of_order, 3);
    assert!(engine.client(uuid(8)).is_none());
}

#[test]
fn the_longest_lists_fit_into_a_record() {
    let far = u64::MAX;
    let objects = vec![ObjectRef { id: ObjectId(far), after: SequenceId(far) }; 4096];
    let ids = vec![ObjectId(far); 4096];
    let leases = vec![(ObjectId(far), LogTime(far)); 4096];
    let tasks = vec![uuid(far); 4096];
    for record in [
        Record::Remove { objects: &objects, source: RemoveSource::Regex },
        Record::Sweep { objects: &ids },
        Record::RenewLeases { leases: &leases },
        Record::TaskAssigned { ids: &tasks },
        Record::MetadataPut { key: &[0; 4096], value: &vec![0; moonkeeper::engine::ops::MAX_LOGGED_VALUE] },
    ] {
        assert!(record.size_bound() <= MAX_RECORD, "{}", record.size_bound());
    }
}
