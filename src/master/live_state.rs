//! The current state of this master, which is replaced at every change of role. The HTTP routes read it from here.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::watch;

use crate::engine::Engine;
use crate::engine::types::SequenceId;
use crate::master::http::{Health, ReferenceRole};
use crate::replication::admission::PATIENCE;
use crate::replication::incarnation::Incarnation;
use crate::replication::node::status::NodeStatus;
use crate::replication::time::{MonotonicClock, RunningClock};

/// The current state of this master.
#[derive(Clone, Debug)]
pub struct LiveState {
    pub engine: Arc<Engine>,
    pub clock: RunningClock,
    /// The role and whether clients are served.
    pub health: Health,
    /// Open connections of Mooncake clients.
    pub connections: Arc<AtomicUsize>,
    /// The gate of all answers.
    pub answer_gate: AnswerGate,
    /// Status of the node; `None` for a master without replication.
    pub node: Option<NodeStatus>,
}

/// Receiver of the current state.
pub type LiveStateReceiver = watch::Receiver<LiveState>;

impl LiveState {
    /// Returns the state of a master that is alone.
    #[must_use]
    pub fn alone(engine: Arc<Engine>, clock: RunningClock, connections: Arc<AtomicUsize>) -> Self {
        let health = Health {
            role: ReferenceRole::Leader,
            state: "serving",
            service_ready: true,
            leader_address: None,
            view_version: None,
        };
        Self { engine, clock, health, connections, answer_gate: AnswerGate(None), node: None }
    }
}

/// The gate that every answer passes; empty for a master without a log.
#[derive(Clone, Debug)]
pub struct AnswerGate(pub Option<(Arc<Incarnation>, MonotonicClock)>);

impl AnswerGate {
    /// Waits until what an answer depends on is durable. Returns false if this master may no longer answer, or if the
    /// wait took longer than [`PATIENCE`]: what was changed may yet become durable (R5).
    pub async fn wait_durable(&self, depends_on: SequenceId) -> bool {
        let Some((incarnation, clock)) = &self.0 else { return true };
        let gate = &incarnation.gate;
        let mut durable = gate.watch();
        let give_up = clock.now().plus(PATIENCE);
        loop {
            let now = clock.now();
            if !gate.may_answer(now) || now >= give_up {
                return false;
            }
            // The deadline moves with every keep-alive that etcd answers.
            let left = gate.deadline().min(give_up).since(now);
            let wait = durable.wait_for(|durable| *durable >= depends_on);
            match tokio::time::timeout(left, wait).await {
                Ok(Ok(_)) => return gate.may_answer(clock.now()),
                Ok(Err(_)) => return false,
                Err(_) => {}
            }
        }
    }
}
