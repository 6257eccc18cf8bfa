//! What the server relies on in the real service: turns, room in the log, and bounds of calls that look at all keys.

use crate::master::{body, key, mount_at, on, put, put_start, service, with_log};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::wire::functions::{Function, Rpc, rpc};
use moonkeeper::wire::messages::{KeyRequest, KeysRequest, RemoveAllRequest, RemoveRequest};
use moonkeeper::wire::server::{Failure, Outcome, Service, Waited};
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
    let Outcome::Offload(offload) = outcome else { panic!("it was not offloaded") };
    let mut out = Vec::new();
    (offload.work)(&mut out).unwrap();
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
    let (service, incarnation) = with_log(1 << 20);
    // Somebody has all of it, and nothing is ever written.
    let _taken = incarnation.queue.try_acquire(1 << 20).unwrap();
    let request = put_start(b"a", 10);
    let call = |since| {
        let mut waited = Waited { since, ..Waited::default() };
        service.call(Function::PutStart, &request, &mut waited, &mut Vec::new())
    };
    assert!(matches!(call(None), Outcome::Busy(_)));
    let just_now = Instant::now();
    assert!(matches!(call(Some(just_now)), Outcome::Busy(_)));
    let long_ago = just_now.checked_sub(Duration::from_secs(10)).unwrap();
    let Outcome::Error(Failure { code, message }) = call(Some(long_ago)) else {
        panic!("it goes on waiting")
    };
    assert_eq!((code, message), (3, "the master's queue of unwritten changes is full, nothing was changed"));
    assert_eq!(incarnation.engine.applied().0, 0);
    let read = service.call(
        Function::ExistKey,
        &body::<rpc::ExistKey>(&key(b"a")),
        &mut Waited::default(),
        &mut Vec::new(),
    );
    assert!(matches!(read, Outcome::Ready { .. }), "reads need no room");
}

#[test]
fn a_large_call_is_not_overtaken_for_ever() {
    let (service, incarnation) = with_log(1 << 20);
    let small = incarnation.queue.try_acquire(1 << 10).unwrap();
    // Four times its length is more than all of the queue.
    let keys: Vec<Vec<u8>> = (0..5_000).map(|number| format!("{number:0100}").into_bytes()).collect();
    let keys = keys.iter().map(Vec::as_slice).collect();
    let request = moonkeeper::wire::messages::BatchRemoveRequest { keys, force: false, tenant_id: b"" };
    let large = body::<rpc::BatchRemove>(&request);
    let mut waited = Waited::default();
    let outcome = service.call(Function::BatchRemove, &large, &mut waited, &mut Vec::new());
    assert!(matches!(outcome, Outcome::Busy(_)) && waited.ticket.is_some());
    let short = body::<rpc::Remove>(&RemoveRequest { key: b"a", force: false, tenant_id: b"" });
    let later = service.call(Function::Remove, &short, &mut Waited::default(), &mut Vec::new());
    assert!(matches!(later, Outcome::Busy(_)), "it overtakes one that waits");
    drop((later, small));
    let outcome = service.call(Function::BatchRemove, &large, &mut waited, &mut Vec::new());
    assert!(matches!(outcome, Outcome::Ready { .. }));
    let outcome = service.call(Function::Remove, &short, &mut Waited::default(), &mut Vec::new());
    assert!(matches!(outcome, Outcome::Ready { .. }));
    assert_eq!(incarnation.queue.bytes(), 0);
}

#[test]
fn a_full_etcd_refuses_changes_before_anything_is_applied_and_reads_go_on() {
    let (service, incarnation) = with_log(1 << 20);
    let outcome = |function: Function, body: &[u8]| {
        service.call(function, body, &mut Waited::default(), &mut Vec::new())
    };
    incarnation.gate.set_log_full(true);
    let Outcome::Error(failure) = outcome(Function::PutStart, &put_start(b"a", 10)) else {
        panic!("it is not refused")
    };
    assert_eq!(failure.message, "the log is full or refused by etcd (see the status), nothing was changed");
    let remove_all = body::<rpc::RemoveAll>(&RemoveAllRequest { force: true, tenant_id: b"" });
    assert!(matches!(outcome(Function::RemoveAll, &remove_all), Outcome::Error(_)));
    assert_eq!((incarnation.engine.applied().0, incarnation.queue.bytes()), (0, 0));
    let read = outcome(Function::ExistKey, &body::<rpc::ExistKey>(&key(b"a")));
    assert!(matches!(read, Outcome::Ready { .. }));
    assert!(service.gives_up().is_some());
    incarnation.gate.set_log_full(false);
    assert!(matches!(outcome(Function::RemoveAll, &remove_all), Outcome::Offload(_)));
    assert!(service.gives_up().is_none());
}

#[test]
fn work_done_aside_is_admitted_chunk_by_chunk() {
    let (service, incarnation) = with_log(1 << 20);
    mount_at(&service, 1, 1 << 30, b"127.0.0.1:12345");
    (0..100).for_each(|number| put(&service, format!("key-{number}").as_bytes()));
    let request = body::<rpc::RemoveAll>(&RemoveAllRequest { force: true, tenant_id: b"" });
    let outcome = service.call(Function::RemoveAll, &request, &mut Waited::default(), &mut Vec::new());
    let before = incarnation.engine.applied();
    // etcd is found to be full before the work has begun.
    incarnation.gate.set_log_full(true);
    let Outcome::Offload(offload) = outcome else { panic!("it was not offloaded") };
    let failure = (offload.work)(&mut Vec::new()).unwrap_err();
    assert_eq!(
        failure.message,
        "the log is full or refused by etcd (see the status), not everything was removed"
    );
    assert_eq!(incarnation.engine.applied(), before);
    // The lease runs out, and with it the right to make records.
    incarnation.gate.set_log_full(false);
    let outcome = service.call(Function::RemoveAll, &request, &mut Waited::default(), &mut Vec::new());
    incarnation.gate.close();
    let Outcome::Offload(offload) = outcome else { panic!("it was not offloaded") };
    assert!((offload.work)(&mut Vec::new()).is_err());
    assert_eq!(incarnation.engine.applied(), before);
}

#[test]
fn work_done_aside_holds_a_guard_of_the_term_and_ends_with_it() {
    let (service, incarnation) = with_log(1 << 20);
    mount_at(&service, 1, 1 << 30, b"127.0.0.1:12345");
    (0..100).for_each(|number| put(&service, format!("key-{number}").as_bytes()));
    let remove = body::<rpc::RemoveByRegex>(&RemoveRequest { key: b"key", force: true, tenant_id: b"" });
    let search = body::<rpc::GetReplicaListByRegex>(&key(b"key"));
    for (function, body) in [(Function::RemoveByRegex, &remove), (Function::GetReplicaListByRegex, &search)] {
        let before = incarnation.engine.applied();
        let outcome = service.call(function, body, &mut Waited::default(), &mut Vec::new());
        let Outcome::Offload(offload) = outcome else { panic!("{function:?} was not offloaded") };
        incarnation.guards.close();
        assert!(!incarnation.guards.is_drained(), "{function:?} holds no guard");
        let refused = service.call(function, body, &mut Waited::default(), &mut Vec::new());
        assert!(matches!(refused, Outcome::Error(_)), "{function:?} begins in a term that has ended");
        // The port opens again while the work of before goes on: it stays cancelled, and counted.
        incarnation.guards.open();
        assert!((offload.work)(&mut Vec::new()).is_err());
        assert_eq!(incarnation.engine.applied(), before, "{function:?} changes a state that was left");
        incarnation.guards.close();
        assert!(incarnation.guards.is_drained());
        incarnation.guards.open();
    }
}

#[test]
fn what_a_pattern_does_not_find_rests_on_the_last_record() {
    let (service, incarnation) = with_log(1 << 20);
    mount_at(&service, 1, 1 << 30, b"127.0.0.1:12345");
    put(&service, b"a");
    // No record about the key says that it is gone.
    let id = moonkeeper::engine::types::Uuid { first: 7, second: 1 };
    let unmounted =
        incarnation.engine.sequencer(moonkeeper::engine::types::LogTime(0)).unmount(id).depends_on;
    let remove = body::<rpc::RemoveByRegex>(&RemoveRequest { key: b"a", force: true, tenant_id: b"" });
    let search = body::<rpc::GetReplicaListByRegex>(&key(b"a"));
    for (function, body) in [(Function::GetReplicaListByRegex, search), (Function::RemoveByRegex, remove)] {
        let outcome = service.call(function, &body, &mut Waited::default(), &mut Vec::new());
        let Outcome::Offload(offload) = outcome else { panic!("{function:?} was not offloaded") };
        let depends_on = (offload.work)(&mut Vec::new()).unwrap();
        assert!(depends_on >= unmounted, "{function:?} rests on {depends_on:?}");
    }
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
        let Outcome::Offload(offload) = outcome else { panic!("{function:?} is not offloaded") };
        assert_eq!(offload.holds_back, holds_back, "{function:?}");
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
    let service = on(&Arc::new(Engine::new(EngineSettings::default())));
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
