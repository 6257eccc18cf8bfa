//! Storage of snapshots that masters share: a directory with real files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonkeeper::cluster::log_end::{Checksum, History, Latest, LogId};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::replication::snapshot::{
    Progress, Restored, SharedStore, Wanted, begin, restore_wanted, write,
};

const LOG: LogId = LogId(7);

/// A folder that is removed at the end, with the data directories of two masters and a shared directory.
struct Scene {
    folder: PathBuf,
    store: SharedStore,
    engine: Arc<Engine>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("moonkeeper-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let store = SharedStore::Directory(folder.join("shared")).of_cluster("demo");
        Self { folder, store, engine: Arc::new(Engine::new(EngineSettings::default())) }
    }

    fn dir(&self, member: &str) -> PathBuf {
        self.folder.join(member)
    }

    /// A master takes another snapshot. Returns its last record.
    fn snapshot(&self, member: &str) -> SequenceId {
        let put = self.engine.sequencer(LogTime(1)).put_metadata(b"key", b"value", |_, _, _| Ok::<_, ()>(()));
        assert!(put.is_ok());
        let last = self.engine.applied();
        let at = Latest { log: LOG, term: Term(1), last, checksum: Checksum(last.0) };
        write(&self.dir(member), begin(&self.engine, &at).unwrap(), &Progress::default()).unwrap();
        last
    }

    /// A master copies a snapshot to the shared directory, of which it keeps two.
    fn share(&self, member: &str, last: SequenceId) -> Result<(), String> {
        self.store.share(&self.dir(member), LOG, member, last, 2).map_err(|error| error.to_string())
    }

    /// The last records of all that is shared.
    fn shared(&self) -> Vec<u64> {
        self.store.newest(LOG).into_iter().map(|(last, _)| last.0).collect()
    }

    fn wanted(&self, first: u64, without: &[SequenceId], history: Option<&History>) -> Option<Restored> {
        let wanted = Wanted { log: LOG, first: SequenceId(first), base: None, without: without.to_vec() };
        restore_wanted(self.store.newest(LOG), &wanted, history, &EngineSettings::default(), 1 << 20)
    }

    fn files(&self, member: &str) -> PathBuf {
        self.folder.join(format!("shared/demo/{LOG}/by-{member}"))
    }
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn copies_are_kept_by_each_master_and_none_removes_another_ones() {
    let scene = Scene::new("retention");
    let of_a = scene.snapshot("a");
    scene.share("a", of_a).unwrap();
    let of_b: Vec<SequenceId> = (0..4).map(|_| scene.snapshot("b")).collect();
    of_b.iter().for_each(|last| scene.share("b", *last).unwrap());
    assert_eq!(scene.shared(), [of_b[3].0, of_b[2].0, of_a.0]);
    // Only their owner can read them, and nothing unfinished is left.
    for entry in fs::read_dir(scene.files("b")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0);
        assert!(entry.file_name().to_str().unwrap().ends_with(".snapshot"));
    }
    // Once more is no fault.
    scene.share("b", of_b[3]).unwrap();
    // What it was copied from is gone.
    let error = scene.share("b", SequenceId(99)).unwrap_err();
    assert!(error.contains("00000000000000000099.snapshot"), "{error}");
    assert_eq!(scene.shared().len(), 3);
    // Another log and another cluster have nothing.
    assert_eq!(scene.store.newest(LogId(8)), []);
    let other = SharedStore::Directory(scene.folder.join("shared")).of_cluster("other");
    assert_eq!(other.newest(LOG), []);
}

#[test]
fn a_master_starts_from_the_newest_good_copy_that_it_wants() {
    let scene = Scene::new("start");
    let all: Vec<SequenceId> = ["a", "b", "a"].map(|member| scene.snapshot(member)).into();
    scene.share("a", all[0]).unwrap();
    scene.share("b", all[1]).unwrap();
    scene.share("a", all[2]).unwrap();
    let found = |first, without: &[SequenceId], history: Option<&History>| {
        let restored = scene.wanted(first, without, history)?;
        assert_eq!(restored.incarnation.engine.applied(), restored.at.last);
        Some(restored.at.last)
    };
    assert_eq!(found(1, &[], None), Some(all[2]));
    assert_eq!(found(1, &[all[2]], None), Some(all[1]));
    assert_eq!(found(all[2].0 + 1, &[], None), Some(all[2]));
    assert_eq!(found(all[2].0 + 2, &[], None), None);
    // What this master knows of the log decides as for its own.
    let known = Latest { log: LOG, term: Term(1), last: all[2], checksum: Checksum(5) };
    assert_eq!(found(1, &[], Some(&History(known))), Some(all[1]));
    assert_eq!(found(1, &[], Some(&History(Latest { log: LogId(8), ..known }))), None);
    // A damaged one is skipped, and copied again when its master shares it again.
    let newest = scene.files("a").join(format!("{:020}.snapshot", all[2].0));
    damage(&newest);
    assert_eq!(found(1, &[], None), Some(all[1]));
    scene.share("a", all[2]).unwrap();
    assert_eq!(found(1, &[], None), Some(all[2]));
    // One under the name of another log, and one whose name is a lie.
    fs::create_dir_all(scene.folder.join("shared/demo/0000000000000008/by-a")).unwrap();
    fs::copy(
        &newest,
        scene.folder.join("shared/demo/0000000000000008/by-a").join(newest.file_name().unwrap()),
    )
    .unwrap();
    let other = Wanted { log: LogId(8), first: SequenceId(1), base: None, without: Vec::new() };
    let files = scene.store.newest(LogId(8));
    assert_eq!(files.len(), 1);
    assert!(restore_wanted(files, &other, None, &EngineSettings::default(), 1 << 20).is_none());
    fs::rename(&newest, scene.files("a").join("00000000000000000900.snapshot")).unwrap();
    assert_eq!(found(1, &[], None), Some(all[1]));
}

#[test]
fn a_store_that_cannot_be_written_is_named() {
    let scene = Scene::new("failing");
    let last = scene.snapshot("a");
    // No folder can be made where there is a file, not even by root.
    fs::write(scene.folder.join("shared"), b"in the way").unwrap();
    let error = scene.share("a", last).unwrap_err();
    assert!(error.contains("shared/demo"), "{error}");
    assert_eq!(scene.shared(), Vec::<u64>::new());
    fs::remove_file(scene.folder.join("shared")).unwrap();
    scene.share("a", last).unwrap();
    assert_eq!(scene.shared(), [last.0]);
}

#[test]
fn a_recovered_log_continues_from_the_snapshot_that_it_names_and_from_no_other() {
    let scene = Scene::new("recovered");
    let of_a: Vec<SequenceId> = ["a", "a"].map(|member| scene.snapshot(member)).into();
    of_a.iter().for_each(|last| scene.share("a", *last).unwrap());
    let new = LogId(9);
    let base = |last: SequenceId| Latest { log: LOG, term: Term(1), last, checksum: Checksum(last.0) };
    let found = |base: Option<Latest>, history: Option<&History>| {
        let wanted = Wanted { log: new, first: SequenceId(of_a[0].0 + 1), base, without: Vec::new() };
        let files = scene.store.newest(LOG);
        restore_wanted(files, &wanted, history, &EngineSettings::default(), 1 << 20).map(|it| it.at)
    };
    // In the new log it counts as of term 0: terms of two logs are not compared.
    let at = Latest { log: new, term: Term(0), ..base(of_a[0]) };
    assert_eq!(found(Some(base(of_a[0])), None), Some(at));
    assert_eq!(found(Some(base(of_a[0])), Some(&History(at))), Some(at));
    let later = Latest { log: new, term: Term(2), last: SequenceId(90), checksum: Checksum(1) };
    assert_eq!(found(Some(base(of_a[0])), Some(&History(later))), Some(at));
    // Not one with the same number of another history, nor without the name, nor for a master that knows another log.
    assert_eq!(found(Some(Latest { checksum: Checksum(77), ..base(of_a[0]) }), None), None);
    assert_eq!(found(Some(Latest { log: LogId(8), ..base(of_a[0]) }), None), None);
    assert_eq!(found(None, None), None);
    assert_eq!(found(Some(base(of_a[0])), Some(&History(base(of_a[1])))), None);
}

#[test]
fn a_copy_of_another_master_is_read_back_with_its_checksums() {
    let scene = Scene::new("proof");
    let all: Vec<SequenceId> = (0..3).map(|_| scene.snapshot("a")).collect();
    scene.share("a", all[0]).unwrap();
    let read = |by: &str, last| scene.store.read_back(LOG, by, last).map_err(|error| error.to_string());
    let header = read("a", all[0]).unwrap();
    assert_eq!((header.at.last, header.at.log), (all[0], LOG));
    let file = |last: SequenceId| scene.files("a").join(format!("{:020}.snapshot", last.0));
    fs::copy(file(all[0]), file(SequenceId(77))).unwrap();
    damage(&file(all[0]));
    for (by, last, why) in [
        ("a", all[0], "00000000000000000001.snapshot"),
        ("a", SequenceId(77), "header"),
        ("a", all[1], "No such file"),
        ("b", all[0], "No such file"),
        ("x/../../by-a", all[0], "invalid"),
    ] {
        let error = read(by, last).unwrap_err();
        assert!(error.contains(why), "{by} {last:?}: {error}");
    }
    // A copy that two newer ones would remove at once is none.
    fs::remove_file(file(SequenceId(77))).unwrap();
    (1..3).for_each(|nth| scene.share("a", all[nth]).unwrap());
    assert!(scene.share("a", all[0]).is_err());
    assert_eq!(scene.shared(), [all[2].0, all[1].0]);
}
