//! What a log needs: pages pinned to one revision, and compaction.

use bytes::Bytes;
use moonkeeper::coordination::types::{Change, Failure, Get, KeyRange, Op, Request, Response, WatchEvent};

use super::{delete, done, get, pairs, prefix, put, refusal, revision, state, watch_of, write};
use crate::stores::Store;

pub async fn all(store: &Store) {
    pinned_pages(store).await;
    revisions_to_come(store).await;
    compaction(store).await;
}

/// Pages of one revision are one state, whatever is written in between.
async fn pinned_pages(store: &Store) {
    for index in 0..10 {
        write(store, &format!("p/{index}"), "old").await;
    }
    let range = prefix("p/");
    let mut start = range.start.clone();
    let mut pinned = 0;
    let mut read = Vec::new();
    for page in 0.. {
        let part = KeyRange { start: start.clone(), end: range.end.clone() };
        let (at, found) = get(store, Get { revision: pinned, limit: 3, ..Get::all(part) }).await.unwrap();
        if pinned == 0 {
            pinned = at;
        } else {
            assert_eq!(
                at,
                pinned + page,
                "the answer carries the newest revision, not the one that was read"
            );
        }
        assert!(found.entries.iter().all(|entry| entry.value == "old" && entry.version == 1));
        read.extend(found.entries.iter().map(|entry| entry.key.clone()));
        let Some(last) = found.entries.last() else { break };
        start = [&last.key[..], b"\0"].concat().into();
        if !found.more {
            break;
        }
        // One of those already read, one yet to come, and a new one.
        done(store, vec![put("p/0", "new"), delete(&format!("p/{}", 9 - page)), put("p/99", "new")]).await;
    }
    assert_eq!(read, (0..10).map(|index| Bytes::from(format!("p/{index}"))).collect::<Vec<_>>());
    assert_eq!(state(store, "p/", 0).await.len(), 8);
}

async fn revisions_to_come(store: &Store) {
    let now = revision(store).await;
    let future = Get { revision: now + 1, ..Get::all(KeyRange::key("x")) };
    assert!(refusal(store, Request::Get(future.clone())).await.contains("future revision"));
    // A step of a transaction cannot ask for the revision that this one is going to make.
    assert!(
        refusal(store, super::txn(vec![put("x", "1"), Op::Get(future)])).await.contains("future revision")
    );
    assert!(refusal(store, Request::Compact { revision: now + 1 }).await.contains("future revision"));
    assert_eq!(revision(store).await, now);
}

async fn compaction(store: &Store) {
    write(store, "z/1", "a").await;
    write(store, "z/2", "a").await;
    let early = write(store, "z/1", "b").await;
    let at = done(store, vec![delete("z/2")]).await.0;
    write(store, "z/3", "c").await;
    let last = write(store, "z/1", "d").await;
    assert_eq!(store.call(Request::Compact { revision: at }).await, Ok(Response::Compacted));

    assert_eq!(state(store, "z/", at).await, pairs(&[("z/1", "b")]));
    assert_eq!(state(store, "z/", 0).await, pairs(&[("z/1", "d"), ("z/3", "c")]));
    let old = |revision| Get { revision, ..Get::all(prefix("z/")) };
    assert!(matches!(get(store, old(early)).await, Err(Failure::Compacted { .. })));
    let within = super::txn(vec![put("z/4", "x"), Op::Get(old(early))]);
    assert!(matches!(store.call(within).await, Err(Failure::Compacted { .. })));
    assert_eq!(revision(store).await, last);
    for revision in [early, at] {
        assert!(matches!(store.call(Request::Compact { revision }).await, Err(Failure::Compacted { .. })));
    }

    let mut gone = store.watch(watch_of("z/", early));
    assert_eq!(gone.next_but_progress().await, WatchEvent::Compacted { oldest: at });
    let mut kept = store.watch(watch_of("z/", at + 1));
    let changes = kept.changes_until(last).await;
    assert!(matches!(&changes[..], [Change::Put(c), Change::Put(d)] if c.key == "z/3" && d.value == "d"));
    // A key that was written before and not since is still there as it was.
    let (_, page) = get(store, Get::all(KeyRange::key("z/1"))).await.unwrap();
    assert_eq!(page.entries[0].version, 3);
}
