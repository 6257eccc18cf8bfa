//! What the status says about etcd: the condition `EtcdHealthy`, and size, quota and alarms.

use super::condition::{ConditionValue, ETCD_HEALTHY, FALSE, TRUE, UNKNOWN};
use crate::api::{EtcdStatus, MasterClusterStatus};
use crate::cluster::etcd_health::{Alarm, Verdict};
use crate::cluster::view::StoreId;
use crate::operator::observation::{EtcdKeys, Observation};

/// Reason while etcd answers and nothing is wrong with it.
pub const ANSWERS: &str = "Answers";
/// Reason while the quota is nearly used up.
pub const SPACE_LOW: &str = "SpaceLow";
/// Reason while the alarm NOSPACE is active.
pub const NO_SPACE: &str = "NoSpace";
/// Reason while the alarm CORRUPT is active.
pub const CORRUPT: &str = "Corrupt";

/// Returns whether the message for this reason has sizes in it, which change all the time.
pub(super) fn has_sizes(reason: &str) -> bool {
    [ANSWERS, SPACE_LOW, NO_SPACE].contains(&reason)
}

/// Returns the condition `EtcdHealthy`.
pub(super) fn condition(observed: &Observation) -> ConditionValue {
    let health = &observed.etcd_health;
    let bad = |reason: &str, message: String| ConditionValue::new(ETCD_HEALTHY, FALSE, reason, message);
    let corrupt = || {
        let message = "etcd's members have different data (alarm CORRUPT): changes are refused and no other master can be \
                       elected until the member whose data differs is replaced and the alarm is disarmed";
        bad(CORRUPT, message.to_owned())
    };
    let verdict = health.judge(verdict_of(&observed.status));
    match &observed.etcd {
        EtcdKeys::Unusable { reason, message } => bad(reason, message.clone()),
        // Its members may report this even if the keys cannot be read.
        EtcdKeys::NotYet | EtcdKeys::Lost { .. } if verdict == Verdict::Corrupt && health.is_known() => {
            corrupt()
        }
        EtcdKeys::NotYet => {
            ConditionValue::new(ETCD_HEALTHY, UNKNOWN, "NotAskedYet", "etcd has not answered yet")
        }
        EtcdKeys::Lost { why } => bad("Unreachable", why.clone()),
        EtcdKeys::Current(_) => match verdict {
            Verdict::Corrupt => corrupt(),
            Verdict::NoSpace => bad(
                NO_SPACE,
                format!(
                    "etcd is out of space (alarm NOSPACE; {health}): changes are refused, reads go on, and no other master \
                     can be elected until etcd is compacted and defragmented or its quota is raised, and the alarm is \
                     disarmed"
                ),
            ),
            Verdict::SpaceLow => bad(
                SPACE_LOW,
                format!(
                    "etcd has little space left ({health}): once it is full, changes are refused and no other master can \
                     be elected; compact and defragment it, or raise its quota"
                ),
            ),
            Verdict::Fine => {
                ConditionValue::new(ETCD_HEALTHY, TRUE, ANSWERS, format!("etcd answers; {health}"))
            }
        },
    }
}

/// Returns the verdict that a status was written with.
fn verdict_of(status: &MasterClusterStatus) -> Verdict {
    let condition = status.conditions.iter().find(|condition| condition.type_ == ETCD_HEALTHY);
    match condition.map(|condition| &*condition.reason) {
        Some(SPACE_LOW) => Verdict::SpaceLow,
        Some(NO_SPACE) => Verdict::NoSpace,
        Some(CORRUPT) => Verdict::Corrupt,
        _ => Verdict::Fine,
    }
}

/// Returns what the status says about the etcd with this id. While no member answers, the last numbers stay.
/// `endpoints` are those of the spec.
pub(super) fn status(endpoints: &[String], observed: &Observation, store: StoreId) -> EtcdStatus {
    let cluster_id = Some(store.to_string());
    let before = observed.status.etcd.clone().unwrap_or_default();
    let endpoints = if observed.endpoints_unverified { before.endpoints.clone() } else { endpoints.to_vec() };
    let health = &observed.etcd_health;
    let Some(alarms) = &health.alarms else {
        let before = if before.cluster_id == cluster_id { before } else { EtcdStatus::default() };
        return EtcdStatus { cluster_id, endpoints, ..before };
    };
    let usage = &health.fullest;
    let number = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    EtcdStatus {
        cluster_id,
        endpoints,
        db_bytes: number(usage.db_bytes),
        in_use_bytes: number(usage.in_use_bytes),
        quota_bytes: number(usage.quota_bytes),
        growth_bytes_per_second: usage.growth_bytes_per_second,
        time_left_seconds: number(usage.time_left_seconds),
        alarms: Some(alarms.iter().copied().map(Alarm::name).map(str::to_owned).collect()),
        silent_endpoints: health.silent().map(str::to_owned).collect(),
    }
}

/// Returns the status without the numbers that change all the time.
pub(super) fn still(status: &EtcdStatus) -> EtcdStatus {
    EtcdStatus {
        db_bytes: status.db_bytes.map(|_| 0),
        in_use_bytes: status.in_use_bytes.map(|_| 0),
        // A new session knows no growth, and an operator that restarts writes nothing (INV-9).
        growth_bytes_per_second: None,
        time_left_seconds: None,
        // A member that is slow to answer once is no news.
        silent_endpoints: Vec::new(),
        ..status.clone()
    }
}
