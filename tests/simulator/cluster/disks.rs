//! The directories of snapshots: files that outlive a process, and what happens to them while none runs. When a snapshot
//! is taken, confirmed and given up is decided by the code of the master; here is only what carries it out, and what must
//! hold: an announced snapshot is what the log says, and no master takes a file for the log that is not.

use std::cmp::Reverse;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use moonkeeper::cluster::log_end::{History, Latest, LogId};
use moonkeeper::cluster::snapshot::HeldSnapshot;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::{Input, RestoreId, SnapshotId, SnapshotJob, SnapshotPolicy, shared_kept};
use moonkeeper::replication::snapshot::{
    Capture, Header, Origin, Progress, Restored, Wanted, begin, describe, read_from, unusable, write_to,
};

use super::corruption::Corruption;
use super::masters::leads;
use super::plan::{Focus, MS, SECOND};
use super::rng::Rng;
use super::{Event, Sim};

/// A file.
pub struct File {
    header: Header,
    held: HeldSnapshot,
    bytes: Vec<u8>,
    announced: bool,
    /// A primary took it.
    of_primary: bool,
    /// No master wrote it.
    forged: bool,
    /// If its state is not what the log says: the digest in the log that shows it.
    shown_by: Option<SequenceId>,
}

/// What a seed decides about snapshots, from a source of random numbers of its own.
pub struct Disks {
    rng: Rng,
    /// Masters with a data directory have snapshots in it. Seeds about other things are what they would be without.
    used: bool,
    interval: Option<Duration>,
    kept: usize,
    /// There is storage that all masters share.
    has_store: bool,
    /// Directories outlive the machines of their masters.
    durable: bool,
    /// What is in the shared storage.
    shared: Vec<Shared>,
}

/// A copy in the shared storage.
struct Shared {
    /// The master that wrote it.
    by: usize,
    header: Header,
    bytes: Vec<u8>,
    /// Another master has read it back.
    proven: bool,
    /// When it was removed.
    removed: Option<u64>,
    /// If its state is not what the log says: the digest in the log that shows it.
    shown_by: Option<SequenceId>,
}

impl Disks {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6469_736b_7300_0000);
        let interval = rng.percent(85).then(|| Duration::from_millis(500 + rng.below(5_000)));
        let used = matches!(Focus::of(seed), Focus::Everything | Focus::Log);
        let kept = 1 + rng.below(3) as usize;
        let (has_store, durable) = (rng.percent(50), rng.percent(75));
        Self { used, interval, kept, has_store, durable, shared: Vec::new(), rng }
    }
}

impl Disks {
    /// Whether there is storage that all masters share.
    pub fn has_store(&self) -> bool {
        self.has_store
    }

    /// Whether directories outlive the machines of their masters.
    pub fn is_durable(&self) -> bool {
        self.durable
    }

    /// The copies that were in the shared storage lately, as old as what a primary knows from member keys: who wrote
    /// each, its last record, and whether another master has read it back.
    pub fn shared(&self, now: u64) -> impl Iterator<Item = (usize, SequenceId, bool)> + '_ {
        let is_there = move |copy: &&Shared| copy.removed.is_none_or(|at| at + 10 * SECOND > now);
        self.shared.iter().filter(is_there).map(|copy| (copy.by, copy.header.at.last, copy.proven))
    }
}

impl Sim {
    /// The last records of the snapshots that a master has announced and still has. One that was damaged since counts:
    /// that is what the other copies are for.
    pub fn announced_files(&self, index: usize) -> Vec<SequenceId> {
        let files = self.masters[index].files.iter();
        files.filter(|file| file.announced && !file.forged).map(|file| file.header.at.last).collect()
    }

    /// A snapshot is copied to the shared storage, and what is not kept there any longer is removed.
    pub fn share_snapshot(&mut self, index: usize, log: LogId, last: SequenceId) {
        let failed = self.disks.rng.percent(5);
        let of = |file: &&File| file.announced && file.header.at.log == log && file.header.at.last == last;
        let file = self.masters[index]
            .files
            .iter()
            .find(of)
            .map(|file| (file.header, file.bytes.clone(), file.shown_by));
        let result = match file {
            _ if failed => Err("stale file handle".to_owned()),
            None => Err("no such file".to_owned()),
            Some((header, bytes, shown_by)) => {
                let kept = shared_kept(self.disks.kept);
                let shared = &mut self.disks.shared;
                let mut own: Vec<&mut Shared> =
                    shared.iter_mut().filter(|copy| copy.by == index && copy.removed.is_none()).collect();
                own.sort_unstable_by_key(|copy| Reverse(copy.header.at.last));
                if own.iter().filter(|copy| copy.header.at.last > last).count() >= kept {
                    let result = Err("newer ones are there".to_owned());
                    return self.input(index, Input::SnapshotShared { last, result });
                }
                if !own.iter().any(|copy| copy.header.at.last == last) {
                    own.into_iter().skip(kept - 1).for_each(|copy| copy.removed = Some(self.now));
                    shared.push(Shared { by: index, header, bytes, proven: false, removed: None, shown_by });
                }
                note!(self, "m{index} shares the snapshot of {}", last.0);
                Ok(())
            }
        };
        self.input(index, Input::SnapshotShared { last, result });
    }

    /// A copy of another master is read back.
    pub fn prove_copy(&mut self, index: usize, log: LogId, last: SequenceId, by: String) {
        let failed = self.disks.rng.percent(5);
        let writer = self.masters.iter().position(|master| master.name == by);
        let of = |copy: &&mut Shared| {
            Some(copy.by) == writer
                && copy.removed.is_none()
                && copy.header.at.log == log
                && copy.header.at.last == last
        };
        let result = match self.disks.shared.iter_mut().find(of) {
            Some(copy) if !failed && copy.by != index => {
                copy.proven = true;
                Ok(format!("{:016x}", copy.header.digest.0))
            }
            _ => Err("it cannot be read".to_owned()),
        };
        self.input(index, Input::SnapshotProven { last, by, result });
    }

    /// The newest snapshot in its directory that a running master wants is read.
    pub fn read_snapshot(&mut self, index: usize, id: RestoreId, wanted: &Wanted, history: Option<History>) {
        let files = &self.masters[index].files;
        let mut suitable: Vec<&File> = files
            .iter()
            .filter(|file| file.announced && file.header.at.log == wanted.log)
            .filter(|file| {
                wanted.accepts(file.header.at.last) && unusable(&file.header.at, history.as_ref()).is_none()
            })
            .collect();
        suitable.sort_by_key(|file| Reverse(file.header.at.last));
        let own = suitable.into_iter().map(|file| (file.header.at, &file.bytes, file.shown_by));
        let mut copies: Vec<&Shared> = self
            .disks
            .shared
            .iter()
            .filter(|copy| {
                copy.removed.is_none()
                    && copy.header.at.log == wanted.log
                    && wanted.accepts(copy.header.at.last)
                    && unusable(&copy.header.at, history.as_ref()).is_none()
            })
            .collect();
        copies.sort_by_key(|copy| Reverse(copy.header.at.last));
        let copies = copies.into_iter().map(|copy| (copy.header.at, &copy.bytes, copy.shown_by));
        let read = own.chain(copies).find_map(|(at, bytes, shown_by)| {
            let settings = self.plan.settings.clone();
            let incarnation = Incarnation::restore(self.plan.queue_bytes, |log| {
                read_from(&mut &bytes[..], settings, Some(log)).map(|(_, engine)| engine)
            });
            Some((incarnation.ok()?, at, shown_by))
        });
        let restored = read.map(|(incarnation, at, shown_by)| {
            note!(self, "m{index} continues from the snapshot of {}", at.last.0);
            self.counts.restored += 1;
            if let Some(shown_by) = shown_by {
                self.masters[index].corruption = Some(Corruption::of_snapshot(&incarnation, shown_by));
            }
            Restored { incarnation, at }
        });
        self.input(index, Input::SnapshotRestored { id, restored });
    }

    /// What a process finds in its directory when it starts, and the digest in the log that shows that the state which
    /// it starts from is wrong, if it is.
    pub fn read_disk(
        &mut self,
        index: usize,
        history: Option<History>,
    ) -> Option<(SnapshotPolicy, Option<SequenceId>)> {
        if !self.plan.data_dir || !self.disks.used {
            return None;
        }
        if !self.disks.durable && self.disks.rng.percent(50) {
            // Another machine.
            self.masters[index].files.clear();
        }
        self.tamper(index);
        let mut files = std::mem::take(&mut self.masters[index].files);
        // What was never announced is removed.
        files.retain(|file| file.announced);
        files.sort_by_key(|file| Reverse(file.header.at.last));
        let (mut origin, mut known, mut shown_by) = (Origin::default(), history, None);
        for file in &files {
            let at = file.header.at;
            if let Some(why) = unusable(&at, known.as_ref()) {
                note!(self, "m{index} skips the snapshot of {}: {why}", at.last.0);
                continue;
            }
            if origin.restored.is_none() {
                let settings = self.plan.settings.clone();
                let read = Incarnation::restore(self.plan.queue_bytes, |log| {
                    read_from(&mut &file.bytes[..], settings, Some(log)).map(|(_, engine)| engine)
                });
                let incarnation = match read {
                    Ok(incarnation) => incarnation,
                    Err(why) => {
                        note!(self, "m{index} skips the snapshot of {}: {why}", at.last.0);
                        continue;
                    }
                };
                note!(self, "m{index} starts from the snapshot of {}", at.last.0);
                if history.is_some_and(|history| history.0.log != at.log) {
                    self.fail(("snapshot", format!("m{index} starts from {at:?}, it knows {history:?}")));
                }
                self.counts.snapshot_starts += 1;
                shown_by = file.shown_by;
                origin.restored = Some(Restored { incarnation, at });
            }
            known = History::newer(known, Some(History(at)));
            origin.held.push(file.held.clone());
        }
        self.masters[index].files = files;
        let (interval, kept) = (self.disks.interval, self.disks.kept);
        let (durable, has_store) = (self.disks.durable, self.disks.has_store);
        Some((SnapshotPolicy { interval, kept, durable, has_store, origin }, shown_by))
    }

    /// What the role of a master wants to be done in its directory.
    pub fn snapshot_job(&mut self, index: usize, job: SnapshotJob) {
        let to = self.process(index);
        match job {
            SnapshotJob::Write { id, capture, progress } => {
                let delay = 5 * MS + self.disks.rng.below(3 * SECOND / 2);
                let of_primary = self.masters[index].node.as_ref().is_some_and(|node| leads(node.brief().0));
                self.after(delay, Event::SnapshotWrite { to, id, capture, progress, of_primary });
            }
            SnapshotJob::Announce { id, last, remove } => {
                self.check_announced(index, last);
                let result = if self.disks.rng.percent(4) {
                    Err("a file system that is read-only".to_owned())
                } else {
                    self.counts.snapshots += 1;
                    let of_primary = |file: &&File| file.header.at.last == last && file.of_primary;
                    let files = &self.masters[index].files;
                    self.counts.snapshots_of_primaries += files.iter().filter(of_primary).count() as u64;
                    note!(self, "m{index} announces the snapshot of {}", last.0);
                    let files = &mut self.masters[index].files;
                    files.retain(|file| !file.announced || !remove.contains(&file.header.at.last));
                    let file = files.iter_mut().find(|file| file.header.at.last == last);
                    file.into_iter().for_each(|file| file.announced = true);
                    Ok(())
                };
                let delay = self.disks.rng.below(5 * MS);
                self.after(delay, Event::SnapshotAnnounced { to, id, result });
            }
            SnapshotJob::Restore { id, wanted, history } => {
                let delay = 5 * MS + self.disks.rng.below(SECOND / 2);
                self.after(delay, Event::SnapshotRead { to, id, wanted, history });
            }
            SnapshotJob::Share { last, .. } | SnapshotJob::Prove { last, .. } if !self.disks.has_store => {
                self.fail(("snapshot", format!("m{index} shares {last:?}, and there is no shared storage")));
            }
            SnapshotJob::Share { log, last } => {
                let delay = 5 * MS + self.disks.rng.below(SECOND / 2);
                self.after(delay, Event::SnapshotShare { to, log, last });
            }
            SnapshotJob::Prove { log, last, by } => {
                let delay = 5 * MS + self.disks.rng.below(SECOND / 2);
                self.after(delay, Event::SnapshotProve { to, log, last, by });
            }
            SnapshotJob::Discard { last } => {
                self.masters[index].files.retain(|file| file.announced || file.header.at.last != last);
            }
        }
    }

    /// A snapshot has been written.
    pub fn write_snapshot(
        &mut self,
        index: usize,
        id: SnapshotId,
        capture: Capture,
        progress: &Progress,
        of_primary: bool,
    ) {
        let (mut bytes, objects) = (Vec::new(), capture.objects());
        let result = if self.disks.rng.percent(4) {
            Err("no space left on device".to_owned())
        } else {
            write_to(&mut bytes, capture, progress).map_err(|why| why.to_string())
        };
        let result = result.map(|header| {
            let held = describe(&header, bytes.len() as u64, Some(objects), self.now / MS);
            let file = File {
                header,
                held: held.clone(),
                bytes,
                announced: false,
                of_primary,
                forged: false,
                shown_by: None,
            };
            self.masters[index].files.push(file);
            held
        });
        self.input(index, Input::SnapshotWritten { id, result });
    }

    /// A snapshot is announced: it is what the log says, the log has a digest after it, and a standby has not become the
    /// primary, whose digests are its own.
    fn check_announced(&mut self, index: usize, last: SequenceId) {
        let master = &self.masters[index];
        let Some(node) = &master.node else { return };
        let pending = master.files.iter().find(|file| !file.announced && file.header.at.last == last);
        let Some((Header { at, digest }, of_primary)) = pending.map(|file| (file.header, file.of_primary))
        else {
            return self.fail(("snapshot", format!("m{index} announces {last:?}, which is not pending")));
        };
        let (activity, applied) = (node.brief().0, node.incarnation().engine.applied());
        let batch = self.truth.batches.get(&last).map(|(header, checksum)| Latest {
            log: header.log,
            term: header.term,
            last,
            checksum: *checksum,
        });
        let shown = (Excluded(last), Unbounded);
        let shown = self.truth.digests.range(shown).next().is_some_and(|digest| *digest <= applied);
        let what = if leads(activity) != of_primary {
            "and leads only now, or no longer"
        } else if batch != Some(at) || self.truth.digest_at(last) != Some(digest) {
            "which is not what the log says"
        } else if !shown {
            "which no digest has shown"
        } else {
            return;
        };
        self.fail(("snapshot", format!("m{index} at {applied:?} announces {at:?}, {what}")));
    }

    /// What happens to a directory while no process uses it: a damaged file, one of another log, one whose state is not
    /// what the log says.
    fn tamper(&mut self, index: usize) {
        let master = &self.masters[index];
        let newest = master.files.iter().filter(|file| file.announced && !file.forged);
        let Some(newest) = newest.max_by_key(|file| file.header.at.last) else { return };
        let knows_log = master.saved.is_some();
        if self.calm || !self.disks.rng.percent(80) {
            return;
        }
        let (at, bytes) = (newest.header.at, newest.bytes.clone());
        match self.disks.rng.below(4) {
            0 => {
                note!(self, "the newest snapshot of m{index} is damaged");
                let byte = self.disks.rng.below(bytes.len() as u64) as usize;
                for file in self.masters[index].files.iter_mut().filter(|file| file.header.at == at) {
                    file.bytes[byte] ^= 1;
                }
            }
            1 if knows_log => {
                let last = SequenceId(at.last.0 + 1 + self.disks.rng.below(20));
                let other = Latest { log: LogId(at.log.0 ^ 1), last, ..at };
                note!(self, "m{index} has a snapshot of another log");
                self.forge(index, &bytes, other, None);
            }
            2 | 3 => {
                let next = self.truth.batches.range((Excluded(at.last), Unbounded)).next();
                let Some((last, (header, checksum))) = next else { return };
                let shown_by = self.truth.digests.range((Excluded(*last), Unbounded)).next().copied();
                let next = Latest { log: header.log, term: header.term, last: *last, checksum: *checksum };
                if shown_by.is_some() {
                    note!(self, "m{index} has a wrong snapshot of {}", next.last.0);
                    self.forge(index, &bytes, next, shown_by);
                }
            }
            _ => return,
        }
        self.counts.tampered += 1;
        // A state that has to be built anew takes longer.
        self.watchdog.trouble(self.now + self.plan.patience());
    }

    /// A snapshot that says that it was taken after a batch, of a state that has only the number of its records.
    fn forge(&mut self, index: usize, bytes: &[u8], at: Latest, shown_by: Option<SequenceId>) {
        let Ok((_, engine)) = read_from(&mut { bytes }, self.plan.settings.clone(), None) else { return };
        let engine = Arc::new(engine);
        let mut sequencer = engine.sequencer(LogTime(0));
        while sequencer.next_id() <= at.last {
            let (next, now) = (sequencer.next_id(), sequencer.now);
            sequencer.apply(Format::NEWEST, next, now, &Record::MetadataPut { key: b"bit", value: b"1" });
        }
        drop(sequencer);
        let mut bytes = Vec::new();
        let Ok(capture) = begin(&engine, &at) else { return };
        let Ok(header) = write_to(&mut bytes, capture, &Progress::default()) else { return };
        let held = describe(&header, bytes.len() as u64, Some(engine.len()), self.now / MS);
        self.masters[index].files.push(File {
            header,
            held,
            bytes,
            announced: true,
            of_primary: false,
            forged: true,
            shown_by,
        });
    }
}
