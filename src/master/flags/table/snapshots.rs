//! Flags about snapshots. Those of the reference do what they say where there is a counterpart here.

use super::Group::Replication;
use super::Kind::{Bool, Duration, Text, Uint32, Uint64};
use super::{Flag, inert, used};

const FILES: &str = "snapshots are files in the folder snapshots of --data_dir; --snapshot_store names the storage for copies";
const CATALOG: &str = "snapshots are found by the names of their files below --data_dir, without a catalog";

pub(super) const FLAGS: &[Flag] = &[
    used(
        "snapshot_interval",
        Duration,
        "10m",
        Replication,
        "With --data_dir: time between two snapshots that this master takes while it is a standby, or the primary without a \
         standby that is caught up, if anything has changed; 0 takes none except on request (moonkeeper snapshot create)",
    ),
    used(
        "snapshots_kept",
        Uint32,
        "2",
        Replication,
        "With --data_dir: number of snapshots that are kept; older ones are removed",
    ),
    used(
        "snapshot_store",
        Text,
        "",
        Replication,
        "Directory that all masters have mounted: snapshots are copied there, and a master that has none of its own \
         starts from the newest of them; needs --data_dir; none if empty",
    ),
    used(
        "snapshot_copies",
        Uint32,
        "2",
        Replication,
        "Number of members that have to hold a snapshot in a durable --data_dir before the log below it is deleted; 1 for a \
         cluster of one master",
    ),
    used(
        "enable_snapshot",
        Bool,
        "false",
        Replication,
        "Implied by --data_dir, which it needs; if it is set to false, snapshots are taken on request only, as with \
         --snapshot_interval=0",
    ),
    used(
        "enable_snapshot_restore",
        Bool,
        "false",
        Replication,
        "Implied by --data_dir, which it needs: a master starts from its newest good snapshot and reads the log from there",
    ),
    used(
        "snapshot_interval_seconds",
        Uint64,
        "600",
        Replication,
        "Read when --snapshot_interval is not set: the same in seconds",
    ),
    used(
        "snapshot_retention_count",
        Uint32,
        "2",
        Replication,
        "Read when --snapshots_kept is not set: the same",
    ),
    inert("snapshot_backup_dir", Text, "", FILES),
    inert("snapshot_catalog_backend_connstring", Text, "", CATALOG),
    inert("snapshot_catalog_backend_type", Text, "", CATALOG),
    inert("snapshot_catalog_store_connstring", Text, "", CATALOG),
    inert("snapshot_catalog_store_type", Text, "", CATALOG),
    inert(
        "snapshot_child_timeout_seconds",
        Uint64,
        "300",
        "snapshots are written by threads of the master, not by a child process",
    ),
    inert("snapshot_object_store_type", Text, "", FILES),
    inert("snapshot_payload_backend_type", Text, "", FILES),
    inert("snapshot_payload_store_type", Text, "", FILES),
];
