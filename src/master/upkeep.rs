//! Upkeep of a primary: carries out the chores that the timetable says are due, each on a thread of its own, so that a
//! long sweep or eviction delays neither lease sync nor the expiry of clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::engine::Engine;
use crate::master::admission::ChunkPermits;
use crate::master::live_state::AnswerGate;
use crate::master::metrics::{Counters, Metrics};
use crate::replication::liveness::Liveness;
use crate::replication::term_guard::TermGuard;
use crate::replication::time::RunningClock;
use crate::replication::upkeep::{Chore, Chores, Done, EVICTION_INTERVAL_MS, Timetable};

/// The upkeep of a primary, with everything that it works with.
#[derive(Clone, Debug)]
pub struct Upkeep {
    pub engine: Arc<Engine>,
    pub clock: RunningClock,
    /// Deadlines of clients.
    pub liveness: Arc<Liveness>,
    pub metrics: Arc<Metrics>,
    /// How chores are carried out.
    pub chores: Chores,
    /// How often live leases are written to the log.
    pub lease_sync: Duration,
    /// Admission of records.
    pub answer_gate: AnswerGate,
}

impl Upkeep {
    /// Runs until `stop` turns true and the chores under way have ended: between their chunks they check whether the
    /// guard is cancelled.
    pub async fn run<T>(self, guard: TermGuard, mut stop: watch::Receiver<bool>) -> Option<T> {
        let guard = Arc::new(guard);
        let lease_sync_ms = u64::try_from(self.lease_sync.as_millis()).unwrap_or(u64::MAX);
        let mut timetable = Timetable::new(lease_sync_ms);
        let mut tick = tokio::time::interval(Duration::from_millis(EVICTION_INTERVAL_MS));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                // A dropped sender also means stop.
                _ = stop.wait_for(|stop| *stop) => break,
                _ = tick.tick() => {
                    let due = timetable.due(self.clock.now(), &self.engine, &self.liveness, self.serves());
                    for chore in due {
                        let (this, guard) = (self.clone(), Arc::clone(&guard));
                        under_way.spawn_blocking(move || {
                            let done = this.perform(&chore, &guard);
                            (chore, done)
                        });
                    }
                }
                Some(ended) = under_way.join_next() => match ended {
                    Ok((chore, done)) => timetable.finished(&chore, &done),
                    Err(error) => tracing::error!(%error, "upkeep failed"),
                },
            }
        }
        while under_way.join_next().await.is_some() {}
        None
    }

    fn serves(&self) -> bool {
        self.answer_gate
            .0
            .as_ref()
            .is_none_or(|(incarnation, clock)| incarnation.gate.may_answer(clock.now()))
    }

    fn perform(&self, chore: &Chore, guard: &TermGuard) -> Done {
        let mut chunks = ChunkPermits::new(&self.answer_gate, Some(guard));
        let now = self.clock.now();
        let cancelled = || guard.is_cancelled();
        let done = self.chores.perform(chore, &self.engine, &self.liveness, now, &mut chunks, &cancelled);
        drop(chunks);
        self.report(chore, &done);
        done
    }

    fn report(&self, chore: &Chore, done: &Done) {
        let counters = &self.metrics.counters;
        match chore {
            Chore::Evict => {
                Counters::add(&counters.attempted_evictions, 1);
                self.count_evicted(done.evicted);
            }
            Chore::EvictExpired => {
                self.count_evicted(done.evicted);
                if done.evicted > 0 {
                    tracing::info!(
                        evicted = done.evicted,
                        "evicted objects of earlier terms whose lease had ended"
                    );
                }
            }
            Chore::LookAfter => {
                let discards = self.engine.counts.discarded.load(Ordering::Relaxed);
                counters.put_start_discards.store(discards, Ordering::Relaxed);
                Counters::add(&counters.put_start_releases, done.released as u64);
                if done.released > 0 {
                    tracing::info!(released = done.released, "released reservations whose time had passed");
                }
                if done.unmounted > 0 {
                    tracing::info!(
                        unmounted = done.unmounted,
                        "unmounted segments whose grace period was over"
                    );
                }
                if done.tasks_failed > 0 {
                    tracing::warn!(tasks = done.tasks_failed, "gave up tasks that took too long");
                }
            }
            Chore::Sweep { .. } if done.swept > 0 => {
                tracing::info!(objects = done.swept, "removed objects of unmounted segments");
            }
            Chore::Expire(_) => {
                Counters::add(&counters.expired_clients, (done.expired.len() + done.closed.len()) as u64);
                for client in &done.expired {
                    tracing::warn!(%client, "client expired, its segments are gone");
                }
                for client in &done.closed {
                    tracing::debug!(%client, "client without segments expired");
                }
            }
            Chore::Sweep { .. } | Chore::SyncLeases => {}
        }
    }

    fn count_evicted(&self, evicted: u64) {
        let counters = &self.metrics.counters;
        if evicted > 0 {
            Counters::add(&counters.successful_evictions, 1);
            Counters::add(&counters.evicted_keys, evicted);
            let bytes = self.engine.counts.evicted_bytes.load(Ordering::Relaxed);
            counters.evicted_bytes.store(bytes, Ordering::Relaxed);
            tracing::debug!(evicted, "evicted objects");
        }
    }
}
