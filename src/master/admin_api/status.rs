//! How a master stands: what its status says, what members write to etcd.

use serde::{Deserialize, Serialize};

use crate::master::peer::Role;
use crate::replication::history::History;
use crate::replication::node::DigestAt;

/// How a master stands. There are no secrets in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The name of the member.
    pub name: String,
    /// The process: another one after every start.
    pub boot_id: String,
    /// The cluster that it belongs to.
    pub cluster_id: String,
    /// The version of the program.
    pub version: String,
    /// Its role.
    pub role: Role,
    /// What it is doing, in a word or two: `serving`, `following`, `catching up`, ...
    pub phase: String,
    /// What it waits for, if it waits.
    pub waits_for: Option<String>,
    /// Whether it serves, or could take over at once.
    pub ready: bool,
    /// Why it could not.
    pub why_not_ready: Option<String>,
    /// The term that it knows of.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<Leader>,
    /// The last record that it has applied.
    pub applied: u64,
    /// The last record that it knows to be durable.
    pub durable_prefix: u64,
    /// The records between the two; `None` if this master has not heard lately where the log ends.
    pub lag: Option<u64>,
    /// Whether it has applied everything that it knows to be durable.
    pub caught_up: bool,
    /// The digest of its state, in hexadecimal digits.
    pub digest: String,
    /// For how long it neither evicts nor removes what a primary of an earlier term may have promised to readers (R6).
    pub hold_ms_left: u64,
    /// How long it may serve without hearing from etcd.
    pub lease_ms_left: u64,
    /// Bytes of records that wait for etcd.
    pub queue_bytes: u64,
    /// All members that it knows of, itself included.
    pub members: Vec<Member>,
    /// The last time that it took over, if it has.
    pub promotion: Option<PromotionReport>,
    /// Why etcd refuses to write the log. Reads are answered, changes are refused.
    pub log_refused: Option<String>,
    /// The last batch that this master knows to be durable.
    pub history: Option<History>,
    /// The first digest of the primary in the present term that contradicts what the log says.
    pub digest_at: Option<DigestAt>,
    /// What is or was wrong, with counts.
    pub faults: Vec<Fault>,
}

/// Who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leader {
    /// The name of the member.
    pub name: String,
    /// Where Mooncake clients reach it.
    pub address: String,
}

/// What the leader writes to the election key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Election {
    /// The name of the member.
    pub name: String,
    /// Its process.
    pub boot_id: String,
    /// Where Mooncake clients reach it.
    pub rpc_address: String,
    /// Where other masters reach it.
    pub peer_address: String,
    /// Where its HTTP port is.
    pub http_address: String,
    /// Where its admin API is.
    pub admin_address: String,
}

/// What a member says of itself, in etcd and in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its process.
    pub boot_id: String,
    /// Its role.
    pub role: Role,
    /// Where Mooncake clients reach it while it is primary.
    pub rpc_address: String,
    /// Where its HTTP port is.
    pub http_address: String,
    /// Where other masters reach it.
    pub peer_address: String,
    /// Where its admin API is.
    pub admin_address: String,
    /// The last record that it had applied when it wrote this.
    pub applied: u64,
    /// The formats of records that it reads.
    pub formats: Vec<u32>,
    /// The version of its program.
    pub version: String,
}

/// What a promotion found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromotionReport {
    /// The term that began with it.
    pub term: u64,
    /// Who took over.
    pub primary: String,
    /// Why: `first start`, `the primary died`, `the lease ran out`, `switchover`.
    pub reason: String,
    /// When, in milliseconds since 1970 by the wall clock of the new primary.
    pub at_ms: u64,
    /// From knowing that there is no primary to the open port.
    pub total_ms: u64,
    /// From the won election to the open port.
    pub after_election_ms: u64,
    /// Objects that there were.
    pub objects: u64,
    /// Objects that were removed because their memory is gone.
    pub objects_removed: u64,
    /// Bytes of those.
    pub bytes_removed: u64,
    /// Clients that have to be heard from again.
    pub inherited_clients: u64,
    /// For how long from its first record on it held what the old primary may have promised to readers (R6).
    pub hold_ms: u64,
}

/// Something that is or was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fault {
    /// What, in a few words.
    pub what: String,
    /// How often.
    pub count: u64,
    /// The last one: where, and what came of it.
    pub last: String,
}
