//! Deletion: what happens to the keys in etcd when the resource goes, without ever getting stuck.
//!
//! With Retain there is nothing to do. With Delete the masters have to be gone first, since one that runs would write
//! keys again. Neither masters that do not end nor an etcd that does not answer keep the resource for ever: after a
//! while it is let go, and an event names what stays behind.

use k8s_openapi::jiff::SignedDuration;

use super::Act;
use crate::api::{DeletionPolicy, MasterClusterSpec};
use crate::operator::observed::{Call, EtcdSight, Observed};

/// How long masters have to end: longer than their grace period and than it takes to give up a node that is gone.
const MASTERS_END: SignedDuration = SignedDuration::from_secs(600);

/// How long etcd has to answer at least, and how often it is asked at least.
const ETCD_ANSWERS: SignedDuration = SignedDuration::from_secs(60);
const ATTEMPTS: u32 = 3;

/// What is next on the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something has to be done.
    Do(Act),
    /// It waits.
    Wait(String),
    /// The resource is let go.
    LetGo(Farewell),
}

/// How the keys in etcd were left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// They stay, as was asked for.
    Kept,
    /// They are gone.
    Deleted,
    /// They could not be deleted.
    Left(String),
}

/// Decides about a resource that was deleted at `since`.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observed, since: k8s_openapi::jiff::Timestamp) -> Step {
    if spec.deletion_policy == DeletionPolicy::Retain {
        return Step::LetGo(Farewell::Kept);
    }
    if let Call::Done(_, Ok(())) = &observed.deletion {
        return Step::LetGo(Farewell::Deleted);
    }
    let waited = observed.now.duration_since(since);
    match &observed.stateful_set {
        Some(set) if !set.deleted && set.replicas > 0 => return Step::Do(Act::EndMasters),
        _ => {}
    }
    if let Some(pod) = observed.pods.first() {
        return if waited < MASTERS_END {
            Step::Wait(format!("{} to end", pod.name))
        } else {
            Step::LetGo(Farewell::Left(format!("{} has not ended for {} s", pod.name, MASTERS_END.as_secs())))
        };
    }
    let why = match (&observed.deletion, &observed.etcd) {
        (Call::Running(_), _) => return Step::Wait("etcd to delete the keys".to_owned()),
        (_, EtcdSight::Unusable { message, .. }) if waited < ETCD_ANSWERS => {
            return Step::Wait(format!("a way to etcd, so that the keys can be deleted: {message}"));
        }
        (_, EtcdSight::Unusable { message, .. }) => message.clone(),
        (Call::Done(_, Err(why)), _) => why.clone(),
        (Call::Idle | Call::Done(..), _) => return Step::Do(Act::DeleteKeys),
    };
    let tried = observed.deletion_attempts >= ATTEMPTS || matches!(observed.etcd, EtcdSight::Unusable { .. });
    if waited >= ETCD_ANSWERS && tried {
        return Step::LetGo(Farewell::Left(why));
    }
    Step::Do(Act::DeleteKeys)
}
