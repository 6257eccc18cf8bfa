//! Watches the health of one cluster's etcd with clients of its own, so that it works without any master, and so that a
//! failed question does not end the connection of the session.

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::cluster::etcd_health::{EtcdHealth, HealthRecord, INTERVAL, TIMEOUT, Verdict};
use crate::coordination::etcd::EtcdMembers;

/// Publishes the health until all receivers are dropped. Calls `news` when the verdict changes, and when etcd begins or
/// ceases to answer; numbers alone need no pass.
pub(super) async fn watch(members: EtcdMembers, to: watch::Sender<EtcdHealth>, news: impl Fn()) {
    let (mut record, mut verdict) = (HealthRecord::default(), Verdict::default());
    let start = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !to.is_closed() {
        ticks.tick().await;
        let answers = members.ask(TIMEOUT).await;
        let health = record.take(start.elapsed(), answers);
        let before = (verdict, to.borrow().is_known());
        verdict = health.judge(verdict);
        let now = (verdict, health.is_known());
        to.send_replace(health);
        if now != before {
            news();
        }
    }
}
