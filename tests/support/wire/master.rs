//! The real service on an engine of its own, without sockets.

#![allow(dead_code, reason = "not every test uses all of it")]

use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::master::handlers::{Handlers, Told};
use moonkeeper::master::live_state::AnswerGate;
use moonkeeper::master::metrics::Metrics;
use moonkeeper::master::rpc_service::{LogContext, MasterService};
use moonkeeper::master::settings::ha::Durability;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::liveness::Liveness;
use moonkeeper::replication::term_guard::TermGuards;
use moonkeeper::replication::time::RunningClock;
use moonkeeper::replication::time::{Monotonic, MonotonicClock};
use moonkeeper::wire::functions::{Function, Rpc, rpc};
use moonkeeper::wire::messages::{
    EndRequest, KeyRequest, MountSegmentRequest, ObjectMeta, ReplicateConfig, Segment, StartRequest,
};
use moonkeeper::wire::server::{Outcome, Service, Waited};
use moonkeeper::wire::struct_pack::{Form, encode};
use moonkeeper::wire::types::{ReplicaType, Uuid};
use std::sync::Arc;

/// Who calls.
pub const CLIENT: Uuid = Uuid { first: 1, second: 2 };

fn handlers(engine: &Arc<Engine>, answer_gate: AnswerGate, guards: TermGuards) -> Handlers {
    Handlers {
        engine: Arc::clone(engine),
        clock: RunningClock::start(),
        liveness: Arc::new(Liveness::new(10_000)),
        metrics: Metrics::new(),
        told: Told { fsdir: Vec::new(), enable_disk_eviction: true, quota_bytes: 0, max_retry_attempts: 10 },
        answer_gate,
        guards,
    }
}

/// A service on this engine.
pub fn on(engine: &Arc<Engine>) -> MasterService {
    MasterService::new(handlers(engine, AnswerGate(None), TermGuards::opened()), None)
}

/// A service with a segment of a GiB.
pub fn service() -> MasterService {
    let service = on(&Arc::new(Engine::new(EngineSettings::default())));
    mount(&service, 1, 1 << 30);
    service
}

/// A service whose log takes so many bytes, and that may answer for ever.
pub fn with_log(queue_bytes: usize) -> (MasterService, Arc<Incarnation>) {
    let incarnation = Incarnation::new(EngineSettings::default(), queue_bytes);
    incarnation.gate.open_until(Monotonic(u64::MAX));
    incarnation.guards.open();
    let clock = MonotonicClock::start();
    let replication =
        LogContext { incarnation: Arc::clone(&incarnation), clock, durability: Durability::Strict };
    let answer_gate = AnswerGate(Some((Arc::clone(&incarnation), clock)));
    let handlers = handlers(&incarnation.engine, answer_gate, incarnation.guards.clone());
    (MasterService::new(handlers, Some(replication)), incarnation)
}

/// The arguments of a call, encoded.
pub fn body<F: Rpc>(request: &F::Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(request, Form::Short, &mut out);
    out
}

/// A request about a key.
pub fn key(key: &[u8]) -> KeyRequest<'_> {
    KeyRequest { key, tenant_id: b"default" }
}

fn call(service: &MasterService, function: Function, body: &[u8]) {
    let mut out = Vec::new();
    let outcome = service.call(function, body, &mut Waited::default(), &mut out);
    assert!(matches!(outcome, Outcome::Ready { .. }), "{function:?}");
    // Where the answer says whether there is one.
    assert_eq!(out[4], 1, "{function:?}: {out:02x?}");
}

/// Offers memory.
pub fn mount(service: &MasterService, number: u64, size: u64) {
    mount_at(service, number, size, b"127.0.0.1:12345");
}

/// Offers memory at an endpoint.
pub fn mount_at(service: &MasterService, number: u64, size: u64, te_endpoint: &[u8]) {
    let segment = Segment {
        id: Uuid { first: 7, second: number },
        name: b"a host:1",
        base: number << 40,
        size,
        te_endpoint,
        protocol: b"tcp",
        host_id: b"",
    };
    let request = MountSegmentRequest { segment, client_id: CLIENT };
    call(service, Function::MountSegment, &body::<rpc::MountSegment>(&request));
}

/// The arguments of a PutStart.
pub fn put_start(key: &[u8], slice_length: u64) -> Vec<u8> {
    let config = ReplicateConfig { replica_num: 1, ..ReplicateConfig::default() };
    body::<rpc::PutStart>(&StartRequest {
        client_id: CLIENT,
        key,
        slice_length,
        config,
        tenant_id: b"default",
    })
}

/// Puts a small object.
pub fn put(service: &MasterService, key: &[u8]) {
    call(service, Function::PutStart, &put_start(key, 64));
    let end = EndRequest {
        client_id: CLIENT,
        object_meta: ObjectMeta { key, object_checksum: None },
        replica_type: ReplicaType::MEMORY,
        tenant_id: b"default",
    };
    call(service, Function::PutEnd, &body::<rpc::PutEnd>(&end));
}
