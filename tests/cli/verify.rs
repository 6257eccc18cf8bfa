//! `moonkeeper verify` as a user runs it, against masters whose states a test fills.

use std::process::Output;
use std::sync::{Arc, Mutex};

use moonkeeper::cluster::digests::{DigestRequest, DigestsRefused, StateDigests};
use moonkeeper::cluster::status::Member;
use moonkeeper::engine::Engine;
use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::snapshot::{KeyRange, Part, PlanError, PlannedCapture};
use moonkeeper::engine::types::{LogTime, Uuid};
use moonkeeper::replication::snapshot::{Progress, digests};
use serde_json::{Value, json};

use crate::cluster::{Cluster, moonkeeper, text};

/// What a made-up master has in memory, and how it answers.
pub struct Memory {
    engine: Arc<Engine>,
    /// Refusals of the next requests.
    refusals: Mutex<Vec<DigestsRefused>>,
    /// The digest that it says it keeps, instead of the right one.
    kept: Mutex<Option<String>>,
}

impl Default for Memory {
    fn default() -> Self {
        let engine = Arc::new(Engine::new(EngineSettings::default()));
        Self { engine, refusals: Mutex::default(), kept: Mutex::default() }
    }
}

const CLIENT: Uuid = Uuid { first: 1, second: 2 };

impl Memory {
    pub fn log_time_ms(&self) -> u64 {
        self.engine.log_time().0
    }

    /// The record that all masters mean is written at once, as if a primary had.
    pub fn digests(&self, request: &DigestRequest) -> Result<Arc<StateDigests>, DigestsRefused> {
        let range = match &request.range {
            Some(range) => Some(range.parse().ok_or(DigestsRefused::NoSuchRange)?),
            None => None,
        };
        let from = LogTime(request.from_ms);
        let part = range.map_or(Part::Whole, KeyRange::part);
        let mut planned = PlannedCapture::new(&self.engine, from, part).map_err(|error| match error {
            PlanError::TooLate { now, from } => DigestsRefused::TooLate { now, from },
            PlanError::Planned => DigestsRefused::Busy,
        })?;
        self.engine.sequencer(from).commit_digest();
        if let Some(refusal) = self.refusals.lock().unwrap().pop() {
            return Err(refusal);
        }
        let found = digests(planned.begun().unwrap().unwrap(), range, &Progress::default()).unwrap();
        let mut found = StateDigests::new("00ff".into(), 7, found);
        if let Some(kept) = self.kept.lock().unwrap().clone() {
            found.kept = kept;
        }
        Ok(Arc::new(found))
    }

    fn put(&self, key: &str, size: u64) {
        let mut sequencer = self.engine.sequencer(LogTime(9_000));
        let config = WriteConfig { replicas: 1, ..WriteConfig::default() };
        sequencer.put_start(CLIENT, key.as_bytes(), size, &config).result.unwrap();
        sequencer.end(CLIENT, key.as_bytes(), ReplicaTypes::Memory, None).result.unwrap();
    }

    fn mount(&self, name: &str) {
        let spec = SegmentSpec {
            id: Uuid { first: 3, second: name.len() as u64 },
            name: name.as_bytes(),
            base: 0x1000_0000 + ((name.len() as u64) << 31),
            size: 1 << 30,
            te_endpoint: b"host:1",
            protocol: b"tcp",
            host_id: b"host",
        };
        self.engine.sequencer(LogTime(8_000)).mount(&spec, CLIENT).result.unwrap();
    }
}

/// Three masters with the same 1,000 objects and then one that the test chooses the size of, for each.
async fn cluster(name: &str, sizes: [u64; 3]) -> Cluster {
    let cluster = Cluster::start(name, 3).await;
    for (at, size) in sizes.into_iter().enumerate() {
        let memory = cluster.memory(at);
        memory.mount("segment");
        (0..1_000).for_each(|number| memory.put(&format!("key-{number}"), 4_096));
        memory.put("victim", size);
    }
    cluster
}

async fn verify(cluster: &Cluster, more: &[&str]) -> Output {
    let (http, file) = (cluster.http(1), cluster.token_file());
    moonkeeper(&[&["verify", "--http", http, "--admin_token_file", file], more].concat()).await
}

async fn verify_json(cluster: &Cluster) -> (Option<i32>, Value) {
    let output = verify(cluster, &["-o", "json"]).await;
    let shown = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), shown)
}

#[tokio::test]
async fn masters_with_the_same_state_are_equal() {
    let cluster = cluster("verify-equal", [64, 64, 64]).await;
    let output = verify(&cluster, &[]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let at = cluster.memory(0).engine.applied().0;
    let first = format!(
        "cluster demo: compared 3 masters at record {at} of log 00ff, term 7: m-0 (primary), m-1, m-2\n"
    );
    assert!(shown.starts_with(&first), "{shown}");
    assert!(
        shown.contains("\n  objects: 1001, equal\n") && shown.contains("\n  segments: 1, equal\n"),
        "{shown}"
    );
    assert!(shown.contains("\nall masters have the same state, digest "), "{shown}");
    assert_eq!(text(&output.stderr), "", "no progress without a terminal");
    let (code, shown) = verify_json(&cluster).await;
    assert_eq!((code, &shown["equal"], &shown["at"]["log"]), (Some(0), &json!(true), &json!("00ff")));
    assert_eq!(
        (&shown["members"][2]["name"], &shown["members"][2]["compared"]),
        (&json!("m-2"), &json!(true))
    );
    assert_eq!(shown["members"][0]["kept"], shown["members"][2]["computed"]);
    assert_eq!((&shown["difference"], &shown["kinds"][0]["equal"]), (&Value::Null, &json!(true)));
}

#[tokio::test]
async fn the_object_that_differs_is_named_with_what_each_master_has() {
    let cluster = cluster("verify-differs", [64, 64, 65]).await;
    let output = verify(&cluster, &[]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for part in [
        "\n  objects: DIFFERENT\n    m-0, m-1: 1001, digest ",
        "\n    m-2: 1001, digest ",
        "\n  segments: 1, equal\n",
        "the first difference, at record ",
        ": object \"victim\"\n  m-0, m-1: ",
        "size 64",
        "size 65",
        "\n  they differ in: size\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("same state"), "{shown}");
    let (code, shown) = verify_json(&cluster).await;
    let found = &shown["difference"];
    assert_eq!((code, &shown["equal"]), (Some(1), &json!(false)));
    assert_eq!(
        (&found["kind"], &found["name"], &found["fields"]),
        (&json!("object"), &json!("victim"), &json!(["size"]))
    );
    assert_eq!(found["members"]["m-2"]["size"], json!("65"));
    let kept: Vec<&Value> = shown["members"].as_array().unwrap().iter().map(|it| &it["kept"]).collect();
    assert!(kept[0] == kept[1] && kept[0] != kept[2], "{kept:?}");
}

#[tokio::test]
async fn what_one_master_does_not_have_is_named() {
    let cluster = cluster("verify-missing", [64, 64, 64]).await;
    // As many records on all, but another segment.
    for (at, name) in ["second", "second", "other"].into_iter().enumerate() {
        cluster.memory(at).mount(name);
    }
    let (code, shown) = verify_json(&cluster).await;
    let found = &shown["difference"];
    assert_eq!(
        (code, &found["kind"], &shown["kinds"][0]["equal"]),
        (Some(1), &json!("segment"), &json!(true))
    );
    let text = text(&verify(&cluster, &[]).await.stdout);
    assert!(text.contains("not there") && text.contains("segment \""), "{text}");
}

#[tokio::test]
async fn a_digest_that_is_not_that_of_the_memory_is_named() {
    let cluster = cluster("verify-kept", [64, 64, 64]).await;
    *cluster.memory(1).kept.lock().unwrap() = Some("00000000000000aa".into());
    let output = verify(&cluster, &[]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(shown.contains("m-1 keeps the digest 00000000000000aa, but that of its state is "), "{shown}");
    assert!(!shown.contains("same state"), "{shown}");
}

#[tokio::test]
async fn a_master_that_cannot_do_it_now_is_asked_again() {
    let cluster = cluster("verify-again", [64, 64, 64]).await;
    *cluster.memory(2).refusals.lock().unwrap() =
        vec![DigestsRefused::Busy, DigestsRefused::SnapshotUnderWay];
    let (code, shown) = verify_json(&cluster).await;
    assert_eq!((code, &shown["equal"]), (Some(0), &json!(true)), "{shown}");
    // It does not wait for longer than it was told to.
    *cluster.memory(2).refusals.lock().unwrap() = vec![DigestsRefused::SnapshotUnderWay; 50];
    let output = verify(&cluster, &["--timeout", "5"]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(shown.contains("m-2 was not compared: it is taking a snapshot\n"), "{shown}");
    assert!(shown.ends_with("the masters that were compared have the same state\n"), "{shown}");
}

#[tokio::test]
async fn masters_that_stop_at_different_records_are_not_compared() {
    let cluster = cluster("verify-apart", [64, 64, 64]).await;
    cluster.memory(2).put("one more", 64);
    let output = verify(&cluster, &["--timeout", "5"]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(shown.contains("did not stop at the same record: m-0 at "), "{shown}");
    assert!(!shown.contains("same state"), "{shown}");
}

#[tokio::test]
async fn members_that_cannot_be_asked_are_named() {
    let cluster = cluster("verify-gone", [64, 64, 64]).await;
    let gone = |name: &str, admin: &str| Member {
        name: name.into(),
        http_address: format!("127.0.0.1:{}", name.len() + admin.len()),
        admin_address: admin.into(),
        ..Member::default()
    };
    cluster.change(0, |status| status.members.extend([gone("m-3", "127.0.0.1:1"), gone("m-4", "")]));
    let http = cluster.http(0);
    let output = moonkeeper(&["verify", "--http", http, "--admin_token_file", cluster.token_file()]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for part in [
        "compared 3 masters",
        "m-3 was not compared: cannot reach 127.0.0.1:1",
        "m-4 was not compared: ",
        "the masters that were compared have the same state\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let output = moonkeeper(&["verify", "--http", http]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(shown.contains("no masters were compared") && shown.contains("token"), "{shown}");
    assert_eq!(moonkeeper(&["verify", "--http", "127.0.0.1:1"]).await.status.code(), Some(1));
    for args in [
        &["verify", "--sideways"][..],
        &["verify", "--etcd_endpoints", "nonsense"],
        &["verify", "--timeout", "1"],
    ] {
        assert_eq!(moonkeeper(args).await.status.code(), Some(2), "{args:?}");
    }
    let help = moonkeeper(&["verify", "--help"]).await;
    assert!(help.status.success() && text(&help.stdout).contains("Exit code: 0"), "{help:?}");
}
