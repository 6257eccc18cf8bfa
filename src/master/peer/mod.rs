//! The peer port: how masters distinguish a process that died from one that is slow.
//!
//! Every master listens on it from start to exit in every role. The two sides of a connection first prove to each other
//! that they belong to the cluster, by a token that they share or by certificates (see `handshake`). Then the listening
//! side sends which process it is and with which lease it leads, again whenever that changes, and each second in any
//! case; a standby sends how far it has applied the log. It is one JSON object per line in each direction, and nothing
//! else: no request, no state. A witness (see `witness`) connects only to report that a process has ended.
//!
//! A standby may conclude that a process is dead from one thing only: it had an open, authenticated connection to that
//! very process under that very lease, the connection broke, and the port then refused twice in a row. Silence, a
//! timeout, a cut network or a stopped process do not count; then the lease has to run out.

mod certificates;
mod credentials;
mod faults;
mod handshake;
mod line;
mod presence;
mod primary_probe;
mod proof_kind;
mod secret;
mod server;
mod slots;
mod token;
mod verifier;
pub mod witness;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::log_end::LogId;
use crate::cluster::role::Role;
use crate::coordination::types::LeaseId;
use crate::engine::types::{SequenceId, Term};

pub use certificates::PeerCertificates;
pub use credentials::{PeerCredentials, PeerCredentialsError};
pub use faults::PeerFaults;
pub use handshake::Identity;
pub use presence::Members;
pub use primary_probe::PrimaryProbe;
pub use proof_kind::ProofKind;
pub use server::PeerPort;
pub use token::{PeerToken, PeerTokenError};

/// Longest line in either direction; real ones have some hundred bytes.
const MAX_LINE: usize = 4 << 10;

/// Least time between two lines that differ only in the durable prefix. Standbys compute their lag from it, for which
/// this is fine enough.
const GROWTH_PAUSE: Duration = Duration::from_millis(100);

/// Longest time between two lines, so that the other side can tell a connection that works from one that does not.
const PING: Duration = Duration::from_secs(1);

/// The state that a master sends on its peer port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// Id of the process: differs after every start.
    pub boot_id: String,
    /// The name of the member.
    pub name: String,
    /// The cluster that it belongs to.
    pub cluster_id: String,
    pub role: Role,
    /// The term that it leads in; zero if it does not lead.
    #[serde(with = "term")]
    pub term: Term,
    /// The lease that it leads with; zero if it does not lead.
    #[serde(with = "lease")]
    pub lease: LeaseId,
    /// The id of the log that it writes, in hexadecimal digits; empty if it does not lead, or is of a version that did
    /// not send this.
    #[serde(default)]
    pub log: String,
    /// Its durable prefix in that log. A standby cannot learn it from the log alone: it does not know what it has not
    /// read yet.
    #[serde(default, with = "sequence_id")]
    pub durable: SequenceId,
}

impl PeerState {
    /// Returns whether at most the durable prefix differs, which grows all the time.
    fn differs_in_durable_only(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id
            && self.name == other.name
            && self.cluster_id == other.cluster_id
            && self.role == other.role
            && (self.term, self.lease) == (other.term, other.lease)
            && self.log == other.log
    }
}

/// The report that a standby sends to the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The name of the standby.
    pub name: String,
    pub boot_id: String,
    /// The last record that it has applied.
    #[serde(with = "sequence_id")]
    pub applied: SequenceId,
}

/// A master's state as a line, with the time when it was sent.
#[derive(Debug, Serialize, Deserialize)]
struct StateLine {
    #[serde(flatten)]
    state: PeerState,
    /// Milliseconds on the sender's own clock, which has an arbitrary start. Tells lines that were delayed on their way
    /// from those that were not.
    #[serde(default)]
    sent_ms: u64,
}

/// Messages of the peer port to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// A standby reports how far it has applied the log.
    Report(PeerReport),
    /// The last connection of that process of a standby has ended.
    Gone {
        /// The name of the standby.
        name: String,
        boot_id: String,
    },
    /// A witness reports that this process has ended.
    Ended { boot_id: String },
}

/// A line to the listening side.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PeerLine {
    Report(PeerReport),
    Ended(witness::EndedLine),
}

/// Events about the process that a standby watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// There is an open connection to that process, and it leads with that lease.
    Connected { boot_id: String, lease: LeaseId },
    /// That process, which leads in this term, reports how far its log is durable.
    Told {
        boot_id: String,
        term: Term,
        log: LogId,
        durable: SequenceId,
        /// When it sent this, in milliseconds on its own clock.
        sent_ms: u64,
    },
    /// That process is gone, and no other one can use its lease, so the lease can be revoked.
    Dead { boot_id: String, lease: LeaseId },
}

/// Serialises newtypes of numbers as JSON numbers.
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
