//! The values of the election key and of the member keys, which masters write about themselves to etcd.

use serde::{Deserialize, Serialize};

use super::log_end::History;
use super::log_floor::{FloorState, LogNeed};
use super::role::Role;
use super::snapshot::{HeldSnapshot, ProvenCopy};

/// The id of a process: a name may come back in another process, a boot id never does. It is text in JSON, because some
/// readers cannot represent numbers of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BootId(pub u64);

impl std::fmt::Display for BootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<BootId> for String {
    fn from(id: BootId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for BootId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

/// The addresses of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// For Mooncake clients, while it leads.
    #[serde(rename = "rpc_address")]
    pub rpc: String,
    /// For browsers and monitoring.
    #[serde(rename = "http_address")]
    pub http: String,
    /// For other masters.
    #[serde(rename = "peer_address")]
    pub peer: String,
    /// The admin API, for administrators and the operator.
    #[serde(rename = "admin_address")]
    pub admin: String,
}

/// Upper bound of [`MemberValue::trouble`]: the operator copies it into conditions and events, whose notes Kubernetes
/// limits to 1024 characters.
pub const MAX_TROUBLE_CHARS: usize = 400;

/// The value of a member key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberValue {
    pub name: String,
    pub boot_id: BootId,
    pub role: Role,
    #[serde(flatten)]
    pub addresses: Addresses,
    /// The last record that it had applied when it wrote this.
    pub applied: u64,
    /// Whether it leads, or could take over at once.
    pub caught_up: bool,
    /// Records that it is behind; `None` if that is unknown.
    #[serde(default)]
    pub lag: Option<u64>,
    /// The last batch that it knows to be durable.
    #[serde(default)]
    pub history: Option<History>,
    /// Whether its state is in doubt, or being rebuilt because it was.
    #[serde(default)]
    pub in_doubt: bool,
    /// Whether its state is being rebuilt.
    #[serde(default)]
    pub rebuilding: bool,
    /// The digest by the primary of the present term that its own, rebuilt from the log, contradicts.
    #[serde(default)]
    pub digest_at: Option<DigestAt>,
    /// Why it can neither follow the log nor stand for election, if that does not pass without a change of the log in
    /// etcd; at most [`MAX_TROUBLE_CHARS`] long.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Snapshots that it can start from, newest first; at most [`MAX_LISTED`](super::snapshot::MAX_LISTED).
    #[serde(default)]
    pub snapshots: Vec<HeldSnapshot>,
    /// Copies of other members in the shared storage that it has read back, at most
    /// [`MAX_PROVEN`](super::snapshot::MAX_PROVEN).
    #[serde(default)]
    pub proven: Vec<ProvenCopy>,
    /// What it still has to read of the log; `None` of a primary, and of a standby that the log cannot help.
    #[serde(default)]
    pub needs: Option<LogNeed>,
    /// The floor of the log; `None` of a standby.
    #[serde(default)]
    pub floor: Option<FloorState>,
    /// For how long, in log time, there have been changes that none of them has; 0 if there are none. `None` without a
    /// data directory, and of an earlier version.
    #[serde(default)]
    pub unsaved_ms: Option<u64>,
    /// Why its last attempt at a snapshot failed; at most [`MAX_TROUBLE_CHARS`] long.
    #[serde(default)]
    pub snapshot_error: Option<String>,
    /// The formats of the log that it can read.
    pub formats: Vec<u32>,
    pub version: String,
}

/// The value of the election key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionValue {
    pub name: String,
    pub boot_id: BootId,
    /// Time to live of its lease, in milliseconds.
    pub lease_ms: u64,
    #[serde(flatten)]
    pub addresses: Addresses,
}

/// The first `Digest` of a term that differs from what the log says, as found by a standby that has rebuilt its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestAt {
    /// The term of the primary that wrote it.
    pub term: u64,
    /// Sequence id of the `Digest` record.
    pub record: u64,
    /// The digest of the state that the log gives, in hexadecimal digits.
    pub digest: String,
}
