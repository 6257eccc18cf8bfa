//! Metric families about the snapshots of a master. What is unknown has no sample.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::proto::{MetricFamily, MetricType};

use super::samples::{counter, family, gauge, label};
use crate::replication::node::status::SnapshotReport;

/// Returns the families that have samples at this time.
pub(super) fn families(report: &SnapshotReport, now: SystemTime) -> Vec<MetricFamily> {
    let SnapshotReport { status, announced, failed, cancelled, took, copied, copies_failed } = report;
    let newest = status.held.first();
    let taken_at = newest.and_then(|held| UNIX_EPOCH.checked_add(Duration::from_millis(held.taken_at_ms)));
    let age = taken_at.map(|taken_at| now.duration_since(taken_at).unwrap_or_default().as_secs_f64());
    let gauges = [
        (
            "moonkeeper_snapshot_last_sequence_id",
            "The last record in the newest snapshot of this master",
            newest.map(|held| held.sequence_id as f64),
        ),
        (
            "moonkeeper_snapshot_bytes",
            "Size of the newest snapshot of this master",
            newest.map(|held| held.bytes as f64),
        ),
        (
            "moonkeeper_snapshot_objects",
            "Objects in the newest snapshot of this master",
            newest.and_then(|held| held.objects).map(|objects| objects as f64),
        ),
        ("moonkeeper_snapshot_age_seconds", "Age of the newest snapshot of this master", age),
        (
            "moonkeeper_snapshot_seconds",
            "How long the last snapshot took that this master announced",
            took.map(|took| took.as_secs_f64()),
        ),
    ];
    let known = gauges.into_iter().filter_map(|(name, help, value)| Some((name, help, value?)));
    let known = known
        .map(|(name, help, value)| family(name, help, MetricType::GAUGE, vec![gauge(value, Vec::new())]));
    let ended = [("announced", announced), ("failed", failed), ("cancelled", cancelled)];
    let ended = ended.map(|(result, count)| counter(*count, vec![label("result", result)]));
    let help = "Snapshots that this master has begun, by what became of them";
    let ended = family("moonkeeper_snapshots_total", help, MetricType::COUNTER, ended.into());
    let copies = [("copied", copied), ("failed", copies_failed)];
    let copies = copies.map(|(result, count)| counter(*count, vec![label("result", result)]));
    let help = "Copies of snapshots to the shared storage, by what became of them";
    let copies = family("moonkeeper_snapshot_copies_total", help, MetricType::COUNTER, copies.into());
    known.chain([ended, copies]).collect()
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::cluster::snapshot::{HeldSnapshot, SnapshotStatus};

    fn text(report: &SnapshotReport) -> String {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        TextEncoder::new().encode_to_string(&families(report, now)).unwrap()
    }

    #[test]
    fn a_master_without_a_snapshot_has_counters_alone() {
        let none = text(&SnapshotReport { failed: 3, copies_failed: 4, ..SnapshotReport::default() });
        assert!(none.contains("moonkeeper_snapshots_total{result=\"failed\"} 3"), "{none}");
        assert!(none.contains("moonkeeper_snapshot_copies_total{result=\"failed\"} 4"), "{none}");
        assert!(!none.contains("moonkeeper_snapshot_last"), "{none}");
        let held = HeldSnapshot {
            sequence_id: 7,
            bytes: 90,
            objects: None,
            taken_at_ms: 40_000,
            ..HeldSnapshot::default()
        };
        let status = SnapshotStatus { held: vec![held], ..SnapshotStatus::default() };
        let took = Some(Duration::from_millis(1_500));
        let one = text(&SnapshotReport { status, announced: 1, took, ..SnapshotReport::default() });
        for line in [
            "moonkeeper_snapshot_last_sequence_id 7",
            "moonkeeper_snapshot_bytes 90",
            "moonkeeper_snapshot_age_seconds 60",
            "moonkeeper_snapshot_seconds 1.5",
            "moonkeeper_snapshots_total{result=\"announced\"} 1",
        ] {
            assert!(one.contains(line), "{line}: {one}");
        }
        assert!(!one.contains("moonkeeper_snapshot_objects"), "{one}");
    }
}
