//! Digests by range: replicas compute them at the same record without stopping, and they lead to the one item that
//! differs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::pair::picture;
use crate::support::world::World;
use crate::support::{Pair, mount, plain, put, rejoin, seeds};
use moonkeeper::engine::Engine;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::object::Object;
use moonkeeper::engine::record::{ObjectRef, Record};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::snapshot::{
    BeginError, Capture, ItemKind, KeyRange, KindSum, ListedItem, MAX_ITEMS, Part, PlanError, PlannedCapture,
    RangeDigests, RangeReader,
};
use moonkeeper::engine::types::LogTime;

/// Reads a capture to its end, and does something else before each step.
fn read(mut capture: Capture, range: Option<KeyRange>, mut between: impl FnMut()) -> RangeDigests {
    let mut reader = RangeReader::new(range);
    let mut chunk = Vec::new();
    loop {
        between();
        chunk.clear();
        if !capture.step(16, &mut chunk).unwrap() {
            return reader.finish().unwrap();
        }
        reader.chunk(&chunk).unwrap();
    }
}

fn plan(engine: &Arc<Engine>, from: u64, range: Option<KeyRange>) -> PlannedCapture {
    PlannedCapture::new(engine, LogTime(from), range.map_or(Part::Whole, KeyRange::part)).unwrap()
}

/// Both replicas of a pair, right after a digest that is written at this time.
fn both(pair: &Pair, at: u64, range: Option<KeyRange>) -> (RangeDigests, RangeDigests) {
    let mut plans = [&pair.primary, &pair.mirror].map(|engine| plan(engine, at, range));
    pair.primary.sequencer(LogTime(at)).commit_digest();
    let [one, other] = plans.each_mut().map(|plan| read(plan.begun().unwrap().unwrap(), range, || ()));
    (one, other)
}

/// A pair with so many objects.
fn filled(objects: u64) -> Pair {
    let mut pair = Pair::new(EngineSettings::default());
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, 1 << 40, 10);
    rejoin(&pair, 10);
    (0..objects).for_each(|number| put(&pair.primary, &format!("key-{number}"), 64, &plain(), 20));
    pair
}

#[test]
fn the_capture_begins_at_the_first_digest_from_the_time_on() {
    let pair = filled(3);
    let mut planned = plan(&pair.mirror, 1_000, None);
    assert!(planned.begun().is_none());
    pair.primary.sequencer(LogTime(999)).commit_digest();
    put(&pair.primary, "early", 64, &plain(), 999);
    assert!(planned.begun().is_none(), "an earlier digest is not meant");
    put(&pair.primary, "not a digest", 64, &plain(), 1_200);
    assert!(planned.begun().is_none(), "neither is another record");
    let at = pair.primary.sequencer(LogTime(1_300)).commit_digest();
    put(&pair.primary, "late", 64, &plain(), 1_300);
    pair.primary.sequencer(LogTime(1_400)).commit_digest();
    let capture = planned.begun().unwrap().unwrap();
    assert_eq!((capture.at(), capture.objects()), (at, 5));
    assert!(planned.begun().is_none(), "it begins once");
    let digests = read(capture, None, || ());
    assert_eq!((digests.at, digests.kinds[&ItemKind::Object].sum.count), (at, 5));
    assert_eq!(digests.computed, Some(digests.kept));
}

#[test]
fn what_cannot_be_agreed_on_is_refused() {
    let pair = filled(1);
    pair.primary.sequencer(LogTime(500)).commit_digest();
    let refused = |from| PlannedCapture::new(&pair.mirror, LogTime(from), Part::Whole).err();
    for from in [400, 500] {
        let (now, from) = (LogTime(500), LogTime(from));
        assert_eq!(refused(from.0), Some(PlanError::TooLate { now, from }));
    }
    let planned = plan(&pair.mirror, 501, None);
    assert_eq!(refused(600), Some(PlanError::Planned));
    drop(planned);
    assert_eq!(refused(600), None);
    // A snapshot that is being taken goes on.
    let snapshot = Capture::begin(&pair.mirror, pair.mirror.applied()).unwrap();
    let mut planned = plan(&pair.mirror, 700, None);
    pair.primary.sequencer(LogTime(700)).commit_digest();
    assert!(matches!(planned.begun(), Some(Err(BeginError::UnderWay))));
    drop(snapshot);
    Capture::begin(&pair.mirror, pair.mirror.applied()).unwrap();
}

/// A capture that has begun is let go with its plan: nothing is kept of later changes, and a snapshot can be taken.
#[test]
fn a_plan_that_is_dropped_leaves_nothing_behind() {
    let pair = filled(100);
    let planned = plan(&pair.mirror, 100, None);
    pair.primary.sequencer(LogTime(100)).commit_digest();
    let busy = Capture::begin(&pair.mirror, pair.mirror.applied()).err();
    assert_eq!(busy, Some(BeginError::UnderWay), "it has begun");
    drop(planned);
    let mut capture = Capture::begin(&pair.mirror, pair.mirror.applied()).unwrap();
    let mut chunk = Vec::new();
    while capture.next(&mut chunk).unwrap() {}
    assert_eq!(capture.encoded(), 100);
    // A plan that was taken does not cancel the next one.
    drop(capture);
    let mut first = plan(&pair.mirror, 200, None);
    pair.primary.sequencer(LogTime(200)).commit_digest();
    drop(first.begun());
    let _second = plan(&pair.mirror, 300, None);
    drop(first);
    assert!(PlannedCapture::new(&pair.mirror, LogTime(400), Part::Whole).is_err());
}

/// What every kind sums up to is the digest that `apply` keeps, whatever has happened and goes on.
#[test]
fn digests_of_a_state_that_changes_are_those_of_their_record() {
    let mut seen: BTreeMap<ItemKind, u64> = BTreeMap::new();
    for seed in seeds(10) {
        let mut world = World::new(seed + 700);
        for _ in 0..6 {
            (0..150).for_each(|_| world.step());
            let engines = [Arc::clone(&world.pair.primary), Arc::clone(&world.pair.mirror)];
            let time = engines[0].log_time().0 + 1;
            let mut plans = engines.each_ref().map(|engine| plan(engine, time, None));
            let at = engines[0].sequencer(LogTime(time)).commit_digest();
            let expected = engines[0].sequencer(LogTime(0)).digest();
            let before = picture(&engines[0]).len();
            let mut step = || world.step();
            let [one, other] =
                plans.each_mut().map(|plan| read(plan.begun().unwrap().unwrap(), None, &mut step));
            for digests in [&one, &other] {
                assert_eq!((digests.at, digests.kept, digests.computed), (at, expected, Some(expected)));
            }
            assert_eq!(one.kinds, other.kinds, "seed {seed}, {before} lines of its picture");
            for (kind, sum) in &one.kinds {
                *seen.entry(*kind).or_default() += sum.sum.count;
                check_parts(sum);
            }
        }
    }
    assert!(seen.values().all(|count| *count > 0) && seen.len() == ItemKind::ALL.len(), "{seen:?}");
}

/// Parts and items add up to the whole.
fn check_parts(sum: &KindSum) {
    let parts = sum
        .parts
        .values()
        .fold((0, 0_u64), |(count, digest), part| (count + part.count, digest.wrapping_add(part.digest.0)));
    assert_eq!(parts, (sum.sum.count, sum.sum.digest.0));
    let Some(items) = &sum.items else { return assert!(sum.sum.count > MAX_ITEMS as u64) };
    let digest = items.iter().fold(0_u64, |all, item| all.wrapping_add(item.digest));
    assert_eq!((items.len() as u64, digest), (sum.sum.count, sum.sum.digest.0));
    assert!(items.is_sorted_by_key(|item| item.position));
}

/// Narrows a difference down until its items are listed. Returns the first that differs, as both have it, and how many
/// steps that took.
fn search(pair: &Pair, kind: ItemKind, time: &mut u64) -> (usize, Option<ListedItem>, Option<ListedItem>) {
    let (mut range, mut prefix, mut bits) = (None, 0_u64, 0);
    for step in 1..9 {
        *time += 10;
        let (one, other) = both(pair, *time, range);
        let (one, other) = (&one.kinds[&kind], &other.kinds[&kind]);
        check_parts(one);
        if let (Some(ours), Some(theirs)) = (&one.items, &other.items) {
            let mut all: Vec<&ListedItem> = ours.iter().chain(theirs).collect();
            all.sort_by_key(|item| item.position);
            let of = |items: &[ListedItem], at| items.iter().find(|item| item.position == at).cloned();
            let both = |item: &&ListedItem| (of(ours, item.position), of(theirs, item.position));
            let (one, other) = all.iter().map(both).find(|(one, other)| one != other).unwrap();
            return (step, one, other);
        }
        let differs = |part: &u8| one.parts.get(part) != other.parts.get(part);
        let part = (0..=u8::MAX).find(differs).unwrap();
        prefix |= u64::from(part) << (56 - bits);
        bits += 8;
        range = KeyRange::new(kind, prefix, bits);
    }
    unreachable!("a position has eight bytes")
}

/// The mirror applies a record that the primary does not have. A digest of the primary has its sequence id, so that
/// both go on at the same one.
fn diverge(pair: &Pair, time: u64, record: &Record<'_>) {
    let id = pair.mirror.sequencer(LogTime(0)).next_id();
    pair.mirror.sequencer(LogTime(time)).apply(Format::NEWEST, id, LogTime(time), record);
    assert_eq!(pair.primary.sequencer(LogTime(time)).commit_digest(), id);
}

fn named(pair: &Pair, key: &str) -> ObjectRef {
    let reference = |object: &Object| ObjectRef { id: object.id, after: object.last_record };
    pair.mirror.get(key.as_bytes(), LogTime(0), reference).result.unwrap()
}

#[test]
fn the_item_that_differs_is_found_among_many() {
    let pair = filled(70_000);
    let mut time = 5_000;
    let (one, other) = both(&pair, time, None);
    assert_eq!(one.kinds, other.kinds);
    assert!(one.kinds[&ItemKind::Object].items.is_none());
    // A field.
    let lease = (named(&pair, "key-4711").id, LogTime(77_000));
    diverge(&pair, time, &Record::RenewLeases { leases: &[lease] });
    let (steps, one, other) = search(&pair, ItemKind::Object, &mut time);
    let (one, other) = (one.unwrap().description, other.unwrap().description);
    assert_eq!((steps, one.name.as_str(), other.name.as_str()), (3, "key-4711", "key-4711"));
    let differ: Vec<_> = one.fields.iter().zip(&other.fields).filter(|(one, other)| one != other).collect();
    let expected = (("replicated_lease", "20 ms".to_owned()), ("replicated_lease", "77000 ms".to_owned()));
    assert_eq!(differ, [(&expected.0, &expected.1)]);
    pair.primary.sequencer(LogTime(time)).remove(b"key-4711", true).result.unwrap();
    assert_eq!(both(&pair, time + 1, None).0.kinds, both(&pair, time + 2, None).1.kinds);
    // An object that is missing.
    time += 10;
    diverge(&pair, time, &Record::Revoke { object: named(&pair, "key-815") });
    let (steps, one, other) = search(&pair, ItemKind::Object, &mut time);
    assert_eq!((steps, one.unwrap().description.name.as_str(), other), (3, "key-815", None));
    // Something else than an object is found in one step, because there are few.
    diverge(&pair, time, &Record::MetadataPut { key: b"bit", value: b"1" });
    let (steps, one, other) = search(&pair, ItemKind::Metadata, &mut time);
    assert_eq!((steps, one, other.unwrap().description.name.as_str()), (1, None, "bit"));
}

/// The ranges of the first step have what they are said to have, and of other kinds no object is read.
#[test]
fn a_range_has_the_items_that_its_sum_is_of() {
    let pair = filled(2_000);
    let (whole, _) = both(&pair, 1_000, None);
    let mut listed = 0;
    for (nth, (shard, sum)) in whole.kinds[&ItemKind::Object].parts.iter().enumerate() {
        let range = KeyRange::new(ItemKind::Object, u64::from(*shard) << 56, 8).unwrap();
        let (_, digests) = both(&pair, 2_000 + nth as u64, Some(range));
        assert_eq!((digests.computed, digests.kinds.len()), (None, 1));
        let found = &digests.kinds[&ItemKind::Object];
        assert_eq!(found.sum, *sum);
        check_parts(found);
        listed += found.items.as_ref().unwrap().len();
    }
    assert_eq!(listed, 2_000);
    let range = KeyRange::new(ItemKind::Segment, 0, 0).unwrap();
    let mut planned = plan(&pair.mirror, 9_000, Some(range));
    pair.primary.sequencer(LogTime(9_000)).commit_digest();
    let capture = planned.begun().unwrap().unwrap();
    assert_eq!(capture.objects(), 0);
    let segments = read(capture, Some(range), || ()).kinds.remove(&ItemKind::Segment).unwrap();
    assert_eq!(segments.items.unwrap()[0].description.name, "segment-1 (mount 0)");
    assert_eq!(pair.mirror.counts.objects.load(Ordering::Relaxed), 2_000);
}
