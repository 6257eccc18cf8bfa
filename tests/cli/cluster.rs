//! `moonkeeper status`, `switchover` and `snapshot` as a user runs them, against masters that are made up.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use moonkeeper::cluster::digests::{DigestRequest, DigestsProgress, DigestsRefused, StateDigests};
use moonkeeper::cluster::promotion::{PromotionReason, PromotionReport};
use moonkeeper::cluster::role::Role;
use moonkeeper::cluster::snapshot::{HeldSnapshot, SnapshotRefused, SnapshotStatus};
use moonkeeper::cluster::status::{Leader, Member, Status};
use moonkeeper::cluster::switchover::SwitchoverDone;
use moonkeeper::master::admin_api::{AdminApi, Control, ControlError, Pending, readable};
use moonkeeper::master::settings::ha::AdminSettings;
use moonkeeper::net::http_server::{self, HttpLimits};
use moonkeeper::net::listen::{self, Listen};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::verify::Memory;

const LIMITS: HttpLimits = HttpLimits { max_connections: 8, header_timeout: Duration::from_secs(20) };
const TOKEN: &str = "a-token-of-some-length";

/// A master whose status and memory the test sets. It hands over if it is primary.
#[derive(Default)]
struct Master(Mutex<Status>, Memory);

impl Control for Master {
    fn status(&self) -> Status {
        self.0.lock().unwrap().clone()
    }

    fn silent_for(&self) -> Duration {
        Duration::ZERO
    }

    fn log_time_ms(&self) -> u64 {
        self.1.log_time_ms()
    }

    fn digests(&self, request: DigestRequest) -> Pending<Result<Arc<StateDigests>, DigestsRefused>> {
        Box::pin(std::future::ready(self.1.digests(&request)))
    }

    fn digests_progress(&self) -> Option<DigestsProgress> {
        None
    }

    fn snapshot(&self) -> Pending<Result<HeldSnapshot, SnapshotRefused>> {
        let status = self.status();
        Box::pin(std::future::ready(match (status.role, status.snapshots) {
            (Role::Primary, _) => Err(SnapshotRefused::NotStandby("leads".into())),
            (_, None) => Err(SnapshotRefused::NoDataDir),
            (_, Some(SnapshotStatus { error: Some(why), .. })) => Err(SnapshotRefused::Failed(why)),
            (_, Some(_)) => Ok(held(status.applied)),
        }))
    }

    fn switchover(&self, to: Option<String>) -> Pending<Result<SwitchoverDone, ControlError>> {
        let status = self.status();
        Box::pin(std::future::ready(match to {
            _ if status.role != Role::Primary => {
                Err(ControlError::NotPrimary { primary: status.leader.map(|leader| leader.name) })
            }
            Some(name) if name == "m-9" => Err(ControlError::NoSuchMember(name)),
            to => Ok(SwitchoverDone {
                from: status.name,
                to: to.unwrap_or_else(|| "m-1".into()),
                term: 8,
                unanswered_ms: 41,
                total_ms: 52,
            }),
        }))
    }
}

fn held(sequence_id: u64) -> HeldSnapshot {
    HeldSnapshot {
        log: "00ff".into(),
        term: 7,
        sequence_id,
        bytes: 3 << 20,
        objects: Some(12),
        digest: "aa".into(),
        ..HeldSnapshot::default()
    }
}

struct Running {
    master: Arc<Master>,
    http: String,
    admin: String,
}

/// Masters that know of each other, and the channel that ends them.
pub struct Cluster {
    masters: Vec<Running>,
    token_file: PathBuf,
    _stop: watch::Sender<bool>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.token_file);
    }
}

impl Cluster {
    /// The first leads.
    pub async fn start(name: &str, count: usize) -> Cluster {
        let token_file = std::env::temp_dir().join(format!("moonkeeper-cli-{name}-{}", std::process::id()));
        std::fs::write(&token_file, TOKEN).unwrap();
        let (stop, stopped) = watch::channel(false);
        let mut masters = Vec::new();
        for _ in 0..count {
            let master = Arc::new(Master::default());
            let control = Arc::clone(&master) as Arc<dyn Control>;
            let listener = listen::bind("127.0.0.1", 0).await.unwrap();
            let http = listener.local_addr().unwrap().to_string();
            tokio::spawn(http_server::serve(
                listener,
                readable(Arc::clone(&control)),
                LIMITS,
                stopped.clone(),
            ));
            let listen = Listen { host: "127.0.0.1".into(), port: 0 };
            let settings = AdminSettings { listen, token_file: Some(token_file.clone()), tls: None };
            let api = AdminApi::bind(&settings).await.unwrap();
            let admin = api.local_address().unwrap().to_string();
            tokio::spawn(api.serve(control, Router::new(), LIMITS, stopped.clone()));
            masters.push(Running { master, http, admin });
        }
        let cluster = Cluster { masters, token_file, _stop: stop };
        let members: Vec<Member> = (0..count).map(|at| cluster.member(at)).collect();
        for (at, running) in cluster.masters.iter().enumerate() {
            *running.master.0.lock().unwrap() = Status {
                name: format!("m-{at}"),
                cluster_id: "demo".into(),
                role: if at == 0 { Role::Primary } else { Role::Standby },
                phase: if at == 0 { "serving" } else { "following" }.into(),
                ready: true,
                term: 7,
                leader: Some(Leader { name: "m-0".into(), address: "127.0.0.1:50051".into() }),
                applied: 1234,
                digest: "aa".into(),
                members: members.clone(),
                ..Status::default()
            };
        }
        cluster
    }

    fn member(&self, at: usize) -> Member {
        Member {
            name: format!("m-{at}"),
            role: if at == 0 { Role::Primary } else { Role::Standby },
            http_address: self.masters[at].http.clone(),
            admin_address: self.masters[at].admin.clone(),
            applied: 1200,
            ..Member::default()
        }
    }

    pub fn http(&self, at: usize) -> &str {
        &self.masters[at].http
    }

    pub fn memory(&self, at: usize) -> &Memory {
        &self.masters[at].master.1
    }

    pub fn token_file(&self) -> &str {
        self.token_file.to_str().unwrap()
    }

    pub fn change(&self, at: usize, change: impl FnOnce(&mut Status)) {
        change(&mut self.masters[at].master.0.lock().unwrap());
    }
}

pub async fn moonkeeper(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moonkeeper"));
    // What the shell that runs the tests has set is no part of them.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MOONKEEPER_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn status_finds_all_members_from_one() {
    let cluster = Cluster::start("all", 3).await;
    let output = moonkeeper(&["status", "--http", &cluster.masters[1].http]).await;
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        shown.starts_with("cluster demo: m-0 leads in term 7, clients go to 127.0.0.1:50051\n"),
        "{shown}"
    );
    for (at, running) in cluster.masters.iter().enumerate() {
        let line = shown.lines().find(|line| line.starts_with(&format!("m-{at} "))).unwrap();
        assert!(
            line.contains(&running.http) && line.contains(&running.admin) && line.contains("1234"),
            "{shown}"
        );
    }
    assert!(shown.ends_with("nothing is wrong\n"), "{shown}");
}

#[tokio::test]
async fn status_says_what_is_wrong() {
    let cluster = Cluster::start("wrong", 3).await;
    cluster.change(1, |status| status.digest = "bb".into());
    cluster.change(2, |status| {
        status.ready = false;
        status.why_not_ready = Some("34 records behind".into());
        status.lag = Some(34);
    });
    let gone = Member { name: "m-3".into(), http_address: "127.0.0.1:1".into(), ..Member::default() };
    cluster.change(0, |status| {
        status.members.push(gone);
        status.promotion = Some(PromotionReport {
            term: 7,
            primary: "m-0".into(),
            reason: PromotionReason::ProcessDied,
            total_ms: 61,
            ..PromotionReport::default()
        });
    });
    let output = moonkeeper(&["status", "--http", &cluster.masters[0].http, "-o", "json"]).await;
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["leader"], &shown["term"]), (&json!("m-0"), &json!(7)));
    assert_eq!(shown["members"].as_array().unwrap().len(), 4);
    assert_eq!(shown["members"][2]["status"]["lag"], json!(34));
    assert_eq!(shown["last_failover"]["reason"], json!("the primary died"));
    let problems = shown["problems"].to_string();
    for part in [
        "the states of m-0 and m-1 differ at record 1234",
        "m-2 is not ready: 34 records behind",
        "m-3 does not answer",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
}

#[tokio::test]
async fn status_fails_when_nobody_answers() {
    let output = moonkeeper(&["status", "--http", "127.0.0.1:1"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("127.0.0.1:1"), "{output:?}");
    let output =
        moonkeeper(&["status", "--etcd_endpoints", "http://127.0.0.1:1", "--cluster_id", "demo"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("etcd"), "{output:?}");
    for args in [
        &["status", "--what"][..],
        &["status", "--etcd_endpoints", "nonsense"],
        &["status", "--etcd-endpoints", "a:1", "--cluster-id", "A/B"],
    ] {
        let output = moonkeeper(args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    }
}

#[tokio::test]
async fn switchover_finds_the_primary_and_says_how_long_it_took() {
    let cluster = Cluster::start("switch", 2).await;
    let file = cluster.token_file.to_str().unwrap();
    for admin in [&cluster.masters[0].admin, &cluster.masters[1].admin] {
        let output = moonkeeper(&["switchover", "--admin", admin, "--admin_token_file", file]).await;
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(shown.starts_with("m-1 leads now (term 8)") && shown.contains("for 41 ms"), "{shown}");
    }
    let admin = cluster.masters[0].admin.as_str();
    let args = ["switchover", "--to", "m-2", "--admin", admin, "--admin-token-file", file, "-o", "json"];
    let shown: Value = serde_json::from_slice(&moonkeeper(&args).await.stdout).unwrap();
    assert_eq!((&shown["from"], &shown["to"]), (&json!("m-0"), &json!("m-2")));
}

#[tokio::test]
async fn switchover_says_why_it_was_refused() {
    let cluster = Cluster::start("refused", 2).await;
    let file = cluster.token_file.to_str().unwrap();
    let (primary, standby) = (cluster.masters[0].admin.as_str(), cluster.masters[1].admin.as_str());
    cluster.change(1, |status| status.leader = None);
    for (args, part) in [
        (&["--admin", primary, "--admin_token_file", file, "--to", "m-9"][..], "no member called 'm-9'"),
        (&["--admin", standby, "--admin_token_file", file], "not the primary"),
        (&["--admin", primary], "--admin_token_file"),
        (&["--admin", primary, "--admin_token_file", "/nowhere"], "/nowhere"),
        (&["--admin", &cluster.masters[0].http, "--admin_token_file", file], "admin port"),
        (&["--admin", "127.0.0.1:1", "--admin_token_file", file], "127.0.0.1:1"),
    ] {
        let output = moonkeeper(&[&["switchover"], args].concat()).await;
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {output:?}");
    }
    assert_eq!(moonkeeper(&["switchover", "--sideways"]).await.status.code(), Some(2));
}

#[tokio::test]
async fn a_snapshot_is_taken_by_a_standby_that_can() {
    let cluster = Cluster::start("snapshot", 3).await;
    let file = cluster.token_file.to_str().unwrap();
    let create = async |admin: &str, more: &[&str]| {
        let args = [&["snapshot", "create", "--admin", admin, "--admin_token_file", file], more].concat();
        moonkeeper(&args).await
    };
    let primary = cluster.masters[0].admin.as_str();
    let refused = text(&create(primary, &[]).await.stderr);
    for part in ["no master could take a snapshot", "m-0: ", "m-1: ", "m-2: ", "--data_dir"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    // The first one that is asked cannot, the second one can.
    cluster.change(2, |status| status.snapshots = Some(SnapshotStatus::default()));
    for at in 0..3 {
        let output = create(&cluster.masters[at].admin, &[]).await;
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(shown, "m-2 has taken a snapshot up to record 1234: 12 objects, 3.0 MiB, digest aa\n");
    }
    let shown = create(primary, &["--member", "m-2", "-o", "json"]).await.stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!((&shown["member"], &shown["sequence_id"]), (&json!("m-2"), &json!(1234)));
    // A member that was named is the only one that is asked, and a failure ends the search.
    cluster.change(2, |status| {
        let error = Some("disk full".into());
        status.snapshots = Some(SnapshotStatus { error, ..SnapshotStatus::default() });
    });
    for (more, part) in [
        (&["--member", "m-0"][..], "not a standby"),
        (&["--member", "m-1"], "--data_dir"),
        (&["--member", "m-9"], "no member called 'm-9'"),
        (&[], "the snapshot failed: disk full"),
    ] {
        let output = create(primary, more).await;
        assert_eq!(output.status.code(), Some(1), "{more:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{more:?}: {output:?}");
    }
    let output = moonkeeper(&["snapshot", "create", "--admin", primary]).await;
    assert!(text(&output.stderr).contains("--admin_token_file"), "{output:?}");
    assert_eq!(moonkeeper(&["snapshot", "create", "--sideways"]).await.status.code(), Some(2));
}

#[tokio::test]
async fn snapshots_of_all_members_are_listed() {
    let cluster = Cluster::start("snapshot-list", 3).await;
    for at in [0, 2] {
        let held = vec![held(1200 + at as u64), held(1100)];
        let snapshots = SnapshotStatus { held, ..SnapshotStatus::default() };
        cluster.change(at, |status| status.snapshots = Some(snapshots));
    }
    let http = cluster.masters[1].http.as_str();
    let output = moonkeeper(&["snapshot", "list", "--http", http]).await;
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for part in ["m-0     1200", "m-0     1100", "m-2     1202", "m-1 holds none"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = moonkeeper(&["snapshot", "list", "--http", http, "-o", "json"]).await.stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!((&shown[2]["member"], &shown[2]["held"][0]["sequence_id"]), (&json!("m-2"), &json!(1202)));
    let status = text(&moonkeeper(&["status", "--http", http]).await.stdout);
    assert!(status.contains("\nsnapshots:\n  m-0: record 1200 (3.0 MiB, "), "{status}");
    assert_eq!(moonkeeper(&["snapshot", "list", "--http", "127.0.0.1:1"]).await.status.code(), Some(1));
    let wrong = ["snapshot", "list", "--etcd_endpoints", "nonsense"];
    assert_eq!(moonkeeper(&wrong).await.status.code(), Some(2));
}
