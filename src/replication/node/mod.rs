//! The role of a master: its dealings with etcd, and when it serves.
//!
//! A [`Node`] is a state machine: [`Input`]s in, [`Command`]s out, time as an argument. It follows the log, stands for
//! election when no master leads and it is a candidate, writes the log while it leads, and steps back when it no longer
//! does. Its only effects are commands, which the driver carries out.

mod campaign;
mod compaction;
mod end_of_log;
mod following;
mod handover;
mod heard;
mod interface;
mod leading;
mod leaving;
mod member;
mod need;
mod raising;
mod seen_keys;
mod snapshots;
pub mod status;
mod trust;
mod witness;

use std::collections::HashMap;
use std::sync::Arc;

use super::incarnation::Incarnation;
use super::lease::LeaderLease;
use super::linger::Linger;
use super::log_position::Position;
use super::snapshot::Restored;
use super::time::{LogClock, Monotonic};
use super::writer::Writer;
use crate::cluster::log_end::History;
use crate::cluster::log_end::LogId;
use crate::cluster::member::BootId;
use crate::cluster::promotion::PromotionReason;
use crate::coordination::types::{Failure, LeaseId, Request, Response, WatchEvent, WatchRequest};
use crate::engine::types::{SequenceId, Term};

pub use super::call_ids::{CallId, WatchId};
pub use interface::{
    Command, FlushId, HandedOver, HandoverError, HandoverId, Input, Peer, RestoreId, Settings, SnapshotId,
    SnapshotJob, SnapshotPolicy, SnapshotRequest, TICK,
};
pub use seen_keys::SeenKeys;
pub use snapshots::shared_kept;

use campaign::Campaign;
use compaction::Compaction;
use following::Following;
use handover::Handover;
use heard::PrimaryWord;
use leaving::Leaving;
use member::Member;
use raising::Raising;
use snapshots::Snapshots;
use witness::Witnessed;

/// The purpose of a call, which decides how its answer is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Read where the log ends, before its batches are read.
    LogEnd,
    /// Read where the log ends, while it is watched.
    HeardEnd,
    /// Read a page of the log.
    LogPage,
    /// Read all keys of the cluster.
    Keys,
    /// Get a lease for this member's key.
    MemberLease,
    /// Keep that lease alive.
    MemberKeepAlive,
    /// Write this member's key.
    MemberKey,
    LeaderLease,
    /// Create the election key.
    Campaign,
    /// Keep the leader lease alive.
    KeepAlive,
    /// Write a batch to the log.
    Write,
    /// Publish this primary's address for clients.
    Publish,
    /// Get a short lease for the name of the successor.
    HandoverLease,
    /// Delete the election key.
    Handover,
    /// A step of the compaction of the log.
    Compaction,
    /// The answer is ignored.
    Nobody,
}

/// The phase that a node is in.
#[derive(Debug)]
enum Phase {
    /// Follows the log.
    Standby,
    /// Follows the log and stands for election.
    Campaigning(Campaign),
    Leading(Box<Leadership>),
    /// No longer leads; the port is being closed.
    Leaving(Leaving),
    /// The node handles no input any more.
    Stopped,
}

/// The state of a primary in one term.
#[derive(Debug)]
struct Leadership {
    term: Term,
    lease: LeaderLease,
    writer: Writer,
    linger: Linger,
    clock: LogClock,
    stage: Stage,
    gone_at: Monotonic,
    won_at: Monotonic,
    reason: PromotionReason,
    next_heartbeat: Monotonic,
    /// The call that writes the batch in flight.
    writing: Option<CallId>,
    /// When the batch in flight is sent again.
    retry_at: Option<Monotonic>,
    handover: Option<Handover>,
    /// Whether the address was published in this term: another time is after a hand-over that was given up.
    told: bool,
    raising: Raising,
    compaction: Compaction,
}

/// A standby that is connected to this primary's peer port.
#[derive(Clone, Copy, Debug)]
struct ConnectedPeer {
    boot_id: BootId,
    /// The last record that it reported as applied.
    applied: SequenceId,
    /// When that report came.
    at: Monotonic,
}

/// How far a primary is in serving clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// This record, `NewTerm` in a new term, has to be durable before the port opens.
    Beginning(SequenceId),
    /// The port is being opened.
    Opening,
    /// The address is being published for clients.
    Publishing {
        call: Option<CallId>,
        /// Earliest time of the next attempt.
        retry_at: Monotonic,
    },
    Serving,
    /// Clients are no longer served, because this primary hands over.
    Closed,
}

/// The role of one master.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    incarnation: Arc<Incarnation>,
    following: Following,
    seen_keys: SeenKeys,
    member: Member,
    phase: Phase,
    stopping: bool,
    /// Earliest time at which this node stands for election.
    stand_after: Monotonic,
    /// Standbys that are connected to this primary's peer port.
    peers: HashMap<String, ConnectedPeer>,
    /// The peer of the last [`Command::FollowPeer`].
    followed: Option<Peer>,
    report: Option<status::Promotion>,
    /// The last batch that this master knows to be durable. It outlives the state.
    history: Option<History>,
    /// Why etcd refuses to write the log.
    refused: Option<String>,
    /// The process that led and was found dead.
    dead: Option<BootId>,
    /// Processes that have ended, as witnesses reported.
    witnessed: Witnessed,
    /// `None` without a directory for them.
    snapshots: Option<Snapshots>,
    calls: HashMap<CallId, Purpose>,
    next_call: u64,
    next_watch: u64,
    last_flush: FlushId,
    /// State of the generator of random numbers.
    random: u64,
    commands: Vec<Command>,
}

impl Node {
    /// Creates a node that has not read anything yet.
    #[must_use]
    pub fn new(mut settings: Settings, now: Monotonic) -> Self {
        let random = settings.seed | 1;
        let mut history = settings.history;
        // Taken out, so that the settings do not keep the state in memory.
        let of_snapshots = settings.snapshots.take();
        let snapshots = of_snapshots.as_ref().map(|settings| Snapshots::new(settings, now));
        let (incarnation, following) = match of_snapshots.and_then(|settings| settings.origin.restored) {
            None => (Incarnation::new(settings.engine.clone(), settings.queue_bytes), Following::default()),
            Some(Restored { incarnation, at }) => {
                // What a snapshot has is durable.
                history = History::newer(history, Some(History(at)));
                (incarnation, Following::from_snapshot(&at))
            }
        };
        let mut node = Self {
            settings,
            incarnation,
            following,
            seen_keys: SeenKeys::default(),
            member: Member::default(),
            phase: Phase::Standby,
            stopping: false,
            stand_after: now,
            peers: HashMap::new(),
            followed: None,
            report: None,
            history,
            refused: None,
            dead: None,
            witnessed: Witnessed::default(),
            snapshots,
            calls: HashMap::new(),
            next_call: 0,
            next_watch: 0,
            last_flush: FlushId::default(),
            random,
            commands: Vec::new(),
        };
        node.tick(now);
        node
    }

    /// Returns the present state. Another one replaces it when the state is rebuilt.
    #[must_use]
    pub fn incarnation(&self) -> &Arc<Incarnation> {
        &self.incarnation
    }

    /// Returns the keys of the cluster as this node last saw them.
    #[must_use]
    pub fn seen_keys(&self) -> &SeenKeys {
        &self.seen_keys
    }

    /// Returns the log that the node writes while it leads, else the one that it follows.
    #[must_use]
    pub fn log(&self) -> Option<LogId> {
        match &self.phase {
            Phase::Leading(leadership) => Some(leadership.writer.end().log),
            _ => self.following.position.log,
        }
    }

    /// Returns when [`Input::Queued`] is due for records that the linger holds back. Missing it only delays them to the
    /// next tick.
    #[must_use]
    pub fn wake_at(&self) -> Option<Monotonic> {
        match &self.phase {
            Phase::Leading(leadership) if !self.incarnation.queue.is_empty() => leadership.linger.until(),
            _ => None,
        }
    }

    /// Takes the commands that are to be carried out, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Handles an input; a stopped node ignores it.
    pub fn handle(&mut self, now: Monotonic, input: Input) {
        if matches!(self.phase, Phase::Stopped) {
            return;
        }
        match input {
            Input::Tick => {}
            Input::ClockJumped { drift } => self.clock_jumped(now, drift),
            Input::Answer { call, result } => self.answered(now, call, result),
            Input::Watch { watch, event } => self.watched(now, watch, event),
            // The write happens below: every input ends with a tick.
            Input::Queued => {}
            Input::Opened => self.opened(now),
            Input::OpenFailed(reason) => self.open_failed(now, &reason),
            Input::Closed { quiet } => self.closed(now, quiet),
            Input::PeerDead { boot_id, lease } => self.peer_dead(now, boot_id, lease),
            Input::LeasesFlushed { flush, written, complete } => {
                self.leases_flushed(now, flush, written, complete);
            }
            Input::PeerReport { name, boot_id, applied } => self.peer_reported(now, name, boot_id, applied),
            Input::PeerGone { name, boot_id } => {
                if self.peers.get(&name).is_some_and(|peer| peer.boot_id == boot_id) {
                    self.peers.remove(&name);
                }
            }
            Input::ProcessEnded { boot_id } => self.process_ended(now, boot_id),
            Input::PrimaryTold { boot_id, term, log, durable, sent_ms } => {
                self.primary_told(now, boot_id, PrimaryWord { log, term, durable, sent_ms });
            }
            Input::Switchover { id, to } => self.switchover(now, id, to),
            Input::SnapshotWritten { id, result } => self.snapshot_written(now, id, result),
            Input::SnapshotAnnounced { id, result } => self.snapshot_announced(now, id, result),
            Input::SnapshotShared { last, result } => self.snapshot_shared(now, last, result),
            Input::SnapshotProven { last, by, result } => self.snapshot_proven(now, last, &by, result),
            Input::SnapshotRestored { id, restored } => self.snapshot_restored(now, id, restored),
            Input::TakeSnapshot { id } => self.snapshot_requested(now, id),
            Input::Stop => self.stop(now),
        }
        self.tick(now);
    }

    /// Does everything that is due.
    fn tick(&mut self, now: Monotonic) {
        self.keep_view(now);
        self.keep_member(now);
        match self.phase {
            Phase::Standby => {
                self.follow(now);
                self.stand(now);
            }
            Phase::Campaigning(_) => {
                self.follow(now);
                self.campaign(now);
            }
            Phase::Leading(_) => self.lead(now),
            Phase::Leaving(_) | Phase::Stopped => {}
        }
        self.keep_snapshots(now);
        self.choose_peer();
    }

    fn answered(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let Some(purpose) = self.calls.remove(&call) else { return };
        match purpose {
            Purpose::LogEnd => self.log_end_read(now, call, result),
            Purpose::HeardEnd => self.heard_end_read(call, result),
            Purpose::LogPage => self.log_page_read(now, call, result),
            Purpose::Keys => self.keys_read(now, call, result),
            Purpose::MemberLease => self.member_lease_granted(now, call, result),
            Purpose::MemberKeepAlive => self.member_kept_alive(now, call, result),
            Purpose::MemberKey => self.member_key_written(now, call, result),
            Purpose::LeaderLease => self.leader_lease_granted(now, call, result),
            Purpose::Campaign => self.campaigned(now, call, result),
            Purpose::KeepAlive => self.kept_alive(now, call, result),
            Purpose::Write => self.written(now, call, result),
            Purpose::Publish => self.published(now, call, result),
            Purpose::HandoverLease => self.handover_lease_granted(now, call, result),
            Purpose::Handover => self.handed_over(now, call, result),
            Purpose::Compaction => self.compaction_answered(now, call, result),
            Purpose::Nobody => {}
        }
    }

    fn watched(&mut self, now: Monotonic, watch: WatchId, event: WatchEvent) {
        if self.following.watch() == Some(watch) {
            self.log_changed(now, event);
        } else if self.seen_keys.watch() == Some(watch) {
            self.view_changed(now, event);
        }
    }

    fn call(&mut self, purpose: Purpose, request: Request) -> CallId {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.calls.insert(call, purpose);
        let timeout = self.settings.call_timeout;
        self.commands.push(Command::Call { call, request, timeout });
        call
    }

    fn watch(&mut self, request: WatchRequest) -> WatchId {
        self.next_watch += 1;
        let watch = WatchId(self.next_watch);
        self.commands.push(Command::Watch { watch, request });
        watch
    }

    fn unwatch(&mut self, watch: Option<WatchId>) {
        if let Some(watch) = watch {
            self.commands.push(Command::Unwatch { watch });
        }
    }

    /// Returns a random number below `bound` (xorshift).
    fn random_below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound.max(1)
    }

    /// Discards the state, to rebuild it from the log. The history of this master stays.
    fn start_over(&mut self) {
        self.cancel_snapshot("the state is built anew");
        self.suspect_snapshots();
        let watch = self.following.watch();
        self.unwatch(watch);
        self.following.rebuilds += 1;
        let fresh = Incarnation::new(self.settings.engine.clone(), self.settings.queue_bytes);
        let old = std::mem::replace(&mut self.incarnation, fresh);
        planted!(KeepQueue => self.incarnation.queue.inherit(&old.queue));
        // Its records belong to the state that is discarded: none may be written in another term.
        old.queue.clear();
        // A search that outlives its term must find an engine that refuses to change.
        old.engine.seal();
        self.commands.push(Command::Discard(old));
        self.following.reset(Position::default());
        self.following.trust.begin();
        planted!(StartOverForgets => self.history = None);
    }

    /// Records how far a standby is. Only a member that etcd lists with that process counts.
    fn peer_reported(&mut self, now: Monotonic, name: String, boot_id: BootId, applied: SequenceId) {
        if self.seen_keys.member(&name).is_some_and(|member| member.boot_id == boot_id) {
            self.peers.insert(name, ConnectedPeer { boot_id, applied, at: now });
        }
    }

    /// Revokes the lease of a primary whose process is dead, so that it need not run out: that process answers no
    /// client any more, and even if this is wrong, R1 protects changes and R6 readers.
    fn peer_dead(&mut self, _now: Monotonic, boot_id: BootId, lease: LeaseId) {
        let leads = self
            .seen_keys
            .leader()
            .is_some_and(|leader| leader.value.boot_id == boot_id && leader.lease == lease);
        if leads && lease != LeaseId(0) {
            tracing::warn!(lease = lease.0, "the primary's process is dead, revoking its lease");
            self.dead = Some(boot_id);
            self.call(Purpose::Nobody, Request::LeaseRevoke { lease });
        }
    }

    /// Keeps a connection to the primary, unless it is this process.
    fn choose_peer(&mut self) {
        // If an earlier process of this member still has the lease, this process answers at its address now.
        let leader = self.seen_keys.leader().filter(|leader| {
            leader.value.boot_id != self.settings.boot_id
                && leader.value.addresses.peer != self.settings.addresses.peer
        });
        let peer = leader.map(|leader| Peer {
            address: leader.value.addresses.peer.clone(),
            boot_id: leader.value.boot_id,
            lease: leader.lease,
        });
        if peer != self.followed {
            self.followed.clone_from(&peer);
            self.commands.push(Command::FollowPeer(peer));
        }
    }

    /// Returns a random id for a new log.
    fn fresh_log(&mut self) -> LogId {
        LogId(self.settings.boot_id.0 ^ self.random_below(u64::MAX))
    }
}
