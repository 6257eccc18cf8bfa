//! What masters, operator and command line share about a cluster: its keys in etcd, the values that masters write
//! there, and the types of the admin API. Nothing here does any input or output.

pub mod digests;
pub mod etcd_health;
pub mod keys;
pub mod log_end;
pub mod log_floor;
pub mod member;
pub mod promotion;
pub mod recovered;
pub mod role;
pub mod snapshot;
pub mod status;
pub mod switchover;
pub mod view;
