//! Certificates in place of the token: which are accepted, by either side, and what becomes of masters without them.

use std::sync::Arc;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::authority::{Authority, Files, NAME};
use super::*;
use crate::logged;

/// Longer than files are not read again.
const REREAD: Duration = Duration::from_millis(1100);

async fn follow(server: &mut Server, files: &Files) -> Standby {
    let standby = Standby::with(files.read());
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(server.report().await.boot_id, STANDBY.1);
    standby
}

#[tokio::test]
async fn masters_of_one_authority_know_each_other() {
    let authority = Authority::new();
    let (one, other) = (authority.master(), authority.master());
    let mut server = Server::with(one.read()).await;
    let mut standby = follow(&mut server, &other).await;
    server.state.send(state("a", 5)).unwrap();
    let (boot_id, lease) = ("a".to_owned(), LeaseId(5));
    assert_eq!(standby.next().await, PeerEvent::Connected { boot_id: boot_id.clone(), lease });
    standby.applied.send(SequenceId(77)).unwrap();
    while server.report().await.applied != SequenceId(77) {}
    assert_eq!((server.faults.count_and_last().0, standby.faults.count_and_last().0), (0, 0));
    // A port that is closed after that means death, as without TLS.
    server.stop.send(true).unwrap();
    assert_eq!(standby.next().await, PeerEvent::Dead { boot_id, lease });
}

fn expired(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
}

fn to_come(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2999, 1, 1);
    params.not_after = rcgen::date_time_ymd(2999, 2, 1);
}

/// Neither side takes the other for a master, and each says why.
async fn strangers(server: impl Into<PeerCredentials>, client: impl Into<PeerCredentials>) -> [String; 2] {
    let mut server = Server::with(server).await;
    server.state.send(state("a", 5)).unwrap();
    let mut standby = Standby::with(client);
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    let said = [noted(&server.faults).await, noted(&standby.faults).await];
    let (report, event) = (server.reports.try_recv(), standby.events.try_recv());
    assert!(report.is_err() && event.is_err(), "{report:?} {event:?}");
    assert!(said[0].starts_with("127.0.0.1:") && said[1].starts_with(&server.address), "{said:?}");
    said
}

fn expect(said: [String; 2], parts: [&str; 2]) {
    for (said, part) in said.iter().zip(parts) {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test]
async fn other_certificates_are_refused_by_both_sides() {
    let (authority, other) = (Authority::new(), Authority::new());
    let good = authority.master();
    let with = |own: (String, String)| Files::new(&authority.pem(), own);
    let only = |usage: ExtendedKeyUsagePurpose| {
        with(authority.sign(|params| params.extended_key_usages = vec![usage]))
    };
    // It trusts the right ones and is signed by others.
    let wrong = with(other.sign(|_| {}));
    let refused = "refuses this master's certificate";
    expect(strangers(good.read(), wrong.read()).await, ["UnknownIssuer", refused]);
    expect(strangers(wrong.read(), good.read()).await, [refused, "UnknownIssuer"]);
    for out_of_time in [with(authority.sign(expired)), with(authority.sign(to_come))] {
        expect(strangers(good.read(), out_of_time.read()).await, ["certificate", refused]);
        expect(strangers(out_of_time.read(), good.read()).await, [refused, "certificate"]);
    }
    // Each side needs the usage that it makes of it.
    let (server, client) =
        (only(ExtendedKeyUsagePurpose::ServerAuth), only(ExtendedKeyUsagePurpose::ClientAuth));
    expect(strangers(good.read(), server.read()).await, ["certificate", refused]);
    expect(strangers(client.read(), good.read()).await, [refused, "certificate"]);
    let mut server = Server::with(server.read()).await;
    follow(&mut server, &client).await;
}

#[tokio::test]
async fn a_name_can_be_demanded() {
    let authority = Authority::new();
    let named = authority.master();
    let unnamed = Files::new(&authority.pem(), authority.sign(|params| params.subject_alt_names.clear()));
    let refused = "refuses this master's certificate";
    expect(strangers(named.read_with_name(NAME), unnamed.read()).await, ["not valid for name", refused]);
    expect(strangers(unnamed.read(), named.read_with_name(NAME)).await, [refused, "not valid for name"]);
    let mut server = Server::with(named.read_with_name(NAME)).await;
    let standby = Standby::with(named.read_with_name(NAME));
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    assert_eq!(server.report().await.boot_id, STANDBY.1);
}

#[tokio::test]
async fn a_master_with_a_token_and_one_with_certificates_are_strangers() {
    let files = Authority::new().master();
    let certificates = "the certificate of --peer_cert";
    expect(strangers(files.read(), token(TOKEN)).await, ["does not speak TLS", certificates]);
    expect(strangers(token(TOKEN), files.read()).await, [certificates, "does not speak TLS"]);
}

#[tokio::test]
async fn a_master_of_another_cluster_is_refused() {
    let authority = Authority::new();
    let (one, other) = (authority.master(), authority.master());
    let server = Server::with(one.read()).await;
    let own = Identity { cluster_id: "other".to_owned(), ..identity(STANDBY) };
    let standby = Standby::of(own, other.read());
    standby.primary_probe.watch(&server.address, "a", LeaseId(5));
    for (faults, cluster) in [(&server.faults, "than demo"), (&standby.faults, "than other")] {
        let said = noted(faults).await;
        assert!(said.contains("another cluster") && said.contains(cluster), "{said}");
    }
}

#[tokio::test]
async fn plain_text_and_clients_without_a_certificate_learn_nothing() {
    let authority = Authority::new();
    let files = authority.master();
    let mut server = Server::with(files.read()).await;
    // A report as it is, and nothing at all: both are told that there are certificates, and nothing about the process.
    for says in [true, false] {
        let mut raw = Raw::connect(&server.address).await;
        if says {
            let forged = PeerReport { name: "m-1".into(), boot_id: STANDBY.1.into(), applied: SequenceId(9) };
            raw.write(&forged).await.unwrap();
        }
        let told = json!({"protocol": "moonkeeper-peer/1", "nonce": "", "token": "certificates"});
        assert_eq!(raw.read().await, Some(told));
        assert!(raw.is_closed().await);
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(&server.address).await.unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let mut bare = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let mut read = Vec::new();
    let ended = timeout(PATIENCE, bare.read_to_end(&mut read)).await.expect("still connected");
    assert!(ended.is_err() && read.is_empty(), "{ended:?}: {read:?}");
    let (count, last) = server.faults.count_and_last();
    assert!(count == 3 && last.contains("no certificates"), "{count}: {last}");
    assert!(server.reports.try_recv().is_err());
}

#[tokio::test]
async fn renewed_certificates_are_used_by_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let (one, other) = (old.master(), old.master());
    let mut server = Server::with(one.read()).await;
    let mut standby = follow(&mut server, &other).await;
    // Half of a renewal, a key without its certificate, changes nothing.
    std::fs::write(&one.tls.key, new.sign(|_| {}).1).unwrap();
    tokio::time::sleep(REREAD).await;
    drop(follow(&mut server, &other).await);
    one.write(&new.pem(), new.sign(|_| {}));
    tokio::time::sleep(REREAD).await;
    // What is connected stays so; what connects needs the new authority.
    server.state.send(state("a", 5)).unwrap();
    assert!(matches!(standby.next().await, PeerEvent::Connected { .. }));
    let late = Standby::with(other.read());
    late.primary_probe.watch(&server.address, "a", LeaseId(5));
    let said = noted(&late.faults).await;
    assert!(said.contains("certificate"), "{said}");
    // It gets in with its next attempts when it has one, without a start of its own.
    standby.primary_probe.leave();
    drop(standby);
    while !matches!(server.message().await, PeerMessage::Gone { .. }) {}
    other.write(&new.pem(), new.sign(|_| {}));
    assert_eq!(server.report().await.boot_id, STANDBY.1);
}

#[tokio::test]
async fn held_connections_keep_no_standby_out() {
    let files = Authority::new().master();
    let mut server = Server::with(files.read()).await;
    let early = follow(&mut server, &files).await;
    let mut held = Vec::new();
    for number in 0..64 {
        let mut raw = Raw::connect(&server.address).await;
        if number % 2 == 0 {
            // The head of a TLS record whose rest never comes.
            let _ = raw.0.write_all(&[0x16, 3, 1, 1, 0]).await;
        }
        held.push(raw);
    }
    let late = follow(&mut server, &files).await;
    for (standby, applied) in [(&early, 3), (&late, 4)] {
        standby.applied.send(SequenceId(applied)).unwrap();
        while server.report().await.applied != SequenceId(applied) {}
    }
    for raw in &mut held {
        assert!(raw.is_closed().await);
    }
}

#[tokio::test]
async fn refusals_are_all_counted_and_few_are_logged() {
    logged::collect();
    let files = Authority::new().master();
    let server = Server::with(files.read()).await;
    for _ in 0..50 {
        let mut raw = Raw::connect(&server.address).await;
        raw.0.write_all(b"plain\n").await.unwrap();
        assert!(raw.is_closed().await);
    }
    assert_eq!(server.faults.count_and_last().0, 50);
    let lines = logged::take("is not authenticated");
    // One each ten seconds.
    assert!((1..10).contains(&lines.len()), "{lines:?}");
}
