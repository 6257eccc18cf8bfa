//! Being let in: certificates, users.

use std::path::{Path, PathBuf};
use std::time::Duration;

use moonkeeper::coordination::etcd::{Etcd, EtcdSettings, LoginFiles, Tls, TlsFiles, TlsPem, User, UserName};
use moonkeeper::coordination::types::{Failure, Get, KeyRange, Request};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::checks::{watch_of, write};
use crate::process::{EtcdProcess, Folder, binary};
use crate::stores::Store;

const DEADLINE: Duration = Duration::from_secs(5);

fn read() -> Request {
    Request::Get(Get::all(KeyRange::key("a")))
}

/// Writes a CA, and what it has signed for a server called `etcd.test` and for a client, into a folder.
fn certificates(folder: &Path, prefix: &str) -> TlsFiles {
    let path = |name: &str| folder.join(format!("{prefix}{name}.pem"));
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(path("ca"), ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["etcd.test".to_owned()]).unwrap();
        std::fs::write(path(name), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(path(&format!("{name}-key")), key.serialize_pem()).unwrap();
    }
    TlsFiles {
        ca: path("ca"),
        identity: Some((path("client"), path("client-key"))),
        server_name: Some("etcd.test".to_owned()),
    }
}

#[tokio::test]
async fn certificates_let_in() {
    let folder = Folder::new();
    let files = certificates(folder.path(), "");
    let argument = |name: &str, file: &str| format!("--{name}={}", folder.path().join(file).display());
    let arguments = [
        argument("cert-file", "server.pem"),
        argument("key-file", "server-key.pem"),
        argument("trusted-ca-file", "ca.pem"),
        "--client-cert-auth".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let process = EtcdProcess::start_with(binary("ETCD_BIN"), &arguments).await;
    let settings =
        |tls: TlsFiles| EtcdSettings { tls: Some(tls.into()), ..EtcdSettings::new([process.url()]) };

    let etcd = Etcd::connect(settings(files.clone())).unwrap();
    let store = Store::Etcd(etcd);
    let at = write(&store, "a", "1").await;
    store.watch(watch_of("a", at)).changes_until(at).await;

    // The same from memory.
    let (certificate, key) = files.identity.clone().unwrap();
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let pem = TlsPem {
        ca: bytes(&files.ca),
        identity: Some((bytes(&certificate), bytes(&key))),
        server_name: files.server_name.clone(),
    };
    let given = EtcdSettings { tls: Some(Tls::Given(pem)), ..EtcdSettings::new([process.url()]) };
    Etcd::connect(given).unwrap().call(read(), DEADLINE).await.unwrap();

    // Another name, no certificate of our own, one of a CA that etcd does not know, a CA that did not sign etcd's.
    let others = certificates(folder.path(), "other-");
    for tls in [
        TlsFiles { server_name: None, ..files.clone() },
        TlsFiles { identity: None, ..files.clone() },
        TlsFiles { identity: others.identity.clone(), ..files.clone() },
        TlsFiles { ca: others.ca.clone(), ..files.clone() },
    ] {
        let answer = Etcd::connect(settings(tls)).unwrap().call(read(), DEADLINE).await;
        assert!(matches!(answer, Err(Failure::Unknown(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_refused() {
    let no_file = TlsFiles { ca: PathBuf::from("/nonexistent/ca.pem"), identity: None, server_name: None };
    for (settings, expected) in [
        (EtcdSettings::new(Vec::<String>::new()), "no etcd endpoint"),
        (EtcdSettings::new(["http://a b"]), "cannot be used"),
        (EtcdSettings::new(["https://127.0.0.1:1"]), "needs the certificate of a CA"),
        (
            EtcdSettings { tls: Some(no_file.into()), ..EtcdSettings::new(["127.0.0.1:1"]) },
            "/nonexistent/ca.pem",
        ),
    ] {
        let why = Etcd::connect(settings).err().unwrap().to_string();
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn users_log_in_again_when_their_token_is_gone() {
    let mut process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let admin = etcd_client::Client::connect([process.url()], None).await.unwrap();
    let mut auth = admin.auth_client();
    auth.user_add("root", "secret", None).await.unwrap();
    auth.user_grant_role("root", "root").await.unwrap();
    auth.auth_enable().await.unwrap();

    let login = |password: &str| Some(User { name: "root".to_owned(), password: password.to_owned() }.into());
    let settings = EtcdSettings { login: login("secret"), ..EtcdSettings::new([process.url()]) };
    assert!(!format!("{settings:?}").contains("secret"));
    let etcd = Etcd::connect(settings).unwrap();
    let store = Store::Etcd(etcd.clone());
    let at = write(&store, "a", "1").await;

    let nobody = process.client().call(read(), DEADLINE).await;
    assert!(matches!(&nobody, Err(Failure::Refused(_))), "{nobody:?}");
    let wrong = EtcdSettings { login: login("wrong"), ..EtcdSettings::new([process.url()]) };
    let wrong = Etcd::connect(wrong).unwrap().call(read(), DEADLINE).await;
    assert!(matches!(&wrong, Err(Failure::Unknown(_))), "{wrong:?}");

    // Tokens are in etcd's memory only.
    process.kill();
    process.spawn_again();
    let deadline = std::time::Instant::now() + crate::process::PATIENCE;
    while let Err(failure) = etcd.call(read(), DEADLINE).await {
        assert!(std::time::Instant::now() < deadline, "{failure}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.watch(watch_of("a", at)).changes_until(at).await;
}

#[tokio::test]
async fn a_login_that_is_changed_in_its_files_is_used() {
    let folder = Folder::new();
    let (name, password) = (folder.path().join("username"), folder.path().join("password"));
    let write = |user: &str, secret: &str| {
        std::fs::write(&name, user).unwrap();
        std::fs::write(&password, secret).unwrap();
    };
    let process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let admin = etcd_client::Client::connect([process.url()], None).await.unwrap();
    let mut auth = admin.auth_client();
    for user in ["root", "one", "two"] {
        auth.user_add(user, "first", None).await.unwrap();
        auth.user_grant_role(user, "root").await.unwrap();
    }
    write("one", "first\n");
    let files = LoginFiles { name: UserName::File(name.clone()), password: password.clone() };
    let settings = EtcdSettings { login: Some(files.into()), ..EtcdSettings::new([process.url()]) };
    auth.auth_enable().await.unwrap();
    let options = etcd_client::ConnectOptions::new().with_user("root", "first");
    let admin = etcd_client::Client::connect([process.url()], Some(options)).await.unwrap();
    let mut auth = admin.auth_client();
    let etcd = Etcd::connect(settings).unwrap();
    etcd.call(read(), DEADLINE).await.unwrap();

    // The first call after it finds its token gone, the second one logs in with what the file holds now.
    let second_call = async || match etcd.call(read(), DEADLINE).await {
        Ok(_) => Ok(()),
        Err(_) => etcd.call(read(), DEADLINE).await.map(|_| ()),
    };
    auth.user_change_password("one", "second").await.unwrap();
    assert!(second_call().await.is_err(), "the old password is still good");
    write("one", "second");
    second_call().await.unwrap();

    // Another user takes its place, and the old one goes.
    write("two", "first");
    auth.user_delete("one").await.unwrap();
    second_call().await.unwrap();
}
