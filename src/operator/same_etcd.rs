//! Whether the etcd that the endpoints lead to is the one that the cluster's log is in.
//!
//! With other endpoints in the spec, masters that restart would found a second log in the other etcd while those that run
//! go on with the first one: two primaries, and clients that trust both. So the operator remembers what etcd calls itself
//! and leaves everything as it is when another one answers.
//!
//! Two etcds can call themselves the same: the id is made of the members' addresses and a word that has a default, so lone
//! members that were started without flags all have one. The log tells them apart.

use super::observed::{EtcdSight, Observed};
use super::view::View;
use crate::api::MasterClusterStatus;
use crate::replication::batch::LogId;

/// Why what was read is not about this cluster, if another etcd has answered.
#[must_use]
pub fn other_etcd(observed: &Observed) -> Option<EtcdSight> {
    let view = observed.etcd.view()?;
    let (known, found) = differing(&observed.status, view)?;
    let message = format!(
        "spec.etcd.endpoints lead to another etcd ({found}) than the one with the log of this cluster ({known}): name \
         that one again, or delete this resource and make it anew to begin with an empty index"
    );
    Some(EtcdSight::Unusable { reason: "OtherEtcd", message })
}

/// The etcd that is known and the one that has answered, if they are not the same. One that was restored from a backup
/// has another id and the same log, and is the same for us.
fn differing(status: &MasterClusterStatus, view: &View) -> Option<(String, String)> {
    let known = status.etcd.as_ref()?.cluster_id.clone()?;
    let found = view.store?.to_string();
    let log = status.oplog.as_ref().and_then(|oplog| oplog.log_id.clone());
    let same_log = log.is_some() && log == view.log.map(|log| log.to_string());
    (known != found && !same_log).then_some((known, found))
}

/// Whether the etcd that calls itself as the known one has to be asked for the log: none was seen there, or another one,
/// and no master of this cluster leads there. What was seen may be older than the log.
#[must_use]
pub fn is_log_in_doubt(observed: &Observed) -> bool {
    let (Some(view), Some(log)) = (observed.etcd.view(), known_log(observed)) else { return false };
    let leads = view
        .leader
        .as_ref()
        .is_some_and(|leader| observed.pod_of(&leader.value.name, &leader.value.addresses.rpc).is_some());
    // Keys are deleted by a transaction that looks at the log itself.
    observed.deleted_at.is_none() && !leads && view.log.map(|seen| seen.to_string()).as_ref() != Some(log)
}

/// Why what was read is not about this cluster, if etcd has `found` and not the log of this cluster.
#[must_use]
pub fn other_log(observed: &Observed, found: Option<LogId>) -> Option<EtcdSight> {
    let known = known_log(observed)?;
    let found = found.map(|log| log.to_string());
    if found.as_ref() == Some(known) {
        return None;
    }
    let found = found.map_or_else(|| "none".to_owned(), |log| format!("the log {log}"));
    let message = format!(
        "spec.etcd.endpoints lead to an etcd with {found} and without the log of this cluster ({known}): name the one with \
         that log again, or delete this resource and make it anew to begin with an empty index"
    );
    Some(EtcdSight::Unusable { reason: "OtherEtcd", message })
}

/// The log of this cluster, once the etcd that it is in is known, too.
fn known_log(observed: &Observed) -> Option<&String> {
    observed.status.etcd.as_ref()?.cluster_id.as_ref()?;
    observed.status.oplog.as_ref()?.log_id.as_ref()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::{EtcdStatus, OplogStatus};
    use crate::operator::observed::{Call, PodFacts};
    use crate::operator::view::{Leader, StoreId};
    use crate::replication::node::ElectionValue;
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn another_etcd_is_told_by_its_id_unless_it_has_the_log() {
        let known = |store: Option<u64>, log: Option<u64>| MasterClusterStatus {
            etcd: store.map(|id| EtcdStatus { cluster_id: Some(StoreId(id).to_string()) }),
            oplog: Some(OplogStatus { log_id: log.map(|log| LogId(log).to_string()), durable_prefix: None }),
            ..MasterClusterStatus::default()
        };
        let found = |store: u64, log: Option<u64>| View {
            store: Some(StoreId(store)),
            log: log.map(LogId),
            ..View::default()
        };
        let other = |status: &MasterClusterStatus, view: &View| differing(status, view).is_some();
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
        let observed = |log: Option<u64>, leader: Option<&str>| Observed {
            now: Timestamp::UNIX_EPOCH,
            generation: Some(1),
            deleted_at: None,
            finalizer: false,
            status: MasterClusterStatus {
                etcd: Some(EtcdStatus { cluster_id: Some(StoreId(7).to_string()) }),
                oplog: Some(OplogStatus { log_id: Some(LogId(1).to_string()), durable_prefix: None }),
                ..MasterClusterStatus::default()
            },
            etcd: EtcdSight::Current(Arc::new(View {
                store: Some(StoreId(7)),
                log: log.map(LogId),
                leader: leader.map(election),
                ..View::default()
            })),
            stateful_set: None,
            pods: vec![PodFacts { name: "demo-0".to_owned(), ..PodFacts::default() }],
            switchover: Call::Idle,
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
            assert!(matches!(other_log(&seen, found), Some(EtcdSight::Unusable { reason: "OtherEtcd", .. })));
        }
        seen.deleted_at = Some(Timestamp::UNIX_EPOCH);
        assert!(!is_log_in_doubt(&seen));
        // Before there is a log there is nothing to compare.
        seen = observed(None, None);
        seen.status.oplog = None;
        assert!(!is_log_in_doubt(&seen) && other_log(&seen, None).is_none());
    }
}
