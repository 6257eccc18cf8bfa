//! Deletion: what happens to the keys in etcd when the resource goes, without ever getting stuck.
//!
//! With Retain there is nothing to do. With Delete the masters have to be gone first, since one that runs would write
//! keys again. The keys go only while no master leads, and only if the log is the one that the status names: another
//! Kubernetes cluster, or masters started by hand, may use the same id in the same etcd. Neither masters that do not end
//! nor an etcd that does not answer keep the resource for ever: after a while it is let go, and an event names what stays
//! behind.

use k8s_openapi::jiff::SignedDuration;

use super::Act;
use crate::api::{DeletionPolicy, MasterClusterSpec};
use crate::operator::observed::{Call, EtcdSight, KeysLeft, Observed};

/// How long masters have to end: longer than their grace period and than it takes to give up a node that is gone.
const MASTERS_END: SignedDuration = SignedDuration::from_secs(600);

/// How long etcd has to answer at least, and how often it is asked at least.
const ETCD_ANSWERS: SignedDuration = SignedDuration::from_secs(60);
const ATTEMPTS: u32 = 3;

/// The longest lease that a master can have, for a spec whose own cannot be read.
const MAX_LEASE_SECONDS: u32 = 60;

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
    if let Some(master) = running(observed) {
        return if waited < MASTERS_END {
            Step::Wait(format!("{master} to end"))
        } else {
            Step::LetGo(Farewell::Left(format!("{master} has not ended for {} s", MASTERS_END.as_secs())))
        };
    }
    let delete = || {
        let log = observed.status.oplog.as_ref().and_then(|oplog| oplog.log_id.clone());
        Step::Do(Act::DeleteKeys { log })
    };
    let why = match (&observed.deletion, &observed.etcd) {
        (Call::Running(_), _) => return Step::Wait("etcd to delete the keys".to_owned()),
        (Call::Done(_, Err(KeysLeft::OtherLog(why))), _) => return Step::LetGo(Farewell::Left(why.clone())),
        // Masters of this cluster that were killed lead until their lease ends; one that leads for longer is another's.
        (Call::Done(_, Err(KeysLeft::InUse(why))), _) => {
            let patience = 2 * lease_seconds(spec) + ATTEMPTS;
            return if observed.deletion_attempts < patience {
                delete()
            } else {
                Step::LetGo(Farewell::Left(why.clone()))
            };
        }
        (_, EtcdSight::Unusable { message, .. }) if waited < ETCD_ANSWERS => {
            return Step::Wait(format!("a way to etcd, so that the keys can be deleted: {message}"));
        }
        (_, EtcdSight::Unusable { message, .. }) => message.clone(),
        (Call::Done(_, Err(KeysLeft::Failed(why))), _) => why.clone(),
        (Call::Idle | Call::Done(..), _) => return delete(),
    };
    let tried = observed.deletion_attempts >= ATTEMPTS || matches!(observed.etcd, EtcdSight::Unusable { .. });
    if waited >= ETCD_ANSWERS && tried {
        return Step::LetGo(Farewell::Left(why));
    }
    delete()
}

/// A master that may still run. The cache of pods may be behind, so the StatefulSet has to say the same about the
/// generation without replicas.
fn running(observed: &Observed) -> Option<String> {
    if let Some(pod) = observed.pods.first() {
        return Some(pod.name.clone());
    }
    let set = observed.stateful_set.as_ref().filter(|set| !set.deleted)?;
    match set.existing {
        Some(0) => None,
        Some(count) => Some(format!("{count} masters of the StatefulSet")),
        None => Some("the masters of the StatefulSet".to_owned()),
    }
}

/// The lease of a leader, in seconds: attempts are at least one second apart.
fn lease_seconds(spec: &MasterClusterSpec) -> u32 {
    let ttl = spec.failover.lease_ttl.parse().ok();
    ttl.and_then(|ttl| u32::try_from(ttl.as_secs()).ok()).unwrap_or(MAX_LEASE_SECONDS).min(MAX_LEASE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{MasterClusterStatus, OplogStatus};
    use crate::operator::observed::StatefulSetFacts;
    use crate::operator::view::View;
    use k8s_openapi::jiff::Timestamp;
    use std::sync::Arc;

    fn spec() -> MasterClusterSpec {
        let text = r#"{"etcd": {"endpoints": ["http://e:1"]}, "deletionPolicy": "Delete", "failover": {"leaseTTL": "2s"}}"#;
        serde_json::from_str(text).unwrap()
    }

    /// A cluster whose masters are gone, deleted a moment ago.
    fn observed() -> Observed {
        let log_id = Some("abc".to_owned());
        Observed {
            now: Timestamp::UNIX_EPOCH,
            generation: Some(1),
            deleted_at: Some(Timestamp::UNIX_EPOCH),
            finalizer: true,
            status: MasterClusterStatus {
                oplog: Some(OplogStatus { durable_prefix: Some(7), log_id }),
                ..MasterClusterStatus::default()
            },
            etcd: EtcdSight::Current(Arc::new(View::default())),
            stateful_set: Some(StatefulSetFacts { existing: Some(0), ..StatefulSetFacts::default() }),
            pods: Vec::new(),
            switchover: Call::Idle,
            promotion: None,
            deletion: Call::Idle,
            deletion_attempts: 0,
        }
    }

    fn next(observed: &Observed) -> Step {
        step(&spec(), observed, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_log_of_the_status_is_deleted_when_the_controller_says_that_no_master_is_left() {
        let mut seen = observed();
        assert_eq!(next(&seen), Step::Do(Act::DeleteKeys { log: Some("abc".to_owned()) }));
        // No pod in the cache, and the controller has not said yet that there is none.
        for existing in [None, Some(1)] {
            seen.stateful_set = Some(StatefulSetFacts { existing, ..StatefulSetFacts::default() });
            assert!(matches!(next(&seen), Step::Wait(_)), "{existing:?}");
        }
    }

    #[test]
    fn a_stranger_that_leads_keeps_its_keys() {
        let mut seen = observed();
        let why = "a-0 at 10.9.9.9:50051 leads with them".to_owned();
        seen.deletion = Call::Done(String::new(), Err(KeysLeft::InUse(why.clone())));
        // A master of ours that was killed leads until its lease ends.
        seen.deletion_attempts = 4;
        assert!(matches!(next(&seen), Step::Do(Act::DeleteKeys { .. })));
        seen.deletion_attempts = 7;
        assert_eq!(next(&seen), Step::LetGo(Farewell::Left(why)));
        // Another log will not become ours.
        seen.deletion = Call::Done(String::new(), Err(KeysLeft::OtherLog("another".to_owned())));
        seen.deletion_attempts = 1;
        assert_eq!(next(&seen), Step::LetGo(Farewell::Left("another".to_owned())));
    }
}
