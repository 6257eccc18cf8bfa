//! Snapshots: what is restored is what was there, goes on as the other does, and a damaged file is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::pair::picture;
use crate::support::world::World;
use crate::support::{Rng, assert_sound, cases, end, items, mount, plain, put, remove, seeds, start};
use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::snapshot::{BeginError, CaptureError, Restore, SnapshotError};
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::replication::snapshot::{
    self, Damage, FORMAT, FileError, FormatError, Progress, Written, begin, list, newest_good, prune,
    read_from, write_to,
};

/// A directory of its own for a test, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("moonkeeper-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn at(engine: &Engine) -> Latest {
    Latest { log: LogId(7), term: Term(3), last: engine.applied(), checksum: Checksum(0xabc) }
}

fn to_bytes(engine: &Arc<Engine>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, begin(engine, &at(engine)).unwrap(), &Progress::default()).unwrap();
    bytes
}

fn to_file(dir: &Path, engine: &Arc<Engine>) -> Written {
    snapshot::write(dir, begin(engine, &at(engine)).unwrap(), &Progress::default()).unwrap()
}

fn from_bytes(bytes: &[u8]) -> Result<Engine, FormatError> {
    // Settings shape records and never enter the state, so that they may differ.
    read_from(&mut { bytes }, EngineSettings::default(), None).map(|(_, engine)| engine)
}

/// A primary with a few hundred objects.
fn small() -> Arc<Engine> {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    mount(&engine, 1, 1, 1 << 24, 1_000);
    (0..500).for_each(|nth| put(&engine, &format!("key-{nth}"), 1000 + nth, &plain(), 1_000 + nth));
    start(&engine, "being written", 64, &plain(), 2_000).unwrap();
    engine
}

#[test]
fn a_restored_mirror_goes_on_as_if_it_had_always_been_there() {
    for seed in seeds(12) {
        let mut world = World::new(seed + 5_000);
        for step in 0..2_500_u64 {
            world.step();
            if step % 250 == 249 {
                // What the primary promised readers is no state: its snapshot is as long as the mirror's.
                let what = format!("seed {seed}, step {step}");
                let (bytes, length) = (to_bytes(&world.pair.mirror), items(&world.pair.mirror).len());
                assert_eq!(items(&world.pair.primary).len(), length, "{what}");
                let settings = world.pair.mirror.settings.clone();
                world.pair.replace_mirror(|log| {
                    let (header, restored) = read_from(&mut &bytes[..], settings, Some(log)).unwrap();
                    assert_eq!(header.digest, restored.sequencer(LogTime(0)).digest(), "{what}");
                    restored
                });
                assert_eq!(items(&world.pair.mirror).len(), length, "{what}");
                world.check("restored");
            }
            if step % 32 == 0 {
                world.check("after a while");
            }
        }
    }
}

#[test]
fn a_restored_primary_goes_on() {
    let engine = from_bytes(&to_bytes(&small())).unwrap();
    assert_eq!(engine.applied(), small().applied());
    end(&engine, "being written", 3_000).unwrap();
    put(&engine, "new", 4096, &plain(), 3_000);
    assert_sound(&engine, "gone on");
    assert_eq!(engine.len(), 502);
}

#[test]
fn every_damage_is_noticed_and_named() {
    let good = to_bytes(&small());
    assert!(from_bytes(&good).is_ok());
    for at in (0..good.len()).step_by(1.max(good.len() / 3_000)) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(from_bytes(&bytes).is_err(), "a flipped bit at {at} of {}", good.len());
        assert!(from_bytes(&good[..at]).is_err(), "cut at {at} of {}", good.len());
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        from_bytes(&bytes).unwrap_err()
    };
    assert!(matches!(from_bytes(b""), Err(FormatError::Foreign)));
    assert!(matches!(changed(0, b'X'), FormatError::Foreign));
    assert!(matches!(changed(4, FORMAT as u8 + 1), FormatError::Format(format) if format == FORMAT + 1));
    assert!(matches!(changed(9, 0xee), FormatError::Header));
    assert!(matches!(changed(63, 0xee), FormatError::Chunk { chunk: 0, why: Damage::Length }));
    assert!(matches!(changed(100, !good[100]), FormatError::Chunk { chunk: 0, why: Damage::Checksum }));
    assert!(matches!(from_bytes(&good[..200]), Err(FormatError::Short(0))));
    let last = good.len() - 1;
    assert!(matches!(changed(last, !good[last]), FormatError::Trailer(1)));
    let longer = [&good[..], b"x"].concat();
    assert!(matches!(from_bytes(&longer), Err(FormatError::Long)));
}

/// Chunks whose checksums are right and that nobody wrote: an error, not a state, and never a panic.
#[test]
fn nonsense_is_no_state() {
    let restored = |bytes: &[u8]| {
        let mut restore = Restore::new(EngineSettings::default(), None);
        restore.chunk(bytes)?;
        restore.finish()
    };
    let good = items(&small());
    assert!(restored(&good).is_ok());
    assert!(matches!(restored(&[]), Err(SnapshotError::Incomplete { .. })));
    assert!(matches!(restored(&[99]), Err(SnapshotError::Malformed(_))));
    assert!(matches!(restored(&[9, 0, 0, 0]), Err(SnapshotError::Order)));
    let twice = [&good[..], &good[..]].concat();
    assert!(matches!(restored(&twice), Err(SnapshotError::Order)));
    let mut outcomes = [0, 0];
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] = bytes[at].wrapping_add(1 + (at % 200) as u8);
        outcomes[usize::from(restored(&bytes).is_ok())] += 1;
        assert!(restored(&good[..at]).is_err());
    }
    // Nearly everything is part of the digest; what is not are the last records of clients, segments and shards, the
    // time, and the like.
    assert!(outcomes[1] * 20 < outcomes[0], "{outcomes:?}");
}

#[test]
fn objects_on_the_same_bytes_are_refused() {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    mount(&engine, 1, 1, 1 << 20, 1_000);
    (0..3).for_each(|nth| put(&engine, &format!("k{nth}"), 64, &plain(), 1_000));
    let mut bytes = items(&engine);
    // Offset 128 is written as 0x80 0x01, after one replica in segment number 0 and before the replica's id.
    let wanted = [1, 0, 0x80, 0x01, 0, 3];
    let found: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&wanted)).collect();
    assert_eq!(found.len(), 1, "{bytes:?}");
    bytes.splice(found[0] + 2..found[0] + 4, [0]);
    let mut restore = Restore::new(EngineSettings::default(), None);
    restore.chunk(&bytes).unwrap();
    assert!(matches!(restore.finish(), Err(SnapshotError::Overlap { .. })), "INV-5");
}

#[test]
fn the_newest_good_file_counts() {
    let directory = Directory::new("newest-good");
    let dir: &Path = &directory.0;
    let refused = |_: FileError| panic!("nothing to refuse");
    assert!(newest_good(dir, refused).unwrap().is_none(), "no directory is no snapshot");
    let engine = small();
    let mut written = Vec::new();
    for nth in 0..3 {
        put(&engine, &format!("more-{nth}"), 64, &plain(), 5_000);
        written.push(to_file(dir, &engine));
    }
    let newest = written[2].clone();
    assert_eq!(newest.bytes, std::fs::metadata(&newest.path).unwrap().len());
    let found = newest_good(dir, refused).unwrap().unwrap();
    assert_eq!((found.path, found.header), (newest.path.clone(), newest.header));

    let mut bytes = std::fs::read(&newest.path).unwrap();
    bytes[300] ^= 4;
    std::fs::write(&newest.path, &bytes).unwrap();
    std::fs::write(dir.join(format!("{:020}.snapshot.partial", 99_999)), b"cut short").unwrap();
    std::fs::write(dir.join("notes.txt"), b"not ours").unwrap();
    let mut reasons = Vec::new();
    let found = newest_good(dir, |why| reasons.push(why.to_string())).unwrap().unwrap();
    assert_eq!(found.header, written[1].header);
    assert_eq!(reasons.len(), 1);
    assert!(reasons[0].contains("chunk 0 is damaged: its checksum does not match"), "{reasons:?}");
    let (header, restored) = snapshot::restore(&found.path, EngineSettings::default(), None).unwrap();
    assert_eq!(restored.applied(), header.at.last);
    assert_eq!(restored.sequencer(LogTime(0)).digest(), header.digest);

    prune(dir, 2).unwrap();
    let left: Vec<SequenceId> = list(dir).unwrap().into_iter().map(|(number, _)| number).collect();
    assert_eq!(left, [newest.header.at.last, written[1].header.at.last]);
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "what was never finished is gone, what is not ours is not: {names:?}");
}

#[test]
fn only_the_owner_reads_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new("owner");
    let below = directory.0.join("snapshots");
    let engine = small();
    std::fs::create_dir_all(&directory.0).unwrap();
    let partial = below.join(format!("{:020}.snapshot.partial", engine.applied().0));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let written = to_file(&below, &engine);
    assert_eq!((mode(&below), mode(&written.path)), (0o700, 0o600));
    assert_eq!(written.objects, 501);
    // The remains of an earlier attempt do not pass their permissions on.
    std::fs::write(&partial, b"cut short").unwrap();
    assert_eq!(mode(&to_file(&below, &engine).path), 0o600);
    assert!(!partial.exists());
}

#[test]
fn a_cancelled_snapshot_leaves_no_file() {
    let directory = Directory::new("cancelled");
    let engine = small();
    let progress = Progress::default();
    progress.cancel();
    let cancelled = snapshot::write(&directory.0, begin(&engine, &at(&engine)).unwrap(), &progress);
    assert!(matches!(cancelled, Err(FileError::GivenUp(CaptureError::Cancelled))), "{cancelled:?}");
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0);
    let progress = Progress::default();
    let written = snapshot::write(&directory.0, begin(&engine, &at(&engine)).unwrap(), &progress).unwrap();
    assert_eq!(progress.objects.load(Ordering::Relaxed), 501);
    assert_eq!(progress.of.load(Ordering::Relaxed), 501);
    // The end of the file is not counted.
    assert_eq!(progress.bytes.load(Ordering::Relaxed), written.bytes - 24);
}

/// A disk that is full.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_named_and_leaves_the_engine_as_it_was() {
    let engine = small();
    for _ in 0..2 {
        let failed = write_to(&mut Full, begin(&engine, &at(&engine)).unwrap(), &Progress::default());
        let Err(FormatError::Io(why)) = failed else { panic!("{failed:?}") };
        assert_eq!(why.kind(), std::io::ErrorKind::StorageFull);
        put(&engine, &format!("later-{:?}", engine.applied()), 64, &plain(), 9_000);
    }
}

/// One thread applies, and begins a snapshot now and then; another one writes it.
#[test]
fn snapshots_are_written_beside_the_thread_that_applies() {
    let directory = Directory::new("beside");
    let dir: &Path = &directory.0;
    let mut rng = Rng::new(7);
    let engine = Arc::new(Engine::new(EngineSettings { lease_ttl_ms: 10, ..EngineSettings::default() }));
    (1..=3).for_each(|number| mount(&engine, number, number, 1 << 30, 1_000));
    let key = |number: u64| format!("key-{number}");
    (0..20_000).for_each(|number| put(&engine, &key(number), 64, &plain(), 1_000));
    std::thread::scope(|scope| {
        let mut changes = 0;
        for nth in 0..cases(6) {
            let expected = picture(&engine);
            let capture = begin(&engine, &at(&engine)).unwrap();
            let header = capture.header();
            let writer = scope.spawn(move || snapshot::write(dir, capture, &Progress::default()).unwrap());
            while !writer.is_finished() {
                let (key, now) = (key(rng.below(25_000)), 2_000 + nth);
                match rng.below(3) {
                    0 => _ = remove(&engine, &key, true, now),
                    1 => _ = start(&engine, &key, 64, &plain(), now),
                    _ => _ = end(&engine, &key, now),
                }
                changes += 1;
            }
            let written = writer.join().unwrap();
            let (found, restored) =
                snapshot::restore(&written.path, EngineSettings::default(), None).unwrap();
            assert_eq!((found, written.header), (header, header));
            assert!(picture(&restored) == expected, "snapshot {nth} has another state");
            assert_sound(&restored, "restored");
        }
        assert_sound(&engine, "after the snapshots");
        assert!(changes > 1_000, "the state hardly changed meanwhile: {changes}");
    });
}

#[test]
fn a_snapshot_is_of_the_end_of_a_batch() {
    let engine = small();
    let elsewhere = Latest { last: SequenceId(1), ..at(&engine) };
    assert!(matches!(begin(&engine, &elsewhere), Err(BeginError::Elsewhere { said: SequenceId(1), .. })));
}

/// How long a snapshot of a million objects takes and how large it is:
/// `cargo test --release --test replication a_million -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_million_objects() {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    (0..8).for_each(|nth| mount(&engine, nth, 1 + nth, 64 << 30, 1_000));
    (0..1_000_000_u64).for_each(|nth| {
        let key = format!("model-a/{:016x}/{nth}", nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        put(&engine, &key, 256 << 10, &plain(), 1_000 + nth / 50);
    });
    let directory = Directory::new("million");
    let start = std::time::Instant::now();
    let written = to_file(&directory.0, &engine);
    println!("written in {:?}, {} bytes", start.elapsed(), written.bytes);
    let start = std::time::Instant::now();
    snapshot::check(&written.path).unwrap();
    println!("checked in {:?}", start.elapsed());
    let start = std::time::Instant::now();
    let (header, restored) = snapshot::restore(&written.path, EngineSettings::default(), None).unwrap();
    println!("restored in {:?}, {} objects", start.elapsed(), restored.len());
    assert_eq!(restored.sequencer(LogTime(0)).digest(), header.digest);
}
