//! What the server relies on in the real service: turns, room in the log, and bounds of calls that look at all keys.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "protocol/master.rs"]
mod master;

use master::{body, key, mount_at, on, put, put_start, service, with_log};
use moonkeeper::engine::Engine;
use moonkeeper::engine::rules::Rules;
use moonkeeper::wire::functions::{Function, Rpc, rpc};
use moonkeeper::wire::messages::{KeyRequest, KeysRequest, RemoveAllRequest, RemoveRequest};
use moonkeeper::wire::server::{Outcome, Service, Waited};
use moonkeeper::wire::struct_pack::decode;
use moonkeeper::wire::types::ErrorCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A batch that is long enough to take a turn.
fn batch() -> Vec<u8> {
    let keys: Vec<String> = (0..200).map(|number| format!("some key that is not there {number}")).collect();
    let keys = keys.iter().map(String::as_bytes).collect();
    let request = moonkeeper::wire::messages::BatchRemoveRequest { keys, force: false, tenant_id: b"" };
    body::<rpc::BatchRemove>(&request)
}

/// Has the work done that a call left for later.
fn run(outcome: Outcome) -> Vec<u8> {
    let Outcome::Aside(aside) = outcome else { panic!("it was not done aside") };
    let mut out = Vec::new();
    (aside.work)(&mut out);
    out
}

#[test]
fn a_turn_ends_with_the_first_call_that_does_not_need_it() {
    let service = service();
    let (mut first, mut second, mut out) = (Waited::default(), Waited::default(), Vec::new());
    let read = body::<rpc::ExistKey>(&key(b"a"));
    let short = body::<rpc::Remove>(&RemoveRequest { key: b"a", force: false, tenant_id: b"" });
    for (function, other) in [(Function::ExistKey, &read), (Function::Remove, &short)] {
        let taken = service.call(Function::BatchRemove, &batch(), &mut first, &mut out);
        assert!(matches!(taken, Outcome::Ready { .. }) && first.turn.is_some());
        let waits = service.call(Function::BatchRemove, &batch(), &mut second, &mut out);
        assert!(matches!(waits, Outcome::Busy(_)), "it is not its turn");
        let answered = service.call(function, other, &mut first, &mut out);
        assert!(matches!(answered, Outcome::Ready { .. }) && first.turn.is_none());
        let taken = service.call(Function::BatchRemove, &batch(), &mut second, &mut out);
        assert!(matches!(taken, Outcome::Ready { .. }));
        second.turn = None;
    }
}

#[test]
fn a_change_that_finds_no_room_in_the_log_for_too_long_is_refused_and_applies_nothing() {
    let (service, replica) = with_log(1 << 20);
    // Somebody has all of it, and nothing is ever written.
    let _taken = replica.queue.room(1 << 20).unwrap();
    let request = put_start(b"a", 10);
    let call = |since| {
        let mut waited = Waited { turn: None, since };
        service.call(Function::PutStart, &request, &mut waited, &mut Vec::new())
    };
    assert!(matches!(call(None), Outcome::Busy(_)));
    let just_now = Instant::now();
    assert!(matches!(call(Some(just_now)), Outcome::Busy(_)));
    let long_ago = just_now.checked_sub(Duration::from_secs(10)).unwrap();
    let Outcome::Error { code, message } = call(Some(long_ago)) else { panic!("it goes on waiting") };
    assert_eq!((code, message), (3, "the log is full, nothing was changed"));
    assert_eq!(replica.engine.applied().0, 0);
    let read = service.call(
        Function::ExistKey,
        &body::<rpc::ExistKey>(&key(b"a")),
        &mut Waited::default(),
        &mut Vec::new(),
    );
    assert!(matches!(read, Outcome::Ready { .. }), "reads need no room");
}

#[test]
fn a_change_done_aside_has_its_room_until_it_is_done() {
    let (service, replica) = with_log(1 << 20);
    let request = body::<rpc::RemoveAll>(&RemoveAllRequest { force: false, tenant_id: b"" });
    let outcome = service.call(Function::RemoveAll, &request, &mut Waited::default(), &mut Vec::new());
    assert!(replica.queue.bytes() > 0, "the room was given back before the records were made");
    run(outcome);
    assert_eq!(replica.queue.bytes(), 0);
    // Whoever leaves gives it back as well.
    drop(service.call(Function::RemoveAll, &request, &mut Waited::default(), &mut Vec::new()));
    assert_eq!(replica.queue.bytes(), 0);
}

#[test]
fn removals_by_rule_hold_back_what_comes_after_them_and_searches_do_not() {
    let service = service();
    let remove_all = body::<rpc::RemoveAll>(&RemoveAllRequest { force: false, tenant_id: b"" });
    let remove = body::<rpc::RemoveByRegex>(&RemoveRequest { key: b".", force: false, tenant_id: b"" });
    let search = body::<rpc::GetReplicaListByRegex>(&key(b"."));
    for (function, body, holds_back) in [
        (Function::RemoveAll, remove_all, true),
        (Function::RemoveByRegex, remove, true),
        (Function::GetReplicaListByRegex, search, false),
    ] {
        let outcome = service.call(function, &body, &mut Waited::default(), &mut Vec::new());
        let Outcome::Aside(aside) = outcome else { panic!("{function:?} is not done aside") };
        assert_eq!(aside.holds_back, holds_back, "{function:?}");
    }
}

#[test]
fn what_a_pattern_finds_is_bounded_in_bytes() {
    let service = service();
    let search = |pattern: &[u8]| {
        let request = body::<rpc::GetReplicaListByRegex>(&key(pattern));
        let mut waited = Waited::default();
        let reply =
            run(service.call(Function::GetReplicaListByRegex, &request, &mut waited, &mut Vec::new()));
        let found = decode::<<rpc::GetReplicaListByRegex as Rpc>::Response<'_>>(&reply).unwrap();
        found.map(|found| found.0.len())
    };
    // 36 MiB of keys, of which a third fits.
    for number in 0..9000 {
        put(&service, format!("{number:04}{}", "x".repeat(4092)).as_bytes());
    }
    assert_eq!(search(b"^[0-2]"), Ok(3000));
    assert_eq!(search(b"x"), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(search(b"("), Err(ErrorCode::INVALID_PARAMS));
}

#[test]
fn a_pattern_longer_than_any_that_is_taken_is_not_kept() {
    let service = service();
    let long = vec![b'x'; 1 << 20];
    let request = body::<rpc::GetReplicaListByRegex>(&KeyRequest { key: &long, tenant_id: b"" });
    let mut out = Vec::new();
    let outcome = service.call(Function::GetReplicaListByRegex, &request, &mut Waited::default(), &mut out);
    assert!(matches!(outcome, Outcome::Ready { .. }));
    let answer = decode::<<rpc::GetReplicaListByRegex as Rpc>::Response<'_>>(&out).unwrap();
    assert_eq!(answer.map(|found| found.0.len()), Err(ErrorCode::INVALID_PARAMS));
    let keys = KeysRequest { keys: vec![b"a"], tenant_id: b"" };
    let request = body::<rpc::BatchExistKey>(&keys);
    let outcome = service.call(Function::BatchExistKey, &request, &mut Waited::default(), &mut out);
    assert!(matches!(outcome, Outcome::Ready { .. }));
}

#[test]
fn the_answer_to_a_batch_is_bounded_however_often_it_asks_for_a_key() {
    let service = on(&Arc::new(Engine::new(Rules::default())));
    mount_at(&service, 1, 1 << 30, &[b'x'; 250]);
    put(&service, b"a");
    let keys = KeysRequest { keys: vec![b"a"; 400_000], tenant_id: b"" };
    let request = body::<rpc::BatchGetReplicaList>(&keys);
    let mut out = Vec::new();
    let outcome = service.call(Function::BatchGetReplicaList, &request, &mut Waited::default(), &mut out);
    assert!(matches!(outcome, Outcome::Ready { .. }));
    assert!(out.len() < 66 << 20, "{} MiB", out.len() >> 20);
    let found = decode::<<rpc::BatchGetReplicaList as Rpc>::Response<'_>>(&out).unwrap();
    let told = found.iter().take_while(|item| item.is_ok()).count();
    assert!(told > 200_000, "{told}");
    assert!(found[told..].iter().all(|item| *item == Err(ErrorCode::INVALID_PARAMS)));
    assert_eq!(found.len(), 400_000);
}
