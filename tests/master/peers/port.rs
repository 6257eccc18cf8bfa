//! The peer port over real sockets and with real processes: who is taken for dead, and who is not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{PATIENCE, Raw, STANDBY, Server, Standby, TOKEN, greet, port, state, token};
use moonkeeper::cluster::log_end::LogId;
use moonkeeper::coordination::types::LeaseId;
use moonkeeper::engine::types::{SequenceId, Term};
use moonkeeper::master::peer::{PeerEvent, PeerMessage, PeerReport, PeerState};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

const ROLE: &str = "MOONKEEPER_TEST_PEER";

/// A primary in a process of its own; it ends when this is dropped.
struct Primary {
    child: Child,
    address: String,
}

impl Primary {
    /// Starts one with this boot id, on this port or on a free one.
    fn start(boot_id: &str, port: u16) -> Primary {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["peers::port::plays_a_primary", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{boot_id} {port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("SAYS ") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the primary did not start");
        }
        let address = line.split("SAYS ").nth(1).unwrap().trim().to_owned();
        Primary { child, address }
    }

    fn port(&self) -> u16 {
        self.address.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: what [`Primary`] runs. It ends when nobody holds its standard input any more.
#[test]
fn plays_a_primary() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (boot_id, number) = role.split_once(' ').unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let (_state, states) = watch::channel(state(boot_id, 5));
    let (port, (_members, mut reported, _faults)) = port(boot_id, states, token(TOKEN));
    let listener = runtime.block_on(TcpListener::bind(format!("127.0.0.1:{number}"))).unwrap();
    println!("SAYS {}", listener.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    runtime.spawn(port.serve(listener, stopped));
    runtime.spawn(async move { while reported.recv().await.is_some() {} });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn connected(boot_id: &str) -> PeerEvent {
    PeerEvent::Connected { boot_id: boot_id.into(), lease: LeaseId(5) }
}

fn dead(boot_id: &str) -> PeerEvent {
    PeerEvent::Dead { boot_id: boot_id.into(), lease: LeaseId(5) }
}

#[tokio::test]
async fn a_killed_process_is_dead_once() {
    let mut primary = Primary::start("a", 0);
    let mut standby = Standby::new();
    standby.primary_probe.watch(&primary.address, "a", LeaseId(5));
    assert_eq!(standby.next().await, connected("a"));
    primary.kill();
    assert_eq!(standby.next().await, dead("a"));
    standby.says_nothing().await;
    // Following the same once more changes nothing: it was dead and is.
    standby.primary_probe.watch(&primary.address, "a", LeaseId(5));
    standby.says_nothing().await;
}

#[tokio::test]
async fn a_stopped_process_is_not_dead() {
    let mut primary = Primary::start("a", 0);
    let mut standby = Standby::new();
    standby.primary_probe.watch(&primary.address, "a", LeaseId(5));
    assert_eq!(standby.next().await, connected("a"));
    primary.signal(Signal::STOP);
    standby.says_nothing().await;
    primary.signal(Signal::CONT);
    standby.says_nothing().await;
    primary.kill();
    assert_eq!(standby.next().await, dead("a"));
}

#[tokio::test]
async fn a_process_in_the_same_place_is_another() {
    let mut old = Primary::start("old", 0);
    let mut standby = Standby::new();
    standby.primary_probe.watch(&old.address, "old", LeaseId(5));
    assert_eq!(standby.next().await, connected("old"));
    old.kill();
    assert_eq!(standby.next().await, dead("old"));
    let mut new = Primary::start("new", old.port());
    // Whoever looks for the old one there finds nothing, dead or alive.
    standby.primary_probe.watch(&new.address, "even older", LeaseId(5));
    standby.says_nothing().await;
    standby.primary_probe.watch(&new.address, "new", LeaseId(5));
    assert_eq!(standby.next().await, connected("new"));
    new.kill();
    assert_eq!(standby.next().await, dead("new"));
}

#[tokio::test]
async fn nobody_is_dead_who_was_never_met() {
    let mut primary = Primary::start("a", 0);
    let mut standby = Standby::new();
    // Another lease than the one it leads with: an earlier term of the same process.
    standby.primary_probe.watch(&primary.address, "a", LeaseId(4));
    standby.says_nothing().await;
    primary.kill();
    standby.says_nothing().await;
    standby.primary_probe.watch(&primary.address, "a", LeaseId(5));
    standby.says_nothing().await;
    standby.primary_probe.leave();
    standby.says_nothing().await;
}

#[tokio::test]
async fn a_broken_connection_alone_is_no_death() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut standby = Standby::new();
    standby.primary_probe.watch(&address, "a", LeaseId(5));
    let first = greet(&listener, "a").await;
    assert_eq!(standby.next().await, connected("a"));
    // It breaks, and the same process is there.
    drop(first);
    let second = greet(&listener, "a").await;
    assert_eq!(standby.next().await, connected("a"));
    // It breaks, and another process is there: the old one's lease has to run out.
    drop(second);
    let third = greet(&listener, "b").await;
    standby.says_nothing().await;
    drop(third);
    drop(listener);
    standby.says_nothing().await;
}

#[tokio::test]
async fn a_port_that_still_accepts_for_a_moment_refuses_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut standby = Standby::new();
    standby.primary_probe.watch(&address, "a", LeaseId(5));
    let first = greet(&listener, "a").await;
    assert_eq!(standby.next().await, connected("a"));
    // As when a process ends: the connection goes first, then, with what waits to be accepted, the port.
    drop(first);
    tokio::time::sleep(Duration::from_millis(5)).await;
    drop(listener);
    assert_eq!(standby.next().await, dead("a"));
}

#[tokio::test]
async fn a_probe_without_an_answer_is_followed_by_others() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(1).unwrap();
    socket.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(socket.into()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut standby = Standby::new();
    standby.primary_probe.watch(&address.to_string(), "a", LeaseId(5));
    let first = greet(&listener, "a").await;
    assert_eq!(standby.next().await, connected("a"));
    // These wait to be accepted, and no more fit: the first probe after the break meets silence, later ones a closed port.
    let _waiting = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(listener);
    assert_eq!(standby.next().await, dead("a"));
}

#[tokio::test]
async fn something_else_on_the_port_is_no_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut standby = Standby::new();
    standby.primary_probe.watch(&address, "a", LeaseId(5));
    for said in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[b'x'; 5000]] {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(said).await.unwrap();
        // The standby ends the connection, not this side.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.expect("still connected");
    }
    drop(listener);
    standby.says_nothing().await;
}

#[tokio::test]
async fn a_lease_counts_from_when_it_is_led_with() {
    let server = Server::start().await;
    let mut standby = Standby::new();
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    standby.says_nothing().await;
    server.state.send(state("a", 5)).unwrap();
    assert_eq!(standby.next().await, connected("a"));
    // It says that it has ceased to lead, and then goes: there is nothing to revoke.
    server.state.send(state("a", 0)).unwrap();
    standby.says_nothing().await;
    server.stop.send(true).unwrap();
    standby.says_nothing().await;
}

#[tokio::test]
async fn applied_ids_arrive_and_are_few() {
    let mut server = Server::start().await;
    let standby = Standby::new();
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(
        server.report().await,
        PeerReport { name: STANDBY.0.into(), boot_id: STANDBY.1.into(), applied: SequenceId(0) }
    );
    let writer = tokio::spawn(async move {
        let begin = std::time::Instant::now();
        for id in 1..=20_000 {
            standby.applied.send(SequenceId(id)).unwrap();
            if id % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        (standby, begin.elapsed())
    });
    let mut count = 0;
    let mut last = SequenceId(0);
    while last < SequenceId(20_000) {
        let report = server.report().await;
        assert!(report.applied >= last);
        last = report.applied;
        count += 1;
    }
    let (_standby, took) = writer.await.unwrap();
    // At most one each 5 ms, and some for the beginning and the end.
    assert!(count <= took.as_millis() / 5 + 10, "{count} reports in {took:?}");
}

#[tokio::test]
async fn a_peer_is_told_at_once_and_at_every_change() {
    let server = Server::start().await;
    let mut peer = Raw::proven(&server.address, STANDBY).await;
    let mut next = async || -> PeerState { serde_json::from_value(peer.read().await.unwrap()).unwrap() };
    assert_eq!(next().await, state("a", 0));
    server.state.send(state("a", 9)).unwrap();
    assert_eq!(next().await, state("a", 9));
    // And again when nothing changes.
    assert_eq!(next().await, state("a", 9));
}

#[tokio::test]
async fn the_primary_tells_its_durable_prefix_and_not_too_often() {
    let server = Server::start().await;
    let mut standby = Standby::new();
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    server.state.send(state("a", 5)).unwrap();
    let told = |durable| PeerEvent::Told {
        boot_id: "a".into(),
        term: Term(7),
        log: LogId(0xab),
        durable: SequenceId(durable),
        sent_ms: 0,
    };
    assert_eq!(standby.any().await, connected("a"));
    assert_eq!(standby.any().await, told(0));
    let begin = std::time::Instant::now();
    let writer = tokio::spawn(async move {
        for id in 1..=500 {
            server.state.send(PeerState { durable: SequenceId(id), ..state("a", 5) }).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server
    });
    let mut count = 0;
    let mut last = standby.any().await;
    while last != told(500) {
        last = standby.any().await;
        count += 1;
    }
    let _server = writer.await.unwrap();
    let took = begin.elapsed();
    assert!(count <= took.as_millis() / 100 + 2, "{count} lines in {took:?}");
    // And each second when nothing changes.
    assert_eq!(standby.any().await, told(500));
}

#[tokio::test]
async fn a_line_that_tells_no_end_of_the_log_is_still_understood() {
    let old = r#"{"boot_id":"a","name":"m-0","cluster_id":"demo","role":"primary","term":7,"lease":5}"#;
    let read: PeerState = serde_json::from_str(old).unwrap();
    assert_eq!(read, PeerState { log: String::new(), ..state("a", 5) });
}

#[tokio::test]
async fn the_end_of_a_standbys_last_connection_is_told() {
    let mut server = Server::start().await;
    let report = PeerReport { name: "m-2".into(), boot_id: "b2".into(), applied: SequenceId(3) };
    let mut connections = Vec::new();
    for _ in 0..2 {
        let mut peer = Raw::proven(&server.address, ("m-2", "b2")).await;
        peer.write(&report).await.unwrap();
        assert_eq!(server.message().await, PeerMessage::Report(report.clone()));
        connections.push(peer);
    }
    connections.pop();
    server.reports_nothing().await;
    connections.pop();
    assert_eq!(server.message().await, PeerMessage::Gone { name: "m-2".into(), boot_id: "b2".into() });
}
