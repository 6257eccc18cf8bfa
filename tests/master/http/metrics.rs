//! The text at /metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use moonkeeper::cluster::etcd_health::{Alarm, EtcdHealth, EtcdMember, Usage};
use moonkeeper::master::http::router;
use moonkeeper::master::metrics::{Counters, Gauges, Metrics, ReplicationGauges};
use moonkeeper::replication::node::status::Activity;
use moonkeeper::wire::functions::Function;

use super::support::{LIMITS, Store, start};

/// Family names with their types, and samples with their values; fails if the text is not well-formed.
fn parse(text: &str) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
    let mut families = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(families.insert(name.to_owned(), kind.to_owned()), None, "{name} is there twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert_eq!(samples.insert(name.to_owned(), value), None, "{name} is there twice");
        }
    }
    (families, samples)
}

#[tokio::test]
async fn has_every_family_of_the_reference_from_the_start() {
    let server = start(router(Arc::new(Store::new()), Metrics::new()), LIMITS).await;
    let reply = server.get("/metrics").await;
    assert_eq!((reply.status, reply.content_type.as_str()), (200, "text/plain; version=0.0.4"));
    let (families, _) = parse(&reply.text());
    let mut count = 0;
    for line in include_str!("reference-metrics.tsv").lines().filter(|line| !line.starts_with('#')) {
        let (name, kind) = line.split_once('\t').unwrap();
        assert_eq!(families.get(name).map(String::as_str), Some(kind), "{name}");
        count += 1;
    }
    assert_eq!(count, 136);
    for name in families.keys() {
        let ours = name.starts_with("moonkeeper_");
        let theirs = include_str!("reference-metrics.tsv").contains(&format!("{name}\t"));
        assert!(ours || theirs, "{name} is neither the reference's nor ours");
    }
}

#[tokio::test]
async fn counts_what_was_counted() {
    let metrics = Metrics::new();
    let rpc = |name: &str| *Function::ALL.iter().find(|rpc| rpc.name() == name).unwrap();
    metrics.rpc.call(rpc("PutStart"), true);
    metrics.rpc.call(rpc("UpsertStart"), false);
    metrics.rpc.batch(rpc("BatchGetReplicaList"), 3, 1);
    metrics.counters.get(Some(500));
    metrics.counters.get(None);
    Counters::add(&metrics.counters.evicted_keys, 7);
    metrics.value_sizes.observe(5000, 1);
    let server = start(router(Arc::new(Store::new()), Arc::clone(&metrics)), LIMITS).await;
    let (_, samples) = parse(&server.get("/metrics").await.text());
    for (name, value) in [
        ("master_put_start_requests_total", 2.0),
        ("master_put_start_failures_total", 1.0),
        ("master_batch_get_replica_list_requests_total", 1.0),
        ("master_batch_get_replica_list_partial_successes_total", 1.0),
        ("master_batch_get_replica_list_items_total", 3.0),
        ("master_batch_get_replica_list_failed_items_total", 1.0),
        ("moonkeeper_rpc_requests_total{rpc=\"UpsertStart\"}", 1.0),
        ("moonkeeper_rpc_items_total{rpc=\"BatchGetReplicaList\"}", 3.0),
        ("total_get_nums_", 2.0),
        ("valid_get_nums_", 1.0),
        ("mem_cache_hit_bytes_total", 500.0),
        ("master_evicted_key_count", 7.0),
        ("master_value_size_bytes_bucket{le=\"4096\"}", 0.0),
        ("master_value_size_bytes_bucket{le=\"65536\"}", 1.0),
        ("master_value_size_bytes_bucket{le=\"+Inf\"}", 1.0),
        ("master_value_size_bytes_sum", 5000.0),
        ("master_allocated_bytes", 600.0),
        ("master_key_count", 2.0),
        // A name that needs escaping stays one label.
        ("segment_allocated_bytes{segment=\"a \\\"segment\\\"\\n\"}", 600.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    assert!(samples["moonkeeper_resident_memory_bytes"] > 0.0);
    let summary = server.get("/metrics/summary").await.text();
    assert!(
        summary.starts_with(
            "role=leader, state=serving, service_ready=true, master={Mem Storage: 600 B / 64.00 MB"
        ),
        "{summary}"
    );
}

fn replicating(durable: u64, applied: u64, activity: Activity) -> BTreeMap<String, f64> {
    with_etcd(durable, applied, activity, EtcdHealth::default())
}

fn with_etcd(durable: u64, applied: u64, activity: Activity, etcd: EtcdHealth) -> BTreeMap<String, f64> {
    let replication = ReplicationGauges {
        primary: activity == Activity::Serving,
        activity,
        ready: true,
        term: 1,
        durable,
        queue_bytes: 0,
        commit: Duration::ZERO,
        lease_left: Duration::ZERO,
        hold_left: Duration::ZERO,
        promotion: None,
        digest_mismatches: 0,
        rebuilds: 0,
        etcd,
        snapshots: None,
        floor: None,
        batches_deleted: 0,
    };
    let gauges = Gauges { sequence_id: applied, replication: Some(replication), ..Gauges::default() };
    parse(&Metrics::new().prometheus_text(&gauges)).1
}

#[test]
fn the_references_families_about_replication_tell_how_ours_stands() {
    let names = [
        "ha_oplog_last_sequence_id",
        "ha_oplog_applied_sequence_id",
        "ha_oplog_standby_lag",
        "ha_pending_mutation_queue_size",
        "ha_standby_state",
    ];
    let read = |samples: BTreeMap<String, f64>| names.map(|name| samples[name]);
    // 3 is WATCHING in the reference's numbering, 2 is SYNCING; one that serves is not a standby.
    assert_eq!(read(replicating(50, 40, Activity::Following)), [50.0, 40.0, 10.0, 0.0, 3.0]);
    assert_eq!(read(replicating(50, 0, Activity::CatchingUp)), [50.0, 0.0, 50.0, 0.0, 2.0]);
    assert_eq!(read(replicating(50, 57, Activity::Serving)), [57.0, 57.0, 0.0, 7.0, 0.0]);
    let alone = Gauges { sequence_id: 9, ..Gauges::default() };
    let alone = parse(&Metrics::new().prometheus_text(&alone)).1;
    assert_eq!(read(alone), [9.0, 9.0, 0.0, 0.0, 0.0]);
}

#[test]
fn what_etcd_reports_has_samples_and_what_is_unknown_has_none() {
    let samples = |etcd: EtcdHealth| {
        let mut all = with_etcd(1, 1, Activity::Serving, etcd);
        all.retain(|name, _| name.contains("_etcd_"));
        all
    };
    assert!(samples(EtcdHealth::default()).is_empty());
    let member = |endpoint: &str, in_use_bytes: Option<u64>| EtcdMember {
        endpoint: endpoint.into(),
        usage: Usage { in_use_bytes, db_bytes: in_use_bytes, ..Usage::default() },
        error: None,
    };
    let silent = EtcdHealth { members: vec![member("a:1", None)], ..EtcdHealth::default() };
    assert!(samples(silent).is_empty());
    let mut members = vec![member("a:1", Some(5)), member("b:1", Some(6)), member("c:1", None)];
    members[1].usage.quota_bytes = Some(9);
    let health = EtcdHealth { members, alarms: Some(vec![Alarm::NoSpace]), ..EtcdHealth::default() };
    let expected = [
        ("moonkeeper_etcd_alarm{alarm=\"CORRUPT\"}", 0.0),
        ("moonkeeper_etcd_alarm{alarm=\"NOSPACE\"}", 1.0),
        ("moonkeeper_etcd_db_bytes{endpoint=\"a:1\"}", 5.0),
        ("moonkeeper_etcd_db_bytes{endpoint=\"b:1\"}", 6.0),
        ("moonkeeper_etcd_db_in_use_bytes{endpoint=\"a:1\"}", 5.0),
        ("moonkeeper_etcd_db_in_use_bytes{endpoint=\"b:1\"}", 6.0),
        ("moonkeeper_etcd_quota_bytes{endpoint=\"b:1\"}", 9.0),
    ];
    assert_eq!(samples(health), expected.map(|(name, value)| (name.to_owned(), value)).into());
}
