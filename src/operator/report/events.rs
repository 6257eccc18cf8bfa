//! What has happened, told by what is new in the status. An operator that was restarted has nothing new to tell.

use super::conditions::{ETCD_HEALTHY, FALSE, OUT_OF_SPACE, STALLED, TRUE};
use crate::api::{MasterClusterStatus, Phase, SwitchoverResult};
use crate::operator::plan::Finalizer;
use crate::operator::plan::deletion::Farewell;
use crate::operator::plan::promotion::UNTOLD;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// In one CamelCase word.
    pub reason: &'static str,
    /// For people.
    pub note: String,
    /// Whether somebody should have a look.
    pub warning: bool,
}

fn normal(reason: &'static str, note: impl Into<String>) -> Happening {
    Happening { reason, note: note.into(), warning: false }
}

fn warning(reason: &'static str, note: impl Into<String>) -> Happening {
    Happening { reason, note: note.into(), warning: true }
}

/// What has happened between two statuses.
#[must_use]
pub fn happenings(before: &MasterClusterStatus, after: &MasterClusterStatus) -> Vec<Happening> {
    let mut all = Vec::new();
    if before.phase.is_none() && after.phase != Some(Phase::Deleting) {
        all.push(normal("Created", "masters are being made"));
    }
    leadership(before, after, &mut all);
    failover(before, after, &mut all);
    switchover(before, after, &mut all);
    for member in &after.members {
        let was = before.members.iter().find(|was| was.name == member.name);
        let caught_up = |lag: Option<i64>| lag == Some(0);
        if member.role == "standby" && caught_up(member.lag) && !was.is_some_and(|was| caught_up(was.lag)) {
            all.push(normal("StandbyReady", format!("{} has caught up and could take over", member.name)));
        }
    }
    let full = after.conditions.iter().any(|it| it.type_ == ETCD_HEALTHY && it.reason == OUT_OF_SPACE);
    let unhealthy = if full { "EtcdOutOfSpace" } else { "EtcdUnreachable" };
    for (kind, reason, over) in
        [(ETCD_HEALTHY, unhealthy, "EtcdReachable"), (STALLED, "Stalled", "Unstalled")]
    {
        condition(kind, reason, over, before, after, &mut all);
    }
    let suspended = |status: &MasterClusterStatus| status.phase == Some(Phase::Suspended);
    match (suspended(before), suspended(after)) {
        (false, true) => all.push(normal("Suspended", "objects are left as they are; masters go on")),
        (true, false) => all.push(normal("Resumed", "objects are taken care of again")),
        _ => {}
    }
    if after.phase == Some(Phase::Deleting) && before.phase != after.phase {
        all.push(normal("Deleting", "the cluster is being taken down"));
    }
    all
}

fn leadership(before: &MasterClusterStatus, after: &MasterClusterStatus, all: &mut Vec<Happening>) {
    match (&before.leader, &after.leader) {
        (Some(was), None) if is_planned(after) => {
            all.push(normal("PrimaryHandsOver", format!("{} no longer leads, as was asked for", was.name)));
        }
        (Some(was), None) => all.push(warning("PrimaryLost", format!("{} no longer leads", was.name))),
        (_, Some(now)) if before.term != after.term => {
            let term = after.term.unwrap_or_default();
            all.push(normal("PrimaryElected", format!("{} leads in term {term}", now.name)));
        }
        _ => {}
    }
}

/// Whether the primary that has just left was asked to: a switchover is under way, or has succeeded in a term that etcd has
/// not told of yet.
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
        format!(
            "; removed {} objects with {} bytes, {} clients to hear from again",
            cleaned.objects, cleaned.bytes, cleaned.clients
        )
    });
    let from = report.from.as_deref().unwrap_or("somebody unknown");
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
    let to = report.to.as_deref().unwrap_or("another");
    let why = report.message.as_deref().unwrap_or_default();
    all.push(match report.result {
        SwitchoverResult::Pending => {
            normal("SwitchoverAsked", format!("{from} is asked to hand over (request {})", report.request_id))
        }
        SwitchoverResult::Succeeded => {
            let silent = report.duration_milliseconds;
            let silent = silent.map_or_else(String::new, |ms| format!(", nobody answered for {ms} ms"));
            normal("SwitchoverSucceeded", format!("{to} leads now{silent} (request {})", report.request_id))
        }
        SwitchoverResult::Failed => {
            warning("SwitchoverFailed", format!("{why} (request {})", report.request_id))
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
    // Stalled is bad when it is true, the others when they are false.
    let bad = if kind == STALLED { TRUE } else { FALSE };
    let was_bad = was.as_ref().is_some_and(|was| was.status == bad);
    if now.status == bad && was.as_ref().is_none_or(|was| was.status != bad || was.reason != now.reason) {
        all.push(warning(reason, format!("{}: {}", now.reason, now.message)));
    } else if was_bad && now.status != bad {
        all.push(normal(over, now.message));
    }
}

/// What is said when the resource of the cluster with this id is let go.
#[must_use]
pub fn farewell(finalizer: &Finalizer, cluster_id: &str) -> Option<Happening> {
    let keys =
        format!("the keys in etcd under mooncake-store/{cluster_id}/ and mooncake-store/oplog/{cluster_id}/");
    match finalizer {
        Finalizer::Leave | Finalizer::Add | Finalizer::Withdraw => None,
        Finalizer::Remove(Farewell::Kept) => {
            Some(normal("KeysKept", format!("{keys} stay, as spec.deletionPolicy says")))
        }
        Finalizer::Remove(Farewell::Deleted) => Some(normal("KeysDeleted", format!("{keys} are deleted"))),
        Finalizer::Remove(Farewell::Left(why)) => {
            Some(warning("KeysLeft", format!("{keys} could not be deleted and stay: {why}")))
        }
    }
}
