//! The file of a store: entries one after the other, each with its length and checksums. Every change that was answered
//! is on disk; an incomplete entry at the end was not answered and is cut off. Any other damage stops the store from
//! being opened: acknowledged entries may follow it. When much of the file is superfluous, a new file is written beside
//! it and renamed over it; until then a failure of that changes nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::coordination::embedded::codec::{DecodeError, decode};
use crate::coordination::embedded::frames::{HEADER_BYTES, Next, find, frame, next};
use crate::coordination::embedded::rewrite::Rewrite;
use crate::coordination::embedded::steps::{Step, reach};
use crate::coordination::model::Model;
use crate::coordination::model::entries::Entry;

/// The first bytes of the file: a name, and the version of the format.
const MAGIC: &[u8; 8] = b"MKSTORE\x02";

const NAME: &str = "store.log";
const NEW_NAME: &str = "store.log.new";
const LOCK_NAME: &str = "store.lock";

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system returned an error.
    #[error("{path}: {why}")]
    Io {
        /// The file or folder that was accessed.
        path: PathBuf,
        why: io::Error,
    },
    /// Another process has the store open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// The file does not begin with the name that every version writes.
    #[error("{0} is not a file of the embedded store")]
    Foreign(PathBuf),
    /// The file has the layout of another version.
    #[error(
        "{path} has format {format}, and this version reads format {own} alone: \
         start with another folder, or with the version that wrote it", own = MAGIC[7]
    )]
    Format { path: PathBuf, format: u8 },
    /// Bytes in the middle of the file are not what was written.
    #[error("{path} is damaged at byte {at}: {why}")]
    Damaged { path: PathBuf, at: u64, why: String },
}

/// The file of a store.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    file: File,
    bytes: u64,
    /// The new file that is being written.
    rewrite: Option<Rewrite>,
    /// Why the last rewrite failed, and the size from which on the next one is due.
    failure: Option<(String, u64)>,
    /// Held for as long as the store is open.
    lock: File,
}

impl Journal {
    /// Opens the file in a folder, or creates it, and passes its entries to `take`.
    pub(super) fn open(
        folder: &Path,
        mut take: impl FnMut(Entry) -> Result<(), String>,
    ) -> Result<Self, JournalError> {
        std::fs::create_dir_all(folder).map_err(io_error(folder))?;
        let lock = lock(folder)?;
        remove_unfinished(folder)?;
        let path = folder.join(NAME);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(io_error(&path))?;
        let bytes = match file.metadata().map_err(io_error(&path))?.len() {
            // New, or created by a process that ended before it wrote anything.
            length if length < MAGIC.len() as u64 => start(&mut file, folder).map_err(io_error(&path))?,
            length => {
                let end = read(&mut file, length, &path, &mut take)?;
                if end < length {
                    tracing::warn!(path = %path.display(), cut = length - end, "cut off an entry that was half written");
                    file.set_len(end).and_then(|()| file.sync_all()).map_err(io_error(&path))?;
                }
                end
            }
        };
        file.seek(SeekFrom::Start(bytes)).map_err(io_error(&path))?;
        Ok(Self { folder: folder.to_owned(), file, bytes, rewrite: None, failure: None, lock })
    }

    /// Returns the size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends entries; they are on disk when this returns. Returns their bytes. After an error it is unknown what is on
    /// disk.
    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<u64> {
        let mut bytes = Vec::new();
        for entry in entries {
            frame(entry, &mut bytes)?;
        }
        reach(Step::Appending)?;
        self.file.write_all(&bytes)?;
        reach(Step::Appended)?;
        self.file.sync_data()?;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len() as u64)
    }

    /// Returns whether a new file is being written. Until it is complete the history must not discard anything.
    pub(super) fn is_rewriting(&self) -> bool {
        self.rewrite.is_some()
    }

    /// Returns why the last rewrite failed, and the size from which on the next one is due.
    pub(super) fn failure(&self) -> Option<&(String, u64)> {
        self.failure.as_ref()
    }

    /// Begins to write a new file with what the model needs.
    pub(super) fn begin_rewrite(&mut self, model: &Model, retry_bytes: u64) {
        self.failure = None;
        match Rewrite::begin(self.folder.join(NEW_NAME), MAGIC, model, self.bytes) {
            Ok(rewrite) => self.rewrite = Some(rewrite),
            Err(why) => self.give_up(&why, retry_bytes),
        }
    }

    /// Writes about this many bytes of the new file, and replaces the old one when it is complete. If that fails the old
    /// file is as good as before; only after an error that this returns it is unknown what is on disk.
    pub(super) fn go_on(&mut self, model: &Model, bytes: u64, retry_bytes: u64) -> io::Result<()> {
        let Some(rewrite) = &mut self.rewrite else { return Ok(()) };
        let replaced = match rewrite.step(&self.file, self.bytes, model, bytes) {
            Ok(false) => return Ok(()),
            Ok(true) => self.rewrite.take().map(|rewrite| rewrite.replace(&self.folder.join(NAME))),
            Err(why) => Some(Err(why)),
        };
        match replaced {
            None => return Ok(()),
            Some(Err(why)) => {
                self.give_up(&why, retry_bytes);
                return Ok(());
            }
            Some(Ok((file, bytes))) => (self.file, self.bytes) = (file, bytes),
        }
        // Without this the old file may be back after a loss of power, without what is appended from now on.
        reach(Step::Renamed)?;
        File::open(&self.folder)?.sync_all()?;
        reach(Step::Replaced)
    }

    fn give_up(&mut self, why: &io::Error, retry_bytes: u64) {
        let path = self.folder.join(NEW_NAME);
        tracing::warn!(
            path = %path.display(), error = %why, bytes = self.bytes,
            "the embedded store cannot rewrite its file, which goes on growing; tried again when it has grown further"
        );
        self.rewrite = None;
        self.failure = Some((format!("{}: {why}", path.display()), self.bytes.saturating_add(retry_bytes)));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Not left to closing the file: a child process that is just being forked has it open, too, until it calls
        // exec.
        _ = self.lock.unlock();
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |why| JournalError::Io { path, why }
}

fn lock(folder: &Path) -> Result<File, JournalError> {
    let path = folder.join(LOCK_NAME);
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(io_error(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse(folder.to_owned())),
        Err(TryLockError::Error(why)) => Err(JournalError::Io { path, why }),
    }
}

/// Removes the new file that a process left behind that ended while it wrote it.
fn remove_unfinished(folder: &Path) -> Result<(), JournalError> {
    let path = folder.join(NEW_NAME);
    match std::fs::remove_file(&path) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "removed a file of the embedded store that was not complete")
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(JournalError::Io { path, why }),
    }
    Ok(())
}

fn start(file: &mut File, folder: &Path) -> io::Result<u64> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(MAGIC)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(MAGIC.len() as u64)
}

/// Passes all entries to `take`. Returns the offset at which the last complete one ends.
fn read(
    file: &mut File,
    length: u64,
    path: &Path,
    take: &mut impl FnMut(Entry) -> Result<(), String>,
) -> Result<u64, JournalError> {
    let damaged = |at: u64, why: String| JournalError::Damaged { path: path.to_owned(), at, why };
    let mut reader = BufReader::new(file);
    let mut magic = [0; MAGIC.len()];
    reader.read_exact(&mut magic).map_err(io_error(path))?;
    if magic[..7] != MAGIC[..7] {
        return Err(JournalError::Foreign(path.to_owned()));
    }
    if magic[7] != MAGIC[7] {
        return Err(JournalError::Format { path: path.to_owned(), format: magic[7] });
    }
    let mut at = MAGIC.len() as u64;
    loop {
        let payload = match next(&mut reader, at, length).map_err(io_error(path))? {
            Next::Entry(payload) => payload,
            Next::End => return Ok(at),
            // A process that is killed leaves its last entry half written, with nothing after it.
            Next::Torn | Next::Altered => match find(&mut reader, at + 1).map_err(io_error(path))? {
                None => return Ok(at),
                // A later entry shows that this one was complete once, so its write was acknowledged.
                Some(other) => {
                    return Err(damaged(
                        at,
                        format!("an entry is not whole, but another one begins at byte {other}"),
                    ));
                }
            },
            Next::Damaged => return Err(damaged(at, "the length of an entry is wrong".to_owned())),
        };
        let bytes = HEADER_BYTES + payload.len() as u64;
        let entry = decode(payload).map_err(|error: DecodeError| damaged(at, error.to_string()))?;
        take(entry).map_err(|why| damaged(at, why))?;
        at += bytes;
    }
}
