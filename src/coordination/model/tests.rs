use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::coordination::types::{
    Change, Compare, Get, KeyRange, KeyValue, Op, OpResult, Page, Txn, WatchEvent, WatchRequest,
};

const NEVER: Duration = Duration::ZERO;

fn put(key: &str, value: &str) -> Op {
    put_with(key, value, LeaseId::default())
}

fn put_with(key: &str, value: &str, lease: LeaseId) -> Op {
    Op::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
    }
}

fn key(key: &str) -> KeyRange {
    KeyRange::key(key.to_owned())
}

fn txn(success: Vec<Op>) -> Request {
    Request::Txn(Txn { success, ..Txn::default() })
}

fn write(model: &mut Model, ops: Vec<Op>) -> u64 {
    match model.call(NEVER, &txn(ops)).unwrap() {
        Response::Txn { revision, succeeded: true, .. } => revision,
        other => panic!("{other:?}"),
    }
}

fn get(model: &mut Model, get: Get) -> Result<Page, Failure> {
    match model.call(NEVER, &Request::Get(get))? {
        Response::Got { page, .. } => Ok(page),
        other => panic!("{other:?}"),
    }
}

/// Returns the keys and values of a prefix as of a revision.
fn state(model: &mut Model, prefix: &str, revision: u64) -> Vec<(String, String)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let page = get(model, Get { revision, ..Get::all(KeyRange::prefix(prefix.to_owned())) }).unwrap();
    page.entries.iter().map(|entry| (text(&entry.key), text(&entry.value))).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn watch_of(prefix: &str, from_revision: u64) -> WatchRequest {
    WatchRequest { range: KeyRange::prefix(prefix.to_owned()), from_revision, deletions: true }
}

/// Returns what a watch delivers now: of every change its revision, its key, and whether it was a deletion.
fn told(model: &mut Model, id: WatchId) -> Vec<(u64, String, bool)> {
    let mut all = Vec::new();
    while let Some(event) = model.poll(id) {
        let WatchEvent::Changes { revision, changes } = event else { panic!("{event:?}") };
        all.extend(changes.iter().map(|change| {
            let (key, at, deleted) = match change {
                Change::Put(entry) => (&entry.key, entry.mod_revision, false),
                Change::Deleted { key, revision } => (key, *revision, true),
            };
            assert_eq!(revision, at);
            (at, String::from_utf8(key.to_vec()).unwrap(), deleted)
        }));
    }
    all
}

#[test]
fn a_transaction_that_writes_is_one_revision() {
    let mut model = Model::new();
    assert_eq!(model.revision(), 1);
    assert_eq!(write(&mut model, vec![put("a", "1"), put("b", "1")]), 2);
    assert_eq!(write(&mut model, vec![Op::Delete(key("absent"))]), 2);
    assert_eq!(write(&mut model, vec![put("a", "2")]), 3);
    let page = get(&mut model, Get::all(key("a"))).unwrap();
    let entry = KeyValue {
        key: "a".into(),
        value: "2".into(),
        create_revision: 2,
        mod_revision: 3,
        version: 2,
        lease: LeaseId::default(),
    };
    assert_eq!(page, Page { entries: vec![entry], more: false });
    write(&mut model, vec![Op::Delete(key("a"))]);
    write(&mut model, vec![put("a", "3")]);
    let page = get(&mut model, Get::all(key("a"))).unwrap();
    assert_eq!((page.entries[0].create_revision, page.entries[0].version), (5, 1));
}

#[test]
fn conditions_choose_the_branch() {
    let mut model = Model::new();
    write(&mut model, vec![put("a", "1")]);
    let mut try_with = |compare: Compare| {
        let txn = Txn { compare: vec![compare], success: vec![], failure: vec![] };
        match model.call(NEVER, &Request::Txn(txn)).unwrap() {
            Response::Txn { revision: 2, succeeded, .. } => succeeded,
            other => panic!("{other:?}"),
        }
    };
    assert!(try_with(Compare::CreateRevision { key: "a".into(), equals: 2 }));
    assert!(!try_with(Compare::CreateRevision { key: "a".into(), equals: 0 }));
    assert!(try_with(Compare::CreateRevision { key: "b".into(), equals: 0 }));
    assert!(try_with(Compare::ModRevision { key: "a".into(), equals: 2 }));
    assert!(!try_with(Compare::ModRevision { key: "a".into(), equals: 3 }));
    assert!(try_with(Compare::Value { key: "a".into(), equals: "1".into() }));
    assert!(!try_with(Compare::Value { key: "a".into(), equals: "2".into() }));
    assert!(!try_with(Compare::Value { key: "b".into(), equals: "".into() }));
}

#[test]
fn steps_are_done_in_order_and_see_each_other() {
    let mut model = Model::new();
    write(&mut model, vec![put("a/1", "x"), put("b", "x")]);
    let read = || Op::Get(Get::all(KeyRange::prefix("a/")));
    let answer =
        model.call(NEVER, &txn(vec![read(), put("a/2", "y"), read(), Op::Delete(key("b")), read()])).unwrap();
    let Response::Txn { revision: 3, succeeded: true, results } = answer else { panic!("{answer:?}") };
    let read = |at: usize| match &results[at] {
        OpResult::Got(page) => page.entries.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((read(0), read(2), read(4)), (1, 2, 2));
    assert_eq!(results[3], OpResult::Deleted(1));
}

#[test]
fn no_revision_changes_a_key_twice() {
    let mut model = Model::new();
    for ops in [
        vec![put("a", "1"), put("a", "2")],
        vec![put("a", "1"), Op::Delete(key("a"))],
        vec![Op::Delete(KeyRange::prefix("")), put("a", "1")],
    ] {
        assert!(
            matches!(model.call(NEVER, &txn(ops)), Err(Failure::Refused(why)) if why.contains("duplicate key"))
        );
    }
    assert_eq!(model.revision(), 1);
}

#[test]
fn what_is_too_much_is_refused() {
    let mut model = Model::new();
    let many = |count: usize| txn((0..count).map(|index| put(&index.to_string(), "")).collect());
    model.call(NEVER, &many(128)).unwrap();
    assert!(
        matches!(model.call(NEVER, &many(129)), Err(Failure::Refused(why)) if why.contains("too many operations"))
    );
    let large = |size: usize| txn(vec![put("a", &"x".repeat(size))]);
    model.call(NEVER, &large(1 << 20)).unwrap();
    assert!(
        matches!(model.call(NEVER, &large(1_600_000)), Err(Failure::Refused(why)) if why.contains("too large"))
    );
    assert!(matches!(get(&mut model, Get::all(key(""))), Err(Failure::Refused(_))));
}

#[test]
fn a_read_can_be_pinned_to_a_revision() {
    let mut model = Model::new();
    write(&mut model, vec![put("k/1", "a"), put("k/2", "a"), put("k/3", "a")]);
    write(&mut model, vec![put("k/2", "b")]);
    write(&mut model, vec![Op::Delete(key("k/1"))]);
    write(&mut model, vec![put("k/4", "c")]);
    assert_eq!(state(&mut model, "k/", 1), pairs(&[]));
    assert_eq!(state(&mut model, "k/", 3), pairs(&[("k/1", "a"), ("k/2", "b"), ("k/3", "a")]));
    assert_eq!(state(&mut model, "k/", 4), pairs(&[("k/2", "b"), ("k/3", "a")]));
    assert_eq!(state(&mut model, "k/", 0), pairs(&[("k/2", "b"), ("k/3", "a"), ("k/4", "c")]));
    let pinned = Get { revision: 2, limit: 2, keys_only: true, ..Get::all(KeyRange::prefix("k/")) };
    let page = get(&mut model, pinned.clone()).unwrap();
    assert!(page.more && page.entries.len() == 2 && page.entries[0].value.is_empty());
    let rest = KeyRange { start: "k/2\0".into(), ..pinned.range.clone() };
    let page = get(&mut model, Get { range: rest, ..pinned.clone() }).unwrap();
    assert!(!page.more && page.entries.len() == 1);
    assert!(matches!(get(&mut model, Get { revision: 6, ..pinned }), Err(Failure::Refused(_))));
}

#[test]
fn compaction_keeps_what_there_was_at_its_revision() {
    let mut model = Model::new();
    write(&mut model, vec![put("k/1", "a"), put("k/2", "a")]);
    write(&mut model, vec![put("k/1", "b")]);
    write(&mut model, vec![Op::Delete(key("k/2"))]);
    write(&mut model, vec![put("k/3", "c")]);
    let before = state(&mut model, "k/", 4);
    model.call(NEVER, &Request::Compact { revision: 4 }).unwrap();
    assert_eq!(state(&mut model, "k/", 4), before);
    assert_eq!(state(&mut model, "k/", 0), pairs(&[("k/1", "b"), ("k/3", "c")]));
    let old = Get { revision: 3, ..Get::all(KeyRange::prefix("k/")) };
    assert_eq!(get(&mut model, old), Err(Failure::Compacted { oldest: 4 }));
    for (revision, expected) in [(4, "compacted"), (6, "future")] {
        let failure = model.call(NEVER, &Request::Compact { revision }).unwrap_err();
        assert!(failure.to_string().contains(expected), "{failure}");
    }
}

#[test]
fn leases_end_with_their_keys() {
    let mut model = Model::new();
    let at = |millis: u64| Duration::from_millis(millis);
    let mut granted = |now, ttl_seconds| match model.call(now, &Request::LeaseGrant { ttl_seconds }).unwrap()
    {
        Response::LeaseGranted { lease, ttl_seconds } => (lease, ttl_seconds),
        other => panic!("{other:?}"),
    };
    let (short, ttl) = granted(at(0), 1);
    assert_eq!(ttl, 2, "etcd gives no shorter one");
    let (long, ttl) = granted(at(0), 5);
    assert_eq!(ttl, 5);
    write(&mut model, vec![put_with("b", "1", short), put_with("a", "1", short), put_with("c", "1", long)]);
    // A key that is written without the lease no longer ends with it.
    write(&mut model, vec![put_with("d", "1", short)]);
    write(&mut model, vec![put("d", "2")]);
    let watch = model.watch(watch_of("", 0));
    assert_eq!(model.next_expiry(), Some(at(2000)));

    let kept = model.call(at(1500), &Request::LeaseKeepAlive { lease: short }).unwrap();
    assert_eq!(kept, Response::LeaseKeptAlive { ttl_seconds: 2 });
    model.advance(at(3499));
    assert_eq!(model.revision(), 4);
    model.advance(at(3500));
    assert_eq!(told(&mut model, watch), [(5, "a".to_owned(), true), (5, "b".to_owned(), true)]);
    let kept = model.call(at(3500), &Request::LeaseKeepAlive { lease: short }).unwrap();
    assert_eq!(kept, Response::LeaseKeptAlive { ttl_seconds: 0 });
    let late = model.call(at(3500), &txn(vec![put("x", "1"), put_with("a", "1", short)]));
    assert_eq!(late, Err(Failure::LeaseNotFound));
    assert_eq!(model.revision(), 5, "nothing of it was done");

    model.call(at(3600), &Request::LeaseRevoke { lease: long }).unwrap();
    assert_eq!(told(&mut model, watch), [(6, "c".to_owned(), true)]);
    assert_eq!(model.call(at(3600), &Request::LeaseRevoke { lease: long }), Ok(Response::LeaseRevoked));
    assert_eq!(model.next_expiry(), None);
    assert_eq!(state(&mut model, "", 0), pairs(&[("d", "2")]));
}

#[test]
fn watches_replay_and_go_on() {
    let mut model = Model::new();
    write(&mut model, vec![put("k/1", "a"), put("other", "a"), put("k/2", "a")]);
    write(&mut model, vec![put("other", "b")]);
    write(&mut model, vec![Op::Delete(key("k/1"))]);
    let all = model.watch(watch_of("k/", 1));
    let puts = model.watch(WatchRequest { deletions: false, ..watch_of("k/", 2) });
    let new = model.watch(watch_of("k/", 0));
    let later = model.watch(watch_of("k/", 6));
    let first = [(2, "k/1".to_owned(), false), (2, "k/2".to_owned(), false)];
    assert!(model.progress(all).is_none());
    assert_eq!(told(&mut model, all), [&first[..], &[(4, "k/1".to_owned(), true)]].concat());
    assert_eq!(model.progress(all), Some(WatchEvent::Progress { revision: 4 }));
    assert_eq!(told(&mut model, puts), first);
    assert_eq!(told(&mut model, new), []);
    write(&mut model, vec![put("k/3", "a")]);
    assert_eq!(told(&mut model, new), [(5, "k/3".to_owned(), false)]);
    model.cancel(new);
    write(&mut model, vec![put("k/4", "a")]);
    assert_eq!(told(&mut model, new), []);
    assert_eq!(told(&mut model, later), [(6, "k/4".to_owned(), false)]);
}

#[test]
fn a_watch_from_before_the_compaction_ends() {
    let mut model = Model::new();
    for value in ["a", "b", "c"] {
        write(&mut model, vec![put("k", value)]);
    }
    model.call(NEVER, &Request::Compact { revision: 3 }).unwrap();
    let before = model.watch(watch_of("k", 2));
    let at = model.watch(watch_of("k", 3));
    assert_eq!(model.poll(before), Some(WatchEvent::Compacted { oldest: 3 }));
    assert_eq!(model.poll(before), None);
    assert_eq!(told(&mut model, at).len(), 2);
}

/// Generates small random writes, as lists of (key, value or deletion).
fn writes() -> impl Strategy<Value = Vec<Vec<(u8, Option<u8>)>>> {
    let change = (0_u8..6, proptest::option::weighted(0.7, 0_u8..3));
    proptest::collection::vec(proptest::collection::vec(change, 1..4), 1..40)
}

proptest! {
    /// Whatever was written and however it was compacted: reads at a revision match a list of all states, and replaying
    /// the events of a watch leads from each of these states to the newest one.
    #[test]
    fn history_is_what_happened(writes in writes(), compact_at in 0.0..1.0_f64) {
        let mut model = Model::new();
        let mut states = vec![Vec::new(), Vec::new()];
        for changes in &writes {
            let mut seen = std::collections::HashSet::new();
            let ops = changes.iter().filter(|(name, _)| seen.insert(*name)).map(|(name, value)| match value {
                Some(value) => put(&format!("k/{name}"), &value.to_string()),
                None => Op::Delete(key(&format!("k/{name}"))),
            });
            let ops = ops.collect();
            write(&mut model, ops);
            if model.revision() == states.len() as u64 {
                let newest = state(&mut model, "k/", 0);
                states.push(newest);
            }
        }
        let newest = model.revision();
        let oldest = 1 + ((newest - 1) as f64 * compact_at) as u64;
        prop_assert_eq!(model.history.recount(), (model.history.size(), model.history.superseded_bytes()));
        // In pieces: what is given up is discarded later, while other changes come.
        model.history.give_up(oldest).unwrap();
        prop_assert_eq!(model.history.recount().1, model.history.superseded_bytes());
        for _ in 0..=newest {
            model.history.discard(1);
        }
        prop_assert!(!model.history.is_discarding());
        prop_assert_eq!(model.history.recount(), (model.history.size(), model.history.superseded_bytes()));
        let kept = model.history.size().bytes - model.history.superseded_bytes();
        let present = state(&mut model, "", 0).iter().map(|(key, value)| key.len() + value.len() + 41).sum::<usize>();
        // Besides what is present only the deletions of the compacted revision are left, which a watch may start with.
        let deletions = model.history.changes(oldest).iter().filter(|logged| logged.deleted);
        prop_assert_eq!(kept, present + deletions.map(|logged| logged.entry.key.len() + 5).sum::<usize>());
        for revision in oldest..=newest {
            let mut replayed: std::collections::BTreeMap<_, _> =
                state(&mut model, "k/", revision).into_iter().collect();
            prop_assert_eq!(&replayed.clone().into_iter().collect::<Vec<_>>(), &states[revision as usize]);
            let watch = model.watch(watch_of("k/", revision + 1));
            while let Some(WatchEvent::Changes { changes, .. }) = model.poll(watch) {
                for change in changes {
                    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                    match change {
                        Change::Put(entry) => _ = replayed.insert(text(&entry.key), text(&entry.value)),
                        Change::Deleted { key, .. } => _ = replayed.remove(&text(&key)),
                    }
                }
            }
            prop_assert_eq!(&replayed.into_iter().collect::<Vec<_>>(), &states[newest as usize]);
        }
    }
}
