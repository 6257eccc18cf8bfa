//! The embedded store, through its server: the list of checks, its file, etcd's own command.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use moonkeeper::coordination::embedded::{Store as Embedded, serve};
use moonkeeper::coordination::etcd::{Etcd, EtcdSettings};
use moonkeeper::coordination::types::{
    Change, Failure, Get, KeyRange, LeaseId, Request, Response, WatchEvent,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::checks::{delete, done, get, prefix, put, put_with, revision, state, watch_of, write};
use crate::ports::free_port;
use crate::process::{Folder, PATIENCE, binary};
use crate::stores::Store;
use crate::suite;

/// A served store.
pub struct Served {
    pub address: String,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Served {
    pub async fn start(folder: Option<&Path>) -> Self {
        let store = Embedded::open(folder).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { _ = stopped.await };
        let ended = tokio::spawn(async move { serve(listener, store, stopped).await.unwrap() });
        Self { address, stop, ended }
    }

    pub fn client(&self) -> Store {
        Store::Etcd(client(&self.address))
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap();
    }
}

fn client(address: &str) -> Etcd {
    Etcd::connect(EtcdSettings::new([address])).unwrap()
}

#[tokio::test]
async fn the_embedded_store_passes() {
    let served = Served::start(None).await;
    suite::run(&served.client()).await;
    served.stop().await;
}

#[tokio::test]
async fn the_embedded_store_on_disk_passes() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    suite::run(&served.client()).await;
    served.stop().await;
    // And what the whole list left behind can be read again.
    let served = Served::start(Some(folder.path())).await;
    assert_eq!(state(&served.client(), "k/", 0).await.len(), 2);
    served.stop().await;
}

async fn granted(store: &Store, ttl_seconds: i64) -> LeaseId {
    match store.call(Request::LeaseGrant { ttl_seconds }).await {
        Ok(Response::LeaseGranted { lease, .. }) => lease,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_restart_changes_nothing_but_the_time_that_leases_have_left() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    let store = served.client();
    write(&store, "a/1", "old").await;
    let at = done(&store, vec![put("a/1", "new"), put("a/2", "x")]).await.0;
    let kept = granted(&store, 1000).await;
    let ended = granted(&store, 1000).await;
    done(&store, vec![put_with("a/kept", "1", kept), put_with("a/ended", "1", ended)]).await;
    store.call(Request::LeaseRevoke { lease: ended }).await.unwrap();
    done(&store, vec![delete("a/2")]).await;
    store.call(Request::Compact { revision: at }).await.unwrap();
    let last = write(&store, "a/3", "y").await;
    let before = get(&store, Get::all(prefix("a/"))).await;
    let before_at = get(&store, Get { revision: at, ..Get::all(prefix("a/")) }).await;
    let changes = store.watch(watch_of("a/", at)).changes_until(last).await;
    served.stop().await;

    for _ in 0..2 {
        let served = Served::start(Some(folder.path())).await;
        let store = served.client();
        assert_eq!(get(&store, Get::all(prefix("a/"))).await, before);
        assert_eq!(get(&store, Get { revision: at, ..Get::all(prefix("a/")) }).await, before_at);
        let old = get(&store, Get { revision: at - 1, ..Get::all(prefix("a/")) }).await;
        assert!(matches!(old, Err(Failure::Compacted { .. })));
        assert_eq!(store.watch(watch_of("a/", at)).changes_until(last).await, changes);
        assert_eq!(
            store.watch(watch_of("a/", at - 1)).next_but_progress().await,
            WatchEvent::Compacted { oldest: at }
        );
        let answer = store.call(Request::LeaseKeepAlive { lease: kept }).await;
        assert_eq!(answer, Ok(Response::LeaseKeptAlive { ttl_seconds: 1000 }));
        let answer = store.call(Request::LeaseKeepAlive { lease: ended }).await;
        assert_eq!(answer, Ok(Response::LeaseKeptAlive { ttl_seconds: 0 }));
        served.stop().await;
    }
    // The key still belongs to its lease.
    let served = Served::start(Some(folder.path())).await;
    let store = served.client();
    store.call(Request::LeaseRevoke { lease: kept }).await.unwrap();
    let gone = store.watch(watch_of("a/", last + 1)).changes_until(last + 1).await;
    assert_eq!(gone, [Change::Deleted { key: "a/kept".into(), revision: last + 1 }]);
    served.stop().await;
}

#[tokio::test]
async fn the_file_is_written_anew_when_much_was_given_up() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    let store = served.client();
    for index in 0..80_u8 {
        done(&store, vec![put("a", vec![index; 100_000]), put(&format!("b/{index}"), "x")]).await;
    }
    let size = || std::fs::metadata(folder.path().join("store.log")).unwrap().len();
    assert!(size() > 8_000_000);
    let last = revision(&store).await;
    store.call(Request::Compact { revision: last - 1 }).await.unwrap();
    // In steps, the last of which come when no client changes anything.
    let deadline = Instant::now() + PATIENCE;
    while size() > 400_000 {
        assert!(Instant::now() < deadline, "{}", size());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = write(&store, "b/after", "x").await;
    let before = get(&store, Get::all(prefix(""))).await;
    served.stop().await;
    let served = Served::start(Some(folder.path())).await;
    let store = served.client();
    assert_eq!(get(&store, Get::all(prefix(""))).await, before);
    assert_eq!(state(&store, "b/", last - 1).await.len(), 79);
    // What the revision that was compacted to changed is told in its order.
    let changes = store.watch(watch_of("", last - 1)).changes_until(after).await;
    assert!(matches!(&changes[..2], [Change::Put(a), Change::Put(b)] if a.key == "a" && b.key == "b/78"));
    assert_eq!(changes.len(), 5);
    served.stop().await;
}

/// However much of the last entry got to the disk: it is there or not, and everything before it is.
#[tokio::test]
async fn an_entry_that_is_half_written_is_cut_off() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    write(&served.client(), "a", "1").await;
    let path = folder.path().join("store.log");
    let shorter = std::fs::metadata(&path).unwrap().len() as usize;
    write(&served.client(), "b", "2").await;
    served.stop().await;
    let whole = std::fs::read(&path).unwrap();
    for length in shorter..=whole.len() {
        for zeros in [0, 20] {
            let mut bytes = whole[..length].to_vec();
            bytes.resize(length + zeros, 0);
            std::fs::write(&path, &bytes).unwrap();
            let served = Served::start(Some(folder.path())).await;
            let store = served.client();
            // It ends with zeros, so zeros may make it whole.
            let expected = if bytes.starts_with(&whole) { 2 } else { 1 };
            assert_eq!(state(&store, "", 0).await.len(), expected);
            assert_eq!(write(&store, "c", "3").await, 2 + expected as u64);
            served.stop().await;
            let served = Served::start(Some(folder.path())).await;
            assert_eq!(state(&served.client(), "", 0).await.len(), expected + 1);
            served.stop().await;
        }
    }
}

#[tokio::test]
async fn a_damaged_file_is_not_used() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    for key in ["a", "b", "c"] {
        write(&served.client(), key, "1").await;
    }
    assert!(Embedded::open(Some(folder.path())).unwrap_err().to_string().contains("in use"));
    served.stop().await;
    let path = folder.path().join("store.log");
    let whole = std::fs::read(&path).unwrap();
    let entry = (whole.len() - 8) / 3;
    let (first, second, third) = (8, 8 + entry, 8 + 2 * entry);
    let refused = |flipped: &[usize], cut: usize| {
        let mut bytes = whole[..whole.len() - cut].to_vec();
        flipped.iter().for_each(|at| bytes[*at] ^= 1);
        std::fs::write(&path, &bytes).unwrap();
        let why = Embedded::open(Some(folder.path())).unwrap_err().to_string();
        assert!(
            ["damaged", "not a file of the embedded store", "has format"]
                .iter()
                .any(|word| why.contains(word)),
            "{flipped:?}: {why}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file is left as it is");
    };
    // Anything in the first two entries, and the length of the last one.
    for at in (0..third).chain(third..third + 8) {
        refused(&[at], 0);
    }
    // Two neighbours, by what they hold or by their lengths; and a last entry that was half written behind a damaged one.
    refused(&[second + 20, third + 20], 0);
    refused(&[second + 1, third + 1], 0);
    refused(&[first, second, third], 0);
    refused(&[second + 20], entry - 17);
    refused(&[second + 1], entry - 17);
}

/// Names the folder to a process that is to serve a store in it, and the port.
const CHILD: &str = "MOONKEEPER_TEST_STORE";

/// No test: what a process that [`Killed`] starts does.
#[tokio::test]
async fn serve_as_a_child() {
    let Some(told) = std::env::var_os(CHILD) else { return };
    let told = told.into_string().unwrap();
    let (port, folder) = told.split_once(' ').unwrap();
    let store = Embedded::open(Some(Path::new(folder))).unwrap();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
    serve(listener, store, pending()).await.unwrap();
}

/// A process that serves a store and is killed when this is dropped.
pub struct Killed(Child);

impl Killed {
    pub fn start(folder: &Path, port: u16) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "embedded::serve_as_a_child"]);
        command.env(CHILD, format!("{port} {}", folder.display()));
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

pub async fn until_it_answers(etcd: &Etcd) {
    let deadline = Instant::now() + PATIENCE;
    let probe = Request::Get(Get::all(KeyRange::key("probe")));
    while let Err(failure) = etcd.call(probe.clone(), Duration::from_secs(1)).await {
        assert!(Instant::now() < deadline, "{failure}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let folder = Folder::new();
    let port = free_port();
    let etcd = client(&format!("127.0.0.1:{port}"));
    let mut answered: Vec<(u64, String)> = Vec::new();
    for round in 0..3 {
        let child = Killed::start(folder.path(), port);
        until_it_answers(&etcd).await;
        let store = Store::Etcd(etcd.clone());
        for (at, key) in &answered {
            let (_, page) = get(&store, Get::all(KeyRange::key(key.clone()))).await.unwrap();
            assert_eq!(page.entries[0].mod_revision, *at);
        }
        let writer = {
            let store = Store::Etcd(etcd.clone());
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for index in 0_u64.. {
                    let key = format!("k/{round}/{index:06}");
                    match store.call(crate::checks::txn(vec![put(&key, vec![7; 2000])])).await {
                        Ok(Response::Txn { revision, .. }) => answered.push((revision, key)),
                        _ => break,
                    }
                }
                answered
            })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(child);
        answered.extend(writer.await.unwrap());
    }
    assert!(answered.len() > 3, "{}", answered.len());
}

/// What etcd's own command says; it must succeed.
async fn etcdctl(address: &str, arguments: &[&str], input: &str) -> String {
    let (binary, address): (PathBuf, String) = (binary("ETCDCTL_BIN"), address.to_owned());
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let input = input.to_owned();
    let run = move || {
        let mut command = Command::new(binary);
        command.env("ETCDCTL_ENDPOINTS", &address).args(&arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn the_command_of_etcd_works_with_it() {
    let served = Served::start(None).await;
    let run = async |arguments: &[&str]| etcdctl(&served.address, arguments, "").await;
    assert_eq!(run(&["put", "a", "1"]).await, "OK\n");
    assert_eq!(run(&["put", "--prev-kv", "a", "2"]).await, "OK\na\n1\n");
    run(&["put", "b", "x"]).await;
    assert_eq!(run(&["get", "a"]).await, "a\n2\n");
    assert_eq!(
        run(&["get", "--prefix", "", "--keys-only", "--order=DESCEND", "--sort-by=KEY"]).await,
        "b\n\na\n\n"
    );
    assert_eq!(run(&["get", "a", "--rev=2"]).await, "a\n1\n");
    assert!(run(&["get", "", "--prefix", "--count-only", "-w=fields"]).await.contains("\"Count\" : 2"));
    let transaction = "version(\"a\") > \"1\"\nvalue(\"b\") = \"x\"\n\nput c 3\nget a\n\nput c 4\n\n";
    let said = etcdctl(&served.address, &["txn"], transaction).await;
    assert!(said.starts_with("SUCCESS") && said.ends_with("a\n2\n"), "{said}");
    assert_eq!(run(&["del", "--prefix", "c"]).await, "1\n");
    let said = run(&["lease", "grant", "1000"]).await;
    let lease = said.split(' ').nth(1).unwrap().to_owned();
    run(&["put", "leased", "1", &format!("--lease={lease}")]).await;
    assert!(run(&["lease", "timetolive", "--keys", &lease]).await.contains("attached keys([leased])"));
    assert!(run(&["lease", "keep-alive", "--once", &lease]).await.contains("keepalived with TTL(1000)"));
    assert!(run(&["lease", "list"]).await.contains(&lease));
    run(&["lease", "revoke", &lease]).await;
    assert_eq!(run(&["get", "leased"]).await, "");
    assert!(run(&["endpoint", "status"]).await.contains("3.6"));
    run(&["compact", "3"]).await;
    served.stop().await;
}

#[tokio::test]
async fn the_command_of_etcd_watches_it() {
    let served = Served::start(None).await;
    let store = served.client();
    let at = write(&store, "w/a", "1").await;
    let mut command = tokio::process::Command::new(binary("ETCDCTL_BIN"));
    command.env("ETCDCTL_ENDPOINTS", &served.address).args([
        "watch",
        "--prefix",
        "w/",
        &format!("--rev={at}"),
    ]);
    command.arg("--prev-kv").stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let mut next =
        async || tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    for expected in ["PUT", "w/a", "1"] {
        assert_eq!(next().await, expected);
    }
    write(&store, "w/a", "2").await;
    for expected in ["PUT", "w/a", "1", "w/a", "2"] {
        assert_eq!(next().await, expected);
    }
    done(&store, vec![delete("w/a")]).await;
    for expected in ["DELETE", "w/a", "2", "w/a", ""] {
        assert_eq!(next().await, expected);
    }
    served.stop().await;
}

/// A bounded end: a stop does not wait for clients that keep watching, and they are told.
#[tokio::test]
async fn a_stop_ends_connections() {
    let served = Served::start(None).await;
    let store = served.client();
    let at = write(&store, "a", "1").await;
    let mut watch = store.watch(watch_of("a", at));
    watch.changes_until(at).await;
    served.stop().await;
    assert!(matches!(watch.next_but_progress().await, WatchEvent::Broken(_)));
    assert!(matches!(store.call(Request::Get(Get::all(KeyRange::key("a")))).await, Err(Failure::Unknown(_))));
}
