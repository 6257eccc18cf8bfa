//! Switchover: a new `requestId` in the spec asks for another primary.
//!
//! The request is first recorded with the current primary, then acted on, so that an operator which dies in between
//! finds the request in the status, and in etcd whether it was fulfilled. It may therefore call a master twice, but
//! never after the primary has changed.
//!
//! A request that leaves the spec before it has a result, because it was reset or replaced, or because the cluster was
//! suspended, is withdrawn: it ends as failed, unless the primary has handed over already.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::Act;
use crate::api::{MasterClusterSpec, SwitchoverReport, SwitchoverResult};
use crate::cluster::view::{ClusterView, Leader};
use crate::operator::observation::{Call, CallError, Observation};

/// How long a request may wait for a standby that can take over before it has failed.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// The next step of a switchover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no request, or it already has a result.
    Nothing,
    /// The request is recorded now and acted on in the next pass.
    Record(SwitchoverReport),
    /// The primary is asked to hand over.
    Ask(Act),
    /// What has to happen first; for the status.
    Wait(String),
    /// The request has this result.
    End(SwitchoverReport),
}

/// Decides the next step for the request in the spec, or for a recorded one that the spec no longer has.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observation) -> Step {
    let wanted = &spec.switchover;
    let same = |report: &SwitchoverReport| report.request_id == wanted.request_id;
    match &observed.status.last_switchover {
        Some(report) if report.result == SwitchoverResult::Pending => {
            if spec.suspend {
                withdrawn(observed, report, "spec.suspend was set")
            } else if same(report) {
                under_way(spec, observed, report)
            } else {
                withdrawn(observed, report, "spec.switchover no longer has this requestId")
            }
        }
        _ if spec.suspend || wanted.request_id.is_empty() => Step::Nothing,
        Some(report) if same(report) => Step::Nothing,
        _ => record(spec, observed),
    }
}

/// Handles a request that is not in the status yet. It is recorded only once the primary is known: otherwise no later
/// pass could see whether the primary has changed.
fn record(spec: &MasterClusterSpec, observed: &Observation) -> Step {
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
        None => Step::Wait("etcd to answer, to know the primary".to_owned()),
        Some(ClusterView { leader: None, .. }) => Step::Wait("a primary that could hand over".to_owned()),
        Some(ClusterView { leader: Some(leader), .. }) => {
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

/// Ends a request as failed.
fn failed(observed: &Observation, report: &SwitchoverReport, why: String) -> Step {
    Step::End(SwitchoverReport {
        result: SwitchoverResult::Failed,
        message: Some(why),
        at: Some(Time(observed.now)),
        ..report.clone()
    })
}

/// Returns the record of a request after which `leader` leads.
fn succeeded(observed: &Observation, report: &SwitchoverReport, leader: &Leader) -> SwitchoverReport {
    SwitchoverReport {
        to: Some(leader.value.name.clone()),
        term: term(leader),
        result: SwitchoverResult::Succeeded,
        at: Some(Time(observed.now)),
        ..report.clone()
    }
}

/// Returns the step that follows from the call to the primary, unless that was refused or never made. The primary's
/// answer takes precedence over etcd, because only it has the time without answers.
fn called(observed: &Observation, report: &SwitchoverReport) -> Option<Step> {
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

/// Handles a recorded request that the spec no longer has. A primary that was called already may still hand over, so
/// the operator waits for its answer; the call has a deadline.
fn withdrawn(observed: &Observation, report: &SwitchoverReport, why: &str) -> Step {
    if let Some(step) = called(observed, report) {
        return step;
    }
    match observed.etcd.view().and_then(|view| view.leader.as_ref()) {
        Some(leader) if report.from.as_ref().is_some_and(|from| *from != leader.value.name) => {
            Step::End(succeeded(observed, report, leader))
        }
        // This operator may have called the primary before it was restarted.
        None if !expired(observed, report) => {
            Step::Wait("a primary, to see whether the withdrawn switchover has taken place".to_owned())
        }
        _ => failed(observed, report, format!("withdrawn: {why}")),
    }
}

/// Returns whether a request has waited for too long.
fn expired(observed: &Observation, report: &SwitchoverReport) -> bool {
    report.at.as_ref().is_none_or(|at| observed.now.duration_since(at.0) > PATIENCE)
}

fn under_way(spec: &MasterClusterSpec, observed: &Observation, report: &SwitchoverReport) -> Step {
    if let Some(step) = called(observed, report) {
        return step;
    }
    let Some(view) = observed.etcd.view() else {
        return Step::Wait("etcd to answer, to know the primary".to_owned());
    };
    let Some(leader) = &view.leader else {
        return Step::Wait("a primary, to see whether the switchover has succeeded".to_owned());
    };
    let now = leader.value.name.as_str();
    // Another master leads: the request is fulfilled, or a master other than the target took over.
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
        // A refusal that may be temporary is retried until the request expires.
        Call::Done(id, Err(error)) if *id == report.request_id => {
            let (passing, why) = match error {
                CallError::Refused { code, message } => (may_pass(code), message.clone()),
                CallError::NoAnswer(why) => (true, why.clone()),
            };
            if expired || !passing { failed(observed, report, why) } else { ask(spec, report, leader) }
        }
        _ if expired => {
            let seconds = PATIENCE.as_secs();
            failed(
                observed,
                report,
                format!(
                    "the operator did not get an answer from the primary within {seconds} s, and {now} still leads"
                ),
            )
        }
        _ => ask(spec, report, leader),
    }
}

/// Returns whether a refusal may be temporary: a standby catches up, a master that restarts registers as a member again
/// (until then masters of earlier versions answer `no_target`), another hand-over ends.
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
