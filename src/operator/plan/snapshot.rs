//! A snapshot on request: the annotation `moonkeeper.dev/snapshot-requested` with a value that was not there before asks for
//! one.
//!
//! The request is recorded first, so that an operator which dies in between finds it in the status. Then one standby after
//! the other is asked until one takes it, and the primary if no standby is caught up. None is asked while the primary is
//! being changed. A snapshot that takes long is answered before it is complete; it counts once the key of a member lists
//! it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::Act;
use crate::api::{MasterClusterSpec, SnapshotReport, SnapshotResult, SwitchoverResult};
use crate::cluster::role::Role;
use crate::operator::observation::{Call, CallError, Observation};

/// How long a request may wait for a master that takes a snapshot.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// How long a snapshot that was begun may take. Ten million objects take less than a minute.
const COMPLETE_WITHIN: SignedDuration = SignedDuration::from_secs(600);

/// The next step of a requested snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no request, or it already has a result.
    Nothing,
    /// This is what is known of the request now.
    Record(SnapshotReport),
    /// A master is asked.
    Ask(Act),
    /// What has to happen first; for the status.
    Wait(String),
    /// The request has this result.
    End(SnapshotReport),
}

/// A master that may be asked for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    /// Address of its admin API.
    pub address: String,
}

/// Decides the next step for the request in the annotation, or for a recorded one that is gone.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observation) -> Step {
    let wanted = observed.snapshot_request.as_deref();
    let same = |report: &SnapshotReport| wanted == Some(report.request_id.as_str());
    match &observed.status.last_snapshot {
        Some(report) if report.result == SnapshotResult::Pending => {
            if spec.suspend {
                failed(observed, report, "withdrawn: spec.suspend was set".to_owned())
            } else if same(report) {
                under_way(observed, report)
            } else {
                failed(observed, report, "withdrawn: the annotation no longer has this value".to_owned())
            }
        }
        _ if spec.suspend => Step::Nothing,
        Some(report) if same(report) => Step::Nothing,
        _ => wanted.map_or(Step::Nothing, |id| record(observed, id)),
    }
}

fn record(observed: &Observation, id: &str) -> Step {
    Step::Record(SnapshotReport {
        request_id: id.to_owned(),
        member: None,
        sequence_id: None,
        result: SnapshotResult::Pending,
        message: None,
        at: Some(Time(observed.now)),
    })
}

fn failed(observed: &Observation, report: &SnapshotReport, why: String) -> Step {
    Step::End(SnapshotReport {
        result: SnapshotResult::Failed,
        message: Some(why),
        at: Some(Time(observed.now)),
        ..report.clone()
    })
}

/// Returns whether a request has waited for longer than this.
fn waited(observed: &Observation, report: &SnapshotReport, most: SignedDuration) -> bool {
    report.at.as_ref().is_none_or(|at| observed.now.duration_since(at.0) > most)
}

fn under_way(observed: &Observation, report: &SnapshotReport) -> Step {
    if let Some(up_to) = report.sequence_id {
        return complete(observed, report, up_to);
    }
    let expired = waited(observed, report, PATIENCE);
    match &observed.snapshot {
        Call::Running(id) if *id == report.request_id => Step::Wait("a master to take a snapshot".to_owned()),
        Call::Done(id, Ok(answer)) if *id == report.request_id => {
            let sequence_id = i64::try_from(answer.sequence_id).ok();
            let member = Some(answer.member.clone());
            let known = SnapshotReport { member, sequence_id, ..report.clone() };
            if answer.complete {
                let result = SnapshotResult::Succeeded;
                return Step::End(SnapshotReport { result, at: Some(Time(observed.now)), ..known });
            }
            Step::Record(known)
        }
        Call::Done(id, Err(CallError::Refused { message, .. } | CallError::NoAnswer(message)))
            if *id == report.request_id && expired =>
        {
            failed(observed, report, message.clone())
        }
        _ => match obstacle(observed) {
            None => Step::Ask(Act::TakeSnapshot {
                request_id: report.request_id.clone(),
                candidates: candidates(observed),
            }),
            Some(what) if expired => {
                let seconds = PATIENCE.as_secs();
                failed(observed, report, format!("no master was asked within {seconds} s: waited for {what}"))
            }
            Some(what) => Step::Wait(what),
        },
    }
}

/// Handles a snapshot that a master has begun.
fn complete(observed: &Observation, report: &SnapshotReport, up_to: i64) -> Step {
    let members = observed.etcd.view().into_iter().flat_map(|view| view.members.values());
    let values = members.filter_map(|member| member.value.as_ref());
    let taken = values.filter(|said| report.member.as_ref().is_none_or(|name| *name == said.name));
    let newest =
        taken.flat_map(|said| &said.snapshots).filter_map(|held| i64::try_from(held.sequence_id).ok());
    match newest.max() {
        Some(newest) if newest >= up_to => Step::End(SnapshotReport {
            sequence_id: Some(newest),
            result: SnapshotResult::Succeeded,
            at: Some(Time(observed.now)),
            ..report.clone()
        }),
        _ if waited(observed, report, COMPLETE_WITHIN) => {
            let seconds = COMPLETE_WITHIN.as_secs();
            failed(observed, report, format!("the snapshot was not complete within {seconds} s"))
        }
        _ => Step::Wait(format!(
            "{} to complete a snapshot up to record {up_to}",
            report.member.as_deref().unwrap_or("a master")
        )),
    }
}

/// Returns what has to happen before a master may be asked.
fn obstacle(observed: &Observation) -> Option<String> {
    let Some(view) = observed.etcd.view() else {
        return Some("etcd to answer, to know the standbys".to_owned());
    };
    let switchover = observed.status.last_switchover.as_ref();
    if switchover.is_some_and(|it| it.result == SwitchoverResult::Pending) || view.successor.is_some() {
        return Some("the switchover to end before a snapshot is taken".to_owned());
    }
    if view.leader.is_none() || view.serving.is_none() {
        return Some("a primary before a snapshot is taken".to_owned());
    }
    candidates(observed).is_empty().then(|| "a master that could take a snapshot".to_owned())
}

/// Returns the masters to ask, in this order: standbys that are caught up, by the last record that they have applied, the
/// highest first, and last the primary, which takes one only if no standby is caught up.
fn candidates(observed: &Observation) -> Vec<Candidate> {
    let members = observed.etcd.view().into_iter().flat_map(|view| view.members.values());
    let said = members.filter_map(|member| member.value.as_ref()).filter(|said| said.caught_up);
    let here = said.filter(|said| {
        let pod = observed.pod_of(&said.name, &said.addresses.rpc);
        pod.is_some_and(|pod| !pod.deleted) && !said.addresses.admin.is_empty()
    });
    let mut found: Vec<_> = here.collect();
    found.sort_by(|one, other| {
        let leads = (one.role == Role::Primary).cmp(&(other.role == Role::Primary));
        leads.then_with(|| other.applied.cmp(&one.applied)).then_with(|| one.name.cmp(&other.name))
    });
    let candidate = |said: &crate::cluster::member::MemberValue| Candidate {
        name: said.name.clone(),
        address: said.addresses.admin.clone(),
    };
    found.into_iter().map(candidate).collect()
}
