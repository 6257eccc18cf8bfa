//! Real etcd that is stopped, killed, started again, compacted, cut off from its leader: the client notices, and heals.

use std::time::{Duration, Instant};

use moonkeeper::cluster::keys::Keys;
use moonkeeper::coordination::etcd::{Etcd, EtcdSettings};
use moonkeeper::coordination::types::{
    Change, Failure, Get, KeyRange, LeaseId, Request, Response, WatchEvent,
};
use moonkeeper::operator::keys_watch::{self, WatchedKeys};
use rustix::process::Signal;

use crate::checks::{get, put_with, revision, txn, watch_of, write};
use crate::process::{EtcdProcess, PATIENCE, binary};
use crate::stores::Store;

/// What a call may take here: far more than it takes, and less than a test's patience.
const DEADLINE: Duration = Duration::from_secs(1);

fn read() -> Request {
    Request::Get(Get::all(KeyRange::key("a")))
}

/// Asks until there is an answer, as a master does.
async fn until_answered(etcd: &Etcd, request: Request) -> Response {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match etcd.call(request.clone(), DEADLINE).await {
            Ok(response) => return response,
            Err(Failure::Unknown(why)) => assert!(Instant::now() < deadline, "{why}"),
            Err(other) => panic!("{other}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn assert_unknown(etcd: &Etcd, request: Request) {
    let answer = etcd.call(request, DEADLINE).await;
    assert!(matches!(answer, Err(Failure::Unknown(_))), "{answer:?}");
}

async fn granted(etcd: &Etcd) -> LeaseId {
    match until_answered(etcd, Request::LeaseGrant { ttl_seconds: 1000 }).await {
        Response::LeaseGranted { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_stopped_etcd_is_noticed_and_waited_for() {
    let process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let etcd = process.client();
    let store = Store::Etcd(etcd.clone());
    let at = write(&store, "a", "1").await;
    let mut watch = store.watch(watch_of("a", at));
    watch.changes_until(at).await;

    process.signal(Signal::STOP);
    // The connection stands and takes everything, but nothing comes back.
    assert_unknown(&etcd, read()).await;
    assert!(matches!(watch.next_but_progress().await, WatchEvent::Broken(_)));
    assert_unknown(&etcd, read()).await;
    let mut early = store.watch(watch_of("a", at + 1));
    assert!(matches!(early.next_but_progress().await, WatchEvent::Broken(_)));

    process.signal(Signal::CONT);
    until_answered(&etcd, read()).await;
    let mut watch = store.watch(watch_of("a", at + 1));
    let last = write(&store, "a", "2").await;
    assert_eq!(watch.changes_until(last).await.len(), 1);
}

/// Nothing to tell is not silence: an idle watch is asked for signs of life, and lasts.
#[tokio::test]
async fn an_idle_watch_lasts() {
    for variable in ["ETCD_BIN", "ETCD_DEBIAN_BIN"] {
        let process = EtcdProcess::start(binary(variable)).await;
        let watch_silence = Duration::from_millis(900);
        let settings = EtcdSettings { watch_silence, ..EtcdSettings::new([process.url()]) };
        let store = Store::Etcd(Etcd::connect(settings).unwrap());
        let at = write(&store, "a", "1").await;
        let mut watch = store.watch(watch_of("a", at + 1));
        let start = Instant::now();
        while start.elapsed() < 3 * watch_silence {
            // Others go on, but of that there is nothing to tell; what was told is what the watch says.
            write(&store, "b", "1").await;
            assert_eq!(watch.next().await, WatchEvent::Progress { revision: at });
        }
        let last = write(&store, "a", "2").await;
        assert_eq!(watch.changes_until(last).await.len(), 1);
    }
}

/// Neither do others write here: then etcd answers a request for progress only if the watch starts in its past.
#[tokio::test]
async fn what_the_operator_sees_of_an_idle_etcd_lasts() {
    for variable in ["ETCD_BIN", "ETCD_DEBIAN_BIN"] {
        let process = EtcdProcess::start(binary(variable)).await;
        let watch_silence = Duration::from_millis(900);
        let settings = EtcdSettings { watch_silence, ..EtcdSettings::new([process.url()]) };
        let etcd = Etcd::connect(settings).unwrap();
        let keys = Keys::new("demo");
        write(&Store::Etcd(etcd.clone()), "mooncake-store/demo/master_view", "10.0.0.1:1").await;
        let (sender, mut watched_keys) = tokio::sync::watch::channel(WatchedKeys::NotYet);
        let watching = keys_watch::watch(etcd.clone(), keys, "etcd".to_owned(), sender, || ());
        let watching = tokio::spawn(watching);
        let read = watched_keys.wait_for(|watched_keys| matches!(watched_keys, WatchedKeys::Current { .. }));
        drop(tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap());
        // The revision that was read may be told once more; another read would be published, too.
        let mut published = 0;
        let count = async {
            while watched_keys.changed().await.is_ok() {
                published += 1;
            }
        };
        _ = tokio::time::timeout(4 * watch_silence, count).await;
        assert!(published <= 1, "the keys of an idle etcd were read {published} times again");
        // It is alive.
        write(&Store::Etcd(etcd), "mooncake-store/demo/master_view", "10.0.0.2:1").await;
        tokio::time::timeout(PATIENCE, watched_keys.changed()).await.unwrap().unwrap();
        assert!(
            matches!(&*watched_keys.borrow(), WatchedKeys::Current { view, .. } if view.serving.as_ref().is_some_and(|it| it.address == "10.0.0.2:1"))
        );
        watching.abort();
    }
}

/// A keep-alive that was given up must not lend its answer to the next one, or a lease would be counted as alive that
/// has ended.
#[tokio::test]
async fn a_late_answer_to_a_keep_alive_is_nobodys() {
    let process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let etcd = process.client();
    let lease = granted(&etcd).await;
    let keep_alive = Request::LeaseKeepAlive { lease };
    for _ in 0..3 {
        let answer = etcd.call(keep_alive.clone(), DEADLINE).await;
        assert_eq!(answer, Ok(Response::LeaseKeptAlive { ttl_seconds: 1000 }));
    }
    process.signal(Signal::STOP);
    assert_unknown(&etcd, keep_alive.clone()).await;
    process.signal(Signal::CONT);
    until_answered(&etcd, Request::LeaseRevoke { lease }).await;
    let answer = until_answered(&etcd, keep_alive).await;
    assert_eq!(answer, Response::LeaseKeptAlive { ttl_seconds: 0 });
}

#[tokio::test]
async fn a_killed_etcd_is_noticed_and_found_again() {
    let mut process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let etcd = process.client();
    let store = Store::Etcd(etcd.clone());
    let lease = granted(&etcd).await;
    let at = write(&store, "a", "1").await;
    store.call(txn(vec![put_with("leased", "1", lease)])).await.unwrap();
    let mut watch = store.watch(watch_of("a", at));
    watch.changes_until(at).await;

    process.kill();
    assert!(matches!(watch.next_but_progress().await, WatchEvent::Broken(_)));
    assert_unknown(&etcd, read()).await;
    assert_unknown(&etcd, Request::LeaseKeepAlive { lease }).await;

    process.restart().await;
    let answer = until_answered(&etcd, Request::LeaseKeepAlive { lease }).await;
    assert_eq!(answer, Response::LeaseKeptAlive { ttl_seconds: 1000 });
    let mut watch = store.watch(watch_of("a", at));
    let last = write(&store, "a", "2").await;
    assert_eq!(watch.changes_until(last).await.len(), 2);
}

#[tokio::test]
async fn who_was_away_for_a_compaction_reads_on_from_there() {
    let mut process = EtcdProcess::start(binary("ETCD_BIN")).await;
    let etcd = process.client();
    let store = Store::Etcd(etcd.clone());
    let at = write(&store, "a", "1").await;
    let mut watch = store.watch(watch_of("a", at));
    watch.changes_until(at).await;
    process.kill();
    assert!(matches!(watch.next_but_progress().await, WatchEvent::Broken(_)));
    process.restart().await;

    // Somebody else goes on meanwhile.
    let other = Store::Etcd(process.client());
    for _ in 0..5 {
        write(&other, "a", "x").await;
    }
    let oldest = revision(&other).await;
    other.call(Request::Compact { revision: oldest }).await.unwrap();

    let mut watch = store.watch(watch_of("a", at + 1));
    assert_eq!(watch.next_but_progress().await, WatchEvent::Compacted { oldest });
    let (revision, page) = get(&store, Get::all(KeyRange::key("a"))).await.unwrap();
    assert_eq!(page.entries[0].version, 6);
    let mut watch = store.watch(watch_of("a", revision + 1));
    let last = write(&other, "a", "y").await;
    assert!(matches!(&watch.changes_until(last).await[..], [Change::Put(entry)] if entry.value == "y"));
}

#[tokio::test]
async fn another_member_is_asked_when_one_hangs_or_dies() {
    let mut members = EtcdProcess::start_three(&binary("ETCD_BIN")).await;
    let urls: Vec<String> = members.iter().map(|member| member.url().to_owned()).collect();
    let etcd = Etcd::connect(EtcdSettings::new(urls)).unwrap();
    let store = Store::Etcd(etcd.clone());
    let mut told = write(&store, "a", "0").await;
    // The first endpoint is the one in use, and the next when that is given up is the second.
    for (index, hang) in [(0, true), (1, false)] {
        let mut watch = store.watch(watch_of("a", told));
        watch.changes_until(told).await;
        if hang {
            members[index].signal(Signal::STOP);
        } else {
            members[index].kill();
        }
        assert!(matches!(watch.next_but_progress().await, WatchEvent::Broken(_)));
        until_answered(&etcd, txn(vec![put_with("a", "1", LeaseId::default())])).await;
        let last = write_until_answered(&etcd).await;
        let mut watch = store.watch(watch_of("a", told + 1));
        watch.changes_until(last).await;
        told = last;
        if hang {
            members[index].signal(Signal::CONT);
        } else {
            members[index].restart().await;
        }
    }
}

/// Without any stream that could break.
#[tokio::test]
async fn a_call_without_an_answer_moves_on_to_the_next_endpoint() {
    let hanging = EtcdProcess::start(binary("ETCD_BIN")).await;
    let other = EtcdProcess::start(binary("ETCD_BIN")).await;
    let etcd = Etcd::connect(EtcdSettings::new([hanging.url(), other.url()])).unwrap();
    // Two clusters of one member each, so that it can be told which one answers.
    write(&Store::Etcd(etcd.clone()), "a", "1").await;
    hanging.signal(Signal::STOP);
    assert_unknown(&etcd, read()).await;
    let Ok(Response::Got { page, .. }) = etcd.call(read(), PATIENCE).await else { panic!("no answer") };
    assert!(page.entries.is_empty(), "answered by the one that has it");
}

async fn write_until_answered(etcd: &Etcd) -> u64 {
    match until_answered(etcd, txn(vec![put_with("a", "2", LeaseId::default())])).await {
        Response::Txn { revision, .. } => revision,
        other => panic!("{other:?}"),
    }
}

/// A member that has lost its leader still answers on open streams; but it would never tell of anything new.
#[tokio::test]
async fn a_watch_at_a_member_without_a_leader_breaks() {
    let members = EtcdProcess::start_three(&binary("ETCD_BIN")).await;
    let etcd = members[0].client();
    let store = Store::Etcd(etcd.clone());
    let at = write(&store, "a", "1").await;
    let mut watch = store.watch(watch_of("a", at));
    watch.changes_until(at).await;
    members[1].signal(Signal::STOP);
    members[2].signal(Signal::STOP);
    assert!(matches!(watch.next_but_progress().await, WatchEvent::Broken(_)));
    assert_unknown(&etcd, read()).await;
    members[1].signal(Signal::CONT);
    members[2].signal(Signal::CONT);
    let last = write_until_answered(&etcd).await;
    store.watch(watch_of("a", at + 1)).changes_until(last).await;
}
