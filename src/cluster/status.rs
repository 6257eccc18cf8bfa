//! The status of a master, as its admin API returns it.

use serde::{Deserialize, Serialize};

use super::etcd_health::EtcdHealth;
use super::log_end::History;
use super::log_floor::FloorState;
use super::member::{DigestAt, MemberValue};
use super::promotion::PromotionReport;
use super::role::Role;
use super::snapshot::SnapshotStatus;

/// The status of a master. It contains no secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The name of the member.
    pub name: String,
    /// The id of the process, which changes with every start.
    pub boot_id: String,
    /// The cluster that it belongs to.
    pub cluster_id: String,
    pub version: String,
    pub role: Role,
    /// What it is doing, in a word or two: `serving`, `following`, `catching up`, ...
    pub phase: String,
    /// What it waits for, if it waits.
    pub waits_for: Option<String>,
    /// Whether it serves, or could take over at once.
    pub ready: bool,
    /// Why it is not ready.
    pub why_not_ready: Option<String>,
    /// The term that it knows of.
    pub term: u64,
    /// The primary, as far as it knows.
    pub leader: Option<Leader>,
    /// The last record that it has applied.
    pub applied: u64,
    /// The last record that it knows to be durable.
    pub durable_prefix: u64,
    /// The records between the two; `None` if this master has not heard lately where the log ends.
    pub lag: Option<u64>,
    /// Whether it is the primary, or has applied an end of the log that it heard within the last seconds.
    pub caught_up: bool,
    /// The digest of its state, in hexadecimal digits.
    pub digest: String,
    /// For how long it still neither evicts nor removes what a primary of an earlier term may have promised to readers
    /// (R6).
    pub hold_ms_left: u64,
    /// For how long it still gives no bytes to writers, because the log was begun by a recovery (R4).
    pub starts_held_ms_left: u64,
    /// How long it may still serve without an answer from etcd.
    pub lease_ms_left: u64,
    /// Bytes of records that wait to be written to etcd.
    pub queue_bytes: u64,
    /// All members that it knows of, itself included.
    pub members: Vec<Member>,
    /// The last promotion of this process, if there was one.
    pub promotion: Option<PromotionReport>,
    /// Why etcd refuses to write the log. Reads are answered, changes are refused.
    pub log_refused: Option<String>,
    /// etcd's size, quota and alarms; `None` until its members were asked for the first time.
    pub etcd: Option<EtcdHealth>,
    /// The last batch that this master knows to be durable.
    pub history: Option<History>,
    /// The first digest by the primary of the present term that contradicts what the log says.
    pub digest_at: Option<DigestAt>,
    /// Its snapshots; `None` without a data directory.
    pub snapshots: Option<SnapshotStatus>,
    /// The floor of the log, and why it is where it is; `None` of a standby.
    pub oplog: Option<FloorState>,
    /// What is or was wrong, with counts.
    pub faults: Vec<Fault>,
}

/// The primary, as a status names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leader {
    /// The name of the member.
    pub name: String,
    /// Where Mooncake clients reach it.
    pub address: String,
}

/// A member, as a status lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    pub name: String,
    pub boot_id: String,
    pub role: Role,
    /// Where Mooncake clients reach it while it is primary.
    pub rpc_address: String,
    /// Address of its HTTP port.
    pub http_address: String,
    /// Where other masters reach it.
    pub peer_address: String,
    /// Address of its admin API.
    pub admin_address: String,
    /// The last record that it had applied when it wrote this.
    pub applied: u64,
    /// The formats of the log that it can read.
    pub formats: Vec<u32>,
    pub version: String,
}

impl From<&MemberValue> for Member {
    fn from(value: &MemberValue) -> Self {
        Self {
            name: value.name.clone(),
            boot_id: value.boot_id.to_string(),
            role: value.role,
            rpc_address: value.addresses.rpc.clone(),
            http_address: value.addresses.http.clone(),
            peer_address: value.addresses.peer.clone(),
            admin_address: value.addresses.admin.clone(),
            applied: value.applied,
            formats: value.formats.clone(),
            version: value.version.clone(),
        }
    }
}

/// Something that is or was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// What is wrong, in a few words.
    pub what: String,
    pub count: u64,
    /// The last occurrence: where, and its consequence.
    pub last: String,
}
