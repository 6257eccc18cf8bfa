//! What a master starts from: the newest snapshot in its directory that was announced, is undamaged, and is of the log
//! that the master knows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::put;
use crate::support::{mount, plain};
use moonkeeper::cluster::log_end::{Checksum, History, Latest, LogId};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::replication::snapshot::{
    FileError, Origin, Progress, announce, begin, discard, list, load, unusable, write, write_pending,
};

const LOG: LogId = LogId(7);

/// A directory of its own for a test, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("moonkeeper-start-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn at(engine: &Engine, log: LogId) -> Latest {
    Latest { log, term: Term(3), last: engine.applied(), checksum: Checksum(0xabc) }
}

fn known(last: SequenceId) -> History {
    History(Latest { log: LOG, term: Term(3), last, checksum: Checksum(0xabc) })
}

/// Three announced snapshots of a log, the oldest first, with their last records.
fn three(dir: &Path) -> (Arc<Engine>, Vec<SequenceId>) {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    mount(&engine, 1, 1, 1 << 24, 1_000);
    let mut all = Vec::new();
    for nth in 0..3 {
        put(&engine, &format!("key-{nth}"), 64, &plain(), 1_000 + nth);
        all.push(engine.applied());
        write(dir, begin(&engine, &at(&engine, LOG)).unwrap(), &Progress::default()).unwrap();
    }
    (engine, all)
}

fn start(dir: &Path, history: Option<History>) -> Origin {
    load(dir, history.as_ref(), &EngineSettings::default(), 1 << 20)
}

fn path(dir: &Path, last: SequenceId) -> PathBuf {
    dir.join(format!("{:020}.snapshot", last.0))
}

/// The records that a master could start from, the newest first; it starts from the first of them.
fn held(origin: &Origin) -> Vec<SequenceId> {
    let held: Vec<_> = origin.held.iter().map(|held| SequenceId(held.sequence_id)).collect();
    let restored = origin.restored.as_ref();
    assert_eq!(restored.map(|restored| restored.at.last), held.first().copied());
    if let Some(restored) = restored {
        let (engine, gate) = (&restored.incarnation.engine, &restored.incarnation.gate);
        assert_eq!((engine.applied(), gate.durable()), (restored.at.last, restored.at.last));
        assert!(restored.incarnation.is_durable() && restored.incarnation.queue.is_empty());
    }
    held
}

#[test]
fn a_master_starts_from_the_newest_snapshot() {
    let directory = Directory::new("newest");
    let dir: &Path = &directory.0;
    assert_eq!(held(&start(dir, None)), [], "no directory is no snapshot");
    let (engine, all) = three(dir);
    for history in [None, Some(known(all[2])), Some(known(SequenceId(1_000)))] {
        let origin = start(dir, history);
        assert_eq!(held(&origin), [all[2], all[1], all[0]]);
        let newest = &origin.held[0];
        assert_eq!((newest.term, newest.objects, newest.is_of(LOG)), (3, Some(3), true));
        assert_eq!(newest.bytes, std::fs::metadata(path(dir, all[2])).unwrap().len());
        assert_eq!(newest.digest, format!("{:016x}", engine.sequencer(LogTime(0)).digest().0));
        assert!(newest.taken_at_ms > 1_600_000_000_000, "{newest:?}");
    }
}

#[test]
fn a_snapshot_that_was_never_announced_is_removed() {
    let directory = Directory::new("pending");
    let dir: &Path = &directory.0;
    let (engine, all) = three(dir);
    put(&engine, "more", 64, &plain(), 5_000);
    let last = engine.applied();
    let pending = |engine: &Arc<Engine>| {
        write_pending(dir, begin(engine, &at(engine, LOG)).unwrap(), &Progress::default()).unwrap()
    };
    let written = pending(&engine);
    assert_eq!(list(dir).unwrap()[0].0, all[2], "it is none yet");
    std::fs::write(dir.join(format!("{:020}.snapshot.partial", 99_999)), b"cut short").unwrap();
    std::fs::write(dir.join("notes.txt"), b"not ours").unwrap();
    assert_eq!(held(&start(dir, None)), [all[2], all[1], all[0]]);
    assert!(!written.path.exists());
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 4, "three snapshots, and what is not ours");

    let written = pending(&engine);
    announce(dir, last).unwrap();
    assert!(!written.path.exists());
    assert_eq!(held(&start(dir, None))[0], last);
    // Neither a second one nor one of another log takes the place of a file.
    let written = pending(&engine);
    let refused = announce(dir, last).unwrap_err();
    assert!(matches!(refused, FileError::Io { .. }) && refused.to_string().contains("exists"), "{refused}");
    discard(dir, last).unwrap();
    assert!(!written.path.exists());
    discard(dir, last).unwrap();
    assert!(announce(dir, SequenceId(last.0 + 1)).is_err(), "there is no such file");
}

#[test]
fn a_file_that_cannot_be_used_is_skipped_and_kept() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let flipped: Damage = |mut bytes| {
        bytes[100] ^= 4;
        bytes
    };
    let truncated: Damage = |mut bytes| {
        bytes.truncate(bytes.len() / 2);
        bytes
    };
    let newer_format: Damage = |mut bytes| {
        bytes[4] += 1;
        bytes
    };
    let empty: Damage = |_| Vec::new();
    for (what, damage) in
        [("flipped", flipped), ("truncated", truncated), ("newer", newer_format), ("empty", empty)]
    {
        let directory = Directory::new(what);
        let dir: &Path = &directory.0;
        let (_, all) = three(dir);
        let newest = path(dir, all[2]);
        let bytes = damage(std::fs::read(&newest).unwrap());
        std::fs::write(&newest, &bytes).unwrap();
        assert_eq!(held(&start(dir, Some(known(all[2])))), [all[1], all[0]], "{what}");
        assert_eq!(std::fs::read(&newest).unwrap(), bytes, "{what}");
        // One that is damaged below the newest good one is not held either.
        std::fs::rename(&newest, path(dir, all[0])).unwrap();
        assert_eq!(held(&start(dir, None)), [all[1]], "{what}");
    }
    // A whole file under the name of another.
    let directory = Directory::new("renamed");
    let dir: &Path = &directory.0;
    let (_, all) = three(dir);
    std::fs::rename(path(dir, all[2]), path(dir, SequenceId(77_777))).unwrap();
    assert_eq!(held(&start(dir, None)), [all[1], all[0]]);
}

#[test]
fn no_master_starts_from_a_snapshot_of_another_log_or_history() {
    let directory = Directory::new("another-log");
    let dir: &Path = &directory.0;
    let (engine, all) = three(dir);
    put(&engine, "more", 64, &plain(), 5_000);
    let foreign = at(&engine, LogId(8));
    write(dir, begin(&engine, &foreign).unwrap(), &Progress::default()).unwrap();
    assert_eq!(held(&start(dir, Some(known(all[1])))), [all[2], all[1], all[0]]);
    // A master that knows no log takes the newest one's, and no other's.
    assert_eq!(held(&start(dir, None)), [foreign.last]);
    let other = |change: fn(&mut Latest)| {
        let mut at = known(all[2]).0;
        change(&mut at);
        unusable(&at, Some(&known(all[2])))
    };
    assert_eq!(other(|_| ()), None);
    assert_eq!(other(|at| at.last = SequenceId(at.last.0 - 1)), None);
    assert_eq!(other(|at| (at.last, at.term) = (SequenceId(at.last.0 + 1), Term(9))), None);
    for change in [
        (|at: &mut Latest| at.checksum = Checksum(1)) as fn(&mut Latest),
        |at| at.term = Term(4),
        |at| (at.last, at.term) = (SequenceId(at.last.0 - 1), Term(4)),
        |at| at.log = LogId(8),
    ] {
        assert!(other(change).is_some());
    }
}
