//! A store with small bounds, whose process ends at every step of writing, and whose disk fails at every step.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use crate::coordination::embedded::limits::Limits;
use crate::coordination::embedded::steps::{Step, during};
use crate::coordination::embedded::store::{Rejection, State, Store};
use crate::coordination::model::Model;
use crate::coordination::model::entries::Entry;
use crate::coordination::model::steps::{Delete, Program, Put, Refusal, Step as ModelStep};
use crate::coordination::types::{KeyRange, KeyValue, LeaseId};

/// Small enough that everything happens often, with parts that do not hold the whole state.
fn limits() -> Limits {
    Limits {
        revisions: 30,
        more_revisions: 5,
        superseded_bytes: 100_000,
        superfluous_bytes: (20_000, 400_000),
        step_bytes: 1,
        retry_bytes: 30_000,
    }
}

/// A folder that is gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).unwrap();
        let path = std::env::temp_dir().join(format!("moonkeeper-store-{:016x}", u64::from_le_bytes(random)));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("store.log")
    }

    fn unfinished(&self) -> PathBuf {
        self.0.join("store.log.new")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All that a client can see of a model, but the time that leases have left.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    revision: u64,
    compacted: u64,
    keys: Vec<KeyValue>,
    keys_at_compacted: Vec<KeyValue>,
    revisions: Vec<Entry>,
    leases: Vec<(LeaseId, i64, Vec<Bytes>)>,
}

fn seen(model: &Model) -> Seen {
    let (revision, compacted) = (model.revision(), model.compacted());
    let all = KeyRange::between(Bytes::from_static(&[0]), Bytes::from_static(&[0]));
    let leases = model.leases().ids().filter_map(|id| {
        let lease = model.leases().get(id)?;
        Some((id, lease.ttl_seconds, lease.keys.iter().cloned().collect()))
    });
    Seen {
        revision,
        compacted,
        keys: model.history().entries(&all).cloned().collect(),
        keys_at_compacted: model.history().entries_at(&all, compacted).cloned().collect(),
        revisions: (compacted.max(1)..=revision).map(|revision| model.revision_entry(revision)).collect(),
        leases: leases.collect(),
    }
}

fn open(folder: &Path) -> Store {
    Store::open_within(Some(folder), limits()).unwrap()
}

fn reopened(folder: &Path) -> Seen {
    open(folder).look(seen).unwrap()
}

/// Writes things that hit each other: keys that are overwritten and deleted, some with leases that end, compactions.
struct Writer {
    random: u64,
    leases: Vec<LeaseId>,
}

impl Writer {
    fn new() -> Self {
        Self { random: 0, leases: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn key(&mut self) -> Bytes {
        format!("k/{:02}", self.below(60)).into()
    }

    fn put(&mut self) -> Program {
        let leases = self.leases.len() as u64;
        let lease = match self.below(leases + 5) {
            index if index < leases => self.leases[index as usize],
            _ => LeaseId::default(),
        };
        let value = vec![b'v'; self.below(6000) as usize].into();
        let put = Put { key: self.key(), value: Some(value), lease: Some(lease), previous: false };
        program(ModelStep::Put(put))
    }

    /// Makes one random change.
    fn change(&mut self, store: &Store) -> Result<(), Rejection> {
        match self.below(20) {
            0 => {
                let granted =
                    store.shared.change(|state, now| state.grant(now, LeaseId::default(), 1_000_000))?;
                self.leases.push(granted.0);
            }
            1 if self.leases.len() > 3 => {
                let lease = self.leases.remove(0);
                store.shared.change(move |state, _| state.revoke(lease))?;
            }
            2 | 3 => {
                let range = KeyRange::between(self.key(), self.key());
                transact(store, program(ModelStep::Delete(Delete { range, previous: false })))?;
            }
            // Seldom, so that there are revisions between the compacted one and the newest when the file is rewritten.
            4 if self.below(8) == 0 => {
                let to = store.look(Model::revision)? - self.below(4);
                match store.shared.change(move |state, _| state.compact(to)) {
                    Err(Rejection::Refused(Refusal::Compacted)) => {}
                    other => other?,
                }
            }
            5 => store.shared.change(|_, _| Ok(()))?,
            _ => transact(store, self.put())?,
        }
        Ok(())
    }
}

fn program(step: ModelStep) -> Program {
    Program { success: vec![step], ..Program::default() }
}

fn transact(store: &Store, program: Program) -> Result<(), Rejection> {
    store.shared.change(move |state, _| state.transact(&program).map(|_| ()))
}

/// Takes steps while there is something to do.
fn settle(store: &Store) {
    for _ in 0..1000 {
        if !store.shared.change(|state, _| Ok(state.is_busy())).unwrap() {
            return;
        }
    }
    panic!("there is always something to do");
}

#[test]
fn a_process_may_end_at_every_step() {
    let (folder, images) = (Folder::new(), Folder::new());
    let store = open(&folder.0);
    let taken: Rc<RefCell<Vec<Step>>> = Rc::default();
    let _hook = {
        let (taken, from, to) = (Rc::clone(&taken), folder.0.clone(), images.0.clone());
        during(move |step| {
            let image = to.join(taken.borrow().len().to_string());
            std::fs::create_dir(&image)?;
            for file in std::fs::read_dir(&from)? {
                let file = file?;
                std::fs::copy(file.path(), image.join(file.file_name()))?;
            }
            taken.borrow_mut().push(step);
            Ok(())
        })
    };
    let mut writer = Writer::new();
    let (mut before, mut all, mut ended) = (store.look(seen).unwrap(), Vec::new(), 0);
    for _ in 0..900 {
        writer.change(&store).unwrap();
        let after = store.look(seen).unwrap();
        // Whatever was answered before this change is there, and this change is there or not.
        let steps = taken.take();
        for (index, step) in steps.iter().enumerate() {
            let image = images.0.join(index.to_string());
            let found = reopened(&image);
            assert!(found == before || found == after, "a process that ends at {step:?} of {steps:?}");
            assert!(!image.join("store.log.new").exists());
            std::fs::remove_dir_all(image).unwrap();
            ended += 1;
        }
        all.extend(steps);
        before = after;
    }
    let count = |step| all.iter().filter(|taken| **taken == step).count();
    assert!(count(Step::Replaced) > 10, "{}", count(Step::Replaced));
    assert!(count(Step::Writing) > 5 * count(Step::Replaced), "a rewrite has several parts");
    assert!(ended > 1500, "{ended}");
    // A file is complete and on disk before it takes the place of the old one.
    for pair in all.windows(2).filter(|pair| pair[1] == Step::Renaming) {
        assert_eq!(pair[0], Step::Syncing);
    }
    for after in [Step::Renamed, Step::Replaced] {
        assert_eq!(count(after), count(Step::Renaming));
    }
}

/// Writes on a disk that is full at one step, at its nth time. Returns the answer of the change that met it, and whether
/// the store still answers.
fn with_a_full_disk(folder: &Folder, at: Step, nth: usize) -> (Result<(), Rejection>, Store, Seen) {
    let store = open(&folder.0);
    let met = Rc::new(RefCell::new(0));
    let hook = {
        let (met, file) = (Rc::clone(&met), folder.file());
        during(move |step| {
            *met.borrow_mut() += usize::from(step == at);
            if step != at || *met.borrow() != nth {
                return Ok(());
            }
            if at == Step::Appending {
                // As much as there was space for.
                let mut file = std::fs::OpenOptions::new().append(true).open(&file)?;
                io::Write::write_all(&mut file, &[17, 0, 0])?;
            }
            Err(io::ErrorKind::StorageFull.into())
        })
    };
    let mut writer = Writer::new();
    for _ in 0..3000 {
        let before = store.look(seen).unwrap();
        let answer = writer.change(&store);
        if *met.borrow() >= nth {
            drop(hook);
            return (answer, store, before);
        }
    }
    panic!("{at:?} was not met");
}

#[test]
fn a_full_disk_does_not_end_a_store_that_rewrites_its_file() {
    for (step, nth) in
        [(Step::Creating, 1), (Step::Writing, 1), (Step::Writing, 4), (Step::Syncing, 2), (Step::Renaming, 2)]
    {
        let folder = Folder::new();
        let (answer, store, _) = with_a_full_disk(&folder, step, nth);
        assert_eq!(answer, Ok(()), "{step:?}");
        let why = store.shared.change(|state, _| Ok(state.rewrite_failure())).unwrap().unwrap();
        assert!(why.contains("store.log.new") && why.contains("no storage space"), "{why}");
        assert!(!folder.unfinished().exists(), "{step:?}: the space is free again");
        // It is not tried again at once, but when the file has grown, and then it succeeds.
        let mut writer = Writer::new();
        for _ in 0..150 {
            writer.change(&store).unwrap();
        }
        settle(&store);
        assert_eq!(store.shared.change(|state, _| Ok(state.rewrite_failure())), Ok(None));
        let size = store.size().unwrap().1;
        assert!(size.bytes < 2 * size.in_use_bytes + 30_000, "{step:?}: {size:?}");
        let last = store.look(seen).unwrap();
        drop(store);
        assert_eq!(reopened(&folder.0), last, "{step:?}");
    }
}

#[test]
fn a_disk_that_fails_an_append_ends_the_store_and_loses_nothing() {
    for (step, nth) in [(Step::Appending, 40), (Step::Appended, 40), (Step::Renamed, 2), (Step::Replaced, 2)]
    {
        let folder = Folder::new();
        let (answer, store, before) = with_a_full_disk(&folder, step, nth);
        assert_eq!(answer, Err(Rejection::Failed), "{step:?}");
        assert_eq!(store.look(|_| ()), Err(Rejection::Failed), "{step:?}");
        assert!(store.failure().unwrap().contains("no storage space"), "{step:?}");
        store.close();
        // What was answered is there; the change that was not answered may be there as well.
        let found = reopened(&folder.0);
        assert!((before.revision..=before.revision + 1).contains(&found.revision), "{step:?}");
        let common = found.compacted.max(1)..=before.revision;
        let known =
            |entry: &&Entry| matches!(entry, Entry::Revision { revision, .. } if common.contains(revision));
        assert!(found.revisions.iter().filter(known).eq(before.revisions.iter().filter(known)), "{step:?}");
        if step == Step::Appending {
            assert_eq!(found, before);
        }
    }
}

/// Bytes of the file, of all versions, and of the versions that are superfluous in the present.
fn sizes(state: &State) -> (u64, usize, usize, u64) {
    let history = state.model().history();
    let bytes = state.journal.as_ref().map_or(0, |journal| journal.bytes());
    let revisions = history.revision() - history.compacted();
    (bytes, history.size().bytes, history.superseded_bytes(), revisions)
}

#[test]
fn ten_times_the_bound_leaves_no_more_than_the_bound() {
    let folder = Folder::new();
    for folder in [None, Some(&*folder.0)] {
        let store = Store::open_within(folder, limits()).unwrap();
        let mut largest = (0, 0, 0, 0);
        // Ten times the bytes of overwritten versions that are kept.
        for index in 0..500 {
            let key = format!("k/{}", index % 7).into();
            let value = Some(vec![b'v'; 2000].into());
            let put = Put { key, value, lease: None, previous: false };
            transact(&store, program(ModelStep::Put(Put { lease: Some(LeaseId::default()), ..put })))
                .unwrap();
            let (file, all, superseded, revisions) =
                store.shared.change(|state, _| Ok(sizes(state))).unwrap();
            largest = (
                file.max(largest.0),
                all.max(largest.1),
                superseded.max(largest.2),
                revisions.max(largest.3),
            );
        }
        assert!(largest.3 <= 35, "{largest:?}");
        assert!(largest.2 <= 100_000, "{largest:?}");
        // While the file is rewritten nothing is discarded.
        assert!(largest.1 < 150_000, "{largest:?}");
        assert!(largest.0 < 400_000, "{largest:?}");
        settle(&store);
        let (file, all, superseded, _) = store.shared.change(|state, _| Ok(sizes(state))).unwrap();
        assert_eq!(all - superseded, 7 * (2000 + 3 + 41));
        let size = store.size().unwrap().1;
        assert_eq!(size.in_use_bytes, all as u64);
        match folder {
            None => assert_eq!(size.bytes, all as u64),
            Some(folder) => {
                assert_eq!(size.bytes, file);
                assert_eq!(std::fs::metadata(folder.join("store.log")).unwrap().len(), file);
            }
        }
    }
}

/// No revision is made by a lease without keys, so no compaction follows.
#[test]
fn leases_without_keys_do_not_fill_the_file() {
    let folder = Folder::new();
    let limits = Limits { superfluous_bytes: (2000, 2000), ..limits() };
    let store = Store::open_within(Some(&folder.0), limits).unwrap();
    for _ in 0..200 {
        let grant = store.shared.change(|state, now| state.grant(now, LeaseId::default(), 1000));
        let lease = grant.unwrap().0;
        store.shared.change(move |state, _| state.revoke(lease)).unwrap();
    }
    settle(&store);
    let bytes = store.size().unwrap().1.bytes;
    assert!(bytes < 2100, "{bytes} of {}", 200 * (33 + 25));
}

/// A deletion of much frees it at once, however few revisions follow.
#[test]
fn what_is_deleted_is_free() {
    let folder = Folder::new();
    let store = open(&folder.0);
    for index in 0..20 {
        let value = Some(vec![b'v'; 100_000].into());
        let put =
            Put { key: format!("k/{index}").into(), value, lease: Some(LeaseId::default()), previous: false };
        transact(&store, program(ModelStep::Put(put))).unwrap();
    }
    settle(&store);
    let full = store.size().unwrap().1;
    assert!(full.in_use_bytes > 2_000_000 && full.bytes > 2_000_000, "{full:?}");
    let delete = Delete { range: KeyRange::prefix("k/"), previous: false };
    transact(&store, program(ModelStep::Delete(delete))).unwrap();
    settle(&store);
    let left = store.size().unwrap().1;
    assert!(left.in_use_bytes < 1000 && left.bytes < 1000, "{left:?}");
}

#[test]
fn a_file_of_another_version_is_named() {
    let folder = Folder::new();
    drop(open(&folder.0));
    for (magic, expected) in
        [(b"MKSTORE\x01", "format 1, and this version reads format 2"), (b"MKSTONE\x02", "is not a file of")]
    {
        std::fs::write(folder.file(), magic).unwrap();
        let why = Store::open(Some(&folder.0)).unwrap_err().to_string();
        assert!(why.contains(expected) && why.contains("store.log"), "{why}");
        assert_eq!(std::fs::read(folder.file()).unwrap(), magic, "the file is left as it is");
    }
}

#[test]
fn a_new_file_that_is_not_complete_is_removed() {
    let folder = Folder::new();
    let store = open(&folder.0);
    let mut writer = Writer::new();
    for _ in 0..100 {
        writer.change(&store).unwrap();
    }
    let last = store.look(seen).unwrap();
    drop(store);
    std::fs::write(folder.unfinished(), b"MKSTORE\x02half").unwrap();
    assert_eq!(reopened(&folder.0), last);
    assert!(!folder.unfinished().exists());
}
