//! Two masters as processes that know each other by certificates, around a switchover and the death of the primary.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use moonkeeper::coordination::embedded::{Store, serve};
use tokio::io::AsyncReadExt;

use super::authority::{Authority, Files};
use super::*;
use crate::ports::free_port;

/// The longest that there is: it cannot run out while the test waits.
const LEASE: &str = "60s";

struct Master {
    name: String,
    child: Child,
    http_port: u16,
    admin_port: u16,
    log: PathBuf,
    _files: Files,
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.name, std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

impl Master {
    fn start(name: &str, etcd: &str, authority: &Authority, token_file: &std::path::Path) -> Master {
        let files = authority.master();
        let [rpc_port, http_port, admin_port, peer_port] = [(); 4].map(|()| free_port());
        let log = files.tls.cert.with_file_name("log");
        let output = std::fs::File::create(&log).unwrap();
        let flags = [
            "--enable_ha=true".to_owned(),
            format!("--etcd_endpoints={etcd}"),
            "--cluster_id=certificates".to_owned(),
            format!("--member_name={name}"),
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--rpc_port={rpc_port}"),
            "--metrics_host=127.0.0.1".to_owned(),
            format!("--metrics_port={http_port}"),
            format!("--admin_port={admin_port}"),
            format!("--admin_token_file={}", token_file.display()),
            "--peer_host=127.0.0.1".to_owned(),
            format!("--peer_port={peer_port}"),
            format!("--peer_cert={}", files.tls.cert.display()),
            format!("--peer_key={}", files.tls.key.display()),
            format!("--peer_cacert={}", files.tls.ca.display()),
            format!("--peer_cert_name={}", super::authority::NAME),
            format!("--leader_lease_ttl={LEASE}"),
        ];
        let child = Command::new(env!("CARGO_BIN_EXE_moonkeeper"))
            .arg("master")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Master { name: name.to_owned(), child, http_port, admin_port, log, _files: files }
    }

    /// The JSON that is answered to a request; nothing if there is no answer.
    async fn ask(&self, port: u16, head: &str, body: &str) -> Option<Value> {
        let ask = async {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
            let length = body.len();
            let request = format!(
                "{head} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
        };
        timeout(PATIENCE, ask).await.expect("no end of the answer")
    }

    async fn status(&self) -> Value {
        self.ask(self.http_port, "GET /api/v1/status", "").await.unwrap_or_default()
    }

    /// Waits until its status is so.
    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < end, "{}: {what}: {status}", self.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn serves(status: &Value) -> bool {
    status["role"] == "primary" && status["phase"] == "serving" && status["ready"] == true
}

#[tokio::test]
async fn masters_with_certificates_hand_over_and_notice_a_death() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let etcd = listener.local_addr().unwrap().to_string();
    let (_stop, mut stopped) = watch::channel(false);
    let ended = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    tokio::spawn(serve(listener, Store::open(None).unwrap(), ended));
    let authority = Authority::new();
    let token_file = Files::new(TOKEN, (String::new(), String::new()));
    let start = |name| Master::start(name, &etcd, &authority, &token_file.tls.ca);
    let first = start("m-0");
    first.until("it should serve", serves).await;
    let mut second = start("m-1");
    second.until("it should have caught up", |status| status["ready"] == true).await;
    // It may be ready before the primary has read its member key, and is no member until then.
    let lists_second = |status: &Value| {
        status["members"].as_array().is_some_and(|all| all.iter().any(|member| member["name"] == "m-1"))
    };
    first.until("it should list m-1", lists_second).await;

    // A target is a connected peer that has reported, which takes a moment.
    let end = Instant::now() + PATIENCE;
    loop {
        let request = ("POST /api/v1/switchover", r#"{"to":"m-1"}"#);
        let answer = first.ask(first.admin_port, request.0, request.1).await.unwrap();
        if answer["to"] == "m-1" {
            break;
        }
        assert!(answer["code"] == "no_target" && Instant::now() < end, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let status = second.until("it should serve", serves).await;
    assert_eq!(status["promotion"]["reason"], "switchover", "{status}");

    first.until("it should have caught up", |status| status["ready"] == true).await;
    // It is ready before it is connected to the new primary, which it tries five times a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    second.child.kill().unwrap();
    second.child.wait().unwrap();
    let status = first.until("it should serve again", serves).await;
    assert_eq!(status["promotion"]["reason"], "the primary died", "{status}");
    assert_eq!(status["faults"], json!([]), "{status}");
    // Certificates take the place of the token: none was made.
    let log = std::fs::read_to_string(&first.log).unwrap();
    assert!(!log.contains("peer token"), "{log}");
}
