//! Who is taken for a master of the same cluster, and what comes of two masters whose tokens differ.

use std::sync::Arc;

use bytes::Bytes;
use moonkeeper::cluster::keys::Keys;
use moonkeeper::coordination::embedded::{Store, serve};
use moonkeeper::coordination::etcd::{Etcd, EtcdSettings};
use moonkeeper::coordination::types::{Get, KeyRange, Op, Request, Response, Txn};

use super::*;

const OTHER_TOKEN: &str = "another-token-of-the-same-kind";

#[tokio::test]
async fn a_proof_with_another_token_is_refused_and_named() {
    let mut server = Server::start().await;
    let mut raw = Raw::connect(&server.address).await;
    let verdict = raw.prove(OTHER_TOKEN, STANDBY).await;
    let mut fields: Vec<_> = verdict.as_object().unwrap().keys().collect();
    fields.sort();
    // Not a word about the process.
    assert_eq!(fields, ["refused"]);
    assert!(raw.is_closed().await);
    server.reports_nothing().await;
    let (count, last) = server.faults.count_and_last();
    assert_eq!(count, 1);
    assert!(last.starts_with("m-1 (127.0.0.1:") && last.contains("tokens differ"), "{last}");
}

#[tokio::test]
async fn an_old_proof_is_worth_nothing() {
    let server = Server::start().await;
    let mut claims = Vec::new();
    for nonce in ["one", "two"] {
        let mut raw = Raw::connect(&server.address).await;
        let hello = raw.read().await.unwrap();
        claims.push((raw, hello["nonce"].as_str().unwrap().to_owned(), nonce));
    }
    let (_, first, nonce) = &claims[0];
    let proof = proof(TOKEN, "client", &["demo", first, nonce, STANDBY.0, STANDBY.1]);
    let claim =
        json!({"nonce": nonce, "name": STANDBY.0, "boot_id": STANDBY.1, "token": "file", "proof": proof});
    // On the connection that it was made for it is good, on the other one it is not.
    for (at, refused) in [(1, true), (0, false)] {
        claims[at].0.write(&claim).await.unwrap();
        let verdict = claims[at].0.read().await.unwrap();
        assert_eq!(verdict.get("refused").is_some(), refused, "{verdict}");
    }
}

#[tokio::test]
async fn a_primary_without_the_token_is_no_primary() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut standby = Standby::new();
    standby.primary_probe.watch(&address, "a", LeaseId(5));
    // It says that it is the one, and leads with the right lease; then it ends, and its port refuses.
    let mut raw = greet_with(&listener, "a", OTHER_TOKEN).await;
    assert!(raw.is_closed().await);
    drop((raw, listener));
    standby.says_nothing().await;
    let (count, last) = standby.faults.count_and_last();
    assert!(count >= 1 && last.starts_with(&address) && last.contains("tokens differ"), "{count} {last}");
}

/// An etcd of this test's own.
async fn etcd() -> (Arc<Etcd>, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, mut stopped) = watch::channel(false);
    let ended = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    tokio::spawn(serve(listener, Store::open(None).unwrap(), ended));
    (Arc::new(Etcd::connect(EtcdSettings::new(vec![format!("http://{address}")])).unwrap()), stop)
}

async fn value(etcd: &Etcd, key: &Bytes) -> Option<String> {
    let get = Request::Get(Get::all(KeyRange::key(key.clone())));
    let Ok(Response::Got { page, .. }) = etcd.call(get, PATIENCE).await else { panic!("no answer") };
    page.entries.first().map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
}

async fn change(etcd: &Etcd, op: Op) {
    let txn = Txn { success: vec![op], ..Txn::default() };
    assert!(matches!(etcd.call(Request::Txn(txn), PATIENCE).await, Ok(Response::Txn { .. })));
}

#[tokio::test]
async fn masters_without_settings_share_a_token_in_etcd() {
    let (etcd, _stop) = etcd().await;
    let key = Keys::new("demo").peer_token();
    let [first, second] = [(); 2].map(|()| PeerToken::in_etcd(Arc::clone(&etcd), key.clone()));
    // Both at once: one of them makes it.
    tokio::join!(first.clone().prepare(), second.clone().prepare());
    let made = value(&etcd, &key).await.unwrap();
    assert!(made.len() == 64 && made.chars().all(|c| c.is_ascii_hexdigit()), "{made}");
    let mut server = Server::with(first).await;
    let standby = Standby::with(second);
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(server.report().await.name, STANDBY.0);

    // The key is deleted, and a master that starts makes another one: the others find it when proofs do not fit.
    change(&etcd, Op::Delete(KeyRange::key(key.clone()))).await;
    let third = PeerToken::in_etcd(Arc::clone(&etcd), key.clone());
    third.clone().prepare().await;
    assert_ne!(value(&etcd, &key).await.unwrap(), made);
    drop(standby);
    while server.message().await != (PeerMessage::Gone { name: STANDBY.0.into(), boot_id: STANDBY.1.into() })
    {
    }
    let standby = Standby::with(third);
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(server.report().await.name, STANDBY.0);
}

#[tokio::test]
async fn a_token_file_on_one_side_only_is_no_fallback() {
    let (etcd, _stop) = etcd().await;
    let in_etcd = PeerToken::in_etcd(etcd, Keys::new("demo").peer_token());
    in_etcd.clone().prepare().await;
    let mut server = Server::with(in_etcd).await;
    let standby = Standby::new();
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    server.reports_nothing().await;
    for (faults, own, other) in [
        (&server.faults, "key peer_token in etcd", "--peer_token_file"),
        (&standby.faults, "--peer_token_file", "key peer_token in etcd"),
    ] {
        let (count, last) = faults.count_and_last();
        let at = |what| last.find(what).unwrap_or_else(|| panic!("{what}: {last}"));
        assert!(count > 0 && at(own) < at(other), "{last}");
    }
}

#[tokio::test]
async fn a_token_file_can_be_replaced() {
    let folder = std::env::temp_dir().join(format!("moonkeeper-peer-replaced-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("token");
    std::fs::write(&path, TOKEN).unwrap();
    let mut server = Server::with(PeerToken::from_file(path.clone()).unwrap()).await;
    let mut standby = Standby::with(PeerToken::from_file(path.clone()).unwrap());
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(server.report().await.name, STANDBY.0);
    std::fs::write(&path, OTHER_TOKEN).unwrap();
    // What is connected stays so, and a new connection takes the new token.
    assert_eq!(server.report().await.name, STANDBY.0);
    let mut raw = Raw::connect(&server.address).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(raw.prove(OTHER_TOKEN, ("m-2", "b2")).await.get("refused").is_none());
    server.state.send(state("a", 5)).unwrap();
    assert!(matches!(standby.next().await, PeerEvent::Connected { .. }));
    std::fs::write(&path, "short").unwrap();
    let why = PeerToken::from_file(path).unwrap_err().to_string();
    assert!(why.starts_with("--peer_token_file: ") && why.contains("at least 16 characters"), "{why}");
    std::fs::remove_dir_all(&folder).unwrap();
}
