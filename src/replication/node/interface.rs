//! The interface of a node: its inputs, its commands and its settings. A driver of a node needs no more.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::keys::Keys;
use crate::cluster::log_end::History;
use crate::cluster::log_end::LogId;
use crate::cluster::member::Addresses;
use crate::cluster::member::BootId;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use crate::coordination::types::{Failure, LeaseId, Request, Response, WatchEvent, WatchRequest};
use crate::engine::settings::EngineSettings;
use crate::engine::types::{LogTime, SequenceId, Term};
use crate::replication::call_ids::{CallId, WatchId};
use crate::replication::incarnation::Incarnation;
use crate::replication::snapshot::{Capture, Origin, Progress, Restored, Wanted};
use crate::replication::time::{LogClock, Monotonic};

/// Identifies a request for a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandoverId(pub u64);

/// Identifies a request to write live leases to the log. A hand-over that is given up leaves its request on another
/// thread, whose answer must not be taken for that of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlushId(pub u64);

/// Identifies a snapshot that is being taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SnapshotId(pub u64);

/// Identifies a snapshot that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RestoreId(pub u64);

/// Identifies a request for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotRequest(pub u64);

/// A job for the host's directory of snapshots. Jobs are done in their order, on another thread than the node's.
#[derive(Debug)]
pub enum SnapshotJob {
    /// Write a pending file and read it back. Answered by [`Input::SnapshotWritten`].
    Write {
        /// Repeated in the answer.
        id: SnapshotId,
        capture: Box<Capture>,
        progress: Arc<Progress>,
    },
    /// Announce a pending file, then remove these snapshots. Answered by [`Input::SnapshotAnnounced`].
    Announce {
        /// Repeated in the answer.
        id: SnapshotId,
        /// The last record of the snapshot.
        last: SequenceId,
        /// The last records of those that are not kept any longer.
        remove: Vec<SequenceId>,
    },
    /// Remove a pending file.
    Discard {
        /// The last record of the snapshot.
        last: SequenceId,
    },
    /// Copy an announced file to the shared storage. It may take long, and must not hold up the other jobs. Answered by
    /// [`Input::SnapshotShared`].
    Share {
        log: LogId,
        /// The last record of the snapshot.
        last: SequenceId,
    },
    /// Read back a copy in the shared storage that another member wrote; it must not hold up the other jobs either.
    /// Answered by [`Input::SnapshotProven`].
    Prove {
        log: LogId,
        /// The last record of the snapshot.
        last: SequenceId,
        /// The member that wrote it.
        by: String,
    },
    /// Read a snapshot from the directory or from the shared storage; it must not hold up the other jobs either.
    /// Answered by [`Input::SnapshotRestored`].
    Restore {
        /// Repeated in the answer.
        id: RestoreId,
        wanted: Wanted,
        /// The history of this master.
        history: Option<History>,
    },
}

/// Why there was no hand-over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// This master does not lead.
    #[error("this master is not the primary")]
    NotPrimary,
    /// Another hand-over is under way.
    #[error("another hand-over is under way")]
    Busy,
    /// The named target is the primary already.
    #[error("{0} is the primary already, nothing to do")]
    AlreadyPrimary(String),
    /// No standby can take over.
    #[error(
        "no standby can take over: one has to be connected to the primary, have reported within 2 s, and be at most \
         10,000 records behind"
    )]
    NoTarget,
    /// The named standby cannot take over.
    #[error(
        "{0} cannot take over: it has to be connected to the primary, have reported within 2 s, and be at most 10,000 \
         records behind"
    )]
    BadTarget(String),
    /// The hand-over was tried and given up; this primary continues.
    #[error("{0}; the primary goes on")]
    Failed(String),
    /// The primary lost its role meanwhile.
    #[error("the primary was deposed meanwhile: {0}")]
    Deposed(String),
}

/// An event that a node handles.
#[derive(Debug)]
pub enum Input {
    /// Time has passed. Due every [`TICK`].
    Tick,
    /// The clocks of this machine drifted apart: it may have been suspended or stopped for longer than its own clock
    /// shows.
    ClockJumped { drift: Duration },
    /// A call was answered, or never will be.
    Answer { call: CallId, result: Result<Response, Failure> },
    /// A watch delivered an event.
    Watch { watch: WatchId, event: WatchEvent },
    /// Records wait to be written.
    Queued,
    /// The port is open, and clients are served.
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
        /// That of the command.
        flush: FlushId,
        /// How many live leases were written to the log.
        written: usize,
        /// Whether all live leases were written; else the budget ended first.
        complete: bool,
    },
    /// The process that leads is dead: an open connection to it broke, and its port refuses.
    PeerDead {
        boot_id: BootId,
        /// The lease that it led with.
        lease: LeaseId,
    },
    /// A standby reports how far it is.
    PeerReport {
        name: String,
        boot_id: BootId,
        /// The last record that it applied.
        applied: SequenceId,
    },
    /// The last connection of a standby's process to this master's peer port has ended.
    PeerGone { name: String, boot_id: BootId },
    /// A witness that holds a pidfd of this process reports that it has ended (R6).
    ProcessEnded { boot_id: BootId },
    /// The primary reports over the peer connection how far its log is durable.
    PrimaryTold {
        boot_id: BootId,
        /// The term that it leads in.
        term: Term,
        log: LogId,
        durable: SequenceId,
        /// When the report was sent, in milliseconds on the primary's clock.
        sent_ms: u64,
    },
    /// An administrator or the operator requests another primary.
    Switchover {
        /// Repeated in [`Command::HandedOver`].
        id: HandoverId,
        /// Name of the standby that is to lead; `None` lets this primary choose.
        to: Option<String>,
    },
    /// A pending snapshot was written and read back, or could not be.
    SnapshotWritten { id: SnapshotId, result: Result<HeldSnapshot, String> },
    /// A pending snapshot was announced, or could not be.
    SnapshotAnnounced { id: SnapshotId, result: Result<(), String> },
    /// An announced snapshot was copied to the shared storage, or could not be.
    SnapshotShared {
        /// The last record of the snapshot.
        last: SequenceId,
        result: Result<(), String>,
    },
    /// A copy in the shared storage was read back and is undamaged, with the digest of its state in hexadecimal digits;
    /// or it is not, or could not be read.
    SnapshotProven {
        /// The last record of the snapshot.
        last: SequenceId,
        /// The member that wrote it.
        by: String,
        result: Result<String, String>,
    },
    /// The wanted snapshot was read; `None` if there is none.
    SnapshotRestored { id: RestoreId, restored: Option<Restored> },
    /// An administrator or the operator requests a snapshot of the state as it is now.
    TakeSnapshot {
        /// Repeated in [`Command::SnapshotTaken`].
        id: SnapshotRequest,
    },
    /// The process is to end: hand over if possible.
    Stop,
}

/// An action that a node wants carried out.
#[derive(Debug)]
pub enum Command {
    /// Send a request to etcd.
    Call {
        /// Repeated in [`Input::Answer`].
        call: CallId,
        request: Request,
        /// How long to wait for the answer.
        timeout: Duration,
    },
    Watch {
        /// Repeated in [`Input::Watch`].
        watch: WatchId,
        request: WatchRequest,
    },
    Unwatch {
        watch: WatchId,
    },
    /// Serve clients. Answered by [`Input::Opened`] or [`Input::OpenFailed`].
    Open {
        /// The state to serve from.
        incarnation: Arc<Incarnation>,
        /// Log time from now on.
        clock: LogClock,
        term: Term,
    },
    /// Stop serving: close listeners and connections. Answered by [`Input::Closed`].
    Close,
    /// Write live leases to the log, on another thread than the node's: the work grows with the number of leases.
    /// Answered by [`Input::LeasesFlushed`].
    FlushLeases {
        /// Repeated in [`Input::LeasesFlushed`].
        flush: FlushId,
        /// The state that granted them.
        incarnation: Arc<Incarnation>,
        clock: LogClock,
        /// How long it may take.
        budget: Duration,
    },
    /// Drop a discarded state, on another thread than the node's: the work grows with the number of objects.
    Discard(Arc<Incarnation>),
    /// Keep a connection to the process that leads; `None` if there is none, or it is this process.
    FollowPeer(Option<Peer>),
    /// A hand-over has ended.
    HandedOver {
        id: HandoverId,
        result: Result<HandedOver, HandoverError>,
    },
    /// Do this to the directory of snapshots.
    Snapshot(SnapshotJob),
    /// A request for a snapshot has ended.
    SnapshotTaken {
        id: SnapshotRequest,
        result: Result<HeldSnapshot, SnapshotRefused>,
    },
    /// The process may end.
    Stopped,
}

/// Report of a hand-over that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The successor.
    pub to: String,
    /// When this master stopped answering clients.
    pub closed_at: Monotonic,
}

/// The process that leads, as a standby connects to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: String,
    pub boot_id: BootId,
    /// The lease that it leads with.
    pub lease: LeaseId,
}

/// Interval at which a node receives [`Input::Tick`].
pub const TICK: Duration = Duration::from_millis(20);

/// Settings of the snapshots of a node that has a directory for them, fixed at its start.
#[derive(Clone, Debug)]
pub struct SnapshotPolicy {
    /// Time between two snapshots; `None` takes none without a request.
    pub interval: Option<Duration>,
    /// How many are kept; at least one.
    pub kept: usize,
    /// The directory outlives the machine of this master.
    pub durable: bool,
    /// There is storage that all masters share.
    pub has_store: bool,
    /// What the directory holds at the start.
    pub origin: Origin,
}

/// The settings of a node, fixed at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    pub boot_id: BootId,
    pub keys: Keys,
    /// Where other processes reach this member.
    pub addresses: Addresses,
    pub version: String,
    /// Time to live of the leader lease.
    pub leader_ttl: Duration,
    /// Interval of keep-alives of the leader lease.
    pub keep_alive: Duration,
    /// Timeout of a call to etcd.
    pub call_timeout: Duration,
    /// Time limit of a hand-over.
    pub handover_timeout: Duration,
    pub engine: EngineSettings,
    /// Capacity of the queue of records, in bytes.
    pub queue_bytes: usize,
    /// The wall clock at the start: where log time begins in a log that is empty.
    pub wall: LogTime,
    /// Seed of the random numbers.
    pub seed: u64,
    /// History of the log as an earlier process of this member left it in its data directory.
    pub history: Option<History>,
    /// For how long all live members have to read a newer format before the log is raised to it.
    pub raise_after: Duration,
    /// How many members have to hold a snapshot, unless it is in shared storage, before the log below it is deleted.
    pub snapshot_copies: usize,
    /// Snapshots, and what the directory of snapshots held at the start; `None` without one.
    pub snapshots: Option<SnapshotPolicy>,
}
