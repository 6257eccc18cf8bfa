//! Whether the etcd that the endpoints lead to is the one that the cluster's log is in.
//!
//! With other endpoints in the spec, masters that restart would found a second log in the other etcd while those that run
//! go on with the first one: two primaries, and clients that trust both. So the operator remembers what etcd calls itself
//! and leaves everything as it is when another one answers.

use super::observed::{EtcdSight, Observed};
use super::view::View;
use crate::api::MasterClusterStatus;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{EtcdStatus, OplogStatus};
    use crate::operator::view::StoreId;
    use crate::replication::batch::LogId;

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
}
