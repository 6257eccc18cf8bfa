//! `moonkeeper snapshot verify` as a user runs it, on files that were written here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::Term;
use moonkeeper::replication::snapshot::{Progress, begin, write_to};
use serde_json::{Value, json};

/// A data directory that goes with the test.
struct DataDir(PathBuf);

impl DataDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("moonkeeper-verify-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("snapshots")).unwrap();
        Self(path)
    }

    fn file(&self, record: u64, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("snapshots").join(format!("{record:020}.snapshot"));
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A snapshot of a state without objects.
fn snapshot() -> Vec<u8> {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    let at = Latest { log: LogId(7), term: Term(3), last: engine.applied(), checksum: Checksum(0xabc) };
    let mut bytes = Vec::new();
    write_to(&mut bytes, begin(&engine, &at).unwrap(), &Progress::default()).unwrap();
    bytes
}

fn verify(paths: &[&Path], more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moonkeeper"));
    command.args(["snapshot", "verify"]).args(paths).args(more).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn good_files_are_good() {
    let data = DataDir::new("good");
    let file = data.file(0, &snapshot());
    let folder = data.0.join("snapshots");
    for path in [&file, &folder, &data.0] {
        let output = verify(&[path], &[]);
        assert!(output.status.success(), "{output:?}");
        let expected = format!("{}: good: up to record 0 of term 3 of log 0000000000000007", file.display());
        assert!(stdout(&output).starts_with(&expected), "{}", stdout(&output));
    }
    let shown: Value = serde_json::from_slice(&verify(&[&file], &["-o", "json"]).stdout).unwrap();
    assert_eq!(
        (&shown[0]["good"], &shown[0]["term"], &shown[0]["error"]),
        (&json!(true), &json!(3), &Value::Null)
    );
}

#[test]
fn every_bad_file_is_named_with_the_reason() {
    let data = DataDir::new("bad");
    let good = snapshot();
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let mut newer = good.clone();
    newer[4] = 9;
    data.file(0, &good);
    for (record, bytes, part) in [
        (1, &good[..], "the state is at record 0, not at 1"),
        (2, &damaged, "damaged"),
        (3, &good[..good.len() - 1], "end"),
        (4, &newer, "format 9"),
        (5, b"hello", "not a snapshot"),
    ] {
        let path = data.file(record, bytes);
        let output = verify(&[&data.0], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let shown = stdout(&output);
        let line = shown.lines().find(|line| line.starts_with(&*path.to_string_lossy())).unwrap();
        assert!(line.contains(": not good: ") && line.contains(part), "{part}: {line}");
        assert_eq!(shown.lines().filter(|line| line.contains(": good: ")).count(), 1, "{shown}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn nothing_to_verify_is_a_failure() {
    let data = DataDir::new("nothing");
    for (path, part) in [(data.0.clone(), "no snapshots"), (data.0.join("none"), "none")] {
        let output = verify(&[&path], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{output:?}");
    }
    assert_eq!(verify(&[], &[]).status.code(), Some(2));
}
