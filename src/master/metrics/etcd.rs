//! Metric families about etcd: what its members have reported. What is unknown has no sample.

use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::samples::{family, gauge, label};
use crate::cluster::etcd_health::{Alarm, EtcdHealth, EtcdMember, Usage};

/// Returns the families that have samples; one without any could not be encoded.
pub(super) fn families(health: &EtcdHealth) -> Vec<MetricFamily> {
    let by_endpoint = |read: fn(&Usage) -> Option<u64>| {
        let sample = |member: &EtcdMember| {
            let labels = vec![label("endpoint", &member.endpoint)];
            read(&member.usage).map(|bytes| gauge(bytes as f64, labels))
        };
        health.members.iter().filter_map(sample).collect::<Vec<Metric>>()
    };
    let alarm = |alarm: Alarm| {
        let is_active = health.alarms.as_ref()?.contains(&alarm);
        Some(gauge(f64::from(u8::from(is_active)), vec![label("alarm", alarm.name())]))
    };
    [
        (
            "moonkeeper_etcd_db_bytes",
            "Size of the database file of a member of etcd, by endpoint",
            by_endpoint(|usage| usage.db_bytes),
        ),
        (
            "moonkeeper_etcd_db_in_use_bytes",
            "The part of the file that holds data, by endpoint",
            by_endpoint(|usage| usage.in_use_bytes),
        ),
        (
            "moonkeeper_etcd_quota_bytes",
            "Upper bound of the size of the file, by endpoint",
            by_endpoint(|usage| usage.quota_bytes),
        ),
        (
            "moonkeeper_etcd_alarm",
            "1 if etcd has raised this alarm",
            Alarm::ALL.into_iter().filter_map(alarm).collect(),
        ),
    ]
    .into_iter()
    .filter(|(_, _, samples)| !samples.is_empty())
    .map(|(name, help, samples)| family(name, help, MetricType::GAUGE, samples))
    .collect()
}
