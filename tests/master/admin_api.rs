//! The admin API over real sockets, plain and with TLS: who may do what, and what is answered.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::logged;
use axum::Router;
use axum::routing::post;
use moonkeeper::cluster::digests::{DigestRequest, DigestsProgress, DigestsRefused, StateDigests};
use moonkeeper::cluster::promotion::PromotionReport;
use moonkeeper::cluster::role::Role;
use moonkeeper::cluster::snapshot::{HeldSnapshot, SnapshotProgress, SnapshotRefused, SnapshotStatus};
use moonkeeper::cluster::status::{Member, Status};
use moonkeeper::cluster::switchover::SwitchoverDone;
use moonkeeper::engine::types::LogTime;
use moonkeeper::master::admin_api::{AdminApi, AdminError, Control, ControlError, Pending};
use moonkeeper::master::settings::ha::{AdminSettings, AdminTls};
use moonkeeper::net::http_server::HttpLimits;
use moonkeeper::net::listen::Listen;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Long enough for anything on a busy machine; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const TOKEN: &str = "a-token-of-twenty-two-";

const LIMITS: HttpLimits = HttpLimits { max_connections: 8, header_timeout: Duration::from_secs(20) };

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("moonkeeper-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A master that is primary, and hands over to `m-1` only.
#[derive(Default)]
struct Master {
    asked: Mutex<Vec<Option<String>>>,
    /// Why the next request for a snapshot is refused.
    refusal: Mutex<Option<SnapshotRefused>>,
    snapshots: Mutex<u32>,
    ready: bool,
    log_refused: Option<String>,
    /// Lets the hand-over to `slow` go on; it then says so to `ended`.
    go: Arc<Notify>,
    ended: Arc<Notify>,
}

impl Control for Master {
    fn status(&self) -> Status {
        Status {
            name: "m-0".into(),
            role: Role::Primary,
            phase: "serving".into(),
            ready: self.ready,
            log_refused: self.log_refused.clone(),
            why_not_ready: (!self.ready).then(|| "3 records behind".into()),
            term: 12,
            applied: 99,
            digest: "00ff".into(),
            members: vec![Member { name: "m-1".into(), role: Role::Standby, ..Member::default() }],
            promotion: Some(PromotionReport { term: 12, ..PromotionReport::default() }),
            snapshots: self.ready.then(|| SnapshotStatus {
                held: vec![held(50)],
                running: Some(SnapshotProgress { sequence_id: 99, of: 7, ..SnapshotProgress::default() }),
                ..SnapshotStatus::default()
            }),
            ..Status::default()
        }
    }

    fn silent_for(&self) -> Duration {
        Duration::from_secs(if self.ready { 19 } else { 21 })
    }

    fn snapshot(&self) -> Pending<Result<HeldSnapshot, SnapshotRefused>> {
        *self.snapshots.lock().unwrap() += 1;
        let refusal = self.refusal.lock().unwrap().take();
        Box::pin(std::future::ready(refusal.map_or(Ok(held(123)), Err)))
    }

    fn log_time_ms(&self) -> u64 {
        5_000
    }

    fn digests(&self, request: DigestRequest) -> Pending<Result<Arc<StateDigests>, DigestsRefused>> {
        let digests = StateDigests { sequence_id: request.from_ms + 1, ..StateDigests::default() };
        Box::pin(std::future::ready(match (request.from_ms, request.range) {
            (_, Some(range)) if range.parse().is_none() => Err(DigestsRefused::NoSuchRange),
            (from, _) if from < 5_000 => {
                Err(DigestsRefused::TooLate { now: LogTime(5_000), from: LogTime(from) })
            }
            _ => Ok(Arc::new(digests)),
        }))
    }

    fn digests_progress(&self) -> Option<DigestsProgress> {
        let progress = DigestsProgress { from_ms: 6_000, begun: true, objects: 3, of: 4 };
        self.ready.then_some(progress)
    }

    fn switchover(&self, to: Option<String>) -> Pending<Result<SwitchoverDone, ControlError>> {
        self.asked.lock().unwrap().push(to.clone());
        let (go, ended) = (Arc::clone(&self.go), Arc::clone(&self.ended));
        Box::pin(async move {
            match to.as_deref() {
                None | Some("m-1") => Ok(SwitchoverDone {
                    from: "m-0".into(),
                    to: "m-1".into(),
                    term: 13,
                    unanswered_ms: 20,
                    total_ms: 30,
                }),
                Some("slow") => {
                    go.notified().await;
                    ended.notify_one();
                    Err(ControlError::GivenUp("it took too long".to_owned()))
                }
                Some("busy") => Err(ControlError::Busy),
                Some(other) => Err(ControlError::NoSuchMember(other.to_owned())),
            }
        })
    }
}

fn held(sequence_id: u64) -> HeldSnapshot {
    let objects = Some(7);
    HeldSnapshot { log: "00ff".into(), term: 12, sequence_id, objects, ..HeldSnapshot::default() }
}

struct Server {
    address: String,
    master: Arc<Master>,
    _stop: watch::Sender<bool>,
}

async fn start(settings: AdminSettings, ready: bool) -> Server {
    start_as(settings, Master { ready, ..Master::default() }).await
}

async fn start_as(settings: AdminSettings, master: Master) -> Server {
    logged::collect();
    let api = AdminApi::bind(&settings).await.unwrap();
    let address = api.local_address().unwrap().to_string();
    let master = Arc::new(master);
    let (stop, stopped) = watch::channel(false);
    let changes = Router::new().route("/api/v1/remove_all", post(async || "removed"));
    tokio::spawn(api.serve(Arc::clone(&master) as Arc<dyn Control>, changes, LIMITS, stopped));
    Server { address, master, _stop: stop }
}

fn settings(token_file: Option<PathBuf>, tls: Option<AdminTls>) -> AdminSettings {
    AdminSettings { listen: Listen { host: "127.0.0.1".into(), port: 0 }, token_file, tls }
}

/// Sends a request and reads the answer to its end.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    line: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, Value) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}Content-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("no answer");
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())))
}

impl Server {
    async fn call(&self, line: &str, token: Option<&str>, body: &str) -> (u16, Value) {
        exchange(TcpStream::connect(&self.address).await.unwrap(), line, token, body).await
    }

    fn asked(&self) -> Vec<Option<String>> {
        self.master.asked.lock().unwrap().clone()
    }
}

/// A primary that goes on reading is ready, and says what is not possible meanwhile.
#[tokio::test]
async fn readiness_names_what_a_full_etcd_prevents() {
    let log_refused = Some("out of space, alarm NOSPACE".to_owned());
    let full = Master { ready: true, log_refused, ..Master::default() };
    let server = start_as(settings(None, None), full).await;
    let (code, text) = server.call("GET /ready", None, "").await;
    let text = text.as_str().unwrap();
    assert_eq!(code, 200);
    assert!(text.contains("etcd refuses writes: out of space") && text.contains("no other master"), "{text}");
}

#[tokio::test]
async fn anybody_may_read() {
    let server = start(settings(None, None), true).await;
    let (code, status) = server.call("GET /api/v1/status", None, "").await;
    assert_eq!((code, &status["name"], &status["role"]), (200, &json!("m-0"), &json!("primary")));
    assert_eq!((&status["term"], &status["leader"]), (&json!(12), &Value::Null));
    let (code, members) = server.call("GET /api/v1/members", None, "").await;
    assert_eq!((code, &members["members"][0]["role"]), (200, &json!("standby")));
    let (code, promotion) = server.call("GET /api/v1/promotion", None, "").await;
    assert_eq!((code, &promotion["promotion"]["term"]), (200, &json!(12)));
    let (code, digest) = server.call("GET /api/v1/digest", None, "").await;
    assert_eq!((code, &digest["digest"], &digest["applied"]), (200, &json!("00ff"), &json!(99)));
    assert_eq!((&digest["log_time_ms"], &digest["computing"]["objects"]), (&json!(5_000), &json!(3)));
    let (code, answer) = server.call("GET /api/v1/snapshots", None, "").await;
    assert_eq!((code, &answer["snapshots"]["held"][0]["sequence_id"]), (200, &json!(50)));
    assert_eq!(answer["snapshots"]["running"]["stage"], json!("writing"));
    assert_eq!(server.call("GET /ready", None, "").await, (200, json!("ready, serving\n")));
    let behind = start(settings(None, None), false).await;
    assert_eq!(behind.call("GET /ready", None, "").await, (503, json!("not ready: 3 records behind\n")));
    // Without a data directory.
    assert_eq!(behind.call("GET /api/v1/snapshots", None, "").await, (200, json!({"snapshots": null})));
    assert_eq!(server.call("GET /live", None, "").await, (200, json!("alive\n")));
    let silent = json!("the main loop of this master has not run for 21 s\n");
    assert_eq!(behind.call("GET /live", None, "").await, (503, silent));
    let (code, error) = server.call("GET /nothing", None, "").await;
    assert_eq!((code, &error["code"]), (404, &json!("not_found")));
    let (code, error) = server.call("GET /api/v1/switchover", None, "").await;
    assert_eq!((code, &error["code"]), (404, &json!("not_found")));
}

#[tokio::test]
async fn nobody_may_change_anything_without_the_token() {
    let folder = Folder::new("token");
    let server = start(settings(Some(folder.file("token", &format!("{TOKEN}\n"))), None), true).await;
    let wrong = [None, Some(""), Some("x"), Some("a-token-of-twenty-two+"), Some("a-token-of-twenty-two-x")];
    let routes = ["switchover", "remove_all", "snapshots", "digest"];
    for route in routes.map(|route| format!("POST /api/v1/{route}")) {
        for token in wrong {
            let (code, error) = server.call(&route, token, "").await;
            assert_eq!((code, &error["code"]), (401, &json!("unauthorized")), "{route} {token:?}");
        }
    }
    assert!(server.asked().is_empty());
    assert_eq!(*server.master.snapshots.lock().unwrap(), 0);
    assert_eq!(server.call("POST /api/v1/remove_all", Some(TOKEN), "").await, (200, json!("removed")));
    let (code, done) = server.call("POST /api/v1/switchover", Some(TOKEN), "{\"to\": \"m-1\"}").await;
    assert_eq!((code, &done["to"], &done["unanswered_ms"]), (200, &json!("m-1"), &json!(20)));
    assert_eq!(server.call("POST /api/v1/switchover", Some(TOKEN), "").await.0, 200);
    assert_eq!(server.asked(), [Some("m-1".to_owned()), None]);
    // The token can be replaced while the master runs.
    folder.file("token", "another-token-of-some-length");
    assert_eq!(server.call("POST /api/v1/switchover", Some(TOKEN), "").await.0, 401);
    assert_eq!(server.call("POST /api/v1/switchover", Some("another-token-of-some-length"), "").await.0, 200);
    std::fs::remove_file(folder.0.join("token")).unwrap();
    assert_eq!(server.call("POST /api/v1/switchover", Some(TOKEN), "").await.0, 500);
}

#[tokio::test]
async fn without_a_token_nobody_may_change_anything() {
    let server = start(settings(None, None), true).await;
    for token in [None, Some(""), Some(TOKEN)] {
        let (code, error) = server.call("POST /api/v1/switchover", token, "").await;
        assert_eq!((code, &error["code"]), (403, &json!("no_access")));
        assert!(error["message"].as_str().unwrap().contains("--admin_token_file"), "{error}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let folder = Folder::new("refusals");
    let server = start(settings(Some(folder.file("token", TOKEN)), None), true).await;
    let long = format!("{{\"to\": \"{}\"}}", "x".repeat(5000));
    for (body, expected, code) in [
        ("{\"to\": \"m-9\"}", 404, "no_such_member"),
        ("{\"to\": \"busy\"}", 409, "busy"),
        ("{\"to\": 3}", 400, "bad_request"),
        ("{\"too\": \"m-1\"}", 400, "bad_request"),
        ("to=m-1", 400, "bad_request"),
        (&long, 400, "bad_request"),
    ] {
        let (status, error) = server.call("POST /api/v1/switchover", Some(TOKEN), body).await;
        assert_eq!((status, &error["code"]), (expected, &json!(code)), "{body}");
        assert!(error["message"].as_str().is_some_and(|text| text.len() > 5), "{error}");
    }
}

#[tokio::test]
async fn digests_are_computed_or_refused_with_the_reason() {
    let folder = Folder::new("digests");
    let server = start(settings(Some(folder.file("token", TOKEN)), None), true).await;
    let route = "POST /api/v1/digest";
    let (code, answer) = server.call(route, Some(TOKEN), r#"{"from_ms": 6000}"#).await;
    assert_eq!((code, &answer["member"], &answer["progress"]), (200, &json!("m-0"), &Value::Null));
    assert_eq!(answer["digests"]["sequence_id"], json!(6_001));
    let lines = audit_lines();
    assert!(lines.len() == 1 && lines[0].contains("at record 6001"), "{lines:?}");
    let range = |kind: &str, bits: u8| {
        json!({"from_ms": 6000, "range": {"kind": kind, "prefix": "0", "bits": bits}}).to_string()
    };
    assert_eq!(server.call(route, Some(TOKEN), &range("object", 8)).await.0, 200);
    for (body, expected, code) in [
        (r#"{"from_ms": 4999}"#, 409, "too_late"),
        (range("object", 7).as_str(), 400, "bad_request"),
        (range("thing", 8).as_str(), 400, "bad_request"),
        ("", 400, "bad_request"),
        (r#"{"from_ms": -1}"#, 400, "bad_request"),
        (r#"{"from_ms": 6000, "more": 1}"#, 400, "bad_request"),
    ] {
        let (status, error) = server.call(route, Some(TOKEN), body).await;
        assert_eq!((status, &error["code"]), (expected, &json!(code)), "{body}");
    }
}

#[tokio::test]
async fn a_snapshot_is_taken_or_refused_with_the_reason() {
    let folder = Folder::new("snapshots");
    let server = start(settings(Some(folder.file("token", TOKEN)), None), true).await;
    let route = "POST /api/v1/snapshots";
    let (code, answer) = server.call(route, Some(TOKEN), "").await;
    assert_eq!((code, &answer["member"]), (200, &json!("m-0")));
    assert_eq!((&answer["taken"]["sequence_id"], &answer["running"]), (&json!(123), &Value::Null));
    let lines = audit_lines();
    assert!(lines.len() == 1 && lines[0].contains("up to record 123"), "{lines:?}");
    for (refusal, expected, code) in [
        (SnapshotRefused::NotStandby("leads".into()), 409, "not_standby"),
        (SnapshotRefused::NoDataDir, 409, "no_data_dir"),
        (SnapshotRefused::Failed("disk full".into()), 503, "failed"),
    ] {
        let message = refusal.to_string();
        *server.master.refusal.lock().unwrap() = Some(refusal);
        let (status, error) = server.call(route, Some(TOKEN), "").await;
        let said = (status, &error["code"], &error["message"]);
        assert_eq!(said, (expected, &json!(code), &json!(message)));
        let lines = audit_lines();
        assert!(lines.len() == 1 && lines[0].contains(code), "{lines:?}");
    }
    assert_eq!(server.call("PUT /api/v1/snapshots", Some(TOKEN), "").await.0, 404);
}

#[tokio::test]
async fn a_short_or_missing_token_is_noticed_at_the_start() {
    let folder = Folder::new("start");
    for file in [folder.file("short", "123\n"), folder.file("empty", ""), folder.0.join("none")] {
        let result = AdminApi::bind(&settings(Some(file.clone()), None)).await;
        let Err(why) = result else { panic!("{file:?}") };
        assert!(matches!(why, AdminError::Token(_)) && why.to_string().contains("token"), "{why}");
    }
    let none = folder.0.join("none.pem");
    let tls = AdminTls { cert: none.clone(), key: none, client_ca: None };
    let Err(why) = AdminApi::bind(&settings(None, Some(tls))).await else { panic!() };
    assert!(matches!(why, AdminError::Tls(_)) && why.to_string().contains("none.pem"), "{why}");
}

/// Certificates for a server and for clients, and one that nobody knows.
struct Certificates {
    ca: String,
    server: (String, String),
    client: (String, String),
    stranger: (String, String),
}

fn certificates() -> Certificates {
    let issuer = || {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let issue = |by: &CertifiedIssuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
    };
    let (ours, other) = (issuer(), issuer());
    Certificates { ca: ours.pem(), server: issue(&ours), client: issue(&ours), stranger: issue(&other) }
}

fn client(ca: &str, identity: Option<&(String, String)>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    TlsConnector::from(Arc::new(config))
}

/// A connection with or without a certificate; nothing if the other side will not have it.
async fn secure(
    address: &str,
    ca: &str,
    identity: Option<&(String, String)>,
) -> Option<impl AsyncRead + AsyncWrite + Unpin + use<>> {
    let connect = async || {
        let stream = TcpStream::connect(address).await.unwrap();
        client(ca, identity).connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()
    };
    // With TLS 1.3 a client learns only from the first answer that its certificate was refused.
    let mut first = connect().await?;
    first.write_all(b"GET /api/v1/digest HTTP/1.1\r\nHost: x\r\n\r\n").await.ok()?;
    timeout(PATIENCE, first.read_exact(&mut [0; 12])).await.expect("no answer").ok()?;
    connect().await
}

#[tokio::test]
async fn certificates_of_clients_stand_for_the_token() {
    let folder = Folder::new("tls");
    let made = certificates();
    let files = |client_ca: bool| AdminTls {
        cert: folder.file("server.pem", &made.server.0),
        key: folder.file("server.key", &made.server.1),
        client_ca: client_ca.then(|| folder.file("ca.pem", &made.ca)),
    };
    let token = || Some(folder.file("token", TOKEN));
    let route = "POST /api/v1/switchover";

    // A token only.
    let server = start(settings(token(), Some(files(false))), true).await;
    let stream = async |identity| secure(&server.address, &made.ca, identity).await.unwrap();
    assert_eq!(exchange(stream(None).await, route, Some(TOKEN), "").await.0, 200);
    assert_eq!(exchange(stream(None).await, route, None, "").await.0, 401);
    // Nobody asked for it, so nobody checked it.
    assert_eq!(exchange(stream(Some(&made.client)).await, route, None, "").await.0, 401);

    // Either.
    let server = start(settings(token(), Some(files(true))), true).await;
    let stream = async |identity| secure(&server.address, &made.ca, identity).await;
    assert_eq!(exchange(stream(Some(&made.client)).await.unwrap(), route, None, "").await.0, 200);
    assert_eq!(exchange(stream(None).await.unwrap(), route, Some(TOKEN), "").await.0, 200);
    assert_eq!(exchange(stream(None).await.unwrap(), route, None, "").await.0, 401);
    assert!(stream(Some(&made.stranger)).await.is_none());

    // A certificate only.
    let server = start(settings(None, Some(files(true))), true).await;
    let stream = async |identity| secure(&server.address, &made.ca, identity).await;
    assert_eq!(exchange(stream(Some(&made.client)).await.unwrap(), route, None, "").await.0, 200);
    assert!(stream(None).await.is_none());
    // Somebody who does not speak TLS gets no HTTP.
    let mut plain = TcpStream::connect(&server.address).await.unwrap();
    plain.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, plain.read_to_end(&mut answer)).await.expect("still connected");
    assert!(!answer.starts_with(b"HTTP"));
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
    let folder = Folder::new("renewed");
    let (old, new) = (certificates(), certificates());
    let files = |made: &Certificates| AdminTls {
        cert: folder.file("server.pem", &made.server.0),
        key: folder.file("server.key", &made.server.1),
        client_ca: None,
    };
    let server = start(settings(Some(folder.file("token", TOKEN)), Some(files(&old))), true).await;
    assert!(secure(&server.address, &old.ca, None).await.is_some());
    assert!(secure(&server.address, &new.ca, None).await.is_none());
    files(&new);
    assert!(secure(&server.address, &new.ca, None).await.is_some());
    assert!(secure(&server.address, &old.ca, None).await.is_none());
    // Half of a renewal leaves the last whole one in force.
    folder.file("server.key", "?");
    assert!(secure(&server.address, &new.ca, None).await.is_some());
}

#[tokio::test]
async fn a_caller_who_goes_leaves_the_hand_over_running() {
    let folder = Folder::new("gone");
    let server = start(settings(Some(folder.file("token", TOKEN)), None), true).await;
    let call = server.call("POST /api/v1/switchover", Some(TOKEN), "{\"to\": \"slow\"}");
    tokio::select! {
        answer = call => panic!("{answer:?}"),
        () = async { while server.asked().is_empty() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
    }
    // And others are answered meanwhile.
    assert_eq!(server.call("GET /api/v1/status", None, "").await.0, 200);
    assert_eq!(server.asked(), [Some("slow".to_owned())]);
    server.master.go.notify_one();
    timeout(PATIENCE, server.master.ended.notified()).await.expect("it was given up");
}

/// Takes the lines of the audit log that this test has caused so far.
fn audit_lines() -> Vec<String> {
    logged::take("moonkeeper::audit")
}

#[tokio::test]
async fn every_change_is_in_the_audit_log() {
    let folder = Folder::new("audit");
    let made = certificates();
    let tls = AdminTls {
        cert: folder.file("server.pem", &made.server.0),
        key: folder.file("server.key", &made.server.1),
        client_ca: Some(folder.file("ca.pem", &made.ca)),
    };
    let server = start(settings(Some(folder.file("token", TOKEN)), Some(tls)), true).await;
    let call = async |identity, route: &str, token, body: &str| {
        let stream = secure(&server.address, &made.ca, identity).await.unwrap();
        exchange(stream, route, token, body).await.0
    };
    let expect = |lines: Vec<String>, parts: &[&str]| {
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in parts {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
        assert!(!lines[0].contains(TOKEN), "{lines:?}");
    };
    let (switchover, remove_all) = ("POST /api/v1/switchover", "POST /api/v1/remove_all?force=true");
    assert_eq!(call(None, switchover, Some(TOKEN), "{\"to\": \"m-1\"}").await, 200);
    expect(
        audit_lines(),
        &[" INFO ", "who=\"token\"", "remote=127.0.0.1:", switchover, "to m-1", "result=\"200\""],
    );
    assert_eq!(call(None, switchover, Some(TOKEN), "{\"to\": \"busy\"}").await, 409);
    expect(audit_lines(), &["to busy", "result=\"409 busy\""]);
    assert_eq!(call(Some(&made.client), remove_all, None, "").await, 200);
    expect(audit_lines(), &["who=\"certificate CN=rcgen self signed cert\"", remove_all, "result=\"200\""]);
    // Reading is no change.
    assert_eq!(call(None, "GET /api/v1/status", None, "").await, 200);
    assert!(audit_lines().is_empty());
    // Those who are sent away are counted, not listed one by one.
    for _ in 0..20 {
        assert_eq!(call(None, remove_all, Some("x"), "").await, 401);
    }
    let refused = audit_lines();
    assert!((1..20).contains(&refused.len()) && refused[0].contains("refused"), "{refused:?}");
}

#[tokio::test]
async fn a_caller_who_goes_is_in_the_audit_log() {
    let folder = Folder::new("audit-gone");
    let server = start(settings(Some(folder.file("token", TOKEN)), None), true).await;
    // Without "Connection: close": then the master goes on listening while it works, and notices the end.
    let body = "{\"to\": \"slow\"}";
    let request = format!(
        "POST /api/v1/switchover HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut caller = TcpStream::connect(&server.address).await.unwrap();
    caller.write_all(request.as_bytes()).await.unwrap();
    while server.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(caller);
    let line = async {
        loop {
            if let Some(line) = audit_lines().pop() {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let line = timeout(PATIENCE, line).await.expect("nothing was written");
    assert!(line.contains("to slow") && line.contains("the caller disconnected"), "{line}");
}
