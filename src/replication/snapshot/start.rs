//! The snapshot that a master starts from: the newest one that is undamaged and of the log that this master knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::files::{check_bytes, header, list, restore, tidy};
use super::{FileError, FormatError, Header, Written};
use crate::cluster::log_end::{History, Latest, LogId};
use crate::cluster::snapshot::HeldSnapshot;
use crate::engine::settings::EngineSettings;
use crate::engine::types::{Digest, SequenceId, Term};
use crate::replication::incarnation::Incarnation;

/// A state that was read from a snapshot.
#[derive(Clone, Debug)]
pub struct Restored {
    pub incarnation: Arc<Incarnation>,
    /// The batch that the snapshot was taken after.
    pub at: Latest,
}

/// What a master finds in its directory of snapshots.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The state of the newest snapshot that can be used.
    pub restored: Option<Restored>,
    /// All snapshots that can be used, newest first.
    pub held: Vec<HeldSnapshot>,
}

/// What a running master needs of a snapshot to build its state from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub log: LogId,
    /// The first record that the log still has: the snapshot has all records before it.
    pub first: SequenceId,
    /// The batch of another log that this log continues from, if a recovery has begun it: a snapshot that was taken after
    /// that batch counts as one of this log.
    pub base: Option<Latest>,
    /// The last records of snapshots that must not be used.
    pub without: Vec<SequenceId>,
}

impl Wanted {
    /// Returns whether a snapshot of the log with this last record is one.
    #[must_use]
    pub fn accepts(&self, last: SequenceId) -> bool {
        let reaches = last.0.saturating_add(1) >= self.first.0;
        let reaches = reaches || planted!(RestoreTooOld);
        reaches && !self.without.contains(&last)
    }
}

/// Reads the first of these files, the newest first, that is undamaged, wanted, and usable by a master with this history.
/// Each other one that seemed to be wanted is named in the log.
#[must_use]
pub fn restore_wanted(
    files: Vec<(SequenceId, PathBuf)>,
    wanted: &Wanted,
    history: Option<&History>,
    settings: &EngineSettings,
    queue_bytes: usize,
) -> Option<Restored> {
    for (last, path) in files.into_iter().filter(|(last, _)| wanted.accepts(*last)) {
        let read = position(&path, last, wanted, history).and_then(|at| {
            let incarnation = read(&path, settings, queue_bytes).map_err(|error| error.to_string())?;
            Ok(Restored { incarnation, at })
        });
        match read {
            Ok(restored) => return Some(restored),
            Err(why) => {
                tracing::warn!(why, path = %path.display(), "a snapshot cannot be used, skipping it");
            }
        }
    }
    None
}

/// Returns the position in the wanted log that the snapshot in a file leads to.
fn position(
    path: &Path,
    number: SequenceId,
    wanted: &Wanted,
    history: Option<&History>,
) -> Result<Latest, String> {
    let found = numbered_header(path, number)?.at;
    let at = match wanted.base {
        // Terms are compared within one log only.
        Some(base) if base == found => Latest { log: wanted.log, term: Term(0), ..found },
        _ => found,
    };
    if at.log != wanted.log {
        return Err(format!("it belongs to log {}", at.log));
    }
    unusable(&at, history).map_or(Ok(at), Err)
}

/// Returns why a master with this history must not start from a snapshot that was taken after this batch.
#[must_use]
pub fn unusable(at: &Latest, history: Option<&History>) -> Option<String> {
    let History(known) = history?;
    if at.log != known.log {
        planted!(AnySnapshotLog => return None);
        return Some(format!("it belongs to log {}, this master knows log {}", at.log, known.log));
    }
    let same_batch = at.term == known.term && at.checksum == known.checksum;
    let fits = if at.last < known.last { at.term <= known.term } else { at.last > known.last || same_batch };
    (!fits).then(|| {
        format!(
            "its record {} of term {} is of another history than record {} of term {}, which this master knows",
            at.last.0, at.term.0, known.last.0, known.term.0
        )
    })
}

/// Describes a snapshot for status and member key.
#[must_use]
pub fn describe(header: &Header, bytes: u64, objects: Option<u64>, taken_at_ms: u64) -> HeldSnapshot {
    let Header { at, digest: Digest(digest) } = header;
    HeldSnapshot {
        log: at.log.to_string(),
        term: at.term.0,
        sequence_id: at.last.0,
        bytes,
        objects,
        digest: format!("{digest:016x}"),
        taken_at_ms,
        // The directory is the node's to describe.
        durable: false,
        shared: false,
    }
}

impl Written {
    /// Describes it for status and member key.
    #[must_use]
    pub fn held(&self) -> HeldSnapshot {
        let (_, taken_at_ms) = size_and_time(&self.path);
        describe(&self.header, self.bytes, Some(self.objects), taken_at_ms)
    }
}

/// Removes what was never announced, and reads the newest snapshot of a directory that a master with this history can
/// start from. Each one that cannot be used is named in the log, and left where it is.
#[must_use]
pub fn load(dir: &Path, history: Option<&History>, settings: &EngineSettings, queue_bytes: usize) -> Origin {
    let mut origin = Origin::default();
    if let Err(error) = tidy(dir) {
        tracing::warn!(%error, "cannot remove a snapshot that was never announced");
    }
    let files = match list(dir) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%error, "cannot read the snapshots");
            return origin;
        }
    };
    let mut known = history.copied();
    for (number, path) in files {
        let header = match usable_header(&path, number, known.as_ref()) {
            Ok(header) => header,
            Err(why) => {
                tracing::warn!(why, path = %path.display(), "a snapshot cannot be used, skipping it");
                continue;
            }
        };
        let objects = match &origin.restored {
            // Whether it is damaged shows before any of it is used. The header is checked again with the rest.
            None => read(&path, settings, queue_bytes).map(|incarnation| {
                let objects = incarnation.engine.len();
                origin.restored = Some(Restored { incarnation, at: header.at });
                Some(objects)
            }),
            Some(_) => check_bytes(&path).map(|_| None),
        };
        match objects {
            Ok(objects) => {
                known = History::newer(known, Some(History(header.at)));
                let (bytes, taken_at_ms) = size_and_time(&path);
                origin.held.push(describe(&header, bytes, objects, taken_at_ms));
            }
            Err(error) => tracing::warn!(%error, "a snapshot cannot be used, skipping it"),
        }
    }
    origin
}

fn numbered_header(path: &Path, number: SequenceId) -> Result<Header, String> {
    let header = header(path).map_err(|error| error.to_string())?;
    if header.at.last != number {
        return Err(FormatError::Position { found: header.at.last, said: number }.to_string());
    }
    Ok(header)
}

fn usable_header(path: &Path, number: SequenceId, history: Option<&History>) -> Result<Header, String> {
    let header = numbered_header(path, number)?;
    unusable(&header.at, history).map_or(Ok(header), Err)
}

fn read(path: &Path, settings: &EngineSettings, queue_bytes: usize) -> Result<Arc<Incarnation>, FileError> {
    Incarnation::restore(queue_bytes, |log| {
        restore(path, settings.clone(), Some(log)).map(|(_, engine)| engine)
    })
}

/// Returns the size of a file, and when it was written, in milliseconds since 1970.
fn size_and_time(path: &Path) -> (u64, u64) {
    let Ok(metadata) = fs::metadata(path) else { return (0, 0) };
    let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    (metadata.len(), u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
