//! The state as it is now: another one with every change of role. Whoever reads it over HTTP takes it from here.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::watch;

use crate::engine::Engine;
use crate::engine::types::SequenceId;
use crate::master::clock::Clock;
use crate::master::http::{Health, Role};
use crate::replication::admission::PATIENCE;
use crate::replication::node::status::NodeStatus;
use crate::replication::replica::Replica;
use crate::replication::time::MonotonicClock;

/// The state as it is now.
#[derive(Clone, Debug)]
pub struct Current {
    /// The metadata.
    pub engine: Arc<Engine>,
    /// Log time.
    pub clock: Clock,
    /// The role and whether clients are served.
    pub health: Health,
    /// Open connections of Mooncake clients.
    pub connections: Arc<AtomicUsize>,
    /// What every answer passes.
    pub passage: Passage,
    /// What the node is at, if there is one.
    pub node: Option<NodeStatus>,
}

/// Where the current state is read.
pub type CurrentState = watch::Receiver<Current>;

impl Current {
    /// The state of a master that is alone.
    #[must_use]
    pub fn alone(engine: Arc<Engine>, clock: Clock, connections: Arc<AtomicUsize>) -> Self {
        let health = Health {
            role: Role::Leader,
            state: "serving",
            service_ready: true,
            leader_address: None,
            view_version: None,
        };
        Self { engine, clock, health, connections, passage: Passage(None), node: None }
    }
}

/// What every answer passes, if there is a log.
#[derive(Clone, Debug)]
pub struct Passage(pub Option<(Arc<Replica>, MonotonicClock)>);

impl Passage {
    /// Waits until what an answer depends on is durable. False if this master may no longer answer, or if the wait took
    /// longer than [`PATIENCE`]: what was changed may yet become durable (R5).
    pub async fn settle(&self, depends_on: SequenceId) -> bool {
        let Some((replica, clock)) = &self.0 else { return true };
        let gate = &replica.gate;
        let mut durable = gate.watch();
        let give_up = clock.now().plus(PATIENCE);
        loop {
            let now = clock.now();
            if !gate.may_answer(now) || now >= give_up {
                return false;
            }
            // The deadline moves with every keep-alive that is answered.
            let left = gate.deadline().min(give_up).since(now);
            let wait = durable.wait_for(|durable| *durable >= depends_on.0);
            match tokio::time::timeout(left, wait).await {
                Ok(Ok(_)) => return gate.may_answer(clock.now()),
                Ok(Err(_)) => return false,
                Err(_) => {}
            }
        }
    }
}
