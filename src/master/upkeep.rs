//! What the primary does by itself as time passes. Each of these makes the engine commit records; none edits state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::engine::Engine;
use crate::engine::types::{LogTime, Uuid};
use crate::master::clock::Clock;
use crate::master::liveness::Liveness;
use crate::master::metrics::{Counters, Metrics};

/// How often memory is looked at: a client that found none waits no longer than this for the next eviction.
const EVICTION_INTERVAL: Duration = Duration::from_millis(10);

/// How often everything else is looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often promises to readers are written down, and silent clients looked for.
const SECOND: Duration = Duration::from_secs(1);

/// What upkeep works with.
#[derive(Clone, Debug)]
pub struct Upkeep {
    /// The metadata.
    pub engine: Arc<Engine>,
    /// Log time.
    pub clock: Clock,
    /// When clients were last heard from.
    pub liveness: Arc<Liveness>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How long a client may be silent, in milliseconds.
    pub client_ttl: u64,
    /// Whether what a silent client told the metadata server goes with it.
    pub forget_metadata: bool,
}

impl Upkeep {
    /// Runs until `stop` says so.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut eviction = ticker(EVICTION_INTERVAL);
        let mut often = ticker(INTERVAL);
        let mut second = ticker(SECOND);
        let mut swept = 0;
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
                    let sweep = unmounts != swept;
                    swept = unmounts;
                    aside(move || this.look_after(sweep)).await;
                }
                _ = second.tick() => aside(move || this.each_second()).await,
            }
        }
    }

    fn memory_is_short(&self) -> bool {
        self.engine.counts.starved.load(Ordering::Relaxed)
            || self.engine.used_ratio() > self.engine.rules.high_watermark
    }

    fn evict(&self) {
        let evicted = self.engine.evict(self.clock.now());
        let counters = &self.metrics.counters;
        Counters::add(&counters.attempted_evictions, 1);
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
            tracing::info!(objects, "dropped what lay in unmounted segments");
        }
    }

    fn each_second(&self) {
        self.engine.replicate_leases(self.clock.now());
        let now = self.clock.now();
        for client in self.liveness.take_silent(now, self.client_ttl) {
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
        for segment in self.engine.segments().iter().filter(|segment| segment.client == client) {
            for prefix in METADATA_OF_A_SEGMENT {
                self.engine.sequencer(now).delete_metadata(&[prefix, &segment.name].concat());
            }
        }
    }
}

/// Where transfer engines keep what they say of a segment.
const METADATA_OF_A_SEGMENT: [&[u8]; 2] = [b"mooncake/ram/", b"mooncake/rpc_meta/"];

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
