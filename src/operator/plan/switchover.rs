//! Switchover: a requestId that was not there before asks for another primary.
//!
//! The request is first recorded with who leads, then acted on, so that an operator which dies in between finds in
//! the status what was asked for and in etcd whether it has happened. It may therefore ask a master twice, but never
//! when what was asked for is already so.
//!
//! A request that leaves the spec before it has been answered, because it was reset or replaced, or because the cluster
//! was suspended, is withdrawn: it ends as failed, unless the primary has handed over already.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::Act;
use crate::api::{MasterClusterSpec, SwitchoverReport, SwitchoverResult};
use crate::operator::observed::{Call, CallError, Observed};
use crate::operator::view::{Leader, View};

/// How long a request may wait for somebody who can take over before it has failed.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// What the present request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing was asked for, or it was answered.
    Nothing,
    /// It is recorded now and acted on in the next pass.
    Record(SwitchoverReport),
    /// The primary is asked.
    Ask(Act),
    /// It waits.
    Wait(String),
    /// It has ended.
    End(SwitchoverReport),
}

/// Decides about the request in the spec, and about one that was recorded and is no longer there.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observed) -> Step {
    let wanted = &spec.switchover;
    let same = |report: &SwitchoverReport| report.request_id == wanted.request_id;
    match &observed.status.last_switchover {
        Some(report) if report.result == SwitchoverResult::Pending => {
            if spec.suspend {
                withdrawn(observed, report, "the cluster was suspended")
            } else if same(report) {
                under_way(spec, observed, report)
            } else {
                withdrawn(observed, report, "spec.switchover no longer asks for it")
            }
        }
        _ if spec.suspend || wanted.request_id.is_empty() => Step::Nothing,
        Some(report) if same(report) => Step::Nothing,
        _ => record(spec, observed),
    }
}

/// A request that nobody has looked at yet. It is recorded only once it is known who leads: else it could never be
/// told whether it has happened.
fn record(spec: &MasterClusterSpec, observed: &Observed) -> Step {
    let report = |from: Option<String>, result, message: Option<String>| SwitchoverReport {
        request_id: spec.switchover.request_id.clone(),
        from,
        to: None,
        term: None,
        result,
        message,
        duration_milliseconds: None,
        at: Some(Time(observed.now)),
    };
    match observed.etcd.view() {
        None => Step::Wait("etcd to answer, to see who leads".to_owned()),
        Some(View { leader: None, .. }) => Step::Wait("a primary that could hand over".to_owned()),
        Some(View { leader: Some(leader), .. }) => {
            let from = leader.value.name.clone();
            let target = &spec.switchover.target;
            if *target == from {
                let message = Some(format!("{from} leads already"));
                let done = report(Some(from.clone()), SwitchoverResult::Succeeded, message);
                return Step::End(SwitchoverReport { to: Some(from), term: term(leader), ..done });
            }
            let known = |name: &str| {
                observed.pods.iter().any(|pod| pod.name == name)
                    || observed.etcd.view().is_some_and(|view| view.members.contains_key(name))
            };
            if !target.is_empty() && !known(target) {
                let message = Some(format!("there is no pod called {target}"));
                return Step::End(report(Some(from), SwitchoverResult::Failed, message));
            }
            Step::Record(report(Some(from), SwitchoverResult::Pending, None))
        }
    }
}

fn term(leader: &Leader) -> Option<i64> {
    i64::try_from(leader.term.0).ok()
}

/// The record of a request that has ended without a new primary.
fn failed(observed: &Observed, report: &SwitchoverReport, why: String) -> Step {
    Step::End(SwitchoverReport {
        result: SwitchoverResult::Failed,
        message: Some(why),
        at: Some(Time(observed.now)),
        ..report.clone()
    })
}

/// The record of a request after which `leader` leads.
fn succeeded(observed: &Observed, report: &SwitchoverReport, leader: &Leader) -> SwitchoverReport {
    SwitchoverReport {
        to: Some(leader.value.name.clone()),
        term: term(leader),
        result: SwitchoverResult::Succeeded,
        at: Some(Time(observed.now)),
        ..report.clone()
    }
}

/// What the call to the primary has come to, unless it was refused or never made. The primary's answer counts before
/// what etcd says: it has the time without an answer.
fn called(observed: &Observed, report: &SwitchoverReport) -> Option<Step> {
    match &observed.switchover {
        Call::Running(id) if *id == report.request_id => {
            Some(Step::Wait(format!("{} to hand over", report.from.as_deref().unwrap_or("the primary"))))
        }
        Call::Done(id, Ok(done)) if *id == report.request_id => Some(Step::End(SwitchoverReport {
            to: Some(done.to.clone()),
            term: i64::try_from(done.term).ok(),
            result: SwitchoverResult::Succeeded,
            message: None,
            duration_milliseconds: i64::try_from(done.unanswered_ms).ok(),
            at: Some(Time(observed.now)),
            ..report.clone()
        })),
        Call::Running(_) | Call::Done(..) | Call::Idle => None,
    }
}

/// A request that was recorded and is no longer asked for. A primary that was asked already may still hand over, so
/// its answer is waited for; it has a deadline.
fn withdrawn(observed: &Observed, report: &SwitchoverReport, why: &str) -> Step {
    if let Some(step) = called(observed, report) {
        return step;
    }
    match observed.etcd.view().and_then(|view| view.leader.as_ref()) {
        Some(leader) if report.from.as_ref().is_some_and(|from| *from != leader.value.name) => {
            Step::End(succeeded(observed, report, leader))
        }
        // An operator that was restarted meanwhile may have asked.
        None if !expired(observed, report) => {
            Step::Wait("a primary, to see whether the withdrawn switchover has taken place".to_owned())
        }
        _ => failed(observed, report, format!("withdrawn: {why}")),
    }
}

/// Whether a request has waited for too long.
fn expired(observed: &Observed, report: &SwitchoverReport) -> bool {
    report.at.as_ref().is_none_or(|at| observed.now.duration_since(at.0) > PATIENCE)
}

fn under_way(spec: &MasterClusterSpec, observed: &Observed, report: &SwitchoverReport) -> Step {
    if let Some(step) = called(observed, report) {
        return step;
    }
    let Some(view) = observed.etcd.view() else {
        return Step::Wait("etcd to answer, to see who leads".to_owned());
    };
    let Some(leader) = &view.leader else {
        return Step::Wait("a primary, after which it is seen what came of the request".to_owned());
    };
    let now = leader.value.name.as_str();
    // Another master leads: the request is fulfilled, or this primary cannot fulfil it.
    if report.from.as_deref().is_some_and(|from| from != now) {
        let target = spec.switchover.target.as_str();
        let report = succeeded(observed, report, leader);
        return if target.is_empty() || target == now {
            Step::End(report)
        } else {
            failed(observed, &report, format!("{now} took over instead of {target}"))
        };
    }
    let expired = expired(observed, report);
    match &observed.switchover {
        // Refused: nothing has happened. What may pass is tried again for a while.
        Call::Done(id, Err(error)) if *id == report.request_id => {
            let (passing, why) = match error {
                CallError::Refused { code, message } => (may_pass(code), message.clone()),
                CallError::NoAnswer(why) => (true, why.clone()),
            };
            if expired || !passing { failed(observed, report, why) } else { ask(spec, report, leader) }
        }
        _ if expired => failed(observed, report, "the primary could not be asked in time".to_owned()),
        _ => ask(spec, report, leader),
    }
}

/// Whether a refusal may end by itself: a standby catches up, a master that restarts registers as a member again (until
/// then masters of earlier versions answer `no_target`), another hand-over ends.
fn may_pass(code: &str) -> bool {
    matches!(code, "no_target" | "no_such_member" | "busy" | "not_primary" | "given_up" | "unauthorized")
}

fn ask(spec: &MasterClusterSpec, report: &SwitchoverReport, leader: &Leader) -> Step {
    let target = &spec.switchover.target;
    Step::Ask(Act::Switchover {
        request_id: report.request_id.clone(),
        to: (!target.is_empty()).then(|| target.clone()),
        address: leader.value.addresses.admin.clone(),
    })
}
