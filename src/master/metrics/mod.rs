//! Metrics of a master: counters that handlers add to, gauges that are read for each scrape, and both as Prometheus
//! text or as one line for people.
//!
//! Names are the reference's where it has one, so that dashboards keep working; ours start with `moonkeeper_`.
//! Nothing here decides anything: no code may read a metric to find out what to do.

mod counters;
mod etcd;
mod families;
mod gauges;
mod reference;
mod report;
mod rpc;
mod samples;
mod snapshots;
mod summary;

use std::sync::Arc;

pub use counters::{Counters, ValueSizes};
pub use gauges::{Gauges, ReplicationGauges, SegmentGauges};
pub use report::report;
pub use rpc::{RpcCounts, RpcMetrics};
pub use summary::Summary;

use prometheus::TextEncoder;

/// All counters. There is one set per process.
#[derive(Debug, Default)]
pub struct Metrics {
    pub rpc: RpcMetrics,
    /// Counters of events that are not RPCs.
    pub counters: Counters,
    /// Sizes of the values of new objects.
    pub value_sizes: ValueSizes,
    pub started: Started,
}

/// Start time of the process.
#[derive(Debug)]
pub struct Started(std::time::Instant);

impl Default for Started {
    fn default() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Started {
    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

impl Metrics {
    /// Creates metrics that are all zero.
    pub fn new() -> Arc<Metrics> {
        Arc::default()
    }

    /// Returns all metrics in Prometheus' text format.
    pub fn prometheus_text(&self, gauges: &Gauges) -> String {
        let families = families::collect(self, gauges);
        // Encoding into a string can only fail for a family without samples, and none of ours is empty.
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|why| {
            tracing::error!(%why, "metrics cannot be encoded");
            String::new()
        })
    }
}
