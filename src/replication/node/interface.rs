//! What a node is told, and what it wants to be done: all that whoever drives one has to know.

use std::sync::Arc;
use std::time::Duration;

use super::handover::{HandoverError, HandoverId};
use super::member::Addresses;
use crate::coordination::types::{Failure, LeaseId, Request, Response, WatchEvent, WatchRequest};
use crate::engine::rules::Rules;
use crate::engine::types::{LogTime, SequenceId, Term};
use crate::replication::batch::LogId;
use crate::replication::history::History;
use crate::replication::keys::Keys;
use crate::replication::replica::Replica;
use crate::replication::time::{LogClock, Monotonic};

/// The number of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// The number of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub u64);

/// What a process is: a name may come back in another process, a boot id never does. Others see it as text, because
/// not every reader of JSON takes numbers of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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

/// What happens to a node.
#[derive(Debug)]
pub enum Input {
    /// Time has passed. Due every [`TICK`].
    Tick,
    /// The clocks of this machine drifted apart: it may have been suspended or stopped for longer than its own clock
    /// tells.
    ClockJumped {
        /// By how much.
        drift: Duration,
    },
    /// A call was answered, or will not be.
    Answer {
        /// The call.
        call: CallId,
        /// The answer.
        result: Result<Response, Failure>,
    },
    /// A watch told something.
    Watch {
        /// The watch.
        watch: WatchId,
        /// What it told.
        event: WatchEvent,
    },
    /// Records wait to be written.
    Queued,
    /// Clients are served.
    Opened,
    /// The port could not be opened.
    OpenFailed(String),
    /// Clients are no longer served.
    Closed {
        /// No guard of the term is left: no client, search or upkeep can change the state or promise a reader anything.
        quiet: bool,
    },
    /// [`Command::FlushLeases`] has ended.
    LeasesFlushed {
        /// How many promises to readers were written down.
        written: usize,
        /// Every promise is written down; else the budget ended first.
        complete: bool,
    },
    /// The process that leads is dead: an open connection to it broke, and its port refuses.
    PeerDead {
        /// The process.
        boot_id: BootId,
        /// The lease that it led with.
        lease: LeaseId,
    },
    /// A standby says how far it is.
    PeerReport {
        /// Its name.
        name: String,
        /// Its process.
        boot_id: BootId,
        /// The last record that it applied.
        applied: SequenceId,
    },
    /// The last connection of a standby's process to this master's peer port has ended.
    PeerGone {
        /// Its name.
        name: String,
        /// Its process.
        boot_id: BootId,
    },
    /// A witness that holds a pidfd of this process says that it has ended (R6).
    ProcessEnded {
        /// The process.
        boot_id: BootId,
    },
    /// The primary says over the peer connection how far its log is durable.
    PrimaryTold {
        /// Its process.
        boot_id: BootId,
        /// The term that it leads in.
        term: Term,
        /// Its log.
        log: LogId,
        /// Its durable prefix.
        durable: SequenceId,
        /// When it said so, in milliseconds on its own clock.
        sent_ms: u64,
    },
    /// An administrator or the operator asks for another primary.
    Switchover {
        /// Named again in the answer.
        id: HandoverId,
        /// Who is to lead; anybody if `None`.
        to: Option<String>,
    },
    /// The process is to end: hand over if possible.
    Stop,
}

/// What a node wants to be done.
#[derive(Debug)]
pub enum Command {
    /// Ask etcd.
    Call {
        /// Named again in the answer.
        call: CallId,
        /// What is asked.
        request: Request,
        /// When to give up waiting.
        timeout: Duration,
    },
    /// Watch keys in etcd.
    Watch {
        /// Named again in events.
        watch: WatchId,
        /// What is watched.
        request: WatchRequest,
    },
    /// Watch no longer.
    Unwatch {
        /// The watch.
        watch: WatchId,
    },
    /// Serve clients. Answered by [`Input::Opened`] or [`Input::OpenFailed`].
    Open {
        /// The state to serve from.
        replica: Arc<Replica>,
        /// Log time from now on.
        clock: LogClock,
        /// The term.
        term: Term,
    },
    /// Serve no longer: close listeners and connections. Answered by [`Input::Closed`].
    Close,
    /// Write promises to readers down, on another thread than the node's: the work grows with the number of promises.
    /// Answered by [`Input::LeasesFlushed`].
    FlushLeases {
        /// The state that owes them.
        replica: Arc<Replica>,
        /// Log time.
        clock: LogClock,
        /// How long it may take.
        budget: Duration,
    },
    /// Drop a state that was thrown away, on another thread than the node's: the work grows with the number of objects.
    Discard(Arc<Replica>),
    /// Keep a connection to the process that leads.
    FollowPeer(Option<Peer>),
    /// A hand-over has ended.
    HandedOver {
        /// Which.
        id: HandoverId,
        /// How.
        result: Result<HandedOver, HandoverError>,
    },
    /// Everything is in order for the process to end.
    Stopped,
}

/// A hand-over that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The successor.
    pub to: String,
    /// When this master stopped answering clients.
    pub closed_at: Monotonic,
}

/// The process that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its peer address.
    pub address: String,
    /// The process.
    pub boot_id: BootId,
    /// The lease that it leads with.
    pub lease: LeaseId,
}

/// How often a node wants to be told that time has passed.
pub const TICK: Duration = Duration::from_millis(20);

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this member.
    pub name: String,
    /// This process.
    pub boot_id: BootId,
    /// Names of keys.
    pub keys: Keys,
    /// Where this member is reached.
    pub addresses: Addresses,
    /// What version of the program it is.
    pub version: String,
    /// The leader's lease.
    pub leader_ttl: Duration,
    /// How often it is kept alive.
    pub keep_alive: Duration,
    /// How long a call to etcd may take.
    pub call_timeout: Duration,
    /// How long a hand-over may take.
    pub handover_timeout: Duration,
    /// What the operator of the store set.
    pub rules: Rules,
    /// Bytes of records that may wait to be written.
    pub queue_bytes: usize,
    /// The wall clock at the start: where log time begins in a log that is empty.
    pub wall: LogTime,
    /// Where chance starts from.
    pub seed: u64,
    /// What an earlier process of this member knew of the log, from its data directory.
    pub history: Option<History>,
    /// For how long all live members have to read a newer format before the log is raised to it.
    pub raise_after: Duration,
}
