//! Promotion clean-up: what is left to do after another primary took over. Failover itself needs no operator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::Chore;
use crate::api::{Cleaned, FailoverReport, SwitchoverReport, SwitchoverResult};
use crate::coordination::types::LeaseId;
use crate::master::admin_api::PromotionReport;
use crate::operator::observed::Observed;
use crate::operator::view::{Leader, View};

/// The reason of a failover of which the new primary has not told yet.
pub const UNTOLD: &str = "Unknown";

/// How long the new primary is asked how it took over. If it cannot be reached for so long, the record stays without.
const ASKED_FOR: SignedDuration = SignedDuration::from_secs(300);

/// The record of the last failover as it is to be, and what is to be asked.
///
/// It is begun when nobody leads, so that it is known later who did, and goes on through the status: an operator that
/// dies in between loses nothing of it.
#[must_use]
pub fn failover(observed: &Observed) -> (Option<FailoverReport>, Option<Chore>) {
    let recorded = observed.status.last_failover.clone();
    let Some(view) = observed.etcd.view() else { return (recorded, None) };
    let before = observed.status.leader.as_ref().map(|leader| leader.name.clone());
    // After a switchover that the status has not caught up with, its target is the one that was replaced.
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

/// Whether another process leads than the one that the status names. The first primary of all replaces nobody.
fn changed_hands(observed: &Observed, leader: &Leader) -> bool {
    observed.status.term.is_some_and(|term| i64::try_from(leader.term.0).is_ok_and(|now| now > term))
}

/// A switchover that has succeeded in a later term than the one that the status knows of.
fn unseen_switchover(observed: &Observed) -> Option<&SwitchoverReport> {
    let report = observed.status.last_switchover.as_ref()?;
    let unseen = report.result == SwitchoverResult::Succeeded && report.term > observed.status.term;
    unseen.then_some(report)
}

/// Whether a change of primary is the switchover that is under way or has just ended: then its own record tells of it.
/// Terms tell it from a failover that goes the same way later.
fn asked_for(observed: &Observed, leader: Option<&Leader>) -> bool {
    let pending = |report: &SwitchoverReport| report.result == SwitchoverResult::Pending;
    if observed.status.last_switchover.as_ref().is_some_and(pending) {
        return true;
    }
    unseen_switchover(observed).is_some_and(|report| match leader {
        Some(leader) => report.term == i64::try_from(leader.term.0).ok(),
        // The old primary's answer has arrived before etcd told of the new one.
        None => true,
    })
}

fn told<'o>(observed: &'o Observed, leader: &Leader) -> Option<&'o PromotionReport> {
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
        cleaned: Some(Cleaned {
            objects: number(report.objects_removed),
            clients: number(report.inherited_clients),
            bytes: number(report.bytes_removed),
        }),
        ..record
    }
}

/// The master's words as one in CamelCase.
fn reason(words: &str) -> String {
    match words {
        "the primary died" => "ProcessDied".to_owned(),
        "the lease ran out" => "LeaseExpired".to_owned(),
        "switchover" => "HandOver".to_owned(),
        "first start" => "FirstStart".to_owned(),
        other => {
            let capital = |word: &str| {
                let mut letters = word.chars().filter(char::is_ascii_alphanumeric);
                letters
                    .next()
                    .map(|first| first.to_ascii_uppercase())
                    .into_iter()
                    .chain(letters)
                    .collect::<String>()
            };
            let joined: String = other.split_whitespace().map(capital).collect();
            if joined.is_empty() { "Other".to_owned() } else { joined }
        }
    }
}

/// Keys of processes that are gone, which no lease will remove or which a new primary no longer needs.
#[must_use]
pub fn stale_keys(observed: &Observed, cluster: &str, view: &View) -> Vec<Chore> {
    let mut chores = Vec::new();
    for (name, member) in &view.members {
        let ours = name.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
        let ours = ours.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok());
        let gone = ours && !observed.pods.iter().any(|pod| pod.name == *name);
        // A live member writes its key with a lease, and again when it is gone: only one without an owner is removed.
        if gone && member.stamp.lease == LeaseId(0) {
            chores
                .push(Chore::DeleteMemberKey { name: name.clone(), mod_revision: member.stamp.mod_revision });
        }
    }
    // The name of a successor from before the election of whoever leads now has done its work.
    if let (Some(successor), Some(leader)) = (&view.successor, &view.leader)
        && successor.mod_revision < leader.term.0
    {
        chores.push(Chore::DeleteSwitchoverKey { mod_revision: successor.mod_revision });
    }
    chores
}
