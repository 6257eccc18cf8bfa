//! One node beside a model of etcd. A primary whose clocks jumped answers nothing before etcd has confirmed its lease anew,
//! and leads on if it does; one that takes over waits for the lease of a primary that it never saw (R6).

use std::time::Duration;

use moonkeeper::cluster::keys::Keys;
use moonkeeper::cluster::member::{Addresses, BootId};
use moonkeeper::cluster::role::Role;
use moonkeeper::coordination::model::Model;
use moonkeeper::coordination::types::{Get, KeyRange, Request, Response};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::LogTime;
use moonkeeper::replication::node::status::Activity;
use moonkeeper::replication::node::{CallId, Command, Input, Node, Settings};
use moonkeeper::replication::time::Monotonic;

const SECOND: u64 = 1_000_000;

/// One node with an etcd that answers at once, but for keep-alives of the leader: those wait for the test.
struct Scene {
    node: Node,
    etcd: Model,
    now: u64,
    keep_alives: Vec<(CallId, Request)>,
}

impl Scene {
    fn new() -> Self {
        Self::after(Model::new(), SECOND, 7, Duration::from_secs(5))
    }

    /// A node that comes to serve beside what others left in etcd.
    fn after(etcd: Model, now: u64, boot_id: u64, leader_ttl: Duration) -> Self {
        let address = |kind: &str| format!("localhost:{kind}");
        let settings = Settings {
            name: "m0".into(),
            boot_id: BootId(boot_id),
            keys: Keys::new("demo"),
            addresses: Addresses {
                rpc: address("rpc"),
                http: address("http"),
                peer: address("peer"),
                admin: address("admin"),
            },
            version: "test".into(),
            leader_ttl,
            keep_alive: Duration::from_secs(1),
            call_timeout: Duration::from_secs(1),
            handover_timeout: Duration::from_secs(10),
            engine: EngineSettings::default(),
            queue_bytes: 1 << 20,
            wall: LogTime(1_000),
            seed: 1,
            history: None,
            raise_after: Duration::from_secs(60),
            snapshot_copies: 2,
            snapshots: None,
        };
        let mut scene =
            Self { node: Node::new(settings, Monotonic(now)), etcd, now, keep_alives: Vec::new() };
        while scene.node.status(Monotonic(scene.now)).activity != Activity::Serving {
            scene.pass(20_000);
            scene.answer_keep_alives();
            assert!(scene.now < now + 20 * SECOND, "it does not come to serve");
        }
        scene
    }

    fn handle(&mut self, input: Input) {
        self.node.handle(Monotonic(self.now), input);
        loop {
            let commands = self.node.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                let input = match command {
                    Command::Call { call, request, .. }
                        if matches!(request, Request::LeaseKeepAlive { .. }) && self.leads() =>
                    {
                        self.keep_alives.push((call, request));
                        continue;
                    }
                    Command::Call { call, request, .. } => {
                        Input::Answer { call, result: self.call(&request) }
                    }
                    Command::Open { .. } => Input::Opened,
                    Command::Close => Input::Closed { quiet: true },
                    _ => continue,
                };
                self.node.handle(Monotonic(self.now), input);
            }
        }
    }

    fn call(&mut self, request: &Request) -> Result<Response, moonkeeper::coordination::types::Failure> {
        self.etcd.call(Duration::from_micros(self.now), request)
    }

    fn leads(&self) -> bool {
        self.node.status(Monotonic(self.now)).role == Role::Primary
    }

    fn pass(&mut self, micros: u64) {
        self.now += micros;
        self.handle(Input::Tick);
    }

    fn answer(&mut self, (call, request): (CallId, Request)) {
        let result = self.call(&request);
        self.handle(Input::Answer { call, result });
    }

    fn answer_keep_alives(&mut self) {
        for asked in std::mem::take(&mut self.keep_alives) {
            self.answer(asked);
        }
    }

    fn jump(&mut self) {
        self.handle(Input::ClockJumped { drift: Duration::from_secs(60) });
    }

    fn may_answer(&self) -> bool {
        self.node.incarnation().gate.may_answer(Monotonic(self.now))
    }
}

#[test]
fn a_jump_closes_the_gate_until_the_lease_is_confirmed_anew() {
    let mut scene = Scene::new();
    scene.answer_keep_alives();
    assert!(scene.may_answer());
    scene.pass(SECOND);
    let before = scene.keep_alives.clone();
    assert!(!before.is_empty(), "a keep-alive is on its way");
    scene.jump();
    assert!(!scene.may_answer(), "the lease may have ended");
    let after = scene.keep_alives.split_off(before.len());
    assert!(!after.is_empty(), "etcd is asked at once");
    for asked in before {
        scene.answer(asked);
    }
    assert!(!scene.may_answer(), "what was sent before the jump says nothing");
    for asked in after {
        scene.answer(asked);
    }
    assert!(scene.may_answer());
    assert!(scene.leads(), "a wall clock that was set does not depose a primary");
}

#[test]
fn a_primary_whose_lease_ended_meanwhile_leaves() {
    let mut scene = Scene::new();
    scene.answer_keep_alives();
    let resumed = Duration::from_micros(scene.now + 60 * SECOND);
    scene.etcd.advance(resumed);
    scene.jump();
    assert!(!scene.may_answer());
    let asked = scene.keep_alives.clone();
    scene.answer(asked[0].clone());
    assert!(!scene.may_answer());
    assert!(!scene.leads());
}

#[test]
fn a_standby_does_not_mind() {
    let mut scene = Scene::new();
    scene.handle(Input::Stop);
    scene.jump();
    assert!(!scene.may_answer());
}

/// The primary before led with a longer lease than this node's own and was gone before this process began: only the log
/// tells for how long it may have gone on answering reads.
#[test]
fn a_new_primary_waits_for_the_lease_of_one_that_it_never_saw() {
    let long = Duration::from_secs(30);
    let first = Scene::after(Model::new(), SECOND, 7, long);
    let term_state = first.node.incarnation().engine.term_state();
    assert_eq!((term_state.leader_ttl, term_state.boot_id), (30_000, 7));
    let (mut etcd, now) = (first.etcd, first.now + SECOND);
    // Its lease is revoked: that does not shorten the wait (R6).
    let election = Request::Get(Get::all(KeyRange::key(Keys::new("demo").election())));
    let Ok(Response::Got { page, .. }) = etcd.call(Duration::from_micros(now), &election) else { panic!() };
    let revoke = Request::LeaseRevoke { lease: page.entries[0].lease };
    etcd.call(Duration::from_micros(now), &revoke).unwrap();
    let second = Scene::after(etcd, now, 8, Duration::from_secs(5));
    let engine = &second.node.incarnation().engine;
    let (term_state, read_lease) = (engine.term_state(), engine.settings.lease_ttl_ms);
    assert_eq!((term_state.leader_ttl, term_state.boot_id), (5_000, 8));
    let hold = term_state.hold_until.0 - term_state.since.0;
    assert!(hold >= 30_000 + read_lease, "R6: it holds for {hold} ms only");
}
