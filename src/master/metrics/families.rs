//! Turns counters and gauges into Prometheus metric families.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};

use super::etcd;
use super::gauges::{Gauges, ReplicationGauges, resident_bytes};
use super::reference::{ABSENT_COUNTERS, ABSENT_GAUGES, BATCHES, SINGLES, standby_state};
use super::rpc::RpcCounts;
use super::samples::{counter, family, gauge, label};
use super::{Counters, Metrics, snapshots};
use crate::wire::functions::Function;

/// Collects all families, the reference's first and in its order as far as that makes sense.
pub(super) fn collect(metrics: &Metrics, gauges: &Gauges) -> Vec<MetricFamily> {
    let mut families = Families(Vec::with_capacity(192));
    families.state(gauges);
    families.log(gauges.sequence_id, gauges.replication.as_ref());
    families.value_sizes(metrics);
    families.reference_rpcs(metrics);
    families.events(&metrics.counters);
    for (name, help) in ABSENT_GAUGES {
        families.gauge(name, help, 0.0);
    }
    for (name, help) in ABSENT_COUNTERS {
        families.counter(name, help, 0);
    }
    families.ours(metrics, gauges);
    if let Some(replication) = &gauges.replication {
        families.replication(replication, gauges.sequence_id);
        let connected = metrics.counters.companion_connected.load(Relaxed);
        let help = "1 if a companion watches this process";
        families.gauge("moonkeeper_companion_connected", help, connected as f64);
    }
    families.0
}

struct Families(Vec<MetricFamily>);

impl Families {
    fn state(&mut self, gauges: &Gauges) {
        self.gauge("master_allocated_bytes", "Bytes given out to objects", gauges.allocated_bytes as f64);
        self.gauge("master_total_capacity_bytes", "Bytes of mounted segments", gauges.capacity_bytes as f64);
        if !gauges.segments.is_empty() {
            let samples = |read: fn(&super::SegmentGauges) -> u64| {
                let of = |segment| gauge(read(segment) as f64, vec![label("segment", &segment.name)]);
                gauges.segments.iter().map(of).collect()
            };
            self.family(
                "segment_allocated_bytes",
                "Bytes given out to objects, by segment name",
                MetricType::GAUGE,
                samples(|segment| segment.allocated_bytes),
            );
            self.family(
                "segment_total_capacity_bytes",
                "Bytes mounted, by segment name",
                MetricType::GAUGE,
                samples(|segment| segment.capacity_bytes),
            );
        }
        self.gauge("master_key_count", "Objects, unfinished ones included", gauges.keys as f64);
        self.gauge("master_soft_pin_key_count", "Objects with a soft pin", gauges.soft_pinned_keys as f64);
        self.gauge("master_active_clients", "Clients that are alive", gauges.clients as f64);
        self.gauge("mem_cache_nums_", "Objects that are written, in memory", gauges.memory_keys as f64);
        self.gauge(
            "master_put_start_discarded_staging_size",
            "Bytes of no object that stay reserved because a client may still use them",
            gauges.discarded_bytes as f64,
        );
    }

    /// Adds the reference's families about replication. A master that is alone writes and applies in one step.
    fn log(&mut self, applied: u64, replication: Option<&ReplicationGauges>) {
        let durable = replication.map_or(applied, |replication| replication.durable);
        let state = replication.map_or(0, |replication| standby_state(replication.activity));
        for (name, help, value) in [
            (
                "ha_oplog_last_sequence_id",
                "Sequence id of the last record that was written, as far as this master knows",
                durable.max(applied),
            ),
            (
                "ha_oplog_applied_sequence_id",
                "Sequence id of the last record that this master has applied",
                applied,
            ),
            (
                "ha_oplog_standby_lag",
                "Durable records that this master has not applied yet",
                durable.saturating_sub(applied),
            ),
            (
                "ha_pending_mutation_queue_size",
                "Records of this master that are not durable in etcd yet",
                applied.saturating_sub(durable),
            ),
            (
                "ha_standby_state",
                "State of a standby: 2 reads the log, 3 follows it, 6 takes over; 0 is not a standby",
                state.into(),
            ),
        ] {
            self.gauge(name, help, value as f64);
        }
    }

    fn value_sizes(&mut self, metrics: &Metrics) {
        let (buckets, count, sum) = metrics.value_sizes.snapshot();
        let bucket = |(bound, count): (u64, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound as f64);
            bucket.set_cumulative_count(count);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.into_iter().map(bucket).collect());
        histogram.set_sample_count(count);
        histogram.set_sample_sum(sum as f64);
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        let help = "Sizes of the values of new objects";
        self.family("master_value_size_bytes", help, MetricType::HISTOGRAM, vec![metric]);
    }

    fn reference_rpcs(&mut self, metrics: &Metrics) {
        for family in SINGLES {
            self.requests_and_failures(family.name, family.counts(&metrics.rpc));
        }
        for family in BATCHES {
            let counts = family.counts(&metrics.rpc);
            self.requests_and_failures(family.name, counts);
            for (suffix, help, count) in [
                ("partial_successes", "Batches of which some items failed", counts.partial_successes),
                ("items", "Items in all batches", counts.items),
                ("failed_items", "Items that failed", counts.failed_items),
            ] {
                self.counter(&format!("master_{}_{suffix}_total", family.name), help, count);
            }
        }
    }

    fn requests_and_failures(&mut self, name: &str, counts: RpcCounts) {
        self.counter(&format!("master_{name}_requests_total"), "Calls that were received", counts.requests);
        self.counter(&format!("master_{name}_failures_total"), "Calls that failed", counts.failures);
    }

    fn events(&mut self, counters: &Counters) {
        let table: [(&str, &str, &AtomicU64); 12] = [
            (
                "master_put_start_alloc_failures_total",
                "Puts that found no memory",
                &counters.put_start_alloc_failures,
            ),
            (
                "master_put_start_partial_allocations_total",
                "Puts that got fewer replicas than they asked for",
                &counters.put_start_partial_allocations,
            ),
            ("mem_cache_hit_nums_", "Look-ups answered with a replica in memory", &counters.memory_hits),
            (
                "mem_cache_hit_bytes_total",
                "Bytes of the objects in these answers",
                &counters.memory_hit_bytes,
            ),
            ("valid_get_nums_", "Look-ups answered with a replica", &counters.valid_gets),
            ("total_get_nums_", "Look-ups of replicas, by key", &counters.gets),
            (
                "master_successful_evictions_total",
                "Rounds of eviction that freed something",
                &counters.successful_evictions,
            ),
            ("master_attempted_evictions_total", "Rounds of eviction", &counters.attempted_evictions),
            ("master_evicted_key_count", "Objects that were evicted", &counters.evicted_keys),
            ("master_evicted_size_bytes", "Bytes that eviction freed", &counters.evicted_bytes),
            (
                "master_put_start_discard_cnt",
                "Times that bytes were taken from an object but stayed reserved",
                &counters.put_start_discards,
            ),
            (
                "master_put_start_release_cnt",
                "Times that such bytes were given free",
                &counters.put_start_releases,
            ),
        ];
        for (name, help, counter) in table {
            self.counter(name, help, counter.load(Relaxed));
        }
    }

    fn replication(&mut self, gauges: &ReplicationGauges, applied: u64) {
        let lag = gauges.durable.saturating_sub(applied);
        for (name, help, value) in [
            ("moonkeeper_primary", "Whether this master is primary", f64::from(u8::from(gauges.primary))),
            ("moonkeeper_ready", "Whether it serves or can take over", f64::from(u8::from(gauges.ready))),
            ("moonkeeper_term", "The last term that it knows", gauges.term as f64),
            ("moonkeeper_durable_prefix", "The last record known to be durable", gauges.durable as f64),
            ("moonkeeper_applied", "The last record applied", applied as f64),
            ("moonkeeper_lag_records", "Durable records that are not applied yet", lag as f64),
            ("moonkeeper_queue_bytes", "Bytes of records that wait for etcd", gauges.queue_bytes as f64),
            (
                "moonkeeper_commit_seconds",
                "Age of the batch that is being written to etcd",
                gauges.commit.as_secs_f64(),
            ),
            (
                "moonkeeper_lease_seconds",
                "For how long it may serve without an answer from etcd",
                gauges.lease_left.as_secs_f64(),
            ),
            (
                "moonkeeper_lease_hold_seconds",
                "For how long objects of earlier terms are neither evicted nor removed after a takeover",
                gauges.hold_left.as_secs_f64(),
            ),
        ] {
            self.gauge(name, help, value);
        }
        if let Some(took) = gauges.promotion {
            let help = "How long the last promotion of this master took";
            self.gauge("moonkeeper_promotion_seconds", help, took.as_secs_f64());
        }
        let help = "Digests of the primary that did not match";
        self.counter("moonkeeper_digest_mismatch_total", help, gauges.digest_mismatches);
        let help = "Rebuilds of the state from the log";
        self.counter("moonkeeper_rebuilds_total", help, gauges.rebuilds);
        self.0.extend(etcd::families(&gauges.etcd));
        if let Some(floor) = &gauges.floor {
            let help = "Batches of the log up to this record may be deleted, and are";
            self.gauge("moonkeeper_floor", help, floor.floor as f64);
            let help =
                "1 if the next snapshots move the floor, 0 if the log grows until something is changed";
            self.gauge("moonkeeper_floor_can_move", help, f64::from(u8::from(floor.can_move)));
            let help = "Batches that this primary has deleted in its term";
            self.gauge("moonkeeper_log_batches_deleted", help, gauges.batches_deleted as f64);
        }
        if let Some(report) = &gauges.snapshots {
            self.0.extend(snapshots::families(report, SystemTime::now()));
        }
    }

    fn ours(&mut self, metrics: &Metrics, gauges: &Gauges) {
        let build = vec![label("version", env!("CARGO_PKG_VERSION"))];
        self.family(
            "moonkeeper_build_info",
            "Always 1; the version is in the label",
            MetricType::GAUGE,
            vec![gauge(1.0, build)],
        );
        let (waiting, processing) = gauges.tasks;
        // A double holds 48 bits exactly; that is enough to see that two masters differ.
        let digest = gauges.digest & 0xffff_ffff_ffff;
        for (name, help, value) in [
            ("moonkeeper_uptime_seconds", "Time since the process started", gauges.uptime.as_secs_f64()),
            ("moonkeeper_connections", "Open connections of Mooncake clients", gauges.connections as f64),
            ("moonkeeper_objects", "Objects, unfinished ones included", gauges.keys as f64),
            ("moonkeeper_sequence_id", "The last applied sequence id", gauges.sequence_id as f64),
            ("moonkeeper_digest_low_bits", "The low 48 bits of the state's digest", digest as f64),
            ("moonkeeper_pending_tasks", "Tasks that wait for a client", waiting as f64),
            ("moonkeeper_processing_tasks", "Tasks that clients work on", processing as f64),
        ] {
            self.gauge(name, help, value);
        }
        if let Some(bytes) = resident_bytes() {
            self.gauge("moonkeeper_resident_memory_bytes", "Memory of this process", bytes as f64);
        }
        let counters = &metrics.counters;
        self.gauge(
            "moonkeeper_parked_puts",
            "Puts that wait for clients to rejoin after a takeover",
            counters.parked_puts.load(Relaxed) as f64,
        );
        for (name, help, counter) in [
            (
                "moonkeeper_parked_puts_total",
                "Puts that waited for clients to rejoin after a takeover",
                &counters.parked_puts_ever,
            ),
            (
                "moonkeeper_parked_puts_resumed_total",
                "Waiting puts that succeeded after clients had rejoined",
                &counters.parked_puts_resumed,
            ),
            (
                "moonkeeper_parked_puts_starved_total",
                "Waiting puts that were answered with -200, no memory",
                &counters.parked_puts_starved,
            ),
            (
                "moonkeeper_accepted_connections_total",
                "Connections that clients have opened",
                &counters.accepted_connections,
            ),
            (
                "moonkeeper_companion_failures_total",
                "Times that the companion was lost or could not be started",
                &counters.companion_failures,
            ),
            (
                "moonkeeper_expired_clients_total",
                "Clients that expired: they were silent for too long",
                &counters.expired_clients,
            ),
            (
                "moonkeeper_malformed_requests_total",
                "Requests that could not be decoded",
                &counters.malformed_requests,
            ),
            (
                "moonkeeper_peer_auth_failures_total",
                "Connections between masters that could not be authenticated",
                &counters.peer_auth_failures,
            ),
            (
                "moonkeeper_refused_changes_total",
                "Changes that were refused because the log had no capacity for too long",
                &counters.refused_changes,
            ),
        ] {
            self.counter(name, help, counter.load(Relaxed));
        }
        for (name, help, read) in [
            ("moonkeeper_rpc_requests_total", "Calls by RPC", (|c| c.requests) as fn(RpcCounts) -> u64),
            ("moonkeeper_rpc_failures_total", "Calls that failed, by RPC", |c| c.failures),
            ("moonkeeper_rpc_items_total", "Items of batches, by RPC", |c| c.items),
            ("moonkeeper_rpc_failed_items_total", "Items of batches that failed, by RPC", |c| c.failed_items),
        ] {
            let is_about_items = name.contains("items");
            let samples = Function::ALL
                .iter()
                .filter(|rpc| !is_about_items || rpc.name().starts_with("Batch"))
                .map(|rpc| counter(read(metrics.rpc.counts(*rpc)), vec![label("rpc", rpc.name())]))
                .collect();
            self.family(name, help, MetricType::COUNTER, samples);
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, MetricType::GAUGE, vec![gauge(value, Vec::new())]);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, help, MetricType::COUNTER, vec![counter(value, Vec::new())]);
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType, samples: Vec<Metric>) {
        self.0.push(family(name, help, kind, samples));
    }
}
