//! A fuzzer of the handlers: mutated requests to the real service on a real engine, which has to stay sound.

use crate::captured::captured;
use crate::counting;
use crate::master;
use crate::mutations::{Random, cases, mutate, seeds};
use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::LogTime;
use moonkeeper::master::rpc_service::MasterService;
use moonkeeper::replication::time::RunningClock;
use moonkeeper::wire::functions::Function;
use moonkeeper::wire::server::{Failure, Outcome, Service, Waited};
use std::collections::HashMap;
use std::sync::Arc;

/// What engine and calls may reserve at one time, whatever they say: inputs have some kilobytes, and all of it together
/// was seen to take less than a megabyte. A length that is believed asks for gigabytes.
const RESERVED_LIMIT: usize = 16 << 20;
/// Rounds, twice: about five seconds.
const ROUNDS: u64 = 600;
/// After so many calls the engine is looked at, and the next begins with a new one.
const CALLS: u64 = 500;

/// Captured requests, and requests of zeros for the functions that no client was seen to call.
fn requests() -> Vec<(Function, Vec<u8>)> {
    let captured = captured().into_iter().filter(|frame| frame.is_request);
    let mut requests: Vec<_> = captured.map(|frame| (frame.function, frame.body)).collect();
    let others = seeds().into_iter().filter(|(function, body)| {
        function.request_shape().is_some_and(|shape| body.starts_with(&shape.code.to_le_bytes()))
    });
    requests.extend(others);
    for &function in Function::ALL {
        if function.request_shape().is_none() {
            requests.push((function, Vec::new()));
        }
    }
    requests
}

/// A service with memory and some objects: those of the captured requests, so that their keys and ids mean something.
fn furnished(requests: &[(Function, Vec<u8>)]) -> (Arc<Engine>, MasterService) {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    let service = master::on(&engine);
    (1..4).for_each(|number| master::mount(&service, number, 1 << 24));
    (0..50).for_each(|number| master::put(&service, format!("key-{number}").as_bytes()));
    for start in [Function::MountSegment, Function::PutStart, Function::BatchPutStart, Function::PutEnd] {
        for (function, body) in requests.iter().filter(|(function, _)| *function == start) {
            call(&service, *function, body);
        }
    }
    (engine, service)
}

/// Makes a call and what it leaves for later; says whether its arguments were read.
fn call(service: &MasterService, function: Function, body: &[u8]) -> bool {
    let mut out = Vec::new();
    match service.call(function, body, &mut Waited::default(), &mut out) {
        Outcome::Ready { .. } => true,
        Outcome::Offload(offload) => {
            (offload.work)(&mut out).unwrap();
            true
        }
        Outcome::Refused(_) => false,
        Outcome::Busy(_) => panic!("{function:?} waits for a turn that no other call has"),
        Outcome::Deferred(_) => panic!("{function:?} waits for clients to rejoin, without a takeover"),
        Outcome::Error(Failure { code, .. }) => panic!("{function:?} is answered with error {code}"),
    }
}

/// What a master does by itself meanwhile.
fn look_after(engine: &Engine, random: &mut Random, clock: RunningClock) {
    let now = LogTime(clock.now().0 + random.below(1 << 20) as u64);
    match random.below(4) {
        0 => {
            let _ = engine.evict(now);
        }
        1 => {
            let _ = engine.upkeep(now);
        }
        2 => {
            let _ = engine.sweep(now);
        }
        _ => {
            let _ = engine.replicate_leases(now);
        }
    }
}

#[test]
fn handlers_survive_mutated_requests() {
    let requests = requests();
    let bodies: Vec<Vec<u8>> = requests.iter().map(|request| request.1.clone()).collect();
    let clock = RunningClock::start();
    let mut read: HashMap<Function, u64> = HashMap::new();
    let mut calls = 0;
    let rounds = cases(ROUNDS, |random| {
        let (engine, service) = furnished(&requests);
        for _ in 0..CALLS {
            let (function, body) = &requests[random.below(requests.len())];
            let mut body = body.clone();
            if random.below(4) > 0 {
                mutate(random, &mut body, &bodies);
            }
            if call(&service, *function, &body) {
                *read.entry(*function).or_default() += 1;
            }
            if random.below(50) == 0 {
                look_after(&engine, random, clock);
            }
        }
        calls += CALLS;
        let wrong = engine.sequencer(clock.now()).audit();
        assert!(wrong.is_empty(), "the engine is not sound: {wrong:#?}");
    });
    let total: u64 = read.values().sum();
    println!("{rounds} rounds, {calls} calls, {total} of them with arguments that were read");
    // A fuzzer whose inputs are all refused tests nothing.
    assert!(total > calls / 4);
    let never: Vec<_> = Function::ALL.iter().filter(|function| !read.contains_key(function)).collect();
    assert!(never.is_empty(), "never read: {never:?}");
    assert!(counting::peak() < RESERVED_LIMIT, "{} MiB were reserved", counting::peak() >> 20);
}
