//! The peer port: how masters tell a process that died from one that is slow.
//!
//! Every master listens on it from start to exit in every role. The two sides of a connection first prove to each other
//! that they belong to the cluster, by a token that they share or by certificates (see `handshake`). Then the connecting side is told which process is there and with
//! which lease it leads, again whenever that changes, and each second in any case; a standby answers with how far it has
//! applied the log. It is one JSON object per line in each direction, and nothing else: no request, no state. A witness
//! (see `witness`) connects only to say that a process has ended.
//!
//! A standby may conclude that a process is dead from one thing only: it had an open, authenticated connection to that
//! very process under that very lease, the connection broke, and the port then refused twice in a row. Silence, a time-out, a cut
//! network or a stopped process are not that; then the lease has to run out.

mod certificates;
mod credentials;
mod faults;
mod follower;
mod handshake;
mod line;
mod presence;
mod secret;
mod server;
mod slots;
mod token;
mod verifier;
pub mod witness;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::coordination::types::LeaseId;
use crate::engine::types::{SequenceId, Term};
use crate::replication::batch::LogId;

pub use certificates::PeerCertificates;
pub use credentials::{PeerCredentials, PeerCredentialsError};
pub use faults::PeerFaults;
pub use follower::PeerFollower;
pub use handshake::Identity;
pub use secret::ProofKind;
pub use server::{Members, PeerPort};
pub use token::{PeerToken, PeerTokenError};

/// Longest line in either direction; ours have some hundred bytes.
const MAX_LINE: usize = 4 << 10;

/// Least time between two lines that differ only in the durable prefix. Standbys measure their lag by it, and a lag is
/// of interest in seconds.
const GROWTH_PAUSE: Duration = Duration::from_millis(100);

/// A line is sent at least so often, so that the other side can tell a connection that works from one that does not.
const PING: Duration = Duration::from_secs(1);

/// The role of a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves clients.
    Primary,
    /// Follows the primary.
    Standby,
    /// Neither yet, or nobody knows.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
            Role::Unknown => "unknown",
        }
    }
}

/// What a master says of itself on its peer port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// The process: another one after every start.
    pub boot_id: String,
    /// The name of the member.
    pub name: String,
    /// The cluster that it belongs to.
    pub cluster_id: String,
    /// Its role.
    pub role: Role,
    /// The term that it leads in; zero if it does not.
    #[serde(with = "term")]
    pub term: Term,
    /// The lease that it leads with; none if it does not.
    #[serde(with = "lease")]
    pub lease: LeaseId,
    /// The id of the log that it writes, in hexadecimal digits; empty if it does not lead, or is of a version that did
    /// not tell.
    #[serde(default)]
    pub log: String,
    /// Its durable prefix in that log. A standby cannot learn it from the log alone: what it has not read yet it does
    /// not know of.
    #[serde(default, with = "sequence_id")]
    pub durable: SequenceId,
}

impl PeerState {
    /// Whether nothing but the durable prefix differs, which grows all the time.
    fn differs_in_durable_only(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id
            && self.name == other.name
            && self.cluster_id == other.cluster_id
            && self.role == other.role
            && (self.term, self.lease) == (other.term, other.lease)
            && self.log == other.log
    }
}

/// What a standby says to the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The name of the standby.
    pub name: String,
    /// Its process.
    pub boot_id: String,
    /// The last record that it has applied.
    #[serde(with = "sequence_id")]
    pub applied: SequenceId,
}

/// A master's state as a line, with when it was sent.
#[derive(Debug, Serialize, Deserialize)]
struct StateLine {
    #[serde(flatten)]
    state: PeerState,
    /// Milliseconds on the sender's own clock, which began anywhere: lines that waited on their way can be told from
    /// those that did not.
    #[serde(default)]
    sent_ms: u64,
}

/// What the peer port tells the master about standbys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// A standby says how far it has applied the log.
    Report(PeerReport),
    /// The last connection of that process of a standby has ended.
    Gone {
        /// The name of the standby.
        name: String,
        /// Its process.
        boot_id: String,
    },
    /// A witness says that this process has ended.
    Ended {
        /// The process.
        boot_id: String,
    },
}

/// A line to the listening side.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PeerLine {
    Report(PeerReport),
    Ended(witness::EndedLine),
}

/// What a standby learns about the process that it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// There is an open connection to that process, and it leads with that lease.
    Connected {
        /// The process.
        boot_id: String,
        /// Its lease.
        lease: LeaseId,
    },
    /// That process, which leads in this term, says how far its log is durable.
    Told {
        /// The process.
        boot_id: String,
        /// Its term.
        term: Term,
        /// Its log.
        log: LogId,
        /// Its durable prefix.
        durable: SequenceId,
        /// When it said so, in milliseconds on its own clock.
        sent_ms: u64,
    },
    /// That process is gone, and no other one can use the lease.
    Dead {
        /// The process.
        boot_id: String,
        /// Its lease.
        lease: LeaseId,
    },
}

/// Numbers with a name, as JSON numbers.
macro_rules! as_number {
    ($module:ident, $type:ident, $number:ty) => {
        mod $module {
            use serde::{Deserialize, Deserializer, Serializer};

            use super::$type;

            pub(super) fn serialize<S: Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&value.0, to)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <$number>::deserialize(from).map($type)
            }
        }
    };
}

as_number!(term, Term, u64);
as_number!(lease, LeaseId, i64);
as_number!(sequence_id, SequenceId, u64);
