//! Masters at both ends of a peer connection, and the protocol between them written down a second time.

mod attacks;
mod authentication;
mod authority;
mod certificates;
mod cluster;
mod port;
mod witness;

use std::time::Duration;

use moonkeeper::cluster::role::Role;
use moonkeeper::coordination::types::LeaseId;
use moonkeeper::engine::types::{SequenceId, Term};
use moonkeeper::master::metrics::Metrics;
use moonkeeper::master::peer::{
    Identity, Members, PeerCredentials, PeerEvent, PeerFaults, PeerMessage, PeerPort, PeerReport, PeerState,
    PeerToken, PrimaryProbe,
};
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Long enough for anything on a busy machine; only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long it is watched that nothing is said. Twenty times as long as it takes to find a process dead.
pub const QUIET: Duration = Duration::from_millis(1000);

/// What the masters of these tests share.
pub const TOKEN: &str = "a-token-of-twenty-two-";

/// The process of the standby.
pub const STANDBY: (&str, &str) = ("m-1", "00000000000000b1");

pub fn state(boot_id: &str, lease: i64) -> PeerState {
    PeerState {
        boot_id: boot_id.into(),
        name: "m-0".into(),
        cluster_id: "demo".into(),
        role: Role::Primary,
        term: Term(7),
        lease: LeaseId(lease),
        log: "00000000000000ab".into(),
        durable: SequenceId(0),
    }
}

pub fn identity((name, boot_id): (&str, &str)) -> Identity {
    Identity { cluster_id: "demo".into(), name: name.into(), boot_id: boot_id.into() }
}

/// A token from a file, which is gone afterwards: the last one that was read stays in use.
pub fn token(text: &str) -> PeerToken {
    let number = getrandom::u64().unwrap();
    let path = std::env::temp_dir().join(format!("moonkeeper-peer-token-{number:016x}"));
    std::fs::write(&path, text).unwrap();
    let token = PeerToken::from_file(path.clone());
    std::fs::remove_file(path).unwrap();
    token.unwrap()
}

/// What was noted last, once something was.
pub async fn noted(faults: &PeerFaults) -> String {
    let first = async {
        while faults.count_and_last().0 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, first).await.expect("nothing was noted");
    faults.count_and_last().1
}

pub fn faults() -> PeerFaults {
    PeerFaults::new(Metrics::new())
}

pub struct Standby {
    pub primary_probe: PrimaryProbe,
    pub events: mpsc::Receiver<PeerEvent>,
    pub applied: watch::Sender<SequenceId>,
    pub faults: PeerFaults,
}

impl Standby {
    pub fn new() -> Standby {
        Standby::with(token(TOKEN))
    }

    pub fn with(credentials: impl Into<PeerCredentials>) -> Standby {
        Standby::of(identity(STANDBY), credentials)
    }

    pub fn of(own: Identity, credentials: impl Into<PeerCredentials>) -> Standby {
        let (applied, applies) = watch::channel(SequenceId(0));
        let (sender, events) = mpsc::channel(16);
        let faults = faults();
        let primary_probe = PrimaryProbe::start(own, credentials.into(), applies, sender, faults.clone());
        Standby { primary_probe, events, applied, faults }
    }

    pub async fn any(&mut self) -> PeerEvent {
        let mut event = timeout(PATIENCE, self.events.recv()).await.expect("nothing was said").unwrap();
        // Each line is sent at another time.
        if let PeerEvent::Told { sent_ms, .. } = &mut event {
            *sent_ms = 0;
        }
        event
    }

    /// The next event that is not about the end of the log.
    async fn other(&mut self) -> PeerEvent {
        loop {
            let event = self.events.recv().await.unwrap();
            if !matches!(event, PeerEvent::Told { .. }) {
                return event;
            }
        }
    }

    pub async fn next(&mut self) -> PeerEvent {
        timeout(PATIENCE, self.other()).await.expect("nothing was said")
    }

    pub async fn says_nothing(&mut self) {
        let said = timeout(QUIET, self.other()).await;
        assert!(said.is_err(), "{said:?}");
    }
}

/// A peer port in this process.
pub struct Server {
    pub address: String,
    pub state: watch::Sender<PeerState>,
    pub members: watch::Sender<Members>,
    pub reports: mpsc::Receiver<PeerMessage>,
    pub stop: watch::Sender<bool>,
    pub faults: PeerFaults,
}

/// The peer port of the process `boot_id`, on this listener.
pub fn port(
    boot_id: &str,
    state: watch::Receiver<PeerState>,
    credentials: impl Into<PeerCredentials>,
) -> (PeerPort, Ends) {
    let (members, lists) =
        watch::channel(Members::from([STANDBY, ("m-2", "b2")].map(|(name, id)| (name.into(), id.into()))));
    let (sender, reports) = mpsc::channel(16);
    let faults = faults();
    let own = identity(("m-0", boot_id));
    let credentials = credentials.into();
    let port = PeerPort { own, credentials, state, members: lists, messages: sender, faults: faults.clone() };
    (port, (members, reports, faults))
}

/// What remains in the hands of the test.
pub type Ends = (watch::Sender<Members>, mpsc::Receiver<PeerMessage>, PeerFaults);

impl Server {
    pub async fn start() -> Server {
        Server::with(token(TOKEN)).await
    }

    pub async fn with(credentials: impl Into<PeerCredentials>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = watch::channel(false);
        let (state, states) = watch::channel(state("a", 0));
        let (port, (members, reports, faults)) = port("a", states, credentials);
        tokio::spawn(port.serve(listener, stopped));
        Server { address, state, members, reports, stop, faults }
    }

    pub async fn message(&mut self) -> PeerMessage {
        timeout(PATIENCE, self.reports.recv()).await.expect("nothing was reported").unwrap()
    }

    /// The next report; that a standby has gone is passed over.
    pub async fn report(&mut self) -> PeerReport {
        loop {
            if let PeerMessage::Report(report) = self.message().await {
                return report;
            }
        }
    }

    pub async fn reports_nothing(&mut self) {
        let said = timeout(QUIET, self.reports.recv()).await;
        assert!(said.is_err(), "{said:?}");
    }
}

/// A connection on which this test speaks by itself.
pub struct Raw(pub BufReader<TcpStream>);

impl Raw {
    pub async fn connect(address: &str) -> Raw {
        Raw(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    /// The next line; nothing when the other side has closed the connection.
    pub async fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("nothing was said");
        (read.unwrap_or(0) > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    pub async fn write(&mut self, line: &impl serde::Serialize) -> std::io::Result<()> {
        let text = serde_json::to_string(line).unwrap() + "\n";
        self.0.write_all(text.as_bytes()).await
    }

    /// Whether the other side ends the connection, whatever it says before.
    pub async fn is_closed(&mut self) -> bool {
        let mut rest = String::new();
        loop {
            rest.clear();
            match timeout(PATIENCE, self.0.read_line(&mut rest)).await {
                Ok(Ok(0) | Err(_)) => return true,
                Ok(Ok(_)) => {}
                Err(_) => return false,
            }
        }
    }

    /// Proves itself as this process, and checks the proof of the other side.
    pub async fn prove(&mut self, token: &str, (name, boot_id): (&str, &str)) -> Value {
        let hello = self.read().await.unwrap();
        let said = ["demo", text(&hello, "nonce"), "my-nonce", name, boot_id].map(str::to_owned);
        let said = said.each_ref().map(String::as_str);
        let claim = json!({
            "nonce": "my-nonce", "name": name, "boot_id": boot_id, "token": "file",
            "proof": proof(token, "client", &said),
        });
        self.write(&claim).await.unwrap();
        let verdict = self.read().await.expect("closed instead of answered");
        if verdict.get("refused").is_none() {
            let all = [&said[..], &[text(&verdict, "boot_id")]].concat();
            assert_eq!(verdict["proof"], proof(token, "server", &all));
        }
        verdict
    }

    pub async fn proven(address: &str, process: (&str, &str)) -> Raw {
        let mut raw = Raw::connect(address).await;
        let verdict = raw.prove(TOKEN, process).await;
        assert_eq!(verdict["boot_id"], "a");
        raw
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

/// The proof of one side over what was said.
pub fn proof(token: &str, side: &str, said: &[&str]) -> String {
    let mut bytes = Vec::new();
    for field in ["moonkeeper-peer/1", side].iter().chain(said) {
        bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
        bytes.extend_from_slice(field.as_bytes());
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    hmac::sign(&key, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes a connection as `boot_id` with this token, and leads with lease 5; then it is in the hands of the test.
pub async fn greet_with(listener: &TcpListener, boot_id: &str, token: &str) -> Raw {
    let (stream, _) = timeout(PATIENCE, listener.accept()).await.expect("no one came").unwrap();
    let mut raw = Raw(BufReader::new(stream));
    raw.write(&json!({"protocol": "moonkeeper-peer/1", "nonce": "its-nonce", "token": "file"}))
        .await
        .unwrap();
    let claim = raw.read().await.unwrap();
    let (name, client) = (text(&claim, "name"), text(&claim, "boot_id"));
    let said = ["demo", "its-nonce", text(&claim, "nonce"), name, client, boot_id];
    let verdict = json!({"boot_id": boot_id, "proof": proof(token, "server", &said)});
    raw.write(&verdict).await.unwrap();
    let _ = raw.write(&state(boot_id, 5)).await;
    raw
}

pub async fn greet(listener: &TcpListener, boot_id: &str) -> Raw {
    greet_with(listener, boot_id, TOKEN).await
}
