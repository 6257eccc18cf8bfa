//! What the operator counts: the writes that it makes above all, because a settled cluster needs none (INV-9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

/// The metrics of an operator. Clones count into the same ones.
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

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// An object that a cluster owns was created or changed.
    Apply,
    /// An object was deleted.
    Delete,
    /// The label of a role.
    Label,
    /// The status of a resource.
    Status,
    /// The finalizer of a resource.
    Finalizer,
    /// An event.
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
    /// New ones, all zero.
    ///
    /// # Errors
    ///
    /// If two have one name.
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
                "From the news of another primary in etcd to its label",
            ))?,
            clusters: IntGauge::with_opts(opts("clusters", "Resources that are taken care of"))?,
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
        // A counter that is there from the start can be told from one that is missing.
        for write in Write::ALL {
            metrics.writes.with_label_values(&[write.label()]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Something was written.
    pub fn wrote(&self, what: Write) {
        self.writes.with_label_values(&[what.label()]).inc();
    }

    /// The Lease was written.
    pub fn wrote_lease(&self) {
        self.lease_writes.inc();
    }

    /// Whether this operator holds the Lease.
    pub fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    /// A pass begins, and is under way until what is returned is dropped.
    #[must_use]
    pub fn begin_pass(&self) -> UnderWay {
        self.pass_since(Instant::now())
    }

    /// A pass that is under way since `begun`.
    pub(super) fn pass_since(&self, begun: Instant) -> UnderWay {
        let mut passes = self.under_way.lock();
        let number = passes.last_key_value().map_or(0, |(last, _)| last + 1);
        passes.insert(number, begun);
        UnderWay { number, passes: Arc::clone(&self.under_way) }
    }

    /// How long the oldest pass that is under way has taken so far.
    #[must_use]
    pub fn oldest_pass(&self) -> Option<Duration> {
        self.under_way.lock().values().min().map(Instant::elapsed)
    }

    /// A pass ended.
    pub fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.with_label_values(&[result]).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// The label of a new primary was written so long after etcd had told of it.
    pub fn relabelled(&self, after: Duration) {
        self.relabel_seconds.observe(after.as_secs_f64());
    }

    /// So many resources are taken care of.
    pub fn clusters(&self, count: usize) {
        self.clusters.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the etcd of a cluster answers.
    pub fn etcd(&self, namespace: &str, name: &str, healthy: bool) {
        self.etcd_healthy.with_label_values(&[namespace, name]).set(i64::from(healthy));
    }

    /// A cluster is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        // It is not there if its etcd was never looked at.
        let _ = self.etcd_healthy.remove_label_values(&[namespace, name]);
    }

    /// A call to a master failed.
    pub fn call_failed(&self, call: &'static str) {
        self.failed_calls.with_label_values(&[call]).inc();
    }

    /// All of them, in Prometheus' text format.
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
