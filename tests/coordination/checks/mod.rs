//! What every store has to do, by subject. Each check has keys of its own and takes revisions as it finds them.

pub mod leases;
pub mod log;
pub mod transactions;
pub mod watches;

use bytes::Bytes;
use moonkeeper::coordination::types::{
    Failure, Get, KeyRange, LeaseId, Op, OpResult, Page, Request, Response, Txn, WatchRequest,
};

use crate::stores::Store;

pub fn put(key: &str, value: impl Into<Bytes>) -> Op {
    put_with(key, value, LeaseId::default())
}

pub fn put_with(key: &str, value: impl Into<Bytes>, lease: LeaseId) -> Op {
    Op::Put { key: key.to_owned().into(), value: value.into(), lease }
}

pub fn delete(key: &str) -> Op {
    Op::Delete(KeyRange::key(key.to_owned()))
}

pub fn prefix(prefix: &str) -> KeyRange {
    KeyRange::prefix(prefix.to_owned())
}

pub fn txn(success: Vec<Op>) -> Request {
    Request::Txn(Txn { success, ..Txn::default() })
}

/// A transaction that succeeds: its revision and what its steps brought.
pub async fn done(store: &Store, ops: Vec<Op>) -> (u64, Vec<OpResult>) {
    match store.call(txn(ops)).await {
        Ok(Response::Txn { revision, succeeded: true, results }) => (revision, results),
        other => panic!("{other:?}"),
    }
}

/// Writes one key.
pub async fn write(store: &Store, key: &str, value: &str) -> u64 {
    done(store, vec![put(key, value.to_owned())]).await.0
}

pub async fn get(store: &Store, get: Get) -> Result<(u64, Page), Failure> {
    match store.call(Request::Get(get)).await? {
        Response::Got { revision, page } => Ok((revision, page)),
        other => panic!("{other:?}"),
    }
}

/// The store's revision.
pub async fn revision(store: &Store) -> u64 {
    get(store, Get::all(KeyRange::key("nothing"))).await.unwrap().0
}

/// Keys and values of a prefix as of a revision, as text.
pub async fn state(store: &Store, of: &str, revision: u64) -> Vec<(String, String)> {
    let (_, page) = get(store, Get { revision, ..Get::all(prefix(of)) }).await.unwrap();
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    page.entries.iter().map(|entry| (text(&entry.key), text(&entry.value))).collect()
}

pub fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub fn watch_of(of: &str, from_revision: u64) -> WatchRequest {
    WatchRequest { range: prefix(of), from_revision, deletions: true }
}

/// Why it was refused.
pub async fn refusal(store: &Store, request: Request) -> String {
    match store.call(request).await {
        Err(Failure::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}
