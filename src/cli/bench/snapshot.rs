//! What a snapshot costs the thread that applies records, and how long it takes to write and to restore.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::{BenchError, process};
use crate::cluster::log_end::{Checksum, Latest, LogId};
use crate::engine::Engine;
use crate::engine::ops::{ReplicaTypes, WriteConfig};
use crate::engine::record::SoftPin;
use crate::engine::segment::SegmentSpec;
use crate::engine::settings::EngineSettings;
use crate::engine::types::{ErrorCode, LogTime, Term, Uuid};
use crate::replication::snapshot::{self, Progress, Written};

/// For how long changes are applied without a snapshot, to compare with.
const BEFORE: Duration = Duration::from_secs(3);
/// How often memory is read.
const POLL: Duration = Duration::from_millis(20);
/// Segments that the objects lie in.
const SEGMENTS: u64 = 16;
const CLIENT: Uuid = Uuid { first: 1, second: 2 };

#[derive(Debug, Args)]
pub(super) struct SnapshotArguments {
    /// Objects in the engine
    #[arg(long, default_value_t = 1_000_000)]
    objects: u64,
    /// Folder for the file, which is removed afterwards
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Changes a second while the snapshot is taken; as many as possible if 0
    #[arg(long, default_value_t = 0)]
    rate: u64,
}

/// Takes a snapshot while objects are removed and put again, and restores it.
pub(super) fn measure(arguments: &SnapshotArguments) -> Result<Value, BenchError> {
    let dir = arguments.dir.join(format!("moonkeeper-bench-{}", std::process::id()));
    let measured = measure_in(&dir, arguments);
    // Nothing that is worth an error of its own is left behind.
    let _ = std::fs::remove_dir_all(&dir);
    measured
}

fn measure_in(dir: &Path, arguments: &SnapshotArguments) -> Result<Value, BenchError> {
    let engine = filled(arguments.objects)?;
    let mut changes = Changes::new(&engine, arguments);
    let deadline = Instant::now() + BEFORE;
    let before = changes.run(|| Instant::now() < deadline)?;
    let resident = process::resident_bytes(std::process::id())?;
    let begun = Instant::now();
    let at = Latest { log: LogId(1), term: Term(1), last: engine.applied(), checksum: Checksum(1) };
    let capture = snapshot::begin(&engine, &at).map_err(|why| BenchError::Snapshot(why.to_string()))?;
    let beginning = begun.elapsed();
    let done = AtomicBool::new(false);
    let (written, during, peak) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let written = snapshot::write(dir, capture, &Progress::default());
            done.store(true, Ordering::Release);
            (written, begun.elapsed())
        });
        let memory = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Acquire) {
                peak = peak.max(process::resident_bytes(std::process::id()).unwrap_or(0));
                std::thread::sleep(POLL);
            }
            peak
        });
        let during = changes.run(|| !done.load(Ordering::Acquire));
        let gone = |_| BenchError::Snapshot("a thread ended early".into());
        Ok::<_, BenchError>((writer.join().map_err(gone)?, during?, memory.join().map_err(gone)?))
    })?;
    let (written, writing) = written;
    let written: Written = written.map_err(|why| BenchError::Snapshot(why.to_string()))?;
    drop(engine);
    let restoring = Instant::now();
    let (_, restored) = snapshot::restore(&written.path, EngineSettings::default(), None)
        .map_err(|why| BenchError::Snapshot(why.to_string()))?;
    let restoring = restoring.elapsed();
    let per_second = |time: Duration| written.objects as f64 / time.as_secs_f64();
    Ok(json!({
        "objects": written.objects,
        "file_bytes": written.bytes,
        "begin_ms": beginning.as_secs_f64() * 1e3,
        "write_seconds": writing.as_secs_f64(),
        "write_objects_per_second": per_second(writing),
        "changes_per_second_before": before.per_second(),
        "changes_per_second_during": during.per_second(),
        "longest_change_before_ms": before.longest.as_secs_f64() * 1e3,
        "longest_change_during_ms": during.longest.as_secs_f64() * 1e3,
        "resident_before": resident,
        "resident_peak": peak,
        "memory_overhead": peak.saturating_sub(resident),
        "restore_seconds": restoring.as_secs_f64(),
        "restore_objects_per_second": per_second(restoring),
        "restored_objects": restored.len(),
    }))
}

/// What was changed.
struct Changed {
    changes: u64,
    longest: Duration,
    time: Duration,
}

impl Changed {
    fn per_second(&self) -> f64 {
        self.changes as f64 / self.time.as_secs_f64()
    }
}

/// Changes of random objects: each is removed and put again, which takes three records.
struct Changes<'e> {
    engine: &'e Engine,
    objects: u64,
    rate: u64,
    random: u64,
}

impl<'e> Changes<'e> {
    fn new(engine: &'e Engine, arguments: &SnapshotArguments) -> Self {
        let SnapshotArguments { objects, dir: _, rate } = *arguments;
        Self { engine, objects, rate, random: 0x9e37_79b9_7f4a_7c15 }
    }

    fn run(&mut self, go_on: impl Fn() -> bool) -> Result<Changed, BenchError> {
        let start = Instant::now();
        let (mut changes, mut longest, mut before) = (0_u64, Duration::ZERO, start);
        while go_on() {
            self.change()?;
            changes += 1;
            let now = Instant::now();
            longest = longest.max(now - before);
            before = now;
            let due = Duration::from_nanos((changes * 1_000_000_000).checked_div(self.rate).unwrap_or(0));
            if let Some(early) = due.checked_sub(now - start) {
                std::thread::sleep(early);
                before = Instant::now();
            }
        }
        Ok(Changed { changes, longest, time: start.elapsed() })
    }

    fn change(&mut self) -> Result<(), BenchError> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let key = key(self.random % self.objects);
        let removed = self.engine.sequencer(LogTime(2_000_000)).remove(&key, true);
        removed.result.map_err(refused("Remove"))?;
        put(self.engine, &key)
    }
}

fn refused(call: &'static str) -> impl Fn(ErrorCode) -> BenchError {
    move |code| BenchError::Refused { call, code: code.0 }
}

/// An engine with this many objects.
fn filled(objects: u64) -> Result<Arc<Engine>, BenchError> {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    for number in 1..=SEGMENTS {
        let (name, endpoint) = (format!("segment-{number}"), format!("127.0.0.1:{}", 17_000 + number));
        let spec = SegmentSpec {
            id: Uuid { first: number, second: 3 },
            name: name.as_bytes(),
            base: 1 << 32,
            size: 1 << 50,
            te_endpoint: endpoint.as_bytes(),
            protocol: b"tcp",
            host_id: b"",
        };
        engine.sequencer(LogTime(1_000_000)).mount(&spec, CLIENT).result.map_err(refused("MountSegment"))?;
    }
    (0..objects).try_for_each(|number| put(&engine, &key(number)))?;
    Ok(engine)
}

fn put(engine: &Engine, key: &[u8]) -> Result<(), BenchError> {
    let config = WriteConfig {
        replicas: 1,
        soft_pin: SoftPin::Preserve,
        hard_pin: false,
        preferred: &[],
        host_id: b"",
        data_type: 0,
        group: None,
    };
    let mut sequencer = engine.sequencer(LogTime(1_000_000));
    sequencer.put_start(CLIENT, key, 256 << 10, &config).result.map_err(refused("PutStart"))?;
    sequencer.end(CLIENT, key, ReplicaTypes::Memory, None).result.map_err(refused("PutEnd"))
}

/// A key as clients make them: a prefix that many share, and a hash.
fn key(number: u64) -> Vec<u8> {
    format!("model-a/{:016x}/{number}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}
