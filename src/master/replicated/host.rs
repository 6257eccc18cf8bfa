//! What the process does for its node: opens and closes the port, watches the primary's process, and publishes the
//! node's status to the rest of the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::published_status::PublishedStatus;
use super::snapshots::SnapshotWorker;
use crate::cluster::role::Role;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use crate::cluster::view;
use crate::engine::types::{LogTime, SequenceId, Term};
use crate::master::companion::HeldPort;
use crate::master::draining_port::{DrainingPort, TURN_AWAY};
use crate::master::http::{self, Health};
use crate::master::live_state::{AnswerGate, LiveState};
use crate::master::peer::{Members, PeerState, PrimaryProbe};
use crate::master::rpc_server::{ServeConfig, Serving};
use crate::master::rpc_service::LogContext;
use crate::master::settings::ha::Durability;
use crate::replication::driver::{Host, Inputs};
use crate::replication::incarnation::Incarnation;
use crate::replication::node::status::{Activity, NodeStatus};
use crate::replication::node::{
    HandedOver, HandoverError, HandoverId, Input, Node, Peer, SnapshotJob, SnapshotRequest,
};
use crate::replication::time::{LogClock, Monotonic, MonotonicClock, RunningClock};

/// Longest age of the published status while only numbers have changed.
const NEWS_INTERVAL: Duration = Duration::from_millis(50);

/// Callers that wait for the end of a hand-over.
pub(super) type Waiting = Arc<Mutex<HashMap<HandoverId, oneshot::Sender<Result<HandedOver, HandoverError>>>>>;

/// Callers that wait for a snapshot.
pub(super) type SnapshotsWaiting =
    Arc<Mutex<HashMap<SnapshotRequest, oneshot::Sender<Result<HeldSnapshot, SnapshotRefused>>>>>;

/// The process around a node.
pub(super) struct ProcessHost {
    /// Everything that serving clients takes.
    pub service: ServeConfig,
    /// Which calls are answered before they are durable.
    pub durability: Durability,
    /// The clock of the node.
    pub clock: MonotonicClock,
    pub inputs: Inputs,
    /// Watches the primary's process.
    pub primary_probe: PrimaryProbe,
    /// Callers that wait for the end of a hand-over.
    pub waiting: Waiting,
    /// Does jobs in the directory of snapshots; `None` without one.
    pub snapshots: Option<SnapshotWorker>,
    /// Callers that wait for a snapshot.
    pub snapshots_waiting: SnapshotsWaiting,
    /// The clients being served; `None` while the port is not.
    pub serving: Option<Serving>,
    /// Turns clients away while they are not served.
    pub draining_port: Arc<DrainingPort>,
    /// The port as the companion holds it.
    pub held_port: HeldPort,
    /// Log time while clients are served.
    pub log_clock: Option<RunningClock>,
    /// When the status was last published, and its part that is urgent.
    pub told: (Monotonic, Option<UrgentStatus>),
    /// The channels on which it is published.
    pub to: Publishing,
}

/// The part of the status whose changes are published at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrgentStatus {
    activity: Activity,
    term: Term,
    master_view: Option<view::Serving>,
    serving: bool,
}

/// The channels on which the node's status is published.
pub(super) struct Publishing {
    /// For the HTTP routes.
    pub state: watch::Sender<LiveState>,
    /// For the admin API.
    pub published: watch::Sender<PublishedStatus>,
    /// For the primary, to which a standby reports it.
    pub applied: watch::Sender<SequenceId>,
    /// For standbys.
    pub peer_state: watch::Sender<PeerState>,
    /// For the peer port: the members whose reports it accepts.
    pub members: watch::Sender<Members>,
}

impl ProcessHost {
    fn tell(&self, input: Input) {
        let inputs = self.inputs.clone();
        // The node's own task must never wait for space in its queue of inputs.
        tokio::spawn(async move { inputs.send(input).await });
    }

    /// Publishes the status on all channels.
    fn publish(&mut self, node: &Node) {
        let now = self.clock.now();
        let published = PublishedStatus { clock: self.log_clock, ..PublishedStatus::new(node, now) };
        self.told.0 = now;
        let status = &published.status;
        let serves = self.serving.is_some() && status.activity == Activity::Serving;
        let health = Health {
            role: if status.role == Role::Primary {
                http::ReferenceRole::Leader
            } else {
                http::ReferenceRole::Standby
            },
            state: state_word(status),
            service_ready: serves,
            leader_address: published.master_view.as_ref().map(|key| key.address.clone()),
            view_version: published
                .master_view
                .as_ref()
                .map(|key| i64::try_from(key.create_revision).unwrap_or(i64::MAX)),
        };
        let connections = self.serving.as_ref().map(|serving| Arc::clone(&serving.connections));
        let unset = || RunningClock::new(LogClock::new(LogTime(0), self.clock.now()), self.clock);
        let clock = self.log_clock.unwrap_or_else(unset);
        self.to.state.send_replace(LiveState {
            engine: Arc::clone(&published.incarnation.engine),
            clock,
            health,
            connections: connections.unwrap_or_else(|| Arc::new(AtomicUsize::new(0))),
            answer_gate: AnswerGate(Some((Arc::clone(&published.incarnation), self.clock))),
            node: Some(status.clone()),
        });
        self.to.peer_state.send_if_modified(|state| {
            let now = peer_state(state, status, node);
            let changed = *state != now;
            *state = now;
            changed
        });
        self.to.members.send_if_modified(|members| {
            let now =
                node.seen_keys().members().map(|member| (member.name.clone(), member.boot_id.to_string()));
            let now: Members = now.collect();
            let changed = *members != now;
            *members = now;
            changed
        });
        self.to.published.send_replace(published);
    }
}

/// Returns the state for other masters: this process, and the term and lease that it leads with, if it leads.
fn peer_state(before: &PeerState, status: &NodeStatus, node: &Node) -> PeerState {
    let leader = node.seen_keys().leader().filter(|leader| leader.term == status.term);
    let mut state =
        PeerState { boot_id: before.boot_id.clone(), name: before.name.clone(), ..PeerState::default() };
    state.cluster_id.clone_from(&before.cluster_id);
    state.role = Role::Standby;
    if let (Role::Primary, Some(leader)) = (status.role, leader) {
        state.role = Role::Primary;
        (state.term, state.lease) = (leader.term, leader.lease);
        state.log = node.log().map_or_else(String::new, |log| log.to_string());
        state.durable = status.durable;
    }
    state
}

/// Returns the state in the reference's terms.
fn state_word(status: &NodeStatus) -> &'static str {
    match status.activity {
        Activity::CatchingUp => "catching_up",
        Activity::Following | Activity::Leaving | Activity::Stopped => "standby",
        Activity::Standing => "candidate",
        Activity::Promoting => "recovering",
        Activity::Serving | Activity::HandingOver => "serving",
    }
}

impl Host for ProcessHost {
    fn open(&mut self, incarnation: Arc<Incarnation>, clock: LogClock, term: Term) {
        let log_clock = RunningClock::new(clock, self.clock);
        let engine = Arc::clone(&incarnation.engine);
        let replication = LogContext { incarnation, clock: self.clock, durability: self.durability };
        match self.service.open(self.draining_port.take(), engine, log_clock, Some(replication), term) {
            Ok(mut serving) => {
                if let Some(socket) = serving.socket.take() {
                    self.held_port.hold(socket);
                }
                self.serving = Some(serving);
                self.log_clock = Some(log_clock);
                self.tell(Input::Opened);
            }
            Err(error) => self.tell(Input::OpenFailed(error.to_string())),
        }
    }

    fn close(&mut self) {
        // From here on HTTP requests get no access to the state either.
        self.to.state.send_modify(|current| current.health.service_ready = false);
        let Some(serving) = self.serving.take() else {
            // The port could not be opened, but work of an earlier opening may go on.
            let quiet = self.to.published.borrow().incarnation.guards.is_drained();
            return self.tell(Input::Closed { quiet });
        };
        self.log_clock = None;
        let (inputs, draining_port, held_port) =
            (self.inputs.clone(), Arc::clone(&self.draining_port), self.held_port.clone());
        tokio::spawn(async move {
            let (quiet, listener) = serving.close().await;
            match listener {
                Some(listener) => draining_port.leave_open(listener, TURN_AWAY),
                None => held_port.release(),
            }
            inputs.send(Input::Closed { quiet }).await;
        });
    }

    fn follow(&mut self, peer: Option<Peer>) {
        match peer {
            Some(peer) => self.primary_probe.watch(&peer.address, &peer.boot_id.to_string(), peer.lease),
            None => self.primary_probe.leave(),
        }
    }

    fn handed_over(&mut self, id: HandoverId, result: Result<HandedOver, HandoverError>) {
        if let Some(waiting) = self.waiting.lock().remove(&id) {
            // The caller may have hung up.
            let _ = waiting.send(result);
        }
    }

    fn snapshot(&mut self, job: SnapshotJob) {
        if let Some(worker) = &self.snapshots {
            worker.submit(job);
        }
    }

    fn snapshot_taken(&mut self, id: SnapshotRequest, result: Result<HeldSnapshot, SnapshotRefused>) {
        if let Some(waiting) = self.snapshots_waiting.lock().remove(&id) {
            // The caller may have hung up.
            let _ = waiting.send(result);
        }
    }

    fn changed(&mut self, node: &Node) {
        let applied = node.incarnation().engine.applied();
        self.to.applied.send_if_modified(|told| std::mem::replace(told, applied) != applied);
        let now = self.clock.now();
        let (activity, term) = node.brief();
        let master_view = node.seen_keys().serving().cloned();
        let urgent = Some(UrgentStatus { activity, term, master_view, serving: self.serving.is_some() });
        if urgent != self.told.1 || now.since(self.told.0) >= NEWS_INTERVAL {
            self.told.1 = urgent;
            self.publish(node);
        }
    }
}
