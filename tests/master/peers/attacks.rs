//! What strangers, and masters that are not what they say, can do to the peer port: nothing that a standby notices.

use super::*;

/// Bytes after which a writer that is still listened to has made its point. Sockets hold some of it by themselves.
const ENOUGH: usize = 150 << 20;

/// A standby whose reports have to go on arriving.
async fn follow(server: &mut Server) -> Standby {
    let standby = Standby::new();
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(server.report().await.boot_id, STANDBY.1);
    standby
}

/// What the standby has applied arrives, and nothing else does.
async fn reports_arrive(server: &mut Server, standby: &Standby, applied: u64) {
    standby.applied.send(SequenceId(applied)).unwrap();
    loop {
        let message = server.message().await;
        let PeerMessage::Report(report) = message else { panic!("{message:?}") };
        assert_eq!((report.name.as_str(), report.boot_id.as_str()), STANDBY);
        if report.applied == SequenceId(applied) {
            return;
        }
    }
}

/// Sends lines until the other side has had enough; returns how many bytes it took.
async fn flood(mut raw: Raw, line: impl Fn(u64) -> String) -> usize {
    let mut sent = 0;
    for number in 0.. {
        let lines: String = (0..100).map(|more| line(number * 100 + more)).collect();
        let write =
            timeout(PATIENCE, raw.0.write_all(lines.as_bytes())).await.expect("neither read nor closed");
        if write.is_err() || sent >= ENOUGH {
            break;
        }
        sent += lines.len();
    }
    sent
}

fn new_names(number: u64) -> String {
    format!("{{\"name\":\"n-{number:0>200}\",\"boot_id\":\"{number:016x}\",\"applied\":1}}\n")
}

#[tokio::test]
async fn lines_with_new_names_are_not_taken() {
    let mut server = Server::start().await;
    let standby = follow(&mut server).await;
    // Without a proof, and with one.
    let strangers = Raw::connect(&server.address).await;
    let member = Raw::proven(&server.address, ("m-2", "b2")).await;
    let floods = [tokio::spawn(flood(strangers, new_names)), tokio::spawn(flood(member, new_names))];
    for applied in 1..=20 {
        reports_arrive(&mut server, &standby, applied).await;
    }
    for flood in floods {
        let taken = flood.await.unwrap();
        assert!(taken < 16 << 20, "{taken} bytes were taken");
    }
}

#[tokio::test]
async fn too_many_lines_end_a_connection() {
    let mut server = Server::start().await;
    let standby = follow(&mut server).await;
    let line = |number| format!("{{\"name\":\"m-9\",\"boot_id\":\"b9\",\"applied\":{number}}}\n");
    let peer = Raw::proven(&server.address, ("m-9", "b9")).await;
    let flood = tokio::spawn(flood(peer, line));
    reports_arrive(&mut server, &standby, 1).await;
    let taken = flood.await.unwrap();
    assert!(taken < 16 << 20, "{taken} bytes were taken");
    reports_arrive(&mut server, &standby, 2).await;
}

#[tokio::test]
async fn forged_reports_are_not_taken() {
    let mut server = Server::start().await;
    let standby = follow(&mut server).await;
    let forged = PeerReport {
        name: STANDBY.0.into(),
        boot_id: "00000000deadbeef".into(),
        applied: SequenceId(u64::MAX),
    };
    // A stranger, as it was done before there were proofs; it is told nothing about this process either.
    let mut stranger = Raw::connect(&server.address).await;
    let hello = stranger.read().await.unwrap();
    let mut fields: Vec<_> = hello.as_object().unwrap().keys().cloned().collect();
    fields.sort();
    assert_eq!(fields, ["nonce", "protocol", "token"]);
    let _ = stranger.write(&forged).await;
    assert!(stranger.is_closed().await);
    // A master that has the token, in the name of another one, and a process that etcd does not name.
    let mut liar = Raw::proven(&server.address, ("m-2", "b2")).await;
    liar.write(&PeerReport { boot_id: STANDBY.1.into(), ..forged.clone() }).await.unwrap();
    assert!(liar.is_closed().await);
    let mut ghost = Raw::proven(&server.address, (STANDBY.0, "00000000deadbeef")).await;
    for _ in 0..50 {
        ghost.write(&forged).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    reports_arrive(&mut server, &standby, 7).await;
    // It counts as soon as etcd names it, without another word.
    server.members.send_modify(|members| {
        members.insert(STANDBY.0.into(), "00000000deadbeef".into());
    });
    loop {
        if server.report().await.boot_id == "00000000deadbeef" {
            break;
        }
    }
}

#[tokio::test]
async fn held_connections_keep_no_standby_out() {
    let mut server = Server::start().await;
    let mut early = follow(&mut server).await;
    let mut held = Vec::new();
    for number in 0..64 {
        let mut raw = Raw::connect(&server.address).await;
        if number % 2 == 0 {
            let _ = raw.write(&json!({"nonce": ""})).await;
        }
        held.push(raw);
    }
    // The one that was there stays, and another one gets in.
    reports_arrive(&mut server, &early, 3).await;
    let mut late = Raw::proven(&server.address, ("m-2", "b2")).await;
    let report = PeerReport { name: "m-2".into(), boot_id: "b2".into(), applied: SequenceId(9) };
    late.write(&report).await.unwrap();
    while server.report().await != report {}
    // Those who prove nothing are sent away, all of them.
    for raw in &mut held {
        assert!(raw.is_closed().await);
    }
    server.state.send(state("a", 5)).unwrap();
    assert!(matches!(early.next().await, PeerEvent::Connected { .. }));
    reports_arrive_among(&mut server, &early).await;
}

/// As [`reports_arrive`] while others report, too.
async fn reports_arrive_among(server: &mut Server, standby: &Standby) {
    standby.applied.send(SequenceId(4)).unwrap();
    while server.report().await.applied != SequenceId(4) {}
}

#[tokio::test]
async fn names_that_etcd_does_not_know_keep_no_member_out() {
    let mut server = Server::start().await;
    let mut crowd = Vec::new();
    for number in 0..64 {
        let name = format!("made-up-{}", number / 4);
        crowd.push(Raw::proven(&server.address, (&name, "b9")).await);
    }
    let standby = follow(&mut server).await;
    reports_arrive(&mut server, &standby, 1).await;
    // The oldest of them has made way.
    assert!(crowd[0].is_closed().await);
}

#[tokio::test]
async fn a_process_is_not_its_own_peer() {
    let mut server = Server::start().await;
    // As if the claim of this very process had been sent back to it.
    let mut raw = Raw::connect(&server.address).await;
    let hello = raw.read().await.unwrap();
    let said = ["demo", hello["nonce"].as_str().unwrap(), "my-nonce", "m-0", "a"];
    let proof = proof(TOKEN, "client", &said);
    let claim = json!({"nonce": "my-nonce", "name": "m-0", "boot_id": "a", "token": "file", "proof": proof});
    raw.write(&claim).await.unwrap();
    assert_eq!(raw.read().await, None);
    server.reports_nothing().await;
}

#[tokio::test]
async fn strangers_are_counted_and_their_text_is_not_repeated() {
    let server = Server::start().await;
    let mut raw = Raw::connect(&server.address).await;
    raw.write(&json!("text of a stranger")).await.unwrap();
    assert!(raw.is_closed().await);
    let last = noted(&server.faults).await;
    assert!(last.starts_with("127.0.0.1:") && !last.contains("stranger"), "{last}");
    // A probe that connects and goes is none.
    drop(Raw::connect(&server.address).await);
    let mut silent = Raw::connect(&server.address).await;
    assert!(silent.is_closed().await);
    let (count, last) = server.faults.count_and_last();
    assert!(count == 2 && last.contains("in time"), "{count}: {last}");
}

#[tokio::test]
async fn a_member_cannot_take_all_places() {
    let mut server = Server::start().await;
    let standby = follow(&mut server).await;
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(Raw::proven(&server.address, ("m-2", "b2")).await);
    }
    reports_arrive(&mut server, &standby, 1).await;
    let (old, new) = crowd.split_at_mut(96);
    for raw in old {
        assert!(raw.is_closed().await);
    }
    for raw in new {
        assert_eq!(raw.read().await.unwrap()["boot_id"], "a");
    }
}
