//! The snapshots of a cluster in the status, and the condition `SnapshotFresh`.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::Applied;
use super::condition::{ConditionValue, FALSE, SNAPSHOT_FRESH, TRUE, UNKNOWN};
use super::conditions::registered;
use crate::api::{MasterClusterSpec, SnapshotEntry};
use crate::cluster::member::MemberValue;
use crate::operator::observation::Observation;

/// A snapshot is too old when changes are missing in it that are older than so many intervals: masters take theirs at
/// different times within one, and one that takes long delays the next.
const INTERVALS: u32 = 3;

/// Most snapshots in the status. Each of seven masters keeps eight at most, and the newest ones count.
const MAX_LISTED: usize = 8;

/// Returns the snapshots of the present log, the newest first, as the members' keys list them. While etcd does not
/// answer, the last list stays.
pub(super) fn entries(observed: &Observation, applied: &Applied) -> Vec<SnapshotEntry> {
    let before = &observed.status;
    if observed.etcd.view().is_none() {
        return before.snapshots.clone();
    }
    let known = before.oplog.as_ref().and_then(|oplog| oplog.log_id.clone());
    let log = applied.log.map(|log| log.to_string()).or(known);
    let mut found: BTreeMap<u64, SnapshotEntry> = BTreeMap::new();
    for member in registered(observed) {
        for held in member.snapshots.iter().filter(|held| log.as_ref().is_none_or(|log| *log == held.log)) {
            // In whole seconds, as the API server gives times back: otherwise every pass would find a difference (INV-9).
            let taken = i64::try_from(held.taken_at_ms / 1000).ok();
            let at = taken.and_then(|seconds| Timestamp::from_second(seconds).ok());
            let entry = found.entry(held.sequence_id).or_insert_with(|| SnapshotEntry {
                id: format!("s-{}", held.sequence_id),
                sequence_id: i64::try_from(held.sequence_id).unwrap_or(i64::MAX),
                bytes: i64::try_from(held.bytes).unwrap_or(i64::MAX),
                holders: Vec::new(),
                at: at.map(Time),
            });
            entry.holders.push(member.name.clone());
            let earlier = entry.at.as_ref().map(|at| at.0).into_iter().chain(at).min();
            entry.at = earlier.map(Time);
        }
    }
    found.into_values().rev().take(MAX_LISTED).collect()
}

/// Returns the condition `SnapshotFresh`.
pub(super) fn condition(spec: &MasterClusterSpec, observed: &Observation) -> ConditionValue {
    let unknown = |reason: &str, message: &str| ConditionValue::new(SNAPSHOT_FRESH, UNKNOWN, reason, message);
    if observed.etcd.view().is_none() {
        return unknown("EtcdUnknown", "until etcd answers, it is unknown which snapshots there are");
    }
    let members: Vec<&MemberValue> = registered(observed).collect();
    if members.is_empty() {
        return unknown("NoMembers", "no master has registered in etcd");
    }
    if members.iter().all(|member| member.unsaved_ms.is_none()) {
        let message = "no master has a directory for snapshots yet; UpToDate names the pods to delete";
        return ConditionValue::new(SNAPSHOT_FRESH, FALSE, "NoDirectory", message);
    }
    // One that is behind does not know of the newest changes.
    let ages = members.iter().filter(|member| member.caught_up).filter_map(|member| member.unsaved_ms);
    let Some(age) = ages.min().map(Duration::from_millis) else {
        return unknown("NoneCaughtUp", "no master that keeps snapshots has caught up with the log");
    };
    let Ok(interval) = spec.snapshots.interval.parse() else {
        return unknown("InvalidSpec", "spec.snapshots.interval is not a duration");
    };
    let limit = interval.saturating_mul(INTERVALS);
    let failing = failing(&members);
    let and_why = failing.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    if age > limit {
        let reason = if failing.is_some() { "Failing" } else { "TooOld" };
        let message = format!("changes older than {} s are in no snapshot{and_why}", limit.as_secs());
        return ConditionValue::new(SNAPSHOT_FRESH, FALSE, reason, message);
    }
    if members.iter().all(|member| member.snapshots.is_empty()) {
        return unknown("NoneYet", &format!("no snapshot has been taken yet{and_why}"));
    }
    let message = format!("all changes older than {} s are in a snapshot{and_why}", limit.as_secs());
    ConditionValue::new(SNAPSHOT_FRESH, TRUE, "Fresh", message)
}

/// Returns which member cannot take snapshots, and why.
fn failing(members: &[&MemberValue]) -> Option<String> {
    let (name, why) =
        members.iter().find_map(|member| Some((&member.name, member.snapshot_error.as_ref()?)))?;
    Some(format!("{name} cannot take any: {why}"))
}
