//! No record removes very many objects: while it is applied, every other client waits.

use crate::support::{Pair, mount, plain, present, put, read, uuid};
use moonkeeper::engine::chunks::Chunks;
use moonkeeper::engine::key::KeyHash;
use moonkeeper::engine::ops::WriteConfig;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::state::Sequencer;
use moonkeeper::engine::types::{LogTime, ObjectId, SequenceId};
use moonkeeper::engine::walk::Cursor;

const OBJECTS: usize = 5_000;

/// A store all of whose objects are in one shard.
fn store() -> (Pair, Vec<String>) {
    let mut pair = Pair::new(EngineSettings { lease_ttl_ms: 1_000, ..EngineSettings::default() });
    pair.begin(LogTime(1), 0);
    mount(&pair.primary, 1, 1, 1 << 40, 1);
    mount(&pair.primary, 2, 2, 1 << 40, 1);
    let keys = (0..).map(|number| format!("key-{number}"));
    let keys: Vec<String> =
        keys.filter(|key| KeyHash::of(key.as_bytes()).shard() == 7).take(OBJECTS).collect();
    let config = WriteConfig { preferred: &[b"segment-1"], ..plain() };
    keys.iter().for_each(|key| put(&pair.primary, key, 64, &config, 100));
    (pair, keys)
}

#[test]
fn remove_all_goes_in_small_records() {
    let (pair, keys) = store();
    let leased: Vec<&String> = keys.iter().step_by(10).collect();
    leased.iter().for_each(|key| read(&pair.primary, key, 1_000).unwrap());
    let (gone, depends_on) = pair.primary.remove_all(false, LogTime(1_500));
    assert_eq!(gone as usize, OBJECTS - leased.len());
    assert_eq!(depends_on, pair.primary.applied());
    let most = pair.written(|log| log.most_removed);
    assert!(most <= 1_024, "one record removed {most} objects");
    assert!(leased.iter().all(|key| present(&pair.primary, key)));
    pair.assert_same("leases are kept");
    assert_eq!(pair.primary.remove_all(true, LogTime(1_500)).0 as usize, leased.len());
    assert!(pair.primary.is_empty());
    pair.assert_same("forced");
}

/// A caller of long work that lets everything begin.
#[derive(Default)]
struct Watching {
    asked: usize,
    made: Vec<u64>,
}

impl Chunks for Watching {
    fn next_chunk(&mut self) -> bool {
        self.asked += 1;
        true
    }

    fn made(&mut self, last: SequenceId) {
        self.made.push(last.0);
    }
}

#[test]
fn a_removal_by_id_gives_the_sequencer_back_after_few_objects() {
    let (pair, keys) = store();
    let mut cursor = Cursor::default();
    let ids: Vec<ObjectId> =
        std::iter::from_fn(|| pair.primary.keys(&mut cursor)).flatten().map(|(id, _)| id).collect();
    let (before, mut chunks) = (pair.primary.applied().0, Watching::default());
    let removed = pair.primary.remove_matching_while(&ids, true, LogTime(1_500), &mut chunks);
    assert_eq!(removed, (OBJECTS as u64, pair.primary.applied()));
    let most = pair.written(|log| log.most_removed);
    assert!(most <= 256, "the sequencer was held for {most} objects");
    assert_eq!(chunks.asked, keys.len().div_ceil(256), "one rest after each record");
    // Each record is told, so that the caller knows which of the log's records are those of the work.
    assert!(chunks.made.iter().copied().eq(before + 1..=pair.primary.applied().0), "{:?}", chunks.made);
    pair.assert_same("removed");
}

#[test]
fn long_work_tells_its_own_records_alone() {
    let (pair, _) = store();
    let mut chunks = Watching::default();
    pair.primary.run_chunk(LogTime(200), &mut chunks, |_| ());
    put(&pair.primary, "of another client", 64, &plain(), 200);
    pair.primary.run_chunk(LogTime(200), &mut chunks, |_| ());
    assert!(chunks.made.is_empty(), "{:?}", chunks.made);
    let unmount = |sequencer: &mut Sequencer<'_>| sequencer.unmount(uuid(1)).depends_on;
    let unmounted = pair.primary.run_chunk(LogTime(200), &mut chunks, unmount);
    assert_eq!(chunks.made, [unmounted.0]);
}

#[test]
fn remove_all_can_be_called_off() {
    let (pair, _) = store();
    let mut records = 0;
    let (gone, _) = pair.primary.remove_all_while(true, LogTime(1_500), &mut || {
        records += 1;
        records <= 2
    });
    assert!(gone > 0 && pair.primary.len() == OBJECTS as u64 - gone, "{gone}");
    pair.assert_same("called off");
}

#[test]
fn a_sweep_goes_in_small_steps() {
    let (pair, _) = store();
    let _ = pair.primary.sequencer(LogTime(200)).unmount(uuid(1));
    let (mut cursor, mut steps) = (Cursor::default(), Vec::new());
    while let Some(swept) = pair.primary.sweep_step(&mut cursor, LogTime(200), &mut || true) {
        steps.push(swept);
    }
    assert_eq!(steps.iter().sum::<usize>(), OBJECTS);
    assert!(steps.iter().all(|swept| *swept < 1_024 + 64), "{steps:?}");
    let most = pair.written(|log| log.most_removed);
    assert!(most <= 256, "one record removed {most} objects");
    pair.assert_same("swept");
    // The promotion report says what the term lost.
    let report = pair.primary.term_report();
    assert_eq!(report.objects_removed, OBJECTS as u64);
    assert!(report.bytes_removed > 0);
}
