//! The data directory of one master. What the master knows of the log outlives the process there, so that after a
//! restart it notices a log that was deleted, replaced or restored from a backup.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::cluster::log_end::History;
use crate::replication::snapshot;

/// The file, and its name while it is being written.
const FILE: &str = "history.json";
const PARTIAL: &str = "history.json.partial";

/// The folder for snapshots.
const SNAPSHOTS: &str = "snapshots";

/// How often the history is written. After a crash a master may have forgotten this much of it.
const INTERVAL: Duration = Duration::from_secs(1);

/// Why a master refuses to start with this data directory.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It cannot be read or written.
    #[error("cannot use the data directory {path}: {source}")]
    Io {
        /// The directory, or a file in it.
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path} is damaged ({source}); if the log in etcd is the right one, remove the file")]
    Damaged { path: PathBuf, source: serde_json::Error },
    /// It belongs to another cluster.
    #[error("the data directory {path} belongs to the cluster '{found}', not to '{wanted}'")]
    OtherCluster {
        path: PathBuf,
        found: String,
        /// The cluster of this master.
        wanted: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    cluster_id: String,
    history: Option<History>,
}

/// The data directory of one master.
#[derive(Debug)]
pub struct DataDir {
    folder: PathBuf,
    cluster_id: String,
}

impl DataDir {
    /// Opens or creates the directory, and reads what an earlier process of this master knew.
    ///
    /// # Errors
    ///
    /// If it cannot be used, or belongs to another cluster.
    pub fn open(folder: &Path, cluster_id: &str) -> Result<(Self, Option<History>), DataDirError> {
        let failed = |path: &Path, source| DataDirError::Io { path: path.to_owned(), source };
        fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let path = folder.join(FILE);
        let kept = match fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&path, error)),
        };
        let kept: Option<Kept> = match kept {
            None => None,
            Some(bytes) => Some(
                serde_json::from_slice(&bytes).map_err(|source| DataDirError::Damaged { path, source })?,
            ),
        };
        if let Some(found) = kept.as_ref().map(|kept| &kept.cluster_id).filter(|found| *found != cluster_id) {
            let (path, wanted) = (folder.to_owned(), cluster_id.to_owned());
            return Err(DataDirError::OtherCluster { path, found: found.clone(), wanted });
        }
        let dir = Self { folder: folder.to_owned(), cluster_id: cluster_id.to_owned() };
        let history = kept.and_then(|kept| kept.history);
        // Before anything is written: what a crash left of a snapshot may have filled the disk.
        if let Err(error) = snapshot::tidy(&dir.snapshots()) {
            tracing::warn!(%error, "cannot remove a snapshot that was never announced");
        }
        // Find out now that the directory cannot be written, not when the history is needed.
        dir.save(history).map_err(|source| failed(folder, source))?;
        Ok((dir, history))
    }

    /// Returns the folder for snapshots, which may not exist yet.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.folder.join(SNAPSHOTS)
    }

    /// Writes the history atomically: a crash leaves the old one or the new one.
    fn save(&self, history: Option<History>) -> io::Result<()> {
        let kept = Kept { cluster_id: self.cluster_id.clone(), history };
        let (path, partial) = (self.folder.join(FILE), self.folder.join(PARTIAL));
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        file.sync_all()?;
        fs::rename(&partial, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Writes what `history` returns each second, and once more at the end.
    pub async fn keep(self, history: impl Fn() -> Option<History> + Send, mut end: watch::Receiver<bool>) {
        let dir = std::sync::Arc::new(self);
        let mut written = None;
        let mut failing = false;
        loop {
            let ended = tokio::time::timeout(INTERVAL, end.wait_for(|end| *end)).await.is_ok();
            let known = history();
            if known != written {
                let dir = std::sync::Arc::clone(&dir);
                let saved = tokio::task::spawn_blocking(move || dir.save(known)).await;
                match saved {
                    Ok(Ok(())) => (written, failing) = (known, false),
                    Ok(Err(error)) if !failing => {
                        failing = true;
                        tracing::error!(%error, "cannot write the history of the log to the data directory");
                    }
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            if ended {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::log_end::{Checksum, Latest, LogId};
    use crate::engine::types::{SequenceId, Term};

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("moonkeeper-data-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[tokio::test]
    async fn the_history_outlives_the_process_and_names_its_cluster() {
        let folder = folder("history");
        let known =
            History(Latest { log: LogId(7), term: Term(2), last: SequenceId(9), checksum: Checksum(1) });
        let (dir, before) = DataDir::open(&folder, "demo").unwrap();
        assert_eq!(before, None);
        // What a crash left of a snapshot is removed before anything is written.
        let unfinished = dir.snapshots().join("00000000000000000009.snapshot.partial");
        fs::create_dir_all(dir.snapshots()).unwrap();
        fs::write(&unfinished, b"cut short").unwrap();
        let (end, ended) = watch::channel(true);
        dir.keep(move || Some(known), ended).await;
        drop(end);
        let (_, after) = DataDir::open(&folder, "demo").unwrap();
        assert_eq!(after, Some(known));
        assert!(!unfinished.exists());
        let error = DataDir::open(&folder, "other").unwrap_err().to_string();
        assert!(error.contains("belongs to the cluster 'demo', not to 'other'"), "{error}");
        fs::write(folder.join(FILE), b"{").unwrap();
        let error = DataDir::open(&folder, "demo").unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
