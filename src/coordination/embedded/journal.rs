//! The file of a store: entries one after the other, each with its length and checksums. Every change that was answered
//! is on disk; an incomplete entry at the end was not answered and is cut off. Any other damage stops the store from
//! being opened: acknowledged entries may follow it. When much of the file is compacted history, a new file is written
//! beside it and renamed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::coordination::embedded::codec::{DecodeError, decode};
use crate::coordination::embedded::frames::{HEADER_BYTES, Next, find, frame, next};
use crate::coordination::model::entries::Entry;

/// The first bytes of the file: a name, and the version of the format.
const MAGIC: &[u8; 8] = b"MKSTORE\x02";

/// A smaller file is not worth rewriting.
const SMALL_BYTES: u64 = 1 << 20;

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
    /// The file does not begin with the magic bytes of this version.
    #[error("{0} is not a file of the embedded store, or was written by another version")]
    Foreign(PathBuf),
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
    /// Its size after the last rewrite; zero if there was none since it was opened.
    bytes_of_state: u64,
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
        Ok(Self { folder: folder.to_owned(), file, bytes, bytes_of_state: 0, lock })
    }

    /// Appends entries; they are on disk when this returns. After an error it is unknown what is on disk.
    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in entries {
            frame(entry, &mut bytes)?;
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns whether the file has more than doubled since its last rewrite, so that another one is worthwhile.
    pub(super) fn is_large(&self) -> bool {
        self.bytes > SMALL_BYTES && self.bytes / 2 > self.bytes_of_state
    }

    /// Replaces the file by a new one with these entries.
    pub(super) fn rewrite(&mut self, entries: impl Iterator<Item = Entry>) -> io::Result<()> {
        let path = self.folder.join(NEW_NAME);
        let file = OpenOptions::new().write(true).read(true).create(true).truncate(true).open(&path)?;
        let mut writer = BufWriter::new(file);
        writer.write_all(MAGIC)?;
        let mut written = MAGIC.len() as u64;
        let mut bytes = Vec::new();
        for entry in entries {
            bytes.clear();
            frame(&entry, &mut bytes)?;
            writer.write_all(&bytes)?;
            written += bytes.len() as u64;
        }
        let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        std::fs::rename(&path, self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()?;
        (self.file, self.bytes, self.bytes_of_state) = (file, written, written);
        Ok(())
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
    if magic != *MAGIC {
        return Err(JournalError::Foreign(path.to_owned()));
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
