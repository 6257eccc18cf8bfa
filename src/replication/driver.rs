//! The driver: carries out the commands of a node, with real time and a real etcd. It decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::MissedTickBehavior;

use super::clocks::ClockWatch;
use super::incarnation::Incarnation;
use super::node::{
    Command, HandedOver, HandoverError, HandoverId, Input, Node, Peer, SnapshotJob, SnapshotRequest, TICK,
    WatchId,
};
use super::time::{LogClock, MonotonicClock};
use crate::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use crate::coordination::etcd::Etcd;
use crate::engine::types::Term;

/// Capacity of the channel of inputs. A sender that finds it full waits, which slows watches down instead of filling
/// memory.
const INPUTS: usize = 256;

/// Timeout for the last calls of a stopped node: those that revoke its leases.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// The process around a node: serves clients, connects to the primary, and passes results on.
pub trait Host: Send {
    /// Starts to serve clients from this state. Answers with [`Input::Opened`] or [`Input::OpenFailed`].
    fn open(&mut self, incarnation: Arc<Incarnation>, clock: LogClock, term: Term);

    /// Stops serving clients. Answers with [`Input::Closed`].
    fn close(&mut self);

    /// Keeps a connection to the process that leads; with `None`, closes it.
    fn follow(&mut self, peer: Option<Peer>);

    /// Receives the result of a hand-over.
    fn handed_over(&mut self, id: HandoverId, result: Result<HandedOver, HandoverError>);

    /// Does a job in the directory of snapshots, after those before it, and on another thread. Answers a
    /// [`SnapshotJob::Write`] with [`Input::SnapshotWritten`], a [`SnapshotJob::Announce`] with
    /// [`Input::SnapshotAnnounced`].
    fn snapshot(&mut self, job: SnapshotJob);

    /// Receives the result of a request for a snapshot.
    fn snapshot_taken(&mut self, id: SnapshotRequest, result: Result<HeldSnapshot, SnapshotRefused>);

    /// Called after every round of inputs: the node may have changed.
    fn changed(&mut self, node: &Node);
}

/// The sender of inputs to a node.
#[derive(Clone, Debug)]
pub struct Inputs(mpsc::Sender<Input>);

impl Inputs {
    /// Returns a sender, and the receiver to pass to [`drive`].
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Input>) {
        let (sender, receiver) = mpsc::channel(INPUTS);
        (Self(sender), receiver)
    }

    /// Sends an input to the node. Has no effect if the node has ended.
    pub async fn send(&self, input: Input) {
        let _ = self.0.send(input).await;
    }

    /// Sends an input from a thread that is none of the runtime's, and waits for space in the channel.
    pub fn send_from_thread(&self, input: Input) {
        let _ = self.0.blocking_send(input);
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
                    // Polled right here: a task for each call would mean two more wake-ups for every commit.
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
                Command::Open { incarnation, clock, term } => host.open(incarnation, clock, term),
                Command::Close => host.close(),
                Command::FlushLeases { flush, incarnation, clock: log_clock, budget } => {
                    let inputs = inputs.clone();
                    tokio::spawn(async move {
                        let work = move || flush_leases(&incarnation, log_clock, clock, budget);
                        let (written, complete) =
                            tokio::task::spawn_blocking(work).await.unwrap_or((0, false));
                        inputs.send(Input::LeasesFlushed { flush, written, complete }).await;
                    });
                }
                Command::Discard(incarnation) => {
                    tokio::task::spawn_blocking(move || discard(incarnation));
                }
                Command::FollowPeer(peer) => host.follow(peer),
                Command::HandedOver { id, result } => host.handed_over(id, result),
                Command::Snapshot(job) => host.snapshot(job),
                Command::SnapshotTaken { id, result } => host.snapshot_taken(id, result),
                Command::Stopped => {
                    host.changed(&node);
                    watches.into_values().for_each(|task| task.abort());
                    // The calls in flight revoke the leases of this process, so that its keys disappear at once.
                    let _ = tokio::time::timeout(LAST_CALLS, async { while calls.next().await.is_some() {} })
                        .await;
                    return;
                }
            }
        }
        host.changed(&node);
        let incarnation = Arc::clone(node.incarnation());
        if let (None, Some(at)) = (&alarm, node.wake_at()) {
            let wait = at.since(clock.now());
            // The runtime's own timer has a resolution of a millisecond, which is as long as a commit takes.
            alarm = Some(tokio::task::spawn_blocking(move || std::thread::sleep(wait)));
        }
        let input = tokio::select! {
            Some(input) = calls.next() => input,
            Some(input) = received.recv() => input,
            () = incarnation.queue.appended() => Input::Queued,
            () = ring(&mut alarm) => Input::Queued,
            _ = tick.tick() => Input::Tick,
        };
        // Before anything else: an answer that arrived may be from before a stop of this machine.
        if let Some(drift) = clocks.look(clock.read()) {
            node.handle(clock.now(), Input::ClockJumped { drift });
        }
        node.handle(clock.now(), input);
        // Inputs that have arrived meanwhile are handled before any command is carried out.
        for _ in 0..INPUTS {
            let Ok(input) = received.try_recv() else { break };
            node.handle(clock.now(), input);
        }
    }
}

/// Writes live leases to the log, on a blocking thread. Returns how many, and whether these were all.
fn flush_leases(
    incarnation: &Incarnation,
    log_clock: LogClock,
    clock: MonotonicClock,
    budget: Duration,
) -> (usize, bool) {
    let until = clock.now().plus(budget);
    incarnation.engine.flush_leases_while(log_clock.at(clock.now()), &mut || clock.now() < until)
}

/// Drops a state that was thrown away. Other tasks may still read it for a moment, and the last one to drop it frees
/// millions of objects, which must not happen on the task of the node.
fn discard(incarnation: Arc<Incarnation>) {
    for _ in 0..DISCARD_LOOKS {
        if Arc::strong_count(&incarnation) == 1 && Arc::strong_count(&incarnation.engine) == 1 {
            break;
        }
        std::thread::sleep(DISCARD_PAUSE);
    }
    drop(incarnation);
}

/// Interval and number of the checks whether other tasks still hold a discarded state: at most 30 s.
const DISCARD_PAUSE: Duration = Duration::from_millis(50);
const DISCARD_LOOKS: u32 = 600;

/// Waits for the alarm; for ever if none is set.
async fn ring(alarm: &mut Option<JoinHandle<()>>) {
    match alarm {
        Some(task) => {
            let _ = task.await;
            *alarm = None;
        }
        None => std::future::pending().await,
    }
}
