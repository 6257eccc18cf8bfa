//! `moonkeeper oplog dump` against a real etcd: what is in the log is shown, what is wrong with it is named.

use std::process::{Command, Output};

use crate::process::{EtcdProcess, PATIENCE, binary};
use bytes::Bytes;
use moonkeeper::cluster::keys::Keys;
use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::coordination::etcd::{Etcd, EtcdSettings};
use moonkeeper::coordination::types::{LeaseId, Op, Request, Response, Txn};
use moonkeeper::engine::key::Key;
use moonkeeper::engine::record::{ObjectRef, Place, Record, RemoveSource, SoftPin, Start};
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid};
use moonkeeper::replication::batch::{Body, seal};
use serde_json::Value;

const CLUSTER: &str = "dumped";

struct Log {
    etcd: Etcd,
    keys: Keys,
    latest: Latest,
}

impl Log {
    async fn put(&self, key: Bytes, value: Bytes) {
        let put = Op::Put { key, value, lease: LeaseId(0) };
        let txn = Txn { success: vec![put], ..Txn::default() };
        let answer = self.etcd.call(Request::Txn(txn), PATIENCE).await.unwrap();
        assert!(matches!(answer, Response::Txn { succeeded: true, .. }));
    }

    async fn append(&mut self, body: &Body) -> Bytes {
        let first = SequenceId(self.latest.last.0 + 1);
        let batch = seal(self.latest.log, Term(7), first, self.latest.checksum, body);
        let key = self.keys.batch(self.latest.log, first);
        self.put(key.clone(), batch.bytes).await;
        self.latest.last = batch.header.last;
        self.latest.checksum = batch.checksum;
        self.put(self.keys.latest(), self.latest.to_bytes()).await;
        key
    }
}

fn object(id: u64, after: u64) -> ObjectRef {
    ObjectRef { id: ObjectId(id), after: SequenceId(after) }
}

/// Forty batches of 25 puts, and in the end the removal of three objects at once.
async fn write(log: &mut Log) {
    let places = [Place { segment: SegmentNumber(1), offset: 64 }];
    for batch in 0..40_u64 {
        let mut body = Body::default();
        for nth in 0..25 {
            let key = format!("key-{}", batch * 25 + nth);
            let at = LogTime(1_000 + batch);
            let start = Start {
                key: Key::new(key.as_bytes()),
                client: Uuid { first: 1, second: u64::MAX },
                size: 4096,
                places: &places,
                hard_pin: false,
                soft_pin: SoftPin::Preserve,
                group: None,
                data_type: 0,
            };
            let id = batch * 50 + nth * 2 + 1;
            assert!(body.try_push(at, &Record::PutStart(start)));
            assert!(body.try_push(at, &Record::End { object: object(id, id), checksum: Some(u64::MAX) }));
        }
        log.append(&body).await;
    }
    let mut body = Body::default();
    let objects = [object(1, 2), object(3, 4), object(5, 6)];
    assert!(
        body.try_push(LogTime(2_000), &Record::Remove { objects: &objects, source: RemoveSource::Regex })
    );
    log.append(&body).await;
}

fn dump(endpoint: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moonkeeper"));
    command.args(["oplog", "dump", "--cluster_id", CLUSTER, "--etcd_endpoints", endpoint]).args(more);
    command.env_remove("MOONKEEPER_ETCD_ENDPOINTS").output().unwrap()
}

fn records(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn complaints(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_log_is_shown_and_what_is_wrong_with_it_is_named() {
    let process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let endpoint = process.url();
    let etcd = Etcd::connect(EtcdSettings::new([endpoint])).unwrap();
    let latest = Latest { log: LogId(9), term: Term(7), last: SequenceId(0), checksum: Checksum(0) };
    let mut log = Log { etcd, keys: Keys::new(CLUSTER), latest };

    let none = dump(endpoint, &[]);
    assert_eq!(none.status.code(), Some(1));
    assert!(complaints(&none).contains("there is no log of 'dumped' in etcd"), "{}", complaints(&none));

    write(&mut log).await;
    let all = dump(endpoint, &["-o", "json"]);
    assert_eq!((all.status.code(), complaints(&all).as_str()), (Some(0), ""));
    let all = records(&all);
    assert_eq!(all.len(), 2001);
    assert!(all.iter().enumerate().all(|(nth, record)| record["sequence_id"] == nth as u64 + 1));
    let names: Vec<&String> = all[0].as_object().unwrap().keys().collect();
    for name in [
        "sequence_id",
        "timestamp",
        "op_type",
        "key",
        "payload",
        "checksum",
        "prefix_hash",
        "key_sequence_id",
    ] {
        assert!(names.iter().any(|found| *found == name), "{name} is not in {names:?}");
    }
    assert_eq!(all[0]["op_type"], "PutStart");
    assert_eq!(all[0]["key"], "key-0");
    assert_eq!(all[0]["key_sequence_id"], 0);
    assert_eq!(all[0]["payload"]["client"], format!("1-{}", u64::MAX));
    assert_eq!((&all[1]["op_type"], &all[1]["key_sequence_id"]), (&"End".into(), &1.into()));

    let some = records(&dump(endpoint, &["-o", "json", "--from", "1017", "--to", "1064"]));
    assert_eq!(some[..], all[1016..1064], "from the middle of a batch to the middle of another");

    let of_key = records(&dump(endpoint, &["-o", "json", "--key", "key-1"]));
    let ids: Vec<&Value> = of_key.iter().map(|record| &record["sequence_id"]).collect();
    assert_eq!(ids, [3, 4, 2001]);
    assert!(of_key.iter().all(|record| record["key"] == "key-1"));
    assert_eq!(of_key[2]["payload"]["objects"].as_array().unwrap().len(), 1);
    let late = records(&dump(endpoint, &["-o", "json", "--key", "key-1", "--from", "4"]));
    assert_eq!(late[..], of_key[1..]);

    let text = dump(endpoint, &["--to", "2"]);
    let lines = String::from_utf8(text.stdout).unwrap();
    assert!(lines.starts_with("1 1000 PutStart key=\"key-0\" after=0 {"), "{lines}");
    assert_eq!(lines.lines().count(), 2);

    // A damaged batch and a missing one; the rest is shown.
    log.put(log.keys.batch(log.latest.log, SequenceId(101)), Bytes::from_static(b"MKLBnonsense")).await;
    let delete = Op::Delete(moonkeeper::coordination::types::KeyRange::key(
        log.keys.batch(log.latest.log, SequenceId(201)),
    ));
    let txn = Txn { success: vec![delete], ..Txn::default() };
    log.etcd.call(Request::Txn(txn), PATIENCE).await.unwrap();
    let rest = dump(endpoint, &["-o", "json"]);
    assert_eq!(rest.status.code(), Some(1));
    assert_eq!(records(&rest).len(), 2001 - 100);
    let why = complaints(&rest);
    assert!(why.contains("00000000000000000101: not a batch"), "{why}");
    assert!(why.contains("00000000000000000251: the records after 200 are missing (INV-1)"), "{why}");
    assert_eq!(why.lines().count(), 2);
}

#[test]
fn what_makes_no_sense_is_said() {
    for (arguments, why) in [
        (&["--from", "9", "--to", "3"][..], "--from=9 is greater than --to=3"),
        (&["--cluster_id", "A/B"], "'A/B' is not a cluster id"),
        (&["--etcd_endpoints", "ftp://x"], "ftp://x"),
        (&["--from", "x"], "invalid value 'x'"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moonkeeper"));
        command.args(["oplog", "dump"]).env("MOONKEEPER_ETCD_ENDPOINTS", "127.0.0.1:1");
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(complaints(&output).contains(why), "{arguments:?}: {}", complaints(&output));
    }
    // Nobody is there: that is not the fault of the question.
    let away = dump("127.0.0.1:1", &[]);
    assert_eq!(away.status.code(), Some(1));
    assert!(complaints(&away).contains("cannot read the log of 'dumped' from etcd"), "{}", complaints(&away));
}
