//! Leases.

use moonkeeper::coordination::types::{Change, Failure, Get, KeyRange, LeaseId, Request, Response};

use super::{delete, done, get, pairs, put, put_with, refusal, revision, state, txn, watch_of};
use crate::stores::Store;

pub async fn all(store: &Store) {
    grants(store).await;
    absent_leases(store).await;
    revocation(store).await;
    keys_that_change_their_lease(store).await;
    expiry(store).await;
}

async fn granted(store: &Store, ttl_seconds: i64) -> (LeaseId, i64) {
    match store.call(Request::LeaseGrant { ttl_seconds }).await {
        Ok(Response::LeaseGranted { lease, ttl_seconds }) => (lease, ttl_seconds),
        other => panic!("{other:?}"),
    }
}

async fn kept_alive(store: &Store, lease: LeaseId) -> i64 {
    match store.call(Request::LeaseKeepAlive { lease }).await {
        Ok(Response::LeaseKeptAlive { ttl_seconds }) => ttl_seconds,
        other => panic!("{other:?}"),
    }
}

async fn revoke(store: &Store, lease: LeaseId) {
    assert_eq!(store.call(Request::LeaseRevoke { lease }).await, Ok(Response::LeaseRevoked));
}

async fn grants(store: &Store) {
    let before = revision(store).await;
    let (one, ttl) = granted(store, 100).await;
    assert_eq!(ttl, 100);
    let (other, ttl) = granted(store, 1).await;
    assert_eq!(ttl, 2, "none is shorter than one and a half election time-outs, in seconds");
    assert!(one != other && one != LeaseId::default());
    // Twice, since a client may keep the first stream.
    for _ in 0..2 {
        assert_eq!(kept_alive(store, one).await, 100);
        assert_eq!(kept_alive(store, other).await, 2);
    }
    assert!(
        refusal(store, Request::LeaseGrant { ttl_seconds: 9_000_000_001 })
            .await
            .contains("too large lease TTL")
    );
    revoke(store, one).await;
    revoke(store, other).await;
    assert_eq!(revision(store).await, before, "leases without keys change no revision");
}

async fn absent_leases(store: &Store) {
    let (lease, _) = granted(store, 100).await;
    revoke(store, lease).await;
    revoke(store, lease).await;
    assert!(kept_alive(store, lease).await <= 0);
    let before = revision(store).await;
    let request = txn(vec![put("e/a", "1"), put_with("e/b", "1", lease)]);
    assert_eq!(store.call(request).await, Err(Failure::LeaseNotFound));
    assert_eq!(revision(store).await, before);
}

async fn revocation(store: &Store) {
    let (lease, _) = granted(store, 100).await;
    let (other, _) = granted(store, 100).await;
    let ops = vec![put_with("r/c", "1", lease), put_with("r/a", "1", lease), put_with("r/b", "1", other)];
    let at = done(store, ops).await.0;
    let (_, page) = get(store, Get::all(KeyRange::key("r/a"))).await.unwrap();
    assert_eq!(page.entries[0].lease, lease);
    let mut watch = store.watch(watch_of("r/", at + 1));
    revoke(store, lease).await;
    let deleted = |key: &'static str| Change::Deleted { key: key.into(), revision: at + 1 };
    assert_eq!(watch.changes_until(at + 1).await, [deleted("r/a"), deleted("r/c")]);
    assert_eq!(state(store, "r/", 0).await, pairs(&[("r/b", "1")]));
    revoke(store, other).await;
}

async fn keys_that_change_their_lease(store: &Store) {
    let (first, _) = granted(store, 100).await;
    let (second, _) = granted(store, 100).await;
    done(store, vec![put_with("k/a", "1", first), put_with("k/b", "1", first), put_with("k/c", "1", first)])
        .await;
    done(store, vec![put_with("k/a", "2", second), put("k/b", "2"), delete("k/c")]).await;
    done(store, vec![put("k/c", "3")]).await;
    let before = revision(store).await;
    revoke(store, first).await;
    assert_eq!(revision(store).await, before);
    revoke(store, second).await;
    assert_eq!(state(store, "k/", 0).await, pairs(&[("k/b", "2"), ("k/c", "3")]));
}

/// A lease that is kept alive outlives one that is not.
async fn expiry(store: &Store) {
    let (kept, _) = granted(store, 2).await;
    let (left, _) = granted(store, 2).await;
    let ops =
        vec![put_with("x/kept", "1", kept), put_with("x/left", "1", left), put_with("x/also", "1", left)];
    let at = done(store, ops).await.0;
    let mut watch = store.watch(watch_of("x/", at + 1));
    let gone = {
        let gone = watch.changes_until(at + 1);
        tokio::pin!(gone);
        loop {
            tokio::select! {
                gone = &mut gone => break gone,
                () = tokio::time::sleep(std::time::Duration::from_millis(300)) => {
                    assert_eq!(kept_alive(store, kept).await, 2);
                }
            }
        }
    };
    let deleted = |key: &'static str| Change::Deleted { key: key.into(), revision: at + 1 };
    assert_eq!(gone, [deleted("x/also"), deleted("x/left")]);
    assert!(kept_alive(store, left).await <= 0);
    assert_eq!(state(store, "x/", 0).await, pairs(&[("x/kept", "1")]));
    assert_eq!(
        watch.changes_until(at + 2).await,
        [Change::Deleted { key: "x/kept".into(), revision: at + 2 }]
    );
}
