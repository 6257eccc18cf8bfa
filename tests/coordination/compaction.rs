//! What compaction and defragmentation free: real etcd and the embedded store are asked the same, and the embedded
//! store, which does both by itself, is written to for longer than its bounds, killed meanwhile, and given a full disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use etcd_client::{
    Client, CompactionOptions, DeleteOptions, Error, EventType, GetOptions, WatchOptions, WatchResponse,
};
use moonkeeper::cluster::etcd_health::HealthRecord;
use moonkeeper::coordination::etcd::{Etcd, EtcdSettings};
use moonkeeper::coordination::types::{Failure, Get, KeyRange, MemberStatus, Response, WatchEvent};

use crate::checks::{get, put, txn, watch_of};
use crate::embedded::{Killed, Served, until_it_answers};
use crate::ports::free_port;
use crate::process::{EtcdProcess, Folder, PATIENCE, binary};
use crate::stores::Store;

async fn status(address: &str) -> MemberStatus {
    let etcd = Etcd::connect(EtcdSettings::new([address])).unwrap();
    etcd.member_status(PATIENCE).await.unwrap()
}

/// Waits until the status is as expected: etcd's is that of up to 100 ms ago.
async fn status_when(address: &str, expected: impl Fn(&MemberStatus) -> bool) -> MemberStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = status(address).await;
        if expected(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn why(error: Error) -> String {
    match error {
        Error::GRpcStatus(status) => format!("{:?}: {}", status.code(), status.message()),
        other => panic!("{other}"),
    }
}

fn events(response: &WatchResponse) -> Vec<String> {
    let name = |event: &etcd_client::Event| {
        let entry = event.kv().unwrap();
        let kind = if event.event_type() == EventType::Put { "put" } else { "delete" };
        let before = event.prev_kv().map(|before| before.mod_revision());
        format!("{kind} {} at {}, before {before:?}", entry.key_str().unwrap(), entry.mod_revision())
    };
    response.events().iter().map(name).collect()
}

/// Fills a store, compacts and defragments it, and returns what it said. Sizes are checked here: their numbers differ.
async fn compacted_and_defragmented(address: &str) -> Vec<String> {
    let mut said = Vec::new();
    let mut client = Client::connect([address], None).await.unwrap();
    for index in 0..40 {
        client.put(format!("k/{}", index % 4), vec![b'v'; 100_000], None).await.unwrap();
    }
    client.delete("k/", Some(DeleteOptions::new().with_range("k/2"))).await.unwrap();
    let last = client.put("k/3", "small", None).await.unwrap().header().unwrap().revision();
    let full = status_when(address, |status| status.in_use_bytes > 4_000_000).await;
    assert!(full.in_use_bytes <= full.db_bytes, "{full:?}");

    let physical = || Some(CompactionOptions::new().with_physical());
    let done = client.compact(last - 1, physical()).await.unwrap();
    said.push(format!("compacted at {}", done.header().unwrap().revision()));
    // What k/3 had before it became small can still be read.
    let compacted = status_when(address, |status| status.in_use_bytes < 1_000_000).await;
    assert!(compacted.db_bytes >= compacted.in_use_bytes, "{compacted:?}");
    for revision in [0, 5, last - 1, last + 1] {
        said.push(why(client.compact(revision, physical()).await.unwrap_err()));
    }
    for revision in [last - 2, last - 1, last] {
        let options = GetOptions::new().with_prefix().with_keys_only().with_revision(revision);
        said.push(match client.get("k/", Some(options)).await {
            Ok(found) => format!("{} keys at {revision}", found.count()),
            Err(error) => why(error),
        });
    }
    for revision in [last - 2, last - 1] {
        let options = WatchOptions::new().with_prefix().with_prev_key().with_start_revision(revision);
        let mut watch = client.watch("k/", Some(options)).await.unwrap();
        let mut told = Vec::new();
        while !told.iter().any(|event: &String| event.contains(&format!("at {last},"))) {
            let next = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap().unwrap().unwrap();
            if next.canceled() {
                said.push(format!("watch: compacted at {}", next.compact_revision()));
                break;
            }
            told.extend(events(&next));
        }
        said.extend(told);
    }

    let done = client.defragment().await.unwrap();
    said.push(format!("defragmented, with a header: {}", done.header().is_some()));
    let small = status_when(address, |status| status.db_bytes < 1_000_000).await;
    assert!(small.in_use_bytes <= small.db_bytes && small.member == full.member, "{small:?}");
    let found = client.get("k/", Some(GetOptions::new().with_prefix())).await.unwrap();
    said.push(format!("revision {}", found.header().unwrap().revision()));
    said.extend(found.kvs().iter().map(|entry| {
        format!("{} at {}: {} bytes", entry.key_str().unwrap(), entry.mod_revision(), entry.value().len())
    }));
    said
}

#[tokio::test]
async fn compaction_and_defragmentation_are_as_in_etcd() {
    let etcd = EtcdProcess::start(binary("ETCD_BIN")).await;
    let expected = compacted_and_defragmented(etcd.url().trim_start_matches("http://")).await;
    let folder = Folder::new();
    for folder in [None, Some(folder.path())] {
        let served = Served::start(folder).await;
        assert_eq!(compacted_and_defragmented(&served.address).await, expected);
        served.stop().await;
    }
}

const MIB: u64 = 1 << 20;

/// The bound of overwritten versions that are kept: see docs/coordination.md.
const SUPERSEDED_BYTES: u64 = 64 * MIB;

/// Ten times the bound of the history is written, with the bounds that `moonkeeper up` has.
#[tokio::test]
async fn ten_times_the_bound_of_the_history_is_written() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    let (store, address) = (served.client(), &served.address);
    let (mut in_use, mut file) = (0, 0);
    let mut behind = store.watch(watch_of("other", 2));
    for index in 0..10 * SUPERSEDED_BYTES / MIB {
        let key = format!("k/{}", index % 4);
        store.call(txn(vec![put(&key, vec![b'v'; MIB as usize])])).await.unwrap();
        let size = status(address).await;
        (in_use, file) = (size.in_use_bytes.max(in_use), size.db_bytes.max(file));
    }
    // The present 4 MiB and the history; what is written while the file is rewritten; twice for superfluous bytes.
    assert!(in_use < SUPERSEDED_BYTES + (4 + 48) * MIB, "{in_use}");
    assert!(file < 2 * (SUPERSEDED_BYTES + 8 * MIB) + 48 * MIB, "{file}");
    // The size is that of the file, and is what the status of a cluster shows.
    let size = status(address).await;
    let on_disk = std::fs::metadata(folder.path().join("store.log")).unwrap().len();
    let shown = HealthRecord::default().take(Duration::ZERO, vec![(address.clone(), Ok(size))]).fullest;
    let shown = (shown.db_bytes.unwrap(), shown.in_use_bytes.unwrap());
    assert!(shown.0 == on_disk && shown.1 <= on_disk, "{shown:?} {on_disk}");
    // What is older is answered as etcd does.
    let old = get(&store, Get { revision: 2, ..Get::all(KeyRange::key("k/0")) }).await;
    assert!(matches!(old, Err(Failure::Compacted { .. })), "{old:?}");
    let ended = store.watch(watch_of("k/", 2)).next_but_progress().await;
    assert!(matches!(ended, WatchEvent::Compacted { .. }), "{ended:?}");
    // A watch that keeps up notices nothing.
    let revision = store.call(txn(vec![put("other", "1")])).await.unwrap();
    assert!(matches!(behind.next_but_progress().await, WatchEvent::Changes { .. }), "{revision:?}");
    // And when everything is deleted, memory and disk are free.
    let all = etcd_client::TxnOp::delete("k/", Some(DeleteOptions::new().with_prefix()));
    let mut client = Client::connect([address], None).await.unwrap();
    client.txn(etcd_client::Txn::new().and_then(vec![all])).await.unwrap();
    let last = crate::checks::revision(&store).await;
    client.compact(last as i64, Some(CompactionOptions::new().with_physical())).await.unwrap();
    client.defragment().await.unwrap();
    let size = status(address).await;
    assert!(size.in_use_bytes < 1000 && size.db_bytes < 1000, "{size:?}");
    served.stop().await;
}

/// Waits until a new file is being written.
async fn until_a_rewrite(unfinished: &Path) -> bool {
    for _ in 0..10_000 {
        if unfinished.exists() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

#[tokio::test]
async fn what_was_answered_survives_a_kill_while_the_file_is_rewritten() {
    let folder = Folder::new();
    let unfinished = folder.path().join("store.log.new");
    let (mut answered, mut cut_short) = (BTreeMap::<String, u64>::new(), 0);
    for round in 0..8_u64 {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let child = Killed::start(folder.path(), port);
        let etcd = Etcd::connect(EtcdSettings::new([address.as_str()])).unwrap();
        until_it_answers(&etcd).await;
        assert!(!unfinished.exists(), "what was not complete is removed");
        let store = Store::Etcd(etcd.clone());
        for (key, at) in &answered {
            let (_, page) = get(&store, Get::all(KeyRange::key(key.clone()))).await.unwrap();
            // The last write of a round may have been carried out without an answer.
            assert!(page.entries[0].mod_revision >= *at, "{key}");
        }
        let writer = tokio::spawn(async move {
            let mut answered = Vec::new();
            for index in 0_u64.. {
                let key = format!("k/{:03}", (index * 37 + round) % 300);
                match store.call(txn(vec![put(&key, vec![7; 20_000])])).await {
                    Ok(Response::Txn { revision, .. }) => {
                        answered.push((key, revision));
                    }
                    _ => break,
                }
            }
            answered
        });
        let compactor = tokio::spawn(async move {
            let mut client = Client::connect([&address], None).await.unwrap();
            for _ in 0..100_000 {
                let Ok(found) = client.get("k/000", None).await else { return };
                let last = found.header().unwrap().revision();
                _ = client.compact(last, None).await;
                _ = client.defragment().await;
            }
        });
        tokio::time::sleep(Duration::from_millis(100 + 70 * round)).await;
        assert!(until_a_rewrite(&unfinished).await, "no rewrite");
        drop(child);
        cut_short += usize::from(unfinished.exists());
        answered.extend(writer.await.unwrap());
        compactor.await.unwrap();
    }
    assert!(answered.len() > 50, "{}", answered.len());
    assert!(cut_short > 0, "no rewrite was cut short");
}

/// The new file does not fit on the disk, on which the old one goes on growing.
#[tokio::test]
async fn a_disk_without_space_for_a_new_file_is_named() {
    let folder = Folder::new();
    let served = Served::start(Some(folder.path())).await;
    let mut client = Client::connect([&served.address], None).await.unwrap();
    for index in 0..20 {
        std::os::unix::fs::symlink("/dev/full", folder.path().join("store.log.new")).unwrap();
        client.put("k", format!("{index}"), None).await.unwrap();
        let refused = why(client.defragment().await.unwrap_err());
        assert!(refused.contains("store.log.new: No space left on device"), "{refused}");
    }
    let last = client.put("k", "last", None).await.unwrap().header().unwrap().revision();
    served.stop().await;
    let served = Served::start(Some(folder.path())).await;
    let mut client = Client::connect([&served.address], None).await.unwrap();
    let found = client.get("k", None).await.unwrap();
    assert_eq!((found.kvs()[0].value(), found.kvs()[0].mod_revision()), (&b"last"[..], last));
    client.defragment().await.unwrap();
    served.stop().await;
}
