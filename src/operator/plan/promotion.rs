//! Promotion clean-up: what the operator does after another primary took over. Failover itself needs no operator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::Chore;
use crate::api::{Cleaned, FailoverReport, SwitchoverReport, SwitchoverResult};
use crate::cluster::promotion::{PromotionReason, PromotionReport};
use crate::cluster::view::{ClusterView, Leader};
use crate::coordination::types::LeaseId;
use crate::operator::observation::Observation;

/// Reason of a failover until the new primary has reported the real one.
pub const UNTOLD: &str = "Unknown";

/// How long the operator tries to get the promotion report of the new primary. After that the record stays incomplete.
const ASKED_FOR: SignedDuration = SignedDuration::from_secs(300);

/// Returns the record of the last failover to write, and the question to the new primary if its report is missing.
///
/// The record is begun while there is no primary, so that the name of the lost one is kept, and continued in the
/// status: an operator that dies in between loses nothing of it.
#[must_use]
pub fn failover(observed: &Observation) -> (Option<FailoverReport>, Option<Chore>) {
    let recorded = observed.status.last_failover.clone();
    let Some(view) = observed.etcd.view() else { return (recorded, None) };
    let before = observed.status.leader.as_ref().map(|leader| leader.name.clone());
    // After a switchover whose term is not in the status yet, the target of that switchover is the primary that was
    // lost.
    let before = unseen_switchover(observed).and_then(|report| report.to.clone()).or(before);
    let begun = |from: Option<String>, to: &str| FailoverReport {
        from,
        to: to.to_owned(),
        reason: UNTOLD.to_owned(),
        duration_milliseconds: None,
        cleaned: None,
        at: Some(Time(observed.now)),
    };
    let Some(leader) = &view.leader else {
        let lost = before.filter(|_| !asked_for(observed, None));
        return (lost.map(|from| begun(Some(from), "")).or(recorded), None);
    };
    let name = &leader.value.name;
    let record = match recorded {
        recorded if !changed_hands(observed, leader) => recorded,
        Some(open) if open.to.is_empty() => Some(FailoverReport { to: name.clone(), ..open }),
        recorded if asked_for(observed, Some(leader)) => recorded,
        _ => Some(begun(before, name)),
    };
    match record {
        Some(record) if record.reason == UNTOLD && record.to == *name => {
            let age = record.at.as_ref().map_or(ASKED_FOR, |at| observed.now.duration_since(at.0));
            match told(observed, leader) {
                Some(report) => (Some(completed(record, report)), None),
                None if age < ASKED_FOR => (Some(record), Some(ask(leader))),
                None => (Some(record), None),
            }
        }
        record => (record, None),
    }
}

/// Returns whether there was an election since the term in the status. The very first election is no failover.
fn changed_hands(observed: &Observation, leader: &Leader) -> bool {
    observed.status.term.is_some_and(|term| i64::try_from(leader.term.0).is_ok_and(|now| now > term))
}

/// Returns the last switchover if it succeeded in a later term than the one in the status.
fn unseen_switchover(observed: &Observation) -> Option<&SwitchoverReport> {
    let report = observed.status.last_switchover.as_ref()?;
    let unseen = report.result == SwitchoverResult::Succeeded && report.term > observed.status.term;
    unseen.then_some(report)
}

/// Returns whether a change of primary is the switchover that is under way or has just ended, which has a record of its
/// own. Terms distinguish it from a later failover between the same two masters.
fn asked_for(observed: &Observation, leader: Option<&Leader>) -> bool {
    let pending = |report: &SwitchoverReport| report.result == SwitchoverResult::Pending;
    if observed.status.last_switchover.as_ref().is_some_and(pending) {
        return true;
    }
    unseen_switchover(observed).is_some_and(|report| match leader {
        Some(leader) => report.term == i64::try_from(leader.term.0).ok(),
        // The old primary has answered before the watch of etcd has delivered the new one.
        None => true,
    })
}

fn told<'o>(observed: &'o Observation, leader: &Leader) -> Option<&'o PromotionReport> {
    let answer = observed.promotion.as_ref().filter(|answer| answer.term == leader.term.0)?;
    answer.report.as_ref().ok()
}

fn ask(leader: &Leader) -> Chore {
    Chore::AskPromotion { term: leader.term.0, address: leader.value.addresses.http.clone() }
}

fn completed(record: FailoverReport, report: &PromotionReport) -> FailoverReport {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    FailoverReport {
        reason: reason(&report.reason),
        duration_milliseconds: Some(number(report.total_ms)),
        // What was removed is not in the record: removing goes on for a while after the report was fetched.
        cleaned: Some(Cleaned { clients: number(report.inherited_clients) }),
        ..record
    }
}

/// Converts a reason to one word in CamelCase, as Kubernetes has them.
fn reason(reason: &PromotionReason) -> String {
    match reason {
        PromotionReason::ProcessDied => "ProcessDied".to_owned(),
        PromotionReason::LeaseEnded => "LeaseExpired".to_owned(),
        PromotionReason::Switchover => "HandOver".to_owned(),
        PromotionReason::FirstStart => "FirstStart".to_owned(),
        PromotionReason::Other(words) => {
            let capital = |word: &str| {
                let mut letters = word.chars().filter(char::is_ascii_alphanumeric);
                letters
                    .next()
                    .map(|first| first.to_ascii_uppercase())
                    .into_iter()
                    .chain(letters)
                    .collect::<String>()
            };
            let joined: String = words.split_whitespace().map(capital).collect();
            if joined.is_empty() { "Other".to_owned() } else { joined }
        }
    }
}

/// Plans the deletion of keys of processes that are gone: those that no lease will remove, and those that the new
/// primary no longer needs.
#[must_use]
pub fn stale_keys(observed: &Observation, cluster: &str, view: &ClusterView) -> Vec<Chore> {
    let mut chores = Vec::new();
    for (name, member) in &view.members {
        let ours = name.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
        let ours = ours.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok());
        let gone = ours && !observed.pods.iter().any(|pod| pod.name == *name);
        // A live member attaches a lease to its key and rewrites it if it is missing. So only keys without a lease,
        // which never expire, are deleted.
        if gone && member.stamp.lease == LeaseId(0) {
            chores
                .push(Chore::DeleteMemberKey { name: name.clone(), mod_revision: member.stamp.mod_revision });
        }
    }
    // A preferred successor that was written before the election of the current primary is obsolete.
    if let (Some(successor), Some(leader)) = (&view.successor, &view.leader)
        && successor.stamp.mod_revision < leader.term.0
    {
        chores.push(Chore::DeleteSwitchoverKey { mod_revision: successor.stamp.mod_revision });
    }
    chores
}
