//! `MasterCluster`, the resource that a user writes and the operator reconciles: its fields, their defaults, the rules
//! that the API server checks, and what the operator says in its status.
//!
//! Nothing here talks to a cluster. What a stored object says is never a reason to fail while reading it: one object
//! that cannot be decoded would stop the watch of all of them, so text stays text until a caller parses it.

pub mod crd;
pub mod duration;
pub mod names;
pub mod pod_template;
pub mod quantity;
mod schema;
pub mod snapshots;
pub mod spec;
pub mod status;

pub use crd::crd;
pub use duration::GoDuration;
pub use pod_template::PodTemplate;
pub use snapshots::{Ephemeral, SnapshotStore, Snapshots, VolumeClaim};
pub use spec::{
    Admin, DeletionPolicy, Durability, Etcd, Expired, Failover, Image, MasterCluster, MasterClusterSpec,
    MetadataServer, NetworkPolicy, Promotion, PullPolicy, Replication, Resources, Scheduling, Spread, Store,
    Switchover,
};
pub use status::{
    Cleaned, EtcdStatus, FailoverReport, LeaderStatus, MasterClusterStatus, MemberStatus, OplogStatus, Phase,
    SnapshotEntry, SnapshotReport, SnapshotResult, SwitchoverReport, SwitchoverResult,
};
