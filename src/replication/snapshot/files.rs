//! Snapshot files in a directory, named by the sequence id of their last record.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::background;
use super::format::{check_from, header_from, read_from, walk};
use super::writing::write_to;
use super::{Capture, FileError, FormatError, Header, Progress};
use crate::engine::settings::EngineSettings;
use crate::engine::types::SequenceId;
use crate::engine::{Engine, Log};

const SUFFIX: &str = ".snapshot";
/// Added to the name of a file until it is complete.
const PARTIAL: &str = ".partial";
/// Added to the name of a complete file until it is announced.
const PENDING: &str = ".pending";

/// A snapshot that was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub path: PathBuf,
    pub header: Header,
    /// Size of the file.
    pub bytes: u64,
    /// How many objects it has.
    pub objects: u64,
}

/// A snapshot that was read and found to be undamaged.
#[derive(Clone, Debug)]
pub struct Found {
    pub path: PathBuf,
    pub header: Header,
}

/// Writes a snapshot that has begun to a new file in `dir`, which is created if it does not exist. Only their owner can
/// read them: they hold the keys of all objects.
pub fn write(dir: &Path, capture: Capture, progress: &Progress) -> Result<Written, FileError> {
    write_as("", dir, capture, progress)
}

/// Writes a snapshot as [`write()`] does, under a name that no master starts from until the file is announced.
pub fn write_pending(dir: &Path, capture: Capture, progress: &Progress) -> Result<Written, FileError> {
    write_as(PENDING, dir, capture, progress)
}

/// Announces a pending snapshot: from here on a master may start from it. An existing file is not overwritten.
pub fn announce(dir: &Path, last: SequenceId) -> Result<(), FileError> {
    let path = file(dir, last);
    let pending = with_suffix(&path, PENDING);
    if path.exists() {
        return Err(io(&path, ErrorKind::AlreadyExists.into()));
    }
    fs::rename(&pending, &path).map_err(|source| io(&path, source))?;
    sync_dir(dir)
}

/// Removes a pending snapshot, if there is one.
pub fn discard(dir: &Path, last: SequenceId) -> Result<(), FileError> {
    remove(&with_suffix(&file(dir, last), PENDING))
}

/// Removes a snapshot, if there is one.
pub fn forget(dir: &Path, last: SequenceId) -> Result<(), FileError> {
    remove(&file(dir, last))
}

/// Removes files that were never announced, as an earlier process left them.
pub fn tidy(dir: &Path) -> Result<(), FileError> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let unfinished = [PARTIAL, PENDING].map(|suffix| format!("{SUFFIX}{suffix}"));
    for entry in entries.flatten() {
        let is_unfinished = |name: &str| unfinished.iter().any(|end| name.ends_with(end.as_str()));
        if entry.file_name().to_str().is_some_and(is_unfinished) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(io(path, source)),
        _ => Ok(()),
    }
}

pub(super) fn file(dir: &Path, last: SequenceId) -> PathBuf {
    dir.join(format!("{:020}{SUFFIX}", last.0))
}

fn write_as(suffix: &str, dir: &Path, capture: Capture, progress: &Progress) -> Result<Written, FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| io(dir, source))?;
    let (header, objects) = (capture.header(), capture.objects());
    let name = file(dir, header.at.last);
    let (path, partial) = (with_suffix(&name, suffix), with_suffix(&name, PARTIAL));
    let written = write_partial(&partial, capture, progress);
    if written.is_err() {
        // If it cannot be removed, it does no harm: readers ignore files with this suffix, and `prune` removes them.
        let _ = fs::remove_file(&partial);
    }
    let bytes = written?;
    fs::rename(&partial, &path).map_err(|source| io(&path, source))?;
    sync_dir(dir)?;
    Ok(Written { path, header, bytes, objects })
}

/// Returns the size of the file.
fn write_partial(partial: &Path, capture: Capture, progress: &Progress) -> Result<u64, FileError> {
    let wrong = |why| match why {
        FormatError::GivenUp(why) => FileError::GivenUp(why),
        FormatError::Io(source) => io(partial, source),
        why => FileError::Wrong { path: partial.into(), why },
    };
    // The remains of an earlier attempt may have other permissions.
    remove(partial)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial);
    let file = file.map_err(|source| io(partial, source))?;
    let mut out = BufWriter::new(&file);
    let header = write_to(&mut out, capture, progress).map_err(wrong)?;
    drop(out);
    file.sync_all().map_err(|source| io(partial, source))?;
    // Read back from the file, so that a damaged snapshot never gets its final name.
    let read_back = background::run(|| check(partial))?;
    if read_back != header {
        return Err(wrong(FormatError::Header));
    }
    Ok(file.metadata().map_err(|source| io(partial, source))?.len())
}

/// Reads the header of a file. It says nothing about the rest.
pub fn header(path: &Path) -> Result<Header, FileError> {
    header_from(&mut open(path)?).map_err(|why| FileError::Wrong { path: path.into(), why })
}

/// Reads a file to its end, checks that it is complete and undamaged, and computes the digest of the state in it.
pub fn check(path: &Path) -> Result<Header, FileError> {
    check_from(&mut open(path)?).map_err(|why| FileError::Wrong { path: path.into(), why })
}

/// Reads a file to its end and checks that it is complete and undamaged, by its checksums alone. That is much cheaper
/// than [`check`], and enough for a file that was read back when it was written.
pub fn check_bytes(path: &Path) -> Result<Header, FileError> {
    walk(&mut open(path)?, |_, _| Ok(())).map_err(|why| FileError::Wrong { path: path.into(), why })
}

/// Reads a file into a new engine whose later records go to `log`.
pub fn restore(
    path: &Path,
    settings: EngineSettings,
    log: Option<Box<dyn Log>>,
) -> Result<(Header, Engine), FileError> {
    read_from(&mut open(path)?, settings, log).map_err(|why| FileError::Wrong { path: path.into(), why })
}

/// Returns the snapshots of a directory with their last record, newest first, damaged ones included. Empty if there is
/// no directory.
pub fn list(dir: &Path) -> Result<Vec<(SequenceId, PathBuf)>, FileError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(io(dir, source)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| io(dir, source))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        let number = number.filter(|digits| digits.len() == 20).and_then(|digits| digits.parse().ok());
        all.extend(number.map(|number| (SequenceId(number), entry.path())));
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    Ok(all)
}

/// Returns the newest undamaged snapshot, by its checksums. Passes the error of each damaged one to `refused`.
pub fn newest_good(dir: &Path, mut refused: impl FnMut(FileError)) -> Result<Option<Found>, FileError> {
    for (number, path) in list(dir)? {
        match check_bytes(&path) {
            Ok(header) if header.at.last == number => return Ok(Some(Found { path, header })),
            Ok(header) => {
                let why = FormatError::Position { found: header.at.last, said: number };
                refused(FileError::Wrong { path, why });
            }
            Err(error) => refused(error),
        }
    }
    Ok(None)
}

/// Removes all snapshots but the newest `keep`, and the remains of those that were never finished.
pub fn prune(dir: &Path, keep: usize) -> Result<(), FileError> {
    for (_, path) in list(dir)?.into_iter().skip(keep) {
        remove(&path)?;
    }
    tidy(dir)
}

fn open(path: &Path) -> Result<BufReader<File>, FileError> {
    let file = File::open(path).map_err(|source| io(path, source))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

/// Writes a directory to disk: a renamed file is durable only when its directory is, too.
pub(super) fn sync_dir(dir: &Path) -> Result<(), FileError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|source| io(dir, source))
}

/// Returns the name that a file has until it is complete.
pub(super) fn partial(path: &Path) -> PathBuf {
    with_suffix(path, PARTIAL)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn io(path: &Path, source: std::io::Error) -> FileError {
    FileError::Io { path: path.into(), source }
}
