//! The directory of snapshots: reads it at the start, and does the node's jobs there, on one thread and in their order;
//! and the storage that all masters share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::published_status::PublishedStatus;
use crate::cluster::log_end::{History, LogId};
use crate::cluster::snapshot::HeldSnapshot;
use crate::engine::settings::EngineSettings;
use crate::engine::types::SequenceId;
use crate::replication::driver::Inputs;
use crate::replication::node::{Input, SnapshotJob, shared_kept};
use crate::replication::snapshot::{
    self, Capture, FileError, Origin, Progress, Restored, SharedStore, Wanted,
};
use crate::replication::time::MonotonicClock;

/// Interval at which a master that reads a snapshot shows that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_millis(100);

/// Starts to read the newest snapshot of a directory that a master with this history can start from.
pub(super) fn read(
    dir: PathBuf,
    history: Option<History>,
    engine_settings: EngineSettings,
    queue_bytes: usize,
) -> JoinHandle<Origin> {
    tokio::task::spawn_blocking(move || snapshot::load(&dir, history.as_ref(), &engine_settings, queue_bytes))
}

/// Waits until a snapshot has been read, and publishes meanwhile that this master is alive and what it waits for.
pub(super) async fn wait(
    mut reading: JoinHandle<Origin>,
    published: &watch::Sender<PublishedStatus>,
    clock: MonotonicClock,
) -> Origin {
    let read = loop {
        match tokio::time::timeout(SIGN_OF_LIFE, &mut reading).await {
            Ok(read) => break read,
            Err(_) => published.send_modify(|published| {
                published.at = clock.now();
                published.status.trouble = Some("it reads its newest snapshot".to_owned());
            }),
        }
    };
    let origin = read.unwrap_or_else(|error| {
        tracing::error!(%error, "cannot read the snapshots");
        Origin::default()
    });
    match &origin.restored {
        Some(restored) => {
            let objects = restored.incarnation.engine.len();
            let sequence_id = restored.at.last.0;
            tracing::info!(sequence_id, objects, "starting from a snapshot");
        }
        None => tracing::info!("there is no snapshot to start from, reading the log from its beginning"),
    }
    origin
}

/// Where the snapshots of a master are, and what is needed to read them.
pub(super) struct SnapshotPlaces {
    pub dir: PathBuf,
    /// The part of the shared storage that belongs to this cluster.
    pub store: Option<SharedStore>,
    /// Name of this master.
    pub member: String,
    /// How many snapshots are kept.
    pub kept: usize,
    pub engine_settings: EngineSettings,
    pub queue_bytes: usize,
}

/// The threads that do jobs with snapshots: one for the directory of this master, one that copies to the shared storage,
/// which may hang, and one for each snapshot that is read.
pub(super) struct SnapshotWorker {
    jobs: mpsc::Sender<SnapshotJob>,
    copies: mpsc::Sender<SnapshotJob>,
    places: Arc<SnapshotPlaces>,
    inputs: Inputs,
}

impl SnapshotWorker {
    /// Starts the threads. They end with this value; the process does not wait for them.
    pub(super) fn start(places: SnapshotPlaces, inputs: Inputs) -> Self {
        let places = Arc::new(places);
        let (jobs, received) = mpsc::channel();
        let (answers, of_jobs) = (inputs.clone(), Arc::clone(&places));
        spawn("snapshots", move || {
            for job in received {
                if let Some(answer) = carry_out(&of_jobs.dir, job) {
                    answers.send_from_thread(answer);
                }
            }
        });
        let (copies, received) = mpsc::channel();
        let (answers, of_copies) = (inputs.clone(), Arc::clone(&places));
        spawn("snapshot-copies", move || {
            for job in received {
                if let Some(answer) = copy_or_prove(&of_copies, job) {
                    answers.send_from_thread(answer);
                }
            }
        });
        Self { jobs, copies, places, inputs }
    }

    /// Passes a job on.
    pub(super) fn submit(&self, job: SnapshotJob) {
        match job {
            job @ (SnapshotJob::Share { .. } | SnapshotJob::Prove { .. }) => {
                let Err(mpsc::SendError(job)) = self.copies.send(job) else { return };
                let gone = "the thread that copies snapshots has ended".to_owned();
                match job {
                    SnapshotJob::Share { last, .. } => {
                        self.answer(Input::SnapshotShared { last, result: Err(gone) });
                    }
                    SnapshotJob::Prove { last, by, .. } => {
                        self.answer(Input::SnapshotProven { last, by, result: Err(gone) });
                    }
                    _ => {}
                }
            }
            SnapshotJob::Restore { id, wanted, history } => {
                let (places, answers) = (Arc::clone(&self.places), self.inputs.clone());
                let started = spawn("snapshot-reader", move || {
                    let restored = restore(&places, &wanted, history.as_ref());
                    answers.send_from_thread(Input::SnapshotRestored { id, restored });
                });
                if !started {
                    self.answer(Input::SnapshotRestored { id, restored: None });
                }
            }
            job => self.submit_to_directory(job),
        }
    }

    fn answer(&self, answer: Input) {
        let inputs = self.inputs.clone();
        tokio::spawn(async move { inputs.send(answer).await });
    }

    fn submit_to_directory(&self, job: SnapshotJob) {
        let Err(mpsc::SendError(job)) = self.jobs.send(job) else { return };
        let gone = "the thread that writes snapshots has ended".to_owned();
        let answer = match job {
            SnapshotJob::Write { id, .. } => Input::SnapshotWritten { id, result: Err(gone) },
            SnapshotJob::Announce { id, .. } => Input::SnapshotAnnounced { id, result: Err(gone) },
            _ => return,
        };
        self.answer(answer);
    }
}

/// Starts a thread. Returns whether it was started.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    if let Err(error) = &started {
        tracing::error!(%error, name, "cannot start a thread for snapshots");
    }
    started.is_ok()
}

/// Copies a snapshot to the shared storage.
fn share(places: &SnapshotPlaces, log: LogId, last: SequenceId) -> Result<(), String> {
    let Some(store) = &places.store else { return Err("there is no shared storage".to_owned()) };
    let shared = store.share(&places.dir, log, &places.member, last, shared_kept(places.kept));
    shared.map_err(|error| error.to_string())
}

/// Copies a snapshot to the shared storage, or reads a copy of another member back.
fn copy_or_prove(places: &SnapshotPlaces, job: SnapshotJob) -> Option<Input> {
    match job {
        SnapshotJob::Share { log, last } => {
            Some(Input::SnapshotShared { last, result: share(places, log, last) })
        }
        SnapshotJob::Prove { log, last, by } => {
            let result = prove(places, log, &by, last);
            Some(Input::SnapshotProven { last, by, result })
        }
        _ => None,
    }
}

/// Reads a copy of another member back, and returns the digest of its state.
fn prove(places: &SnapshotPlaces, log: LogId, by: &str, last: SequenceId) -> Result<String, String> {
    let Some(store) = &places.store else { return Err("there is no shared storage".to_owned()) };
    // Without an answer the node would wait.
    let read = catch_unwind(AssertUnwindSafe(|| store.read_back(log, by, last)));
    let read = read.map_err(|_| "the thread that read it panicked".to_owned())?;
    read.map(|header| format!("{:016x}", header.digest.0)).map_err(|error| error.to_string())
}

/// Reads the newest wanted snapshot of the directory of this master, else of the shared storage.
fn restore(places: &SnapshotPlaces, wanted: &Wanted, history: Option<&History>) -> Option<Restored> {
    let of_directory = snapshot::list(&places.dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the snapshots");
        Vec::new()
    });
    let read = |files| {
        // Without an answer the node would wait.
        let read =
            || snapshot::restore_wanted(files, wanted, history, &places.engine_settings, places.queue_bytes);
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_default()
    };
    let of_store = |log| read(places.store.as_ref()?.newest(log));
    // That of the log itself is newer than the one that it was recovered from.
    read(of_directory).or_else(|| of_store(wanted.log)).or_else(|| of_store(wanted.base?.log))
}

fn carry_out(dir: &Path, job: SnapshotJob) -> Option<Input> {
    match job {
        SnapshotJob::Write { id, capture, progress } => {
            Some(Input::SnapshotWritten { id, result: write(dir, *capture, &progress) })
        }
        SnapshotJob::Announce { id, last, remove } => {
            let result = snapshot::announce(dir, last).map_err(|error| error.to_string());
            if result.is_ok() {
                remove.into_iter().for_each(|last| warn("remove an old", snapshot::forget(dir, last), last));
            }
            Some(Input::SnapshotAnnounced { id, result })
        }
        SnapshotJob::Discard { last } => {
            warn("discard a", snapshot::discard(dir, last), last);
            None
        }
        // Not in this directory alone.
        SnapshotJob::Share { .. } | SnapshotJob::Prove { .. } | SnapshotJob::Restore { .. } => None,
    }
}

fn write(dir: &Path, capture: Capture, progress: &Progress) -> Result<HeldSnapshot, String> {
    // Without an answer the node would wait for ever.
    let written = catch_unwind(AssertUnwindSafe(|| snapshot::write_pending(dir, capture, progress)));
    let written = written.map_err(|_| "the thread that wrote it panicked".to_owned())?;
    Ok(written.map_err(|error| error.to_string())?.held())
}

fn warn(what: &str, result: Result<(), FileError>, last: SequenceId) {
    if let Err(error) = result {
        tracing::warn!(%error, sequence_id = last.0, "cannot {what} snapshot");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cluster::log_end::{Checksum, Latest};
    use crate::engine::Engine;
    use crate::engine::types::{LogTime, Term};
    use crate::replication::node::SnapshotId;

    #[test]
    fn a_job_that_fails_is_answered_with_the_cause() {
        let folder = std::env::temp_dir().join(format!("moonkeeper-jobs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let dir = folder.join("snapshots");
        let engine = Arc::new(Engine::new(EngineSettings::default()));
        let mut at = Latest { log: LogId(7), term: Term(1), last: SequenceId(0), checksum: Checksum(1) };
        let mut job = |dir: &Path, id: u64| {
            let put = engine.sequencer(LogTime(1)).put_metadata(b"key", b"value", |_, _, _| Ok::<_, ()>(()));
            assert!(put.is_ok());
            at.last = engine.applied();
            let capture = Box::new(snapshot::begin(&engine, &at).unwrap());
            let job = SnapshotJob::Write { id: SnapshotId(id), capture, progress: Arc::default() };
            (at.last, carry_out(dir, job))
        };
        let (last, answer) = job(&dir, 1);
        let Some(Input::SnapshotWritten { id: SnapshotId(1), result: Ok(held) }) = answer else { panic!() };
        assert_eq!((held.sequence_id, held.objects), (last.0, Some(0)));
        let announce = |last: SequenceId, remove: Vec<SequenceId>| match carry_out(
            &dir,
            SnapshotJob::Announce { id: SnapshotId(1), last, remove },
        ) {
            Some(Input::SnapshotAnnounced { result, .. }) => result,
            other => panic!("{other:?}"),
        };
        announce(last, Vec::new()).unwrap();
        assert!(announce(last, Vec::new()).unwrap_err().contains("exists"));
        let (next, _) = job(&dir, 2);
        announce(next, vec![last]).unwrap();
        assert_eq!(snapshot::list(&dir).unwrap().len(), 1);
        // The name of the folder is that of a file.
        std::fs::write(folder.join("file"), b"").unwrap();
        let (_, answer) = job(&folder.join("file"), 3);
        let Some(Input::SnapshotWritten { result: Err(error), .. }) = answer else { panic!() };
        assert!(error.contains("file"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
