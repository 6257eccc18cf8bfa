//! Switchover: a requestId that was not there before asks for another primary.
//!
//! The request is first recorded with who leads, then acted on, so that an operator which dies in between finds in
//! the status what was asked for and in etcd whether it has happened. It may therefore ask a master twice, but never
//! when what was asked for is already so.

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

/// Decides about the request in the spec.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observed) -> Step {
    let wanted = &spec.switchover;
    if wanted.request_id.is_empty() {
        return Step::Nothing;
    }
    let recorded = observed.status.last_switchover.as_ref().filter(|it| it.request_id == wanted.request_id);
    match recorded {
        Some(report) if report.result != SwitchoverResult::Pending => Step::Nothing,
        None => record(spec, observed),
        Some(report) => under_way(spec, observed, report),
    }
}

/// A request that nobody has looked at yet. It is recorded only once it is known who leads: else it could never be
/// told whether it has happened.
fn record(spec: &MasterClusterSpec, observed: &Observed) -> Step {
    let report = |from: Option<String>, result, message: Option<String>| SwitchoverReport {
        request_id: spec.switchover.request_id.clone(),
        from,
        to: None,
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
                return Step::End(SwitchoverReport { to: Some(from), ..done });
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

fn under_way(spec: &MasterClusterSpec, observed: &Observed, report: &SwitchoverReport) -> Step {
    let end = |result, to: Option<&str>, message: Option<String>, took: Option<u64>| {
        Step::End(SwitchoverReport {
            to: to.map(str::to_owned),
            result,
            message,
            duration_milliseconds: took.and_then(|took| i64::try_from(took).ok()),
            at: Some(Time(observed.now)),
            ..report.clone()
        })
    };
    // The master's own word first: it knows how long nobody answered.
    match &observed.switchover {
        Call::Running(id) if *id == report.request_id => {
            return Step::Wait(format!("{} to hand over", report.from.as_deref().unwrap_or("the primary")));
        }
        Call::Done(id, Ok(done)) if *id == report.request_id => {
            return end(SwitchoverResult::Succeeded, Some(&done.to), None, Some(done.unanswered_ms));
        }
        Call::Running(_) | Call::Done(..) | Call::Idle => {}
    }
    let Some(view) = observed.etcd.view() else {
        return Step::Wait("etcd to answer, to see who leads".to_owned());
    };
    let Some(leader) = &view.leader else {
        return Step::Wait("a primary, after which it is seen what came of the request".to_owned());
    };
    let now = leader.value.name.as_str();
    // Another one leads, whoever brought it about: what was asked for is so, or cannot be had from this primary.
    if report.from.as_deref().is_some_and(|from| from != now) {
        let target = spec.switchover.target.as_str();
        return if target.is_empty() || target == now {
            end(SwitchoverResult::Succeeded, Some(now), None, None)
        } else {
            let why = format!("{now} took over instead of {target}");
            end(SwitchoverResult::Failed, Some(now), Some(why), None)
        };
    }
    let expired = report.at.as_ref().is_none_or(|at| observed.now.duration_since(at.0) > PATIENCE);
    match &observed.switchover {
        // Refused: nothing has happened. What may pass is tried again for a while.
        Call::Done(id, Err(error)) if *id == report.request_id => {
            let (passing, why) = match error {
                CallError::Refused { code, message } => (may_pass(code), message.clone()),
                CallError::NoAnswer(why) => (true, why.clone()),
            };
            if expired || !passing {
                end(SwitchoverResult::Failed, None, Some(why), None)
            } else {
                ask(spec, report, leader)
            }
        }
        _ if expired => {
            let why = "the primary could not be asked in time".to_owned();
            end(SwitchoverResult::Failed, None, Some(why), None)
        }
        _ => ask(spec, report, leader),
    }
}

/// Whether a refusal may end by itself: a standby catches up, another hand-over ends.
fn may_pass(code: &str) -> bool {
    matches!(code, "no_target" | "busy" | "not_primary" | "given_up" | "unauthorized")
}

fn ask(spec: &MasterClusterSpec, report: &SwitchoverReport, leader: &Leader) -> Step {
    let target = &spec.switchover.target;
    Step::Ask(Act::Switchover {
        request_id: report.request_id.clone(),
        to: (!target.is_empty()).then(|| target.clone()),
        address: leader.value.addresses.admin.clone(),
    })
}
