//! Events, derived from the difference between two statuses. An operator that was restarted finds no difference and so
//! repeats none.

use super::condition::{ETCD_HEALTHY, FALSE, SNAPSHOT_FRESH, STALLED, TRUE};
use super::etcd::{CORRUPT, NO_SPACE, SPACE_LOW};
use crate::api::{MasterClusterStatus, Phase, SnapshotResult, SwitchoverResult};
use crate::operator::plan::Finalizer;
use crate::operator::plan::deletion::Farewell;
use crate::operator::plan::promotion::UNTOLD;

/// An event of Kubernetes to publish for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The reason, in one CamelCase word.
    pub reason: &'static str,
    pub note: String,
    /// Whether it is of the type Warning.
    pub warning: bool,
}

fn normal(reason: &'static str, note: impl Into<String>) -> Happening {
    Happening { reason, note: note.into(), warning: false }
}

fn warning(reason: &'static str, note: impl Into<String>) -> Happening {
    Happening { reason, note: note.into(), warning: true }
}

/// Returns the events that the change from `before` to `after` stands for.
#[must_use]
pub fn happenings(before: &MasterClusterStatus, after: &MasterClusterStatus) -> Vec<Happening> {
    let mut all = Vec::new();
    if before.phase.is_none() && after.phase != Some(Phase::Deleting) {
        all.push(normal("Created", "creating masters"));
    }
    leadership(before, after, &mut all);
    failover(before, after, &mut all);
    switchover(before, after, &mut all);
    snapshot(before, after, &mut all);
    for member in &after.members {
        let was = before.members.iter().find(|was| was.name == member.name);
        let caught_up = |lag: Option<i64>| lag == Some(0);
        if member.role == "standby" && caught_up(member.lag) && !was.is_some_and(|was| caught_up(was.lag)) {
            all.push(normal("StandbyReady", format!("{} has caught up and could take over", member.name)));
        }
    }
    for (kind, reason, over) in [
        (ETCD_HEALTHY, about_etcd(after).unwrap_or("EtcdUnreachable"), etcd_is_over(before)),
        (STALLED, "Stalled", "Unstalled"),
        (SNAPSHOT_FRESH, "SnapshotsTooOld", "SnapshotsFresh"),
    ] {
        condition(kind, reason, over, before, after, &mut all);
    }
    let suspended = |status: &MasterClusterStatus| status.phase == Some(Phase::Suspended);
    match (suspended(before), suspended(after)) {
        (false, true) => all.push(normal("Suspended", "reconciliation is paused; masters keep running")),
        (true, false) => all.push(normal("Resumed", "reconciliation has resumed")),
        _ => {}
    }
    if after.phase == Some(Phase::Deleting) && before.phase != after.phase {
        all.push(normal("Deleting", "the cluster is being deleted"));
    }
    all
}

/// Returns the event for what is wrong with etcd's space or data; `None` if neither is.
fn about_etcd(status: &MasterClusterStatus) -> Option<&'static str> {
    let etcd = status.conditions.iter().find(|condition| condition.type_ == ETCD_HEALTHY)?;
    match &*etcd.reason {
        SPACE_LOW => Some("EtcdSpaceLow"),
        NO_SPACE => Some("EtcdOutOfSpace"),
        CORRUPT => Some("EtcdCorrupt"),
        _ => None,
    }
}

/// Returns the event for the end of what was wrong with etcd.
fn etcd_is_over(before: &MasterClusterStatus) -> &'static str {
    about_etcd(before).map_or("EtcdReachable", |_| "EtcdRecovered")
}

fn leadership(before: &MasterClusterStatus, after: &MasterClusterStatus, all: &mut Vec<Happening>) {
    match (&before.leader, &after.leader) {
        (Some(was), None) if is_planned(after) => {
            all.push(normal("PrimaryHandsOver", format!("{} hands over, as requested", was.name)));
        }
        (Some(was), None) => {
            let note = "no longer leads; clients are not served until a standby takes over";
            all.push(warning("PrimaryLost", format!("{} {note}", was.name)));
        }
        (_, Some(now)) if before.term != after.term => {
            let term = after.term.unwrap_or_default();
            all.push(normal("PrimaryElected", format!("{} leads in term {term}", now.name)));
        }
        _ => {}
    }
}

/// Returns whether the primary left because of a switchover: one is under way, or has succeeded in a term that the
/// watch of etcd has not delivered yet.
fn is_planned(after: &MasterClusterStatus) -> bool {
    after.last_switchover.as_ref().is_some_and(|report| match report.result {
        SwitchoverResult::Pending => true,
        SwitchoverResult::Succeeded => report.term > after.term,
        SwitchoverResult::Failed => false,
    })
}

fn failover(before: &MasterClusterStatus, after: &MasterClusterStatus, all: &mut Vec<Happening>) {
    let Some(report) = after.last_failover.as_ref().filter(|report| report.reason != UNTOLD) else { return };
    if before.last_failover.as_ref() == Some(report) {
        return;
    }
    let took = report.duration_milliseconds.map_or_else(String::new, |took| format!(" in {took} ms"));
    let cleaned = report.cleaned.as_ref().map_or_else(String::new, |cleaned| {
        format!("; {} clients have to report their memory again", cleaned.clients)
    });
    let from = report.from.as_deref().unwrap_or("an unknown master");
    all.push(normal(
        "FailedOver",
        format!("{} took over from {from}{took} ({}){cleaned}", report.to, report.reason),
    ));
}

fn switchover(before: &MasterClusterStatus, after: &MasterClusterStatus, all: &mut Vec<Happening>) {
    let Some(report) = &after.last_switchover else { return };
    let was = before.last_switchover.as_ref().filter(|was| was.request_id == report.request_id);
    if was.is_some_and(|was| was.result == report.result) {
        return;
    }
    let from = report.from.as_deref().unwrap_or("the primary");
    let to = report.to.as_deref().unwrap_or("another master");
    let why = report.message.as_deref().unwrap_or_default();
    all.push(match report.result {
        SwitchoverResult::Pending => normal(
            "SwitchoverAsked",
            format!("the operator asks {from} to hand over (request {})", report.request_id),
        ),
        SwitchoverResult::Succeeded => {
            let silent = report.duration_milliseconds;
            let silent = silent.map_or_else(String::new, |ms| format!(", no master answered for {ms} ms"));
            normal("SwitchoverSucceeded", format!("{to} leads now{silent} (request {})", report.request_id))
        }
        SwitchoverResult::Failed => {
            warning("SwitchoverFailed", format!("{why} (request {})", report.request_id))
        }
    });
}

fn snapshot(before: &MasterClusterStatus, after: &MasterClusterStatus, all: &mut Vec<Happening>) {
    let Some(report) = &after.last_snapshot else { return };
    let was = before.last_snapshot.as_ref().filter(|was| was.request_id == report.request_id);
    if was.is_some_and(|was| was.result == report.result) {
        return;
    }
    let member = report.member.as_deref().unwrap_or("a master");
    let last = report.sequence_id.unwrap_or_default();
    let id = &report.request_id;
    all.push(match report.result {
        SnapshotResult::Pending => {
            normal("SnapshotAsked", format!("a snapshot was requested (request {id})"))
        }
        SnapshotResult::Succeeded => normal(
            "SnapshotTaken",
            format!("{member} has taken a snapshot up to record {last} (request {id})"),
        ),
        SnapshotResult::Failed => {
            let why = report.message.as_deref().unwrap_or_default();
            warning("SnapshotFailed", format!("{why} (request {id})"))
        }
    });
}

fn condition(
    kind: &str,
    reason: &'static str,
    over: &'static str,
    before: &MasterClusterStatus,
    after: &MasterClusterStatus,
    all: &mut Vec<Happening>,
) {
    let find = |status: &MasterClusterStatus| status.conditions.iter().find(|it| it.type_ == kind).cloned();
    let (was, Some(now)) = (find(before), find(after)) else { return };
    // `Stalled` is bad when it is True, the others when they are False.
    let bad = if kind == STALLED { TRUE } else { FALSE };
    let was_bad = was.as_ref().is_some_and(|was| was.status == bad);
    if now.status == bad && was.as_ref().is_none_or(|was| was.status != bad || was.reason != now.reason) {
        all.push(warning(reason, format!("{}: {}", now.reason, now.message)));
    } else if was_bad && now.status != bad {
        all.push(normal(over, now.message));
    }
}

/// Returns the event for the removal of the finalizer, after which the resource is gone.
#[must_use]
pub fn farewell(finalizer: &Finalizer, cluster_id: &str) -> Option<Happening> {
    let keys =
        format!("the keys in etcd under mooncake-store/{cluster_id}/ and mooncake-store/oplog/{cluster_id}/");
    match finalizer {
        Finalizer::Leave | Finalizer::Add | Finalizer::Withdraw => None,
        Finalizer::Remove(Farewell::Kept) => {
            Some(normal("KeysKept", format!("{keys} are kept: spec.deletionPolicy is Retain")))
        }
        Finalizer::Remove(Farewell::Deleted) => Some(normal("KeysDeleted", format!("{keys} are deleted"))),
        Finalizer::Remove(Farewell::Left(why)) => {
            let advice = "delete them with etcdctl when no master uses them, if the log is this cluster's";
            Some(warning("KeysLeft", format!("{keys} could not be deleted: {why}; {advice}")))
        }
        Finalizer::Remove(Farewell::InUse(why)) => {
            let advice = "delete them with etcdctl when it is gone, unless it belongs to another cluster";
            Some(warning("KeysLeft", format!("{keys} were not deleted: {why}; {advice}")))
        }
        // Advice to delete them could cost another cluster its log.
        Finalizer::Remove(Farewell::OtherLog(why)) => {
            let advice = "they may be another cluster's: find out whose log it is before you delete anything";
            Some(warning("KeysLeft", format!("{keys} were not deleted: {why}; {advice}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_log_come_without_the_advice_to_delete_them() {
        let note = |left| {
            let event = farewell(&Finalizer::Remove(left), "demo").unwrap();
            assert!(event.warning && event.reason == "KeysLeft");
            event.note
        };
        let other = note(Farewell::OtherLog("the log in etcd is b".to_owned()));
        assert!(!other.contains("etcdctl") && other.contains("another cluster's"), "{other}");
        assert!(
            other.contains("mooncake-store/demo/ and ") && other.contains("the log in etcd is b"),
            "{other}"
        );
        let used = note(Farewell::InUse("m-0 at h:1 is primary and uses them".to_owned()));
        assert!(
            used.contains("m-0 at h:1") && used.ends_with("unless it belongs to another cluster"),
            "{used}"
        );
        let left = note(Farewell::Left("m-0 has not stopped in 600 s".to_owned()));
        assert!(left.ends_with("if the log is this cluster's"), "{left}");
    }
}
