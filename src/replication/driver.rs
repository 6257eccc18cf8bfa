//! The driver: carries out what a node commands, with real time and a real etcd. It decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::MissedTickBehavior;

use super::clocks::ClockWatch;
use super::node::{Command, HandedOver, HandoverError, HandoverId, Input, Node, Peer, TICK, WatchId};
use super::replica::Replica;
use super::time::{LogClock, MonotonicClock};
use crate::coordination::etcd::Etcd;
use crate::engine::types::Term;

/// How many inputs may wait. Whoever brings more waits, which slows watches down rather than filling memory.
const INPUTS: usize = 256;

/// How long the last calls of a node have that has stopped: those that revoke its leases.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// What the process around a node does for it.
pub trait Host: Send {
    /// Serves clients from this state. Answers with [`Input::Opened`] or [`Input::OpenFailed`].
    fn open(&mut self, replica: Arc<Replica>, clock: LogClock, term: Term);

    /// Serves clients no longer. Answers with [`Input::Closed`].
    fn close(&mut self);

    /// Keeps a connection to the process that leads.
    fn follow(&mut self, peer: Option<Peer>);

    /// A hand-over has ended.
    fn handed_over(&mut self, id: HandoverId, result: Result<HandedOver, HandoverError>);

    /// The node may have changed.
    fn changed(&mut self, node: &Node);
}

/// The way into a node.
#[derive(Clone, Debug)]
pub struct Inputs(mpsc::Sender<Input>);

impl Inputs {
    /// The way in, and what has to be given to [`drive`].
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(INPUTS);
        (Self(sender), receiver)
    }

    /// Tells the node. Nothing happens if it has ended.
    pub async fn send(&self, input: Input) {
        let _ = self.0.send(input).await;
    }
}

/// Runs a node until it has stopped.
pub async fn drive(
    mut node: Node,
    etcd: Arc<Etcd>,
    inputs: Inputs,
    mut received: mpsc::Receiver<Input>,
    clock: MonotonicClock,
    mut host: impl Host,
) {
    let mut watches: HashMap<WatchId, AbortHandle> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut calls = FuturesUnordered::new();
    let mut alarm: Option<JoinHandle<()>> = None;
    let mut clocks = ClockWatch::default();
    loop {
        for command in node.take_commands() {
            match command {
                Command::Call { call, request, timeout } => {
                    // Waited for right here: a task of its own for each would be two more to wake for every commit.
                    let etcd = &etcd;
                    calls.push(
                        async move { Input::Answer { call, result: etcd.call(request, timeout).await } },
                    );
                }
                Command::Watch { watch, request } => {
                    let mut events = etcd.watch(request);
                    let inputs = inputs.clone();
                    let task = tokio::spawn(async move {
                        while let Some(event) = events.recv().await {
                            inputs.send(Input::Watch { watch, event }).await;
                        }
                    });
                    watches.insert(watch, task.abort_handle());
                }
                Command::Unwatch { watch } => {
                    if let Some(task) = watches.remove(&watch) {
                        task.abort();
                    }
                }
                Command::Open { replica, clock, term } => host.open(replica, clock, term),
                Command::Close => host.close(),
                Command::FlushLeases { replica, clock: log_clock, budget } => {
                    let inputs = inputs.clone();
                    tokio::spawn(async move {
                        let flush = move || flush_leases(&replica, log_clock, clock, budget);
                        let (written, complete) =
                            tokio::task::spawn_blocking(flush).await.unwrap_or((0, false));
                        inputs.send(Input::LeasesFlushed { written, complete }).await;
                    });
                }
                Command::Discard(replica) => {
                    tokio::task::spawn_blocking(move || discard(replica));
                }
                Command::FollowPeer(peer) => host.follow(peer),
                Command::HandedOver { id, result } => host.handed_over(id, result),
                Command::Stopped => {
                    host.changed(&node);
                    watches.into_values().for_each(|task| task.abort());
                    // The leases of this process are revoked, so that its keys go at once.
                    let _ = tokio::time::timeout(LAST_CALLS, async { while calls.next().await.is_some() {} })
                        .await;
                    return;
                }
            }
        }
        host.changed(&node);
        let replica = Arc::clone(node.replica());
        if let (None, Some(at)) = (&alarm, node.wake_at()) {
            let wait = at.since(clock.now());
            // The runtime's own timer is exact to a millisecond only, which is as long as a commit takes.
            alarm = Some(tokio::task::spawn_blocking(move || std::thread::sleep(wait)));
        }
        let input = tokio::select! {
            Some(input) = calls.next() => input,
            Some(input) = received.recv() => input,
            () = replica.queue.appended() => Input::Queued,
            () = ring(&mut alarm) => Input::Queued,
            _ = tick.tick() => Input::Tick,
        };
        // Before anything else: an answer that came in may be from before a stop of this machine.
        if let Some(drift) = clocks.look(clock.read()) {
            node.handle(clock.now(), Input::ClockJumped { drift });
        }
        node.handle(clock.now(), input);
        // Whatever else has arrived meanwhile is dealt with before anything is done about it.
        for _ in 0..INPUTS {
            let Ok(input) = received.try_recv() else { break };
            node.handle(clock.now(), input);
        }
    }
}

/// Writes promises to readers down, on a thread of its own. Returns how many, and whether these were all.
fn flush_leases(
    replica: &Replica,
    log_clock: LogClock,
    clock: MonotonicClock,
    budget: Duration,
) -> (usize, bool) {
    let until = clock.now().plus(budget);
    replica.engine.flush_leases_while(log_clock.at(clock.now()), || clock.now() < until)
}

/// Drops a state that was thrown away. Others look at it for a moment still; the last to let go of it frees millions of
/// objects, which must not be the task of the node.
fn discard(replica: Arc<Replica>) {
    for _ in 0..DISCARD_LOOKS {
        if Arc::strong_count(&replica) == 1 && Arc::strong_count(&replica.engine) == 1 {
            break;
        }
        std::thread::sleep(DISCARD_PAUSE);
    }
    drop(replica);
}

/// How often it is looked whether a discarded state is still looked at, and how many times.
const DISCARD_PAUSE: Duration = Duration::from_millis(50);
const DISCARD_LOOKS: u32 = 600;

/// Waits for the alarm, for ever if there is none.
async fn ring(alarm: &mut Option<JoinHandle<()>>) {
    match alarm {
        Some(task) => {
            let _ = task.await;
            *alarm = None;
        }
        None => std::future::pending().await,
    }
}
