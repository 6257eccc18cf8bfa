//! Watches.

use moonkeeper::coordination::types::{Change, KeyRange, Op, WatchRequest};

use super::{delete, done, prefix, put, revision, watch_of, write};
use crate::stores::{Store, revision_of};

pub async fn all(store: &Store) {
    replay_and_live(store).await;
    one_key(store).await;
    from_now_on(store).await;
    from_a_revision_to_come(store).await;
    everything_of_a_large_history(store).await;
}

fn named(change: &Change) -> (u64, &[u8], bool) {
    match change {
        Change::Put(entry) => (entry.mod_revision, &entry.key, false),
        Change::Deleted { key, revision } => (*revision, key, true),
    }
}

fn names(changes: &[Change]) -> Vec<(u64, &[u8], bool)> {
    changes.iter().map(named).collect()
}

async fn replay_and_live(store: &Store) {
    let at = done(store, vec![put("w/1", "a"), put("other", "a"), put("w/2", "a")]).await.0;
    write(store, "other", "b").await;
    done(store, vec![delete("w/1"), put("w/3", "b")]).await;
    let mut all = store.watch(watch_of("w/", at));
    let mut puts = store.watch(WatchRequest { deletions: false, ..watch_of("w/", at) });
    let first = [(at, &b"w/1"[..], false), (at, b"w/2", false)];
    let second = [(at + 2, &b"w/1"[..], true), (at + 2, b"w/3", false)];
    assert_eq!(names(&all.changes_until(at + 2).await), [first, second].concat());
    assert_eq!(names(&puts.changes_until(at + 2).await), [&first[..], &second[1..]].concat());
    done(store, vec![Op::Delete(prefix("w/"))]).await;
    write(store, "other", "c").await;
    done(store, vec![put("w/5", "x"), put("w/4", "x")]).await;
    let third = [(at + 3, &b"w/2"[..], true), (at + 3, b"w/3", true)];
    // In the order of the steps, not of the keys.
    let fourth = [(at + 5, &b"w/5"[..], false), (at + 5, b"w/4", false)];
    assert_eq!(names(&all.changes_until(at + 5).await), [third, fourth].concat());
    assert_eq!(names(&puts.changes_until(at + 5).await), fourth);
}

async fn one_key(store: &Store) {
    let range = KeyRange::key("w1/a");
    let at = write(store, "w1/a", "1").await;
    let mut watch = store.watch(WatchRequest { range, from_revision: at, deletions: true });
    write(store, "w1/ab", "1").await;
    let last = write(store, "w1/a", "2").await;
    let changes = watch.changes_until(last).await;
    let [Change::Put(first), Change::Put(second)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&first.value[..], first.version), (&b"1"[..], 1));
    assert_eq!((&second.value[..], second.version, second.create_revision), (&b"2"[..], 2, at));
}

async fn from_now_on(store: &Store) {
    write(store, "w2/a", "before").await;
    let mut watch = store.watch(watch_of("w2/", 0));
    // When it has started is not known, so there is something new until the first of it comes.
    let mut first = tokio::spawn(async move { watch.next_but_progress().await });
    let heard = loop {
        write(store, "w2/a", "after").await;
        let wait = std::time::Duration::from_millis(20);
        if let Ok(event) = tokio::time::timeout(wait, &mut first).await {
            break event.unwrap();
        }
    };
    let moonkeeper::coordination::types::WatchEvent::Changes { changes, .. } = heard else {
        panic!("{heard:?}")
    };
    assert!(matches!(&changes[0], Change::Put(entry) if entry.value == "after"));
}

async fn from_a_revision_to_come(store: &Store) {
    let now = revision(store).await;
    let mut watch = store.watch(watch_of("w3/", now + 3));
    for _ in 0..4 {
        write(store, "w3/a", "x").await;
    }
    let changes = watch.changes_until(now + 4).await;
    assert_eq!(changes.iter().map(revision_of).collect::<Vec<_>>(), [now + 3, now + 4]);
}

/// More than fits in one message, and more than a client puts together, in revisions of several large values each:
/// nothing is missing, and no revision is torn although etcd sends it in fragments.
async fn everything_of_a_large_history(store: &Store) {
    let first = revision(store).await + 1;
    let count: u64 = 60;
    for index in 0..count {
        let value = |part: u8| put(&format!("w4/{index}/{part}"), vec![part; 600_000]);
        done(store, vec![value(0), value(1)]).await;
    }
    let last = first + count - 1;
    let mut watch = store.watch(watch_of("w4/", first));
    let changes = watch.changes_until(last).await;
    let expected: Vec<u64> = (first..=last).flat_map(|revision| [revision, revision]).collect();
    assert_eq!(changes.iter().map(revision_of).collect::<Vec<_>>(), expected);
    let whole = |change: &Change| matches!(change, Change::Put(entry) if entry.value.len() == 600_000);
    assert!(changes.iter().all(whole));
    done(store, vec![Op::Delete(prefix("w4/"))]).await;
}
