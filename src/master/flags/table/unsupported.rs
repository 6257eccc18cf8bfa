//! Flags of the reference that are known so that a command line can stay as it is, but that have no effect here,
//! or of which only the default is accepted.

use super::Kind::{Bool, Double, Int32, Int64, Text, Uint32, Uint64};
use super::{Flag, inert, refused};

const OPLOG: &str =
    "batches take the records that wait, standbys watch the log, and a write is retried until etcd answers";
const TENANTS: &str = "tenants are not part of this version, so there is nothing for it to configure";
const EVENTS: &str = "this master publishes no KV cache events";
const NOF: &str = "this master has no NVMe-over-Fabrics segments";
const OFFLOAD: &str = "this master does not offload objects to local disks";
const PROMOTION: &str = "there are no objects on local disks that could be promoted to memory";
const DYNAMIC: &str = "this master makes no copies of hot objects by itself";
const CXL: &str = "this master has no CXL memory";
const POD: &str = "only the reference's Kubernetes lease backend reads it";
const BUFFERS: &str = "this master moves no object data, so it has no buffers to allocate";

pub(super) const FLAGS: &[Flag] = &[
    inert("oplog_batch_max_entries", Uint32, "1024", OPLOG),
    inert("oplog_poll_interval_ms", Int32, "1000", OPLOG),
    inert("batch_oplog_retry_timeout_sec", Uint32, "180", OPLOG),
    inert("pod_name", Text, "", POD),
    inert("pod_namespace", Text, "", POD),
    refused(
        "enable_multi_tenants",
        Bool,
        "false",
        "this version keeps all tenants in one namespace: it would not separate them from each other",
    ),
    inert("tenant_quota_connector_type", Text, "file", TENANTS),
    inert("tenant_quota_connector_uri", Text, "", TENANTS),
    refused(
        "enable_offload",
        Bool,
        "false",
        "this version keeps objects in memory only: evicted objects would be gone, not on a disk",
    ),
    inert("offload_on_evict", Bool, "false", OFFLOAD),
    inert("offload_force_evict", Bool, "false", OFFLOAD),
    inert("offload_cap_ratio", Double, "0.5", OFFLOAD),
    inert("offloading_queue_limit", Uint64, "50000", OFFLOAD),
    inert("promotion_on_hit", Bool, "false", PROMOTION),
    inert("promotion_admission_threshold", Uint32, "2", PROMOTION),
    inert("promotion_max_per_heartbeat", Uint32, "1", PROMOTION),
    inert("promotion_queue_limit", Uint32, "50000", PROMOTION),
    refused(
        "root_fs_dir",
        Text,
        "",
        "this version keeps no replicas in files: objects would not be in that directory when memory is lost",
    ),
    inert("global_file_segment_size", Int64, "9223372036854775807", "this master keeps no replicas in files"),
    refused(
        "enable_cxl",
        Bool,
        "false",
        "this version has no CXL memory: the capacity you count on would not be there",
    ),
    inert("cxl_path", Text, "/dev/dax0.0", CXL),
    inert("cxl_size", Uint64, "8589934592", CXL),
    inert("dynamic_replication_mode", Text, "off", DYNAMIC),
    inert("dynamic_replication_admission_qps_threshold", Double, "0.8", DYNAMIC),
    inert("dynamic_replication_heat_window_seconds", Uint32, "10", DYNAMIC),
    inert("dynamic_replication_max_memory_replicas", Uint64, "2", DYNAMIC),
    inert("enable_kv_events", Bool, "false", EVENTS),
    inert("kv_events_additional_salt", Text, "", EVENTS),
    inert("kv_events_backend_id", Text, "", EVENTS),
    inert("kv_events_bind_endpoint", Text, "", EVENTS),
    inert("kv_events_block_size", Uint32, "0", EVENTS),
    inert("kv_events_dp_rank", Uint32, "0", EVENTS),
    inert("kv_events_emit_legacy_compat", Bool, "true", EVENTS),
    inert("kv_events_emit_object_key", Bool, "true", EVENTS),
    inert("kv_events_lora_name", Text, "", EVENTS),
    inert("kv_events_model_name", Text, "", EVENTS),
    inert("kv_events_queue_capacity", Uint32, "65536", EVENTS),
    inert("kv_events_tenant_id", Text, "default", EVENTS),
    inert("nof_eviction_high_watermark_ratio", Double, "0.9", NOF),
    inert("nof_eviction_ratio", Double, "0.05", NOF),
    inert("nof_heartbeat_failures_threshold", Uint32, "3", NOF),
    inert("nof_heartbeat_interval_sec", Int64, "10", NOF),
    inert("nof_heartbeat_probe_timeout_ms", Uint32, "1000", NOF),
    inert("mmap_arena_pool_size", Uint64, "8589934592", BUFFERS),
    inert("use_mmap_arena_allocator", Bool, "false", BUFFERS),
];
