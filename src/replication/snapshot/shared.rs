//! Storage of snapshots that all masters of a cluster share: a directory, as a volume that every machine mounts.
//!
//! Each master has a folder of its own in it, for each log, `{cluster}/{log}/by-{member}`, and writes, lists and removes
//! there alone. So no master ever removes what another one has put there, and two that write at once do not meet. A
//! master reads the folders of all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::background;
use super::files::{self, check_bytes, header, list};
use super::{FileError, FormatError, Header};
use crate::cluster::log_end::LogId;
use crate::engine::types::SequenceId;

/// Most snapshots that a starting master looks at, newest first.
const MAX_TRIED: usize = 64;

/// What the folder of a member is called, before its name.
const MEMBER: &str = "by-";

/// Storage that all masters of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedStore {
    /// A directory that every master has mounted.
    Directory(PathBuf),
}

impl SharedStore {
    /// Returns the part of it that belongs to a cluster.
    #[must_use]
    pub fn of_cluster(&self, cluster_id: &str) -> Self {
        let Self::Directory(root) = self;
        Self::Directory(root.join(cluster_id))
    }

    /// Copies an announced snapshot of `dir` into the folder of this member, and removes older ones there beyond the
    /// newest `kept`. One that is there already is not copied again.
    pub fn share(
        &self,
        dir: &Path,
        log: LogId,
        member: &str,
        last: SequenceId,
        kept: usize,
    ) -> Result<(), FileError> {
        let Self::Directory(root) = self;
        let folder = root.join(log.to_string()).join(format!("{MEMBER}{member}"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|source| files::io(&folder, source))?;
        let (from, to) = (files::file(dir, last), files::file(&folder, last));
        background::run(|| {
            let newer = list(&folder)?.into_iter().filter(|(other, _)| *other > last).count();
            if newer >= kept.max(1) {
                // It would be removed again at once. The next snapshot is newer than all of them.
                return Err(files::io(&to, io::ErrorKind::AlreadyExists.into()));
            }
            if check_bytes(&to).is_err() {
                copy(&from, &to)?;
            }
            files::prune(&folder, kept.max(1))
        })
    }

    /// Reads back the copy that a member has written, with all of its checksums, and returns its header.
    ///
    /// # Errors
    ///
    /// If it is not there, cannot be read, or is damaged.
    pub fn read_back(&self, log: LogId, member: &str, last: SequenceId) -> Result<Header, FileError> {
        let Self::Directory(root) = self;
        let folder = root.join(log.to_string()).join(format!("{MEMBER}{member}"));
        if member.contains('/') {
            // The name is what another process has written to etcd.
            return Err(files::io(&folder, io::ErrorKind::InvalidInput.into()));
        }
        let path = files::file(&folder, last);
        let header = background::run(|| check_bytes(&path))?;
        if header.at.last == last && header.at.log == log {
            Ok(header)
        } else {
            Err(FileError::Wrong { path, why: FormatError::Header })
        }
    }

    /// Returns the snapshots of this log, newest first.
    #[must_use]
    pub fn newest(&self, log: LogId) -> Vec<(SequenceId, PathBuf)> {
        let Self::Directory(root) = self;
        let folder = root.join(log.to_string());
        let members = match fs::read_dir(&folder) {
            Ok(members) => members,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, path = %folder.display(), "cannot read the shared snapshots");
                }
                return Vec::new();
            }
        };
        let is_member =
            |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|it| it.starts_with(MEMBER));
        let mut all = Vec::new();
        for member in members.flatten().filter(is_member) {
            match list(&member.path()) {
                Ok(found) => all.extend(found.into_iter().take(MAX_TRIED)),
                Err(error) => tracing::warn!(%error, "cannot read the shared snapshots of a member"),
            }
        }
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.truncate(MAX_TRIED);
        all
    }
}

/// Copies a snapshot under a temporary name, reads it back, and gives it its name.
fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    let partial = files::partial(to);
    let copied = copy_to(from, &partial);
    if copied.is_err() {
        // If it cannot be removed, it does no harm: no master reads a file with this suffix.
        let _ = fs::remove_file(&partial);
    }
    copied?;
    fs::rename(&partial, to).map_err(|source| files::io(to, source))?;
    match to.parent() {
        Some(folder) => files::sync_dir(folder),
        None => Ok(()),
    }
}

fn copy_to(from: &Path, partial: &Path) -> Result<(), FileError> {
    let mut source = File::open(from).map_err(|source| files::io(from, source))?;
    // The remains of an earlier attempt may have other permissions.
    files::remove(partial)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial);
    let mut file = file.map_err(|source| files::io(partial, source))?;
    io::copy(&mut source, &mut file).map_err(|source| files::io(partial, source))?;
    file.sync_all().map_err(|source| files::io(partial, source))?;
    drop(file);
    let (copied, original) = (check_bytes(partial)?, header(from)?);
    if copied == original {
        Ok(())
    } else {
        Err(FileError::Wrong { path: partial.into(), why: FormatError::Header })
    }
}
