//! Metrics of a master: counters that handlers add to, gauges that are read when somebody asks, and both as
//! Prometheus text or as one line for people.
//!
//! Names are the reference's where it has one, so that dashboards keep working; ours start with `moonkeeper_`.
//! Nothing here decides anything: no code may read a metric to find out what to do.

mod counters;
mod families;
mod gauges;
mod reference;
mod report;
mod rpc;
mod summary;

use std::sync::Arc;

pub use counters::{Counters, ValueSizes};
pub use gauges::{Gauges, ReplicationGauges, SegmentGauges};
pub use report::report;
pub use rpc::{RpcCounts, RpcMetrics};
pub use summary::Summary;

use prometheus::TextEncoder;

/// Everything that handlers count. One per process, shared by all of them.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Per RPC.
    pub rpc: RpcMetrics,
    /// Per event that is not an RPC.
    pub counters: Counters,
    /// How large the values of new objects are.
    pub value_sizes: ValueSizes,
    /// When the process began.
    pub started: Started,
}

/// When the process began.
#[derive(Debug)]
pub struct Started(std::time::Instant);

impl Default for Started {
    fn default() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Started {
    /// The time since then.
    #[must_use]
    pub fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

impl Metrics {
    /// A new set of metrics, all zero.
    pub fn new() -> Arc<Metrics> {
        Arc::default()
    }

    /// All metrics in Prometheus' text format.
    pub fn prometheus_text(&self, gauges: &Gauges) -> String {
        let families = families::collect(self, gauges);
        // Encoding into a string can only fail for a family without samples, and none of ours is empty.
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|why| {
            tracing::error!(%why, "metrics cannot be encoded");
            String::new()
        })
    }
}
