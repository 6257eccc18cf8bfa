//! A new file that is written beside the old one, in steps between which changes are answered and appended to the old
//! one: first a checkpoint of the model, then a copy of what the old file got since. When it is complete and synced, it
//! can be renamed over the old one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::coordination::embedded::frames::frame;
use crate::coordination::embedded::steps::{Step, reach};
use crate::coordination::model::Model;
use crate::coordination::model::checkpoint::Checkpoint;
use crate::coordination::model::entries::Entry;

/// Bytes that are written at a time.
const PART_BYTES: usize = 64 << 10;

/// The new file is synced whenever so much of it was written, so that no sync takes long.
const SYNC_BYTES: u64 = 4 << 20;

/// A new file, which is removed when this is dropped before it was renamed.
#[derive(Debug)]
pub(super) struct Rewrite {
    path: PathBuf,
    file: File,
    bytes: u64,
    unsynced: u64,
    /// What is left of the checkpoint; `None` when all of it is written.
    checkpoint: Option<Checkpoint>,
    /// Bytes of the old file before this are in the checkpoint or were copied.
    copied: u64,
    renamed: bool,
}

impl Rewrite {
    /// Creates the new file, for an old one of this size.
    pub(super) fn begin(path: PathBuf, magic: &[u8], model: &Model, old_bytes: u64) -> io::Result<Self> {
        reach(Step::Creating)?;
        let file = OpenOptions::new().write(true).read(true).create(true).truncate(true).open(&path)?;
        let (checkpoint, leases) = model.checkpoint();
        let checkpoint = Some(checkpoint);
        let mut new =
            Self { path, file, bytes: 0, unsynced: 0, checkpoint, copied: old_bytes, renamed: false };
        new.write(magic)?;
        new.write(&framed(&leases)?)?;
        Ok(new)
    }

    /// Writes about this many more bytes. Returns whether it is complete and synced.
    pub(super) fn step(&mut self, old: &File, old_bytes: u64, model: &Model, bytes: u64) -> io::Result<bool> {
        let mut left = bytes;
        while left > 0 {
            let part = match &mut self.checkpoint {
                Some(checkpoint) => match checkpoint.part(model, PART_BYTES) {
                    Some(entries) => framed(&entries)?,
                    None => {
                        self.checkpoint = None;
                        continue;
                    }
                },
                None if self.copied < old_bytes => self.next_of(old, old_bytes)?,
                None => {
                    self.sync()?;
                    return Ok(true);
                }
            };
            self.write(&part)?;
            // Keys that were looked through without finding any take time as well.
            left = left.saturating_sub(part.len().max(PART_BYTES) as u64);
        }
        Ok(false)
    }

    /// Reads what is to be copied next of the old file.
    fn next_of(&mut self, old: &File, old_bytes: u64) -> io::Result<Vec<u8>> {
        let left = usize::try_from(old_bytes - self.copied).unwrap_or(usize::MAX);
        let mut part = vec![0; left.min(PART_BYTES)];
        old.read_exact_at(&mut part, self.copied)?;
        self.copied += part.len() as u64;
        Ok(part)
    }

    fn write(&mut self, part: &[u8]) -> io::Result<()> {
        reach(Step::Writing)?;
        self.file.write_all(part)?;
        self.bytes += part.len() as u64;
        self.unsynced += part.len() as u64;
        if self.unsynced >= SYNC_BYTES { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        reach(Step::Syncing)?;
        self.file.sync_all()?;
        self.unsynced = 0;
        Ok(())
    }

    /// Renames the new file, which is complete and synced, over the old one. Returns it with its size.
    pub(super) fn replace(mut self, old: &Path) -> io::Result<(File, u64)> {
        // Before the rename, after which nothing may fail here.
        let file = self.file.try_clone()?;
        reach(Step::Renaming)?;
        std::fs::rename(&self.path, old)?;
        self.renamed = true;
        Ok((file, self.bytes))
    }
}

impl Drop for Rewrite {
    fn drop(&mut self) {
        if !self.renamed {
            // A file that cannot be removed now is removed when the store is opened.
            _ = std::fs::remove_file(&self.path);
        }
    }
}

fn framed(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    entries.iter().try_for_each(|entry| frame(entry, &mut bytes))?;
    Ok(bytes)
}
