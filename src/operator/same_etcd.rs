//! Checks that the endpoints lead to the etcd that has the cluster's log.
//!
//! With other endpoints in the spec, masters that restart would create a second log in the other etcd while running
//! ones continue with the first one: two primaries, and clients of both. So the operator records the cluster id of etcd
//! in the status, and changes nothing when an etcd with another id answers.
//!
//! Two etcds can have the same cluster id: it is a hash of the members' addresses and a token that has a default, so
//! single members that were started without flags all have the same one. The log distinguishes them.
//!
//! An etcd that does not answer yet may turn out to be another one, too. Until it has answered, new pods are made with
//! the endpoints that have led to the log.

use super::observation::{EtcdKeys, Observation};
use crate::api::MasterClusterStatus;
use crate::cluster::log_end::LogId;
use crate::cluster::view::ClusterView;

/// Returns why the keys are not those of this cluster, if another etcd has answered.
#[must_use]
pub fn other_etcd(observed: &Observation) -> Option<EtcdKeys> {
    let view = observed.etcd.view()?;
    let (known, found) = differing(&observed.status, view)?;
    let message = format!(
        "spec.etcd.endpoints lead to another etcd ({found}) than the one with the log of this cluster ({known}): set \
         them back, or delete this resource and create it again to start with an empty index"
    );
    Some(EtcdKeys::Unusable { reason: "OtherEtcd", message })
}

/// Returns the ids of the known etcd and of the one that has answered, if they are not the same. An etcd that was
/// restored from a backup has another id and the same log, and counts as the same.
fn differing(status: &MasterClusterStatus, view: &ClusterView) -> Option<(String, String)> {
    let known = status.etcd.as_ref()?.cluster_id.clone()?;
    let found = view.store?.to_string();
    let log = status.oplog.as_ref().and_then(|oplog| oplog.log_id.clone());
    let same_log = log.is_some() && log == view.log.map(|log| log.to_string());
    (known != found && !same_log).then_some((known, found))
}

/// Returns whether the endpoints of the spec have not led to the known etcd yet, so that no pod may be made with them.
#[must_use]
pub fn is_etcd_in_doubt(endpoints: &[String], observed: &Observation) -> bool {
    let known = observed.status.etcd.as_ref().filter(|etcd| etcd.cluster_id.is_some());
    let differ = || known.is_some_and(|known| known.endpoints != endpoints);
    observed.endpoints_unverified || (observed.etcd.view().is_none() && differ())
}

/// Returns whether the end of the log has to be read, from an etcd with the known id: the view has no log or another
/// one, and no master of this cluster leads there. The view may be older than the log.
#[must_use]
pub fn is_log_in_doubt(observed: &Observation) -> bool {
    let (Some(view), Some(log)) = (observed.etcd.view(), known_log(observed)) else { return false };
    let leads = view
        .leader
        .as_ref()
        .is_some_and(|leader| observed.pod_of(&leader.value.name, &leader.value.addresses.rpc).is_some());
    // The deletion of keys checks the log in its own transaction.
    observed.deleted_at.is_none() && !leads && view.log.map(|seen| seen.to_string()).as_ref() != Some(log)
}

/// Returns why the keys are not those of this cluster, if etcd has the log `found` instead of this cluster's.
#[must_use]
pub fn other_log(observed: &Observation, found: Option<LogId>) -> Option<EtcdKeys> {
    let known = known_log(observed)?;
    let found = found.map(|log| log.to_string());
    if found.as_ref() == Some(known) {
        return None;
    }
    let found = found.map_or_else(|| "no log".to_owned(), |log| format!("the log {log}"));
    let message = format!(
        "etcd has {found} and not the log of this cluster ({known}): either spec.etcd.endpoints lead to another etcd, or \
         the keys of the log were deleted. Set the endpoints back or restore the keys, and the masters continue by \
         themselves; or delete this resource and create it again to start with an empty index"
    );
    Some(EtcdKeys::Unusable { reason: "OtherEtcd", message })
}

/// Returns the log of this cluster, if the cluster id of its etcd is known, too.
fn known_log(observed: &Observation) -> Option<&String> {
    observed.status.etcd.as_ref()?.cluster_id.as_ref()?;
    observed.status.oplog.as_ref()?.log_id.as_ref()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{EtcdStatus, OplogStatus};
    use crate::cluster::etcd_health::EtcdHealth;
    use crate::cluster::member::ElectionValue;
    use crate::cluster::view::{Leader, StoreId};
    use crate::operator::observation::{Call, PodFacts};
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn another_etcd_is_told_by_its_id_unless_it_has_the_log() {
        let known = |store: Option<u64>, log: Option<u64>| MasterClusterStatus {
            etcd: store
                .map(|id| EtcdStatus { cluster_id: Some(StoreId(id).to_string()), ..EtcdStatus::default() }),
            oplog: Some(OplogStatus { log_id: log.map(|log| LogId(log).to_string()), durable_prefix: None }),
            ..MasterClusterStatus::default()
        };
        let found = |store: u64, log: Option<u64>| ClusterView {
            store: Some(StoreId(store)),
            log: log.map(LogId),
            ..ClusterView::default()
        };
        let other = |status: &MasterClusterStatus, view: &ClusterView| differing(status, view).is_some();
        assert!(!other(&known(None, None), &found(7, None)));
        assert!(!other(&known(Some(7), Some(1)), &found(7, Some(1))));
        assert!(!other(&known(Some(7), Some(1)), &found(7, Some(2))));
        assert!(other(&known(Some(7), Some(1)), &found(8, None)));
        assert!(other(&known(Some(7), Some(1)), &found(8, Some(2))));
        assert!(other(&known(Some(7), None), &found(8, None)));
        // Restored from a backup.
        assert!(!other(&known(Some(7), Some(1)), &found(8, Some(1))));
    }

    #[test]
    fn an_etcd_of_the_same_id_without_the_log_is_another_one() {
        let election = |name: &str| Leader {
            value: ElectionValue { name: name.to_owned(), ..ElectionValue::default() },
            ..Leader::default()
        };
        let observed = |log: Option<u64>, leader: Option<&str>| Observation {
            now: Timestamp::UNIX_EPOCH,
            generation: Some(1),
            deleted_at: None,
            finalizer: false,
            status: MasterClusterStatus {
                etcd: Some(EtcdStatus { cluster_id: Some(StoreId(7).to_string()), ..EtcdStatus::default() }),
                oplog: Some(OplogStatus { log_id: Some(LogId(1).to_string()), durable_prefix: None }),
                ..MasterClusterStatus::default()
            },
            etcd: EtcdKeys::Current(Arc::new(ClusterView {
                store: Some(StoreId(7)),
                log: log.map(LogId),
                leader: leader.map(election),
                ..ClusterView::default()
            })),
            endpoints_unverified: false,
            etcd_health: EtcdHealth::default(),
            stateful_set: None,
            pods: vec![PodFacts { name: "demo-0".to_owned(), ..PodFacts::default() }],
            claims: Vec::new(),
            switchover: Call::Idle,
            snapshot_request: None,
            snapshot: Call::Idle,
            promotion: None,
            deletion: Call::Idle,
            deletion_attempts: 0,
        };
        // An empty one, and one in which masters of another origin lead.
        assert!(is_log_in_doubt(&observed(None, None)));
        assert!(is_log_in_doubt(&observed(Some(2), Some("stranger"))));
        assert!(!is_log_in_doubt(&observed(Some(1), None)));
        // The log may be younger than what was read of it; a master of this cluster would not lead elsewhere.
        assert!(!is_log_in_doubt(&observed(None, Some("demo-0"))));
        let mut seen = observed(None, None);
        assert!(other_log(&seen, Some(LogId(1))).is_none());
        for found in [None, Some(LogId(2))] {
            let Some(EtcdKeys::Unusable { reason, message }) = other_log(&seen, found) else {
                panic!("{found:?}")
            };
            assert_eq!(reason, "OtherEtcd");
            // Both causes.
            assert!(message.contains("endpoints lead to") && message.contains("were deleted"), "{message}");
        }
        seen.deleted_at = Some(Timestamp::UNIX_EPOCH);
        assert!(!is_log_in_doubt(&seen));
        // Before there is a log there is nothing to compare.
        seen = observed(None, None);
        seen.status.oplog = None;
        assert!(!is_log_in_doubt(&seen) && other_log(&seen, None).is_none());
    }
}
