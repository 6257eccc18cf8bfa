//! What is going to happen in a run, and how much of it did.

use std::sync::Arc;

use moonkeeper::cluster::log_end::{History, LogId};
use moonkeeper::cluster::member::BootId;
use moonkeeper::coordination::types::{Failure, LeaseId, Request, Response, WatchEvent, WatchRequest};
use moonkeeper::engine::types::{SequenceId, Term};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::{CallId, FlushId, RestoreId, SnapshotId, WatchId};
use moonkeeper::replication::snapshot::{Capture, Progress, Wanted};
use moonkeeper::replication::time::LogClock;

use super::clients::{Op, Reply};
use super::plan;

/// A process: which master, in which life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub master: usize,
    pub boot: u64,
}

/// What is going to happen.
pub enum Event {
    Tick(Process),
    /// A request reaches etcd; the answer of one that came twice is dropped.
    Arrive {
        from: Process,
        call: Option<CallId>,
        request: Request,
    },
    Answer {
        to: Process,
        call: CallId,
        result: Result<Response, Failure>,
    },
    Timeout {
        to: Process,
        call: CallId,
    },
    WatchBegins {
        from: Process,
        watch: WatchId,
        request: WatchRequest,
    },
    WatchTells {
        to: Process,
        watch: WatchId,
        event: WatchEvent,
    },
    /// Watches of a master go on.
    Unstall {
        master: usize,
    },
    Opened {
        to: Process,
        serial: u64,
    },
    Closing {
        to: Process,
    },
    Closed {
        to: Process,
        /// When the port was closed.
        since: u64,
    },
    /// Promises to readers are to be written down.
    Flush {
        to: Process,
        flush: FlushId,
        incarnation: Arc<Incarnation>,
        clock: LogClock,
    },
    /// A call that outlived its connection goes on.
    Straggle {
        to: Process,
    },
    Report {
        to: Process,
        name: String,
        boot: BootId,
        applied: SequenceId,
    },
    /// A standby's connection to the primary has ended.
    Gone {
        to: Process,
        name: String,
        boot: BootId,
    },
    /// The primary tells a standby how far its log is durable.
    Told {
        to: Process,
        boot: BootId,
        term: Term,
        log: LogId,
        durable: SequenceId,
        sent_ms: u64,
    },
    /// An operator asks for another primary.
    Switchover {
        master: usize,
        to: Option<String>,
    },
    Dead {
        to: Process,
        boot: BootId,
        lease: LeaseId,
    },
    /// A witness reports the end of a process.
    Witness {
        to: Process,
        boot: BootId,
    },
    /// A snapshot has been written.
    SnapshotWrite {
        to: Process,
        id: SnapshotId,
        capture: Box<Capture>,
        progress: Arc<Progress>,
        of_primary: bool,
    },
    /// A snapshot that a running master wants has been read, if there is one.
    SnapshotRead {
        to: Process,
        id: RestoreId,
        wanted: Wanted,
        history: Option<History>,
    },
    /// A snapshot is copied to the shared storage.
    SnapshotShare {
        to: Process,
        log: LogId,
        last: SequenceId,
    },
    /// A copy of another master is read back.
    SnapshotProve {
        to: Process,
        log: LogId,
        last: SequenceId,
        by: String,
    },
    /// A batch of another log comes to lie beside those of this one.
    OtherLog,
    /// A snapshot was announced, or could not be.
    SnapshotAnnounced {
        to: Process,
        id: SnapshotId,
        result: Result<(), String>,
    },
    Upkeep {
        of: Process,
        serial: u64,
    },
    /// Calls that wait for space in the queue look whether their turn has come.
    LookAgain {
        of: Process,
        serial: u64,
    },
    Resume {
        master: usize,
    },
    Boot {
        master: usize,
    },
    Step {
        client: usize,
    },
    Call {
        client: usize,
        number: u64,
        master: usize,
        op: Op,
    },
    Reply {
        client: usize,
        number: u64,
        reply: Reply,
    },
    GiveUp {
        client: usize,
        number: u64,
    },
    Fault,
    Calm,
    /// The standby that saw nothing of the leader is the only one that reaches etcd.
    Unblind {
        master: usize,
    },
    /// A master does not reach etcd for a while.
    Cut {
        master: usize,
        long: u64,
    },
    /// The leader's lease is revoked.
    Revoke,
    /// What was done to the log by hand is undone.
    Mend,
    /// The running checks are due.
    Watchdog,
    /// From here to the end is enough for all masters to catch up.
    Settle,
}

/// How much happened: a run in which nothing happens proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub terms: u64,
    pub records: u64,
    pub answers: u64,
    pub unknown: u64,
    pub reads: u64,
    pub starts: u64,
    /// Calls that waited for space in the queue.
    pub waited: u64,
    /// Changes that were refused because the log was full.
    pub refused: u64,
    /// Answers that were given up because etcd took no writes.
    pub given_up_answers: u64,
    pub handed_over: u64,
    /// Hand-overs that were given up.
    pub given_up: u64,
    /// Checks of a key that had to be readable.
    pub certain: u64,
    /// Clients that lost their memory because they were silent.
    pub expired: u64,
    /// Objects that were evicted.
    pub evicted: u64,
    /// Terms whose primary knew from a witness that the one before had ended.
    pub witnessed: u64,
    /// Objects that rules removed while others were held, because they were reserved in the same term.
    pub exempt: u64,
    /// Logs that were raised to a newer format.
    pub raised: u64,
    /// Puts that waited for clients to rejoin.
    pub parked_puts: u64,
    /// Those of them that got memory.
    pub resumed: u64,
    /// Machines that were suspended.
    pub suspended: u64,
    /// Virtual machines that were stopped.
    pub stopped: u64,
    /// Snapshots that were announced.
    pub snapshots: u64,
    /// Those of them that a primary has taken.
    pub snapshots_of_primaries: u64,
    /// Processes that started from one.
    pub snapshot_starts: u64,
    /// States that a running master has built from a snapshot.
    pub restored: u64,
    /// Floors that were written.
    pub truncations: u64,
    /// Snapshots that were damaged or put in another's place.
    pub tampered: u64,
    /// Faults of each kind, in the order of [`Fault`](super::plan::Fault).
    pub faults: [u64; plan::ALL.len()],
}

impl Counts {
    /// What happened, by name.
    pub fn named(&self) -> [(&'static str, u64); 28] {
        let Self { events, terms, records, answers, unknown, reads, starts, waited, refused, .. } = *self;
        let Self { given_up_answers, handed_over, given_up, certain, expired, evicted, .. } = *self;
        let Self { witnessed, exempt, raised, .. } = *self;
        let Self { parked_puts, resumed, suspended, stopped, .. } = *self;
        let Self {
            snapshots, snapshots_of_primaries, snapshot_starts, tampered, restored, truncations, ..
        } = *self;
        [
            ("events", events),
            ("terms", terms),
            ("records", records),
            ("answers", answers),
            ("unknown", unknown),
            ("reads", reads),
            ("starts", starts),
            ("waited", waited),
            ("refused", refused),
            ("given_up_answers", given_up_answers),
            ("handed_over", handed_over),
            ("given_up", given_up),
            ("certain", certain),
            ("expired", expired),
            ("evicted", evicted),
            ("witnessed", witnessed),
            ("exempt", exempt),
            ("raised", raised),
            ("parked_puts", parked_puts),
            ("resumed", resumed),
            ("suspended", suspended),
            ("stopped", stopped),
            ("snapshots", snapshots),
            ("snapshots_of_primaries", snapshots_of_primaries),
            ("snapshot_starts", snapshot_starts),
            ("restored", restored),
            ("truncations", truncations),
            ("tampered", tampered),
        ]
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.terms += other.terms;
        self.records += other.records;
        self.answers += other.answers;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.starts += other.starts;
        self.waited += other.waited;
        self.refused += other.refused;
        self.given_up_answers += other.given_up_answers;
        self.handed_over += other.handed_over;
        self.given_up += other.given_up;
        self.certain += other.certain;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.witnessed += other.witnessed;
        self.exempt += other.exempt;
        self.raised += other.raised;
        self.parked_puts += other.parked_puts;
        self.resumed += other.resumed;
        self.suspended += other.suspended;
        self.stopped += other.stopped;
        self.snapshots += other.snapshots;
        self.snapshots_of_primaries += other.snapshots_of_primaries;
        self.snapshot_starts += other.snapshot_starts;
        self.restored += other.restored;
        self.truncations += other.truncations;
        self.tampered += other.tampered;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, more)| *sum += more);
    }
}
