//! What the primary does by itself as time passes. Each of these makes the engine commit records; none edits state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::engine::Engine;
use crate::engine::rules::Expired;
use crate::engine::types::{LogTime, Uuid};
use crate::master::clock::Clock;
use crate::master::liveness::{Liveness, Pace};
use crate::master::metadata_server::entries_of;
use crate::master::metrics::{Counters, Metrics};

/// How often memory is looked at: a client that found none waits no longer than this for the next eviction.
const EVICTION_INTERVAL: Duration = Duration::from_millis(10);

/// How often everything else is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often silent clients are looked for.
const SECOND: Duration = Duration::from_secs(1);

/// What upkeep works with.
#[derive(Clone, Debug)]
pub struct Upkeep {
    /// The metadata.
    pub engine: Arc<Engine>,
    /// Log time.
    pub clock: Clock,
    /// Until when clients have to be heard from.
    pub liveness: Arc<Liveness>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Whether what a silent client told the metadata server goes with it.
    pub forget_metadata: bool,
    /// How often promises to readers are written down.
    pub lease_sync: Duration,
}

impl Upkeep {
    /// Runs until `stop` says so. While `serves` says no, clients cannot be heard, and their deadlines stand still.
    pub async fn run(self, mut stop: watch::Receiver<bool>, serves: impl Fn() -> bool) {
        let mut eviction = ticker(EVICTION_INTERVAL);
        let mut often = ticker(INTERVAL);
        let mut second = ticker(SECOND);
        let mut leases = ticker(self.lease_sync);
        let mut pace = Pace::of(SECOND.as_millis() as u64);
        // Whatever the primary before did not get round to is swept at first.
        let mut swept = None;
        loop {
            let this = self.clone();
            tokio::select! {
                () = stopped(&mut stop) => return,
                _ = eviction.tick() => {
                    if this.memory_is_short() {
                        aside(move || this.evict()).await;
                    }
                }
                _ = often.tick() => {
                    let unmounts = self.engine.counts.unmounts.load(Ordering::Acquire);
                    let sweep = swept.replace(unmounts) != Some(unmounts);
                    aside(move || this.look_after(sweep)).await;
                }
                _ = leases.tick() => aside(move || { this.engine.replicate_leases(this.clock.now()); }).await,
                _ = second.tick() => {
                    // One reading of the clock for both: a process that is stopped in between expires nobody.
                    let now = self.clock.now();
                    self.liveness.postpone(pace.beat(now, serves()));
                    let silent = self.liveness.take_silent(now);
                    aside(move || this.each_second(&silent)).await;
                }
            }
        }
    }

    /// Whether there is something to evict for, and it may be done (R6).
    fn memory_is_short(&self) -> bool {
        let short = self.engine.counts.starved.load(Ordering::Relaxed)
            || self.engine.used_ratio() > self.engine.rules.high_watermark;
        short && self.engine.hold_until() <= self.clock.now()
    }

    fn evict(&self) {
        let evicted = self.engine.evict(self.clock.now());
        Counters::add(&self.metrics.counters.attempted_evictions, 1);
        self.count_evicted(evicted);
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

    fn look_after(&self, sweep: bool) {
        let done = self.engine.upkeep(self.clock.now());
        let discards = self.engine.counts.discarded.load(Ordering::Relaxed);
        self.metrics.counters.put_start_discards.store(discards, Ordering::Relaxed);
        if done.released > 0 {
            Counters::add(&self.metrics.counters.put_start_releases, done.released as u64);
            tracing::info!(released = done.released, "released reservations whose time had passed");
        }
        if done.unmounted > 0 {
            tracing::info!(unmounted = done.unmounted, "unmounted segments whose grace period was over");
        }
        if done.tasks_failed > 0 {
            tracing::warn!(tasks = done.tasks_failed, "gave up tasks that took too long");
        }
        if sweep || done.unmounted > 0 {
            let objects = self.engine.sweep(self.clock.now());
            if objects > 0 {
                tracing::info!(objects, "dropped what lay in unmounted segments");
            }
        }
    }

    fn each_second(&self, silent: &[Uuid]) {
        let now = self.clock.now();
        if self.engine.rules.expired == Expired::Evict {
            let evicted = self.engine.evict_expired(now);
            self.count_evicted(evicted);
            if evicted > 0 {
                tracing::info!(evicted, "evicted objects of earlier terms whose lease had ended");
            }
        }
        for client in silent.iter().copied() {
            if self.engine.client(client).is_some() {
                if self.forget_metadata {
                    self.forget_metadata_of(client, now);
                }
                self.engine.sequencer(now).expire_client(client);
                Counters::add(&self.metrics.counters.expired_clients, 1);
                tracing::warn!(%client, "client expired, its segments are gone");
            }
        }
    }

    fn forget_metadata_of(&self, client: Uuid, now: LogTime) {
        let segments = self.engine.segments();
        for segment in segments.iter().filter(|segment| segment.client == client) {
            // A client that was started again under the same name has told about itself there.
            if segments.iter().any(|other| other.name == segment.name && other.client != client) {
                continue;
            }
            for key in entries_of(&segment.name) {
                self.engine.sequencer(now).delete_metadata(&key);
            }
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can say so any more, which is the same word.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn ticker(period: Duration) -> tokio::time::Interval {
    let mut ticker = tokio::time::interval(period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}

/// Runs something that may take a while where it holds up no connection.
async fn aside(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::error!(%error, "upkeep failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rules::Rules;
    use crate::engine::segment::SegmentSpec;

    const OLD: Uuid = Uuid { first: 1, second: 1 };
    const NEW: Uuid = Uuid { first: 2, second: 2 };

    fn mount(engine: &Engine, client: Uuid, name: &[u8]) {
        let id = Uuid { first: client.first, second: name.len() as u64 };
        let (base, size) = (1 << 32, 1 << 20);
        let spec = SegmentSpec { id, name, base, size, te_endpoint: name, protocol: b"tcp", host_id: b"" };
        assert!(engine.sequencer(LogTime(1)).mount(&spec, client).result.is_ok());
        for key in entries_of(name) {
            let put = engine.sequencer(LogTime(1)).put_metadata(&key, b"v", |_, _, _| Ok::<_, ()>(()));
            assert!(put.is_ok());
        }
    }

    fn entries(engine: &Engine, name: &[u8]) -> usize {
        entries_of(name).filter(|key| engine.metadata(key).is_some()).count()
    }

    #[test]
    fn the_silent_take_their_metadata_along_unless_another_has_their_name() {
        let engine = Arc::new(Engine::new(Rules::default()));
        mount(&engine, OLD, b"10.0.0.1:1");
        mount(&engine, OLD, b"10.0.0.22:2");
        mount(&engine, NEW, b"10.0.0.22:2");
        let upkeep = Upkeep {
            engine: Arc::clone(&engine),
            clock: Clock::start(),
            liveness: Arc::new(Liveness::new(1)),
            metrics: Metrics::new(),
            forget_metadata: true,
            lease_sync: SECOND,
        };
        upkeep.each_second(&[OLD]);
        assert_eq!((entries(&engine, b"10.0.0.1:1"), entries(&engine, b"10.0.0.22:2")), (0, 4));
        upkeep.each_second(&[NEW]);
        assert_eq!(entries(&engine, b"10.0.0.22:2"), 0);
    }
}
