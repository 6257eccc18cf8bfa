//! The reference's metric names for RPCs, and which of our RPCs each of them counts.
//!
//! As observed on the reference: upserts count as puts, dynamic copies as copies, graceful unmounts as unmounts, and
//! every key of a BatchRemove as one Remove.

use super::rpc::{RpcCounts, RpcMetrics};
use crate::replication::node::status::Activity;

/// A family `master_<name>_{requests,failures}_total` and the RPCs behind it.
pub(super) struct Single {
    /// The middle of the metric's name.
    pub name: &'static str,
    /// The RPCs whose calls it counts.
    pub rpcs: &'static [&'static str],
}

/// A batch family, which counts partial successes and items as well.
pub(super) struct Batch {
    /// The middle of the metric's name.
    pub name: &'static str,
    /// The RPCs whose calls it counts.
    pub rpcs: &'static [&'static str],
}

const fn single(name: &'static str, rpcs: &'static [&'static str]) -> Single {
    Single { name, rpcs }
}

const fn batch(name: &'static str, rpcs: &'static [&'static str]) -> Batch {
    Batch { name, rpcs }
}

/// The single families, in the order in which the reference exports them.
pub(super) const SINGLES: &[Single] = &[
    single("exist_key", &["ExistKey"]),
    single("put_start", &["PutStart", "UpsertStart"]),
    single("put_end", &["PutEnd", "UpsertEnd"]),
    single("put_revoke", &["PutRevoke", "UpsertRevoke"]),
    single("get_replica_list", &["GetReplicaList"]),
    single("get_replica_list_by_regex", &["GetReplicaListByRegex"]),
    single("remove", &["Remove"]),
    single("remove_by_regex", &["RemoveByRegex"]),
    single("remove_all", &["RemoveAll"]),
    single("mount_segment", &["MountSegment"]),
    single("unmount_segment", &["UnmountSegment", "GracefulUnmountSegment"]),
    single("remount_segment", &["ReMountSegment"]),
    single("ping", &["Ping"]),
    single("copy_start", &["CopyStart", "DynamicReplicaCopyStart"]),
    single("copy_end", &["CopyEnd", "DynamicReplicaCopyEnd"]),
    single("copy_revoke", &["CopyRevoke", "DynamicReplicaCopyRevoke"]),
    single("move_start", &["MoveStart"]),
    single("move_end", &["MoveEnd"]),
    single("move_revoke", &["MoveRevoke"]),
    single("evict_disk_replica", &["EvictDiskReplica"]),
    single("create_copy_task", &["CreateCopyTask"]),
    single("create_move_task", &["CreateMoveTask"]),
    single("update_task", &["MarkTaskToComplete"]),
    single("query_task", &["QueryTask"]),
    single("fetch_tasks", &["FetchTasks"]),
];

/// The batch families, in the order in which the reference exports them.
pub(super) const BATCHES: &[Batch] = &[
    batch("batch_exist_key", &["BatchExistKey"]),
    batch("batch_query_ip", &["BatchQueryIp"]),
    batch("batch_replica_clear", &["BatchReplicaClear"]),
    batch("batch_get_replica_list", &["BatchGetReplicaList"]),
    batch("batch_put_start", &["BatchPutStart", "BatchUpsertStart"]),
    batch("batch_put_end", &["BatchPutEnd", "BatchUpsertEnd"]),
    batch("batch_put_revoke", &["BatchPutRevoke", "BatchUpsertRevoke"]),
];

impl Single {
    /// Returns the sum of the RPCs that this family counts.
    pub(super) fn counts(&self, metrics: &RpcMetrics) -> RpcCounts {
        let mut counts = sum(self.rpcs, metrics);
        if self.name == "remove" {
            let batches = metrics.counts_of("BatchRemove");
            counts.requests += batches.items;
            counts.failures += batches.failed_items;
        }
        counts
    }
}

impl Batch {
    /// Returns the sum of the RPCs that this family counts.
    pub(super) fn counts(&self, metrics: &RpcMetrics) -> RpcCounts {
        sum(self.rpcs, metrics)
    }
}

/// Returns what the family with this name counts; zeros if there is none.
pub(super) fn counts(name: &str, metrics: &RpcMetrics) -> RpcCounts {
    let single = SINGLES.iter().find(|family| family.name == name).map(|family| family.counts(metrics));
    let batch = || BATCHES.iter().find(|family| family.name == name).map(|family| family.counts(metrics));
    single.or_else(batch).unwrap_or_default()
}

fn sum(rpcs: &[&str], metrics: &RpcMetrics) -> RpcCounts {
    rpcs.iter().map(|name| metrics.counts_of(name)).fold(RpcCounts::default(), |sum, counts| sum + counts)
}

/// Gauges of features that this master does not have, as the reference exports them with the features off.
pub(super) const ABSENT_GAUGES: &[(&str, &str)] = &[
    ("master_nof_allocated_bytes", "Bytes given out on NVMe-over-Fabrics segments; none here"),
    ("master_total_nof_capacity_bytes", "Bytes of NVMe-over-Fabrics segments; none here"),
    ("master_allocated_file_size_bytes", "Bytes of replicas in files; none here"),
    ("master_total_file_capacity_bytes", "Bytes for replicas in files; none here"),
    ("file_cache_nums_", "Objects with a replica on a disk; none here"),
    ("master_promotion_in_flight", "Promotions from disk to memory under way; none here"),
    (
        "ha_oplog_pending_entries",
        "Records that wait for one before them; none here, the log is read in order",
    ),
];

/// Returns the reference's number for the state of a standby. A master that serves has none there, and so 0.
pub(super) fn standby_state(activity: Activity) -> u8 {
    match activity {
        Activity::Serving | Activity::HandingOver | Activity::Leaving | Activity::Stopped => 0,
        Activity::CatchingUp => 2,
        Activity::Following => 3,
        Activity::Standing | Activity::Promoting => 6,
    }
}

/// Counters of features that this master does not have.
pub(super) const ABSENT_COUNTERS: &[(&str, &str)] = &[
    ("file_cache_hit_nums_", "Look-ups answered with a replica on a disk; none here"),
    ("file_cache_hit_bytes_total", "Bytes of look-ups answered with a replica on a disk; none here"),
    ("master_promotion_admitted_total", "Promotions that were queued; none here"),
    ("master_promotion_completed_total", "Promotions that succeeded; none here"),
    ("master_promotion_completed_bytes_total", "Bytes that were promoted; none here"),
    ("master_promotion_expired_total", "Promotions that timed out; none here"),
    ("master_promotion_failed_total", "Promotions that failed; none here"),
    ("master_promotion_cancelled_total", "Promotions that lost their object; none here"),
    ("master_promotion_rejected_frequency_total", "Promotions of objects read too seldom; none here"),
    ("master_promotion_rejected_watermark_total", "Promotions refused for lack of memory; none here"),
    ("master_promotion_rejected_cap_total", "Promotions refused for a full queue; none here"),
    ("master_promotion_candidate_recorded_total", "Promotions put off; none here"),
    ("master_promotion_candidate_admitted_total", "Promotions put off and then queued; none here"),
    ("master_promotion_candidate_admission_rejected_total", "Promotions put off again; none here"),
    ("master_promotion_candidate_expired_evaluated_total", "Promotions put off and given up; none here"),
    ("master_promotion_candidate_expired_unevaluated_total", "Promotions put off and forgotten; none here"),
    ("master_promotion_candidate_dropped_limit_total", "Promotions not even put off; none here"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::functions::Function;

    fn rpc(name: &str) -> Function {
        *Function::ALL.iter().find(|rpc| rpc.name() == name).unwrap()
    }

    #[test]
    fn every_rpc_behind_a_family_exists() {
        let all = SINGLES.iter().map(|f| f.rpcs).chain(BATCHES.iter().map(|f| f.rpcs));
        for name in all.flatten() {
            assert_eq!(rpc(name).name(), *name);
        }
    }

    #[test]
    fn upserts_count_as_puts_and_batch_removes_by_item() {
        let metrics = RpcMetrics::default();
        metrics.call(rpc("PutStart"), true);
        metrics.call(rpc("UpsertStart"), false);
        metrics.call(rpc("Remove"), false);
        metrics.batch(rpc("BatchRemove"), 5, 2);
        assert_eq!((counts("put_start", &metrics).requests, counts("put_start", &metrics).failures), (2, 1));
        assert_eq!((counts("remove", &metrics).requests, counts("remove", &metrics).failures), (6, 3));
        assert_eq!(counts("nothing", &metrics), RpcCounts::default());
    }
}
