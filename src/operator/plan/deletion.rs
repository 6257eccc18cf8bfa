//! Deletion: what happens to the keys in etcd when the resource is deleted, without ever getting stuck.
//!
//! With Retain there is nothing to do. With Delete the masters have to be gone first, since one that runs would write
//! keys again. The keys are deleted only while no master leads, and only if the log is the one that the status names:
//! another Kubernetes cluster, or masters started by hand, may use the same id in the same etcd. Neither masters that
//! do not end nor an etcd that does not answer keep the resource for ever: after a deadline the finalizer is removed,
//! and an event names the keys that stay.

use k8s_openapi::jiff::SignedDuration;

use super::{Act, OldClaim};
use crate::api::{DeletionPolicy, MasterClusterSpec};
use crate::operator::observation::{Call, EtcdKeys, KeysLeft, Observation};

/// How long masters have to end: longer than their grace period, and than Kubernetes takes to evict pods from a lost
/// node.
const MASTERS_END: SignedDuration = SignedDuration::from_secs(600);

/// The keys are given up only after this time and this many attempts.
const ETCD_ANSWERS: SignedDuration = SignedDuration::from_secs(60);
const ATTEMPTS: u32 = 3;

/// The longest lease that a master can have, for a spec whose own cannot be read.
const MAX_LEASE_SECONDS: u32 = 60;

/// The next step of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Do(Act),
    /// What has to happen first; for the status.
    Wait(String),
    /// The finalizer is removed, and with it the resource is gone.
    LetGo(Farewell),
}

/// What happened to the keys in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// They stay, as `deletionPolicy` demands.
    Kept,
    Deleted,
    /// They could not be deleted, for this reason: masters did not stop, or etcd did not answer.
    Left(String),
    /// A master uses them, which may belong to another cluster.
    InUse(String),
    /// The log is another cluster's, or it is unknown whose it is.
    OtherLog(String),
}

/// Decides the next step for a resource whose deletion was requested at `since`.
#[must_use]
pub fn step(spec: &MasterClusterSpec, observed: &Observation, since: k8s_openapi::jiff::Timestamp) -> Step {
    if spec.deletion_policy == DeletionPolicy::Retain {
        return Step::LetGo(Farewell::Kept);
    }
    if let Call::Done(_, Ok(())) = &observed.deletion {
        return delete_claims(observed);
    }
    let waited = observed.now.duration_since(since);
    match &observed.stateful_set {
        Some(set) if !set.deleted && set.replicas > 0 => return Step::Do(Act::EndMasters),
        _ => {}
    }
    if let Some(master) = running(observed) {
        return if waited < MASTERS_END {
            Step::Wait(format!("{master} to stop"))
        } else {
            Step::LetGo(Farewell::Left(format!("{master} has not stopped in {} s", MASTERS_END.as_secs())))
        };
    }
    let delete = || {
        let log = observed.status.oplog.as_ref().and_then(|oplog| oplog.log_id.clone());
        Step::Do(Act::DeleteKeys { log })
    };
    let why = match (&observed.deletion, &observed.etcd) {
        (Call::Running(_), _) => return Step::Wait("etcd to delete the keys".to_owned()),
        (Call::Done(_, Err(KeysLeft::OtherLog(why))), _) => {
            return Step::LetGo(Farewell::OtherLog(why.clone()));
        }
        // A killed master of this cluster holds the election key until its lease ends; a master that leads for longer
        // is not one of ours.
        (Call::Done(_, Err(KeysLeft::InUse(why))), _) => {
            let patience = 2 * lease_seconds(spec) + ATTEMPTS;
            return if observed.deletion_attempts < patience {
                delete()
            } else {
                Step::LetGo(Farewell::InUse(why.clone()))
            };
        }
        (_, EtcdKeys::Unusable { message, .. }) if waited < ETCD_ANSWERS => {
            return Step::Wait(format!("access to etcd, to delete the keys: {message}"));
        }
        (_, EtcdKeys::Unusable { message, .. }) => message.clone(),
        (Call::Done(_, Err(KeysLeft::Failed(why))), _) => why.clone(),
        (Call::Idle | Call::Done(..), _) => return delete(),
    };
    let tried = observed.deletion_attempts >= ATTEMPTS || matches!(observed.etcd, EtcdKeys::Unusable { .. });
    if waited >= ETCD_ANSWERS && tried {
        return Step::LetGo(Farewell::Left(why));
    }
    delete()
}

/// Deletes the claims of the masters, whose log is gone. As long as it is not, they stay as well: a snapshot in one of
/// them may be all that is left of the beginning of the log.
fn delete_claims(observed: &Observation) -> Step {
    let old = observed.claims.iter().filter(|claim| !claim.deleted);
    let claims: Vec<OldClaim> =
        old.map(|claim| OldClaim { name: claim.name.clone(), uid: claim.uid.clone() }).collect();
    match claims.is_empty() {
        true => Step::LetGo(Farewell::Deleted),
        false => Step::Do(Act::DeleteClaims { claims }),
    }
}

/// Returns a master that may still run. The cache of pods may be behind, so the StatefulSet's controller has to confirm
/// that there is none for the generation without replicas.
fn running(observed: &Observation) -> Option<String> {
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

/// Returns the leader lease in seconds, which serves as a number of attempts: they are at least one second apart.
fn lease_seconds(spec: &MasterClusterSpec) -> u32 {
    let ttl = spec.failover.lease_ttl.parse().ok();
    ttl.and_then(|ttl| u32::try_from(ttl.as_secs()).ok()).unwrap_or(MAX_LEASE_SECONDS).min(MAX_LEASE_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{MasterClusterStatus, OplogStatus};
    use crate::cluster::etcd_health::EtcdHealth;
    use crate::cluster::view::ClusterView;
    use crate::operator::observation::{ClaimFacts, StatefulSetFacts};
    use k8s_openapi::jiff::Timestamp;
    use std::sync::Arc;

    fn spec() -> MasterClusterSpec {
        let text = r#"{"etcd": {"endpoints": ["http://e:1"]}, "deletionPolicy": "Delete", "failover": {"leaseTTL": "2s"}}"#;
        serde_json::from_str(text).unwrap()
    }

    /// A cluster whose masters are gone, deleted a moment ago.
    fn observed() -> Observation {
        let log_id = Some("abc".to_owned());
        Observation {
            now: Timestamp::UNIX_EPOCH,
            generation: Some(1),
            deleted_at: Some(Timestamp::UNIX_EPOCH),
            finalizer: true,
            status: MasterClusterStatus {
                oplog: Some(OplogStatus { durable_prefix: Some(7), log_id }),
                ..MasterClusterStatus::default()
            },
            etcd: EtcdKeys::Current(Arc::new(ClusterView::default())),
            endpoints_unverified: false,
            etcd_health: EtcdHealth::default(),
            stateful_set: Some(StatefulSetFacts { existing: Some(0), ..StatefulSetFacts::default() }),
            pods: Vec::new(),
            claims: Vec::new(),
            switchover: Call::Idle,
            snapshot_request: None,
            snapshot: Call::Idle,
            promotion: None,
            deletion: Call::Idle,
            deletion_attempts: 0,
        }
    }

    fn next(observed: &Observation) -> Step {
        step(&spec(), observed, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_log_of_the_status_is_deleted_when_the_controller_says_that_no_master_is_left() {
        let mut seen = observed();
        assert_eq!(next(&seen), Step::Do(Act::DeleteKeys { log: Some("abc".to_owned()) }));
        // No pod in the cache, and the controller has not confirmed yet that there is none.
        for existing in [None, Some(1)] {
            seen.stateful_set = Some(StatefulSetFacts { existing, ..StatefulSetFacts::default() });
            assert!(matches!(next(&seen), Step::Wait(_)), "{existing:?}");
        }
    }

    #[test]
    fn claims_go_after_the_keys_and_only_with_them() {
        let mut seen = observed();
        let claim = |name: &str, deleted| ClaimFacts {
            name: name.to_owned(),
            uid: "u".to_owned(),
            deleted,
            ..ClaimFacts::default()
        };
        seen.claims = vec![claim("data-a-0", false), claim("data-a-1", true)];
        assert!(matches!(next(&seen), Step::Do(Act::DeleteKeys { .. })));
        seen.deletion = Call::Done(String::new(), Ok(()));
        let claims = vec![OldClaim { name: "data-a-0".to_owned(), uid: "u".to_owned() }];
        assert_eq!(next(&seen), Step::Do(Act::DeleteClaims { claims }));
        seen.claims[0].deleted = true;
        assert_eq!(next(&seen), Step::LetGo(Farewell::Deleted));
        // The log stays, and so do the snapshots of it.
        seen.claims[0].deleted = false;
        seen.deletion = Call::Done(String::new(), Err(KeysLeft::OtherLog("another".to_owned())));
        assert_eq!(next(&seen), Step::LetGo(Farewell::OtherLog("another".to_owned())));
    }

    #[test]
    fn a_stranger_that_leads_keeps_its_keys() {
        let mut seen = observed();
        let why = "a-0 at 10.9.9.9:50051 leads with them".to_owned();
        seen.deletion = Call::Done(String::new(), Err(KeysLeft::InUse(why.clone())));
        // A master of ours that was killed holds the election key until its lease ends.
        seen.deletion_attempts = 4;
        assert!(matches!(next(&seen), Step::Do(Act::DeleteKeys { .. })));
        seen.deletion_attempts = 7;
        assert_eq!(next(&seen), Step::LetGo(Farewell::InUse(why)));
        // Another log will not become ours.
        seen.deletion = Call::Done(String::new(), Err(KeysLeft::OtherLog("another".to_owned())));
        seen.deletion_attempts = 1;
        assert_eq!(next(&seen), Step::LetGo(Farewell::OtherLog("another".to_owned())));
    }
}
