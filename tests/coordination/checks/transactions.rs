//! Transactions.

use moonkeeper::coordination::types::{
    Compare, Get, KeyRange, KeyValue, LeaseId, Op, OpResult, Request, Response, Txn,
};

use super::{delete, done, get, pairs, prefix, put, refusal, revision, state, txn, write};
use crate::stores::Store;

pub async fn all(store: &Store) {
    revisions_and_versions(store).await;
    conditions(store).await;
    branches(store).await;
    order_of_steps(store).await;
    one_change_of_a_key(store).await;
    bounds(store).await;
    large_values(store).await;
}

async fn revisions_and_versions(store: &Store) {
    let first = write(store, "t/a", "1").await;
    assert_eq!(done(store, vec![delete("t/absent")]).await, (first, vec![OpResult::Deleted(0)]));
    assert_eq!(done(store, vec![]).await, (first, vec![]));
    assert_eq!(done(store, vec![put("t/a", "2"), put("t/b", "1")]).await.0, first + 1);
    let (at, page) = get(store, Get::all(KeyRange::key("t/a"))).await.unwrap();
    let entry = KeyValue {
        key: "t/a".into(),
        value: "2".into(),
        create_revision: first,
        mod_revision: first + 1,
        version: 2,
        lease: LeaseId::default(),
    };
    assert_eq!((at, page.entries, page.more), (first + 1, vec![entry], false));
    assert_eq!(done(store, vec![Op::Delete(prefix("t/"))]).await, (first + 2, vec![OpResult::Deleted(2)]));
    write(store, "t/a", "3").await;
    let (_, page) = get(store, Get::all(KeyRange::key("t/a"))).await.unwrap();
    assert_eq!((page.entries[0].create_revision, page.entries[0].version), (first + 3, 1));
}

async fn conditions(store: &Store) {
    let at = write(store, "c/a", "1").await;
    let now = write(store, "c/a", "2").await;
    let a = || "c/a".into();
    let b = || "c/b".into();
    for (compare, expected) in [
        (Compare::CreateRevision { key: a(), equals: at }, true),
        (Compare::CreateRevision { key: a(), equals: now }, false),
        (Compare::CreateRevision { key: a(), equals: 0 }, false),
        (Compare::CreateRevision { key: b(), equals: 0 }, true),
        (Compare::ModRevision { key: a(), equals: now }, true),
        (Compare::ModRevision { key: a(), equals: at }, false),
        (Compare::ModRevision { key: b(), equals: 0 }, true),
        (Compare::Value { key: a(), equals: "2".into() }, true),
        (Compare::Value { key: a(), equals: "1".into() }, false),
        (Compare::Value { key: a(), equals: "".into() }, false),
        (Compare::Value { key: b(), equals: "".into() }, false),
    ] {
        let request = Request::Txn(Txn { compare: vec![compare.clone()], ..Txn::default() });
        let Ok(Response::Txn { revision, succeeded, .. }) = store.call(request).await else {
            panic!("{compare:?}")
        };
        assert_eq!((revision, succeeded), (now, expected), "{compare:?}");
    }
}

async fn branches(store: &Store) {
    let absent = |key: &'static str| Compare::CreateRevision { key: key.into(), equals: 0 };
    let create = |compare: Vec<Compare>| {
        let failure = vec![Op::Get(Get::all(KeyRange::key("b/a")))];
        Request::Txn(Txn { compare, success: vec![put("b/a", "mine")], failure })
    };
    let Ok(Response::Txn { revision: at, succeeded: true, results }) =
        store.call(create(vec![absent("b/a"), absent("b/b")])).await
    else {
        panic!("not created")
    };
    assert_eq!(results, [OpResult::Put]);
    // One that does not hold is enough; nothing is written, and the answer says what is there.
    let answer = store.call(create(vec![absent("b/b"), absent("b/a")])).await.unwrap();
    let Response::Txn { revision, succeeded: false, results } = answer else { panic!("{answer:?}") };
    assert_eq!(revision, at);
    let [OpResult::Got(page)] = &results[..] else { panic!("{results:?}") };
    assert_eq!((&page.entries[0].value[..], page.entries[0].create_revision), (&b"mine"[..], at));
}

async fn order_of_steps(store: &Store) {
    write(store, "o/1", "x").await;
    write(store, "other", "x").await;
    let read = || Op::Get(Get { keys_only: true, ..Get::all(prefix("o/")) });
    let ops = vec![read(), put("o/2", "y"), read(), Op::Delete(KeyRange::between("o/0", "o/2")), read()];
    let (_, results) = done(store, ops).await;
    let keys = |result: &OpResult| match result {
        OpResult::Got(page) => page.entries.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(keys(&results[0]), ["o/1"]);
    assert_eq!(keys(&results[2]), ["o/1", "o/2"]);
    assert_eq!(results[3], OpResult::Deleted(1));
    assert_eq!(keys(&results[4]), ["o/2"]);
}

async fn one_change_of_a_key(store: &Store) {
    let before = revision(store).await;
    for ops in [
        vec![put("d/a", "1"), put("d/a", "2")],
        vec![put("d/a", "1"), delete("d/a")],
        vec![Op::Delete(prefix("d/")), put("d/a", "1")],
    ] {
        assert!(refusal(store, txn(ops)).await.contains("duplicate key"));
    }
    // Branches exclude each other.
    let both = Txn { compare: vec![], success: vec![put("d/b", "1")], failure: vec![put("d/b", "2")] };
    store.call(Request::Txn(both)).await.unwrap();
    assert_eq!(state(store, "d/", 0).await, pairs(&[("d/b", "1")]));
    assert_eq!(revision(store).await, before + 1);
}

async fn bounds(store: &Store) {
    let many = |count: usize| (0..count).map(|index| put(&format!("m/{index:03}"), "")).collect::<Vec<_>>();
    assert_eq!(done(store, many(128)).await.1.len(), 128);
    assert!(refusal(store, txn(many(129))).await.contains("too many operations"));
    assert!(refusal(store, txn(vec![put("", "x")])).await.contains("key is not provided"));
    assert!(refusal(store, Request::Get(Get::all(KeyRange::key("")))).await.contains("key is not provided"));
    // From the empty key on is from the first one on; to the zero byte is to the end.
    let (_, page) = get(store, Get { limit: 1, ..Get::all(prefix("")) }).await.unwrap();
    assert!(page.more && page.entries.len() == 1);
    let (_, page) = get(store, Get::all(KeyRange::between("m/127", &b"\0"[..]))).await.unwrap();
    assert_eq!(page.entries[0].key, "m/127");
    let (_, page) = get(store, Get::all(KeyRange::between("m/1", "m/0"))).await.unwrap();
    assert!(page.entries.is_empty() && !page.more);
}

async fn large_values(store: &Store) {
    let value: Vec<u8> = (0..1_u32 << 20).map(|index| (index % 251) as u8).collect();
    done(store, vec![put("l/a", value.clone()), put("l/b", &b"\x00\xff\x80"[..])]).await;
    let (_, page) = get(store, Get::all(prefix("l/"))).await.unwrap();
    assert!(page.entries[0].value == value);
    assert_eq!(page.entries[1].value, &b"\x00\xff\x80"[..]);
    let (_, page) = get(store, Get { keys_only: true, ..Get::all(prefix("l/")) }).await.unwrap();
    assert!(page.entries.iter().all(|entry| entry.value.is_empty()));
    assert!(refusal(store, txn(vec![put("l/c", vec![0; 1_600_000])])).await.contains("too large"));
    // Many such make an answer far larger than what gRPC takes unless told so.
    for index in 0..8 {
        done(store, vec![put(&format!("l/many/{index}"), vec![index; 1 << 20])]).await;
    }
    let (_, page) = get(store, Get::all(prefix("l/many/"))).await.unwrap();
    assert!(page.entries.len() == 8 && page.entries.iter().all(|entry| entry.value.len() == 1 << 20));
    done(store, vec![Op::Delete(prefix("l/"))]).await;
}
