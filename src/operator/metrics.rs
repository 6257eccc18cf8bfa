//! Metrics of the operator: above all its writes, because a settled cluster needs none (INV-9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

/// The metrics of an operator. Clones share the same counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    writes: IntCounterVec,
    lease_writes: IntCounter,
    leads: IntGauge,
    reconciles: IntCounterVec,
    reconcile_seconds: Histogram,
    relabel_seconds: Histogram,
    clusters: IntGauge,
    etcd_healthy: IntGaugeVec,
    failed_calls: IntCounterVec,
    oldest_pass_seconds: Gauge,
    /// When each pass that is under way has begun, by number.
    under_way: Arc<Mutex<BTreeMap<u64, Instant>>>,
}

/// A pass that is under way, until it is dropped.
pub struct UnderWay {
    number: u64,
    passes: Arc<Mutex<BTreeMap<u64, Instant>>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.passes.lock().remove(&self.number);
    }
}

/// Kinds of writes, which the metrics count separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// An object that a cluster owns was created or changed.
    Apply,
    Delete,
    /// The label of a role.
    Label,
    /// The status of a resource.
    Status,
    /// The finalizer of a resource.
    Finalizer,
    Event,
    /// A key in etcd was deleted.
    EtcdKey,
}

impl Write {
    fn label(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Label => "label",
            Self::Status => "status",
            Self::Finalizer => "finalizer",
            Self::Event => "event",
            Self::EtcdKey => "etcd_key",
        }
    }

    const ALL: [Self; 7] =
        [Self::Apply, Self::Delete, Self::Label, Self::Status, Self::Finalizer, Self::Event, Self::EtcdKey];
}

impl Metrics {
    /// Creates the metrics, all zero.
    ///
    /// # Errors
    ///
    /// If two metrics have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(format!("moonkeeper_operator_{name}"), help);
        let seconds = |name: &str, help: &str| {
            let buckets = vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
            HistogramOpts::from(opts(name, help)).buckets(buckets)
        };
        let metrics = Self {
            registry: Registry::new(),
            writes: IntCounterVec::new(
                opts(
                    "writes_total",
                    "Writes to Kubernetes and etcd, without those of the operator's own Lease",
                ),
                &["what"],
            )?,
            lease_writes: IntCounter::with_opts(opts(
                "lease_writes_total",
                "Writes of the operator's own Lease",
            ))?,
            leads: IntGauge::with_opts(opts("leads", "Whether this operator holds the Lease"))?,
            reconciles: IntCounterVec::new(
                opts("reconciles_total", "Passes over a resource, by result"),
                &["result"],
            )?,
            reconcile_seconds: Histogram::with_opts(seconds(
                "reconcile_seconds",
                "How long a pass over a resource takes",
            ))?,
            relabel_seconds: Histogram::with_opts(seconds(
                "relabel_seconds",
                "Time from the change of the primary in etcd to the label of its pod",
            ))?,
            clusters: IntGauge::with_opts(opts("clusters", "MasterClusters that this operator manages"))?,
            etcd_healthy: IntGaugeVec::new(
                opts("etcd_healthy", "Whether the etcd of a cluster answers"),
                &["namespace", "name"],
            )?,
            failed_calls: IntCounterVec::new(
                opts("master_calls_failed_total", "Calls to masters that failed"),
                &["call"],
            )?,
            oldest_pass_seconds: Gauge::with_opts(opts(
                "oldest_pass_seconds",
                "How long the oldest pass that is under way has taken so far; 0 if there is none",
            ))?,
            under_way: Arc::default(),
        };
        let Self {
            registry,
            writes,
            lease_writes,
            leads,
            reconciles,
            reconcile_seconds,
            relabel_seconds,
            clusters,
            etcd_healthy,
            failed_calls,
            oldest_pass_seconds,
            under_way: _,
        } = metrics.clone();
        registry.register(Box::new(writes))?;
        registry.register(Box::new(lease_writes))?;
        registry.register(Box::new(leads))?;
        registry.register(Box::new(reconciles))?;
        registry.register(Box::new(reconcile_seconds))?;
        registry.register(Box::new(relabel_seconds))?;
        registry.register(Box::new(clusters))?;
        registry.register(Box::new(etcd_healthy))?;
        registry.register(Box::new(failed_calls))?;
        registry.register(Box::new(oldest_pass_seconds))?;
        // All counters exist from the first scrape, so that zero differs from missing.
        for write in Write::ALL {
            metrics.writes.with_label_values(&[write.label()]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Counts a write of this kind.
    pub fn wrote(&self, what: Write) {
        self.writes.with_label_values(&[what.label()]).inc();
    }

    /// Counts a write of the operator's own Lease.
    pub fn wrote_lease(&self) {
        self.lease_writes.inc();
    }

    /// Records whether this operator holds the Lease.
    pub fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    /// Records the start of a pass, which is under way until the returned guard is dropped.
    #[must_use]
    pub fn begin_pass(&self) -> UnderWay {
        self.pass_since(Instant::now())
    }

    /// Records a pass that is under way since `begun`.
    pub(super) fn pass_since(&self, begun: Instant) -> UnderWay {
        let mut passes = self.under_way.lock();
        let number = passes.last_key_value().map_or(0, |(last, _)| last + 1);
        passes.insert(number, begun);
        UnderWay { number, passes: Arc::clone(&self.under_way) }
    }

    /// Returns how long the oldest pass that is under way has taken so far.
    #[must_use]
    pub fn oldest_pass(&self) -> Option<Duration> {
        self.under_way.lock().values().min().map(Instant::elapsed)
    }

    /// Counts a finished pass with its result and duration.
    pub fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.with_label_values(&[result]).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Records the time from the change in etcd to the written label of a new primary.
    pub fn relabelled(&self, after: Duration) {
        self.relabel_seconds.observe(after.as_secs_f64());
    }

    /// Records the number of clusters that the operator manages.
    pub fn clusters(&self, count: usize) {
        self.clusters.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records whether the etcd of a cluster answers.
    pub fn etcd(&self, namespace: &str, name: &str, healthy: bool) {
        self.etcd_healthy.with_label_values(&[namespace, name]).set(i64::from(healthy));
    }

    /// Removes the metrics of a cluster that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        // It fails if the etcd of this cluster was never recorded.
        let _ = self.etcd_healthy.remove_label_values(&[namespace, name]);
    }

    /// Counts a failed call to a master.
    pub fn call_failed(&self, call: &'static str) {
        self.failed_calls.with_label_values(&[call]).inc();
    }

    /// Returns all metrics in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.oldest_pass_seconds.set(self.oldest_pass().unwrap_or_default().as_secs_f64());
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|why| {
            tracing::error!(%why, "metrics cannot be encoded");
            String::new()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pass_counts_until_it_ends() {
        let metrics = Metrics::new().unwrap();
        assert_eq!(metrics.oldest_pass(), None);
        let first = metrics.begin_pass();
        std::thread::sleep(Duration::from_millis(20));
        let second = metrics.begin_pass();
        assert!(metrics.oldest_pass() >= Some(Duration::from_millis(20)));
        drop(first);
        let left = metrics.under_way.lock().len();
        assert_eq!(left, 1);
        drop(second);
        assert_eq!(metrics.oldest_pass(), None);
        assert!(metrics.text().contains("moonkeeper_operator_oldest_pass_seconds 0"));
    }
}
