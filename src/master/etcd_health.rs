//! Asks the members of etcd for size, quota and alarms now and then, for status, metrics and log. A task of its own
//! with clients of its own: whether etcd answers here changes nothing about how clients are served.

use std::time::Instant;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::cluster::etcd_health::{EtcdHealth, HealthRecord, INTERVAL, TIMEOUT, Verdict};
use crate::coordination::etcd::EtcdMembers;

/// Receiver of the health at the last look.
pub type EtcdHealthState = watch::Receiver<EtcdHealth>;

/// Returns the state of a master that has no etcd.
#[must_use]
pub fn no_etcd() -> EtcdHealthState {
    watch::channel(EtcdHealth::default()).1
}

/// Asks until all receivers are dropped.
pub(super) async fn observe(members: EtcdMembers, to: watch::Sender<EtcdHealth>) {
    let (mut record, mut verdict) = (HealthRecord::default(), Verdict::default());
    let start = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !to.is_closed() {
        ticks.tick().await;
        let answers = members.ask(TIMEOUT).await;
        let health = record.take(start.elapsed(), answers);
        let now = health.judge(verdict);
        if now != verdict {
            log(verdict, now, &health);
        }
        verdict = now;
        to.send_replace(health);
    }
}

/// Logs a change of the verdict, once for each.
fn log(before: Verdict, now: Verdict, health: &EtcdHealth) {
    let usage = health.fullest;
    let (in_use_bytes, db_bytes, quota_bytes) = (usage.in_use_bytes, usage.db_bytes, usage.quota_bytes);
    match now {
        Verdict::SpaceLow => tracing::warn!(
            in_use_bytes,
            db_bytes,
            quota_bytes,
            time_left_seconds = usage.time_left_seconds,
            "etcd has little space left: compact and defragment it, or raise its quota"
        ),
        Verdict::NoSpace => tracing::warn!(
            in_use_bytes,
            db_bytes,
            quota_bytes,
            "etcd is out of space (alarm NOSPACE): it refuses writes until it has space and the alarm is disarmed"
        ),
        Verdict::Corrupt => tracing::warn!(
            "etcd's members have different data (alarm CORRUPT): it refuses writes until that is repaired"
        ),
        Verdict::Fine => {
            tracing::info!(
                ?before,
                in_use_bytes,
                db_bytes,
                quota_bytes,
                "etcd has enough space and no alarm again"
            );
        }
    }
}
