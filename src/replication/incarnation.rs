//! One incarnation of the state: the metadata, the queue of its records, and the gate in front of its answers. A
//! deposed primary that cannot vouch for its state discards the three together, so that a task that still holds the old
//! ones can do no harm.

use std::sync::Arc;

use super::gate::Gate;
use super::queue::Queue;
use super::term_guard::TermGuards;
use crate::engine::settings::EngineSettings;
use crate::engine::{Engine, Log};

/// One incarnation of the state; discarded as a whole.
#[derive(Debug)]
pub struct Incarnation {
    /// The metadata.
    pub engine: Arc<Engine>,
    /// Records that wait to be written.
    pub queue: Arc<Queue>,
    /// What every answer passes.
    pub gate: Gate,
    /// Guards of the tasks that serve clients from this state.
    pub guards: TermGuards,
}

impl Incarnation {
    /// Creates an empty state whose queue has a capacity of `queue_bytes`.
    #[must_use]
    pub fn new(settings: EngineSettings, queue_bytes: usize) -> Arc<Self> {
        let queue = Arc::new(Queue::new(queue_bytes));
        let engine = Arc::new(Engine::with_log(settings, Box::new(Arc::clone(&queue))));
        Arc::new(Self { engine, queue, gate: Gate::default(), guards: TermGuards::default() })
    }

    /// Creates a state from a snapshot, which `read` reads into an engine whose later records go to the log that it is
    /// passed. What a snapshot has is durable.
    pub fn restore<E>(
        queue_bytes: usize,
        read: impl FnOnce(Box<dyn Log>) -> Result<Engine, E>,
    ) -> Result<Arc<Self>, E> {
        let queue = Arc::new(Queue::new(queue_bytes));
        let engine = Arc::new(read(Box::new(Arc::clone(&queue)))?);
        let gate = Gate::default();
        gate.advance(engine.applied());
        Ok(Arc::new(Self { engine, queue, gate, guards: TermGuards::default() }))
    }

    /// Returns whether every record that was applied is known to be durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.engine.applied() == self.gate.durable()
    }
}
