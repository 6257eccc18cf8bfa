//! Flags about objects, eviction, clients and tasks.

use super::Group::{Objects, Tasks};
use super::Kind::{Bool, Double, Duration, Int64, Text, Uint32, Uint64};
use super::{Flag, used};

pub(super) const FLAGS: &[Flag] = &[
    used(
        "default_kv_lease_ttl",
        Duration,
        "10000",
        Objects,
        "How long a read protects an object from removal and eviction",
    ),
    used("default_kv_soft_pin_ttl", Duration, "1800000", Objects, "Length of a soft pin that names none"),
    used("max_kv_soft_pin_ttl", Duration, "86400000", Objects, "Longest soft pin that a client may ask for"),
    used(
        "allow_evict_soft_pinned_objects",
        Bool,
        "true",
        Objects,
        "Evict soft-pinned objects as well when nothing else is left to evict",
    ),
    used(
        "eviction_high_watermark_ratio",
        Double,
        "0.9",
        Objects,
        "Evict when more than this share of the memory is in use (0 to 1)",
    ),
    used("eviction_ratio", Double, "0.05", Objects, "Share of the objects to evict at a time (0 to 1)"),
    used(
        "client_ttl",
        Int64,
        "10",
        Objects,
        "Seconds without a ping after which a client is gone and its segments are unmounted",
    ),
    used(
        "put_start_discard_timeout_sec",
        Uint64,
        "30",
        Objects,
        "Seconds after which an unfinished put may be replaced by another one",
    ),
    used(
        "put_start_release_timeout_sec",
        Uint64,
        "600",
        Objects,
        "Seconds after which the memory of an unfinished put is reallocated",
    ),
    used(
        "allocation_strategy",
        Text,
        "random",
        Objects,
        "How to choose segments: random, free_ratio_first or local_first",
    ),
    used(
        "memory_allocator",
        Text,
        "offset",
        Objects,
        "offset or cachelib are both accepted; there is one allocator, without cachelib's size limit",
    ),
    used("quota_bytes", Uint64, "0", Objects, "Disk quota that clients receive; 0 lets them choose"),
    used("enable_disk_eviction", Bool, "true", Objects, "Whether clients may evict from disk; sent to them"),
    used("max_total_pending_tasks", Uint32, "10000", Tasks, "Most tasks that wait for a client"),
    used("max_total_processing_tasks", Uint32, "10000", Tasks, "Most tasks that clients work on"),
    used("max_total_finished_tasks", Uint32, "10000", Tasks, "Most finished tasks that can still be queried"),
    used(
        "pending_task_timeout_sec",
        Uint64,
        "300",
        Tasks,
        "Seconds a task may wait for a client; 0 means for ever",
    ),
    used(
        "processing_task_timeout_sec",
        Uint64,
        "300",
        Tasks,
        "Seconds a client may work on a task; 0 means for ever",
    ),
    used("max_retry_attempts", Uint32, "10", Tasks, "How often a client retries a task; sent to clients"),
];
