//! The role of a master: what it does in etcd, and when it serves.
//!
//! A [`Node`] is a state machine: [`Input`]s in, [`Command`]s out, time as an argument. It follows the log, stands for
//! election when nobody leads and it is caught up, writes the log while it leads, and steps back when it no longer
//! does. Everything it does to the outside is a command that somebody else carries out.

mod campaign;
mod following;
mod handover;
mod heard;
mod interface;
mod leaving;
mod member;
mod raising;
mod serving;
pub mod status;
mod trust;
mod view;
mod witness;

use std::collections::HashMap;
use std::sync::Arc;

use super::batch::LogId;
use super::follower::Position;
use super::history::History;
use super::lease::LeaderLease;
use super::linger::Linger;
use super::replica::Replica;
use super::time::{LogClock, Monotonic};
use super::writer::Writer;
use crate::coordination::types::{Failure, LeaseId, Request, Response, WatchEvent, WatchRequest};
use crate::engine::types::{SequenceId, Term};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

pub use handover::{HandoverError, HandoverId};
pub use interface::{BootId, CallId, Command, HandedOver, Input, Peer, Settings, TICK, WatchId};
pub use member::{Addresses, ElectionValue, MemberValue};
pub use trust::DigestAt;
pub use view::View;

use campaign::Campaign;
use following::Following;
use handover::Handover;
use heard::PrimaryWord;
use leaving::Leaving;
use member::Member;
use raising::Raising;
use witness::Witnessed;

/// What is expected of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Where the log ends, before it is read.
    LogEnd,
    /// Where the log ends, while it is watched.
    HeardEnd,
    /// A page of the log.
    LogPage,
    /// All keys of the cluster.
    View,
    /// A lease of our own member key.
    MemberLease,
    /// That lease is kept alive.
    MemberKeepAlive,
    /// Our member key is written.
    MemberKey,
    /// A lease to lead with.
    LeaderLease,
    /// The election key is created.
    Campaign,
    /// The lease that we lead with is kept alive.
    KeepAlive,
    /// A batch is written.
    Write,
    /// Clients are told our address.
    Publish,
    /// A short lease for the name of the successor.
    HandoverLease,
    /// The election key is deleted.
    Handover,
    /// Nobody waits for it.
    Nobody,
}

/// What a node is at.
#[derive(Debug)]
enum Phase {
    /// Follows the log.
    Standby,
    /// Follows the log and wants to lead.
    Campaigning(Campaign),
    /// Leads.
    Leading(Box<Reign>),
    /// No longer leads; whoever served is being sent away.
    Leaving(Leaving),
    /// Does nothing any more.
    Stopped,
}

/// What a primary has.
#[derive(Debug)]
struct Reign {
    term: Term,
    lease: LeaderLease,
    writer: Writer,
    linger: Linger,
    clock: LogClock,
    stage: Stage,
    gone_at: Monotonic,
    won_at: Monotonic,
    reason: status::Reason,
    next_heartbeat: Monotonic,
    /// The call that writes the batch on its way.
    writing: Option<CallId>,
    /// When the batch on its way is sent again.
    retry_at: Option<Monotonic>,
    handover: Option<Handover>,
    /// Clients and people were told that this term began.
    told: bool,
    raising: Raising,
}

/// A standby that is connected to this primary's peer port.
#[derive(Clone, Copy, Debug)]
struct ConnectedPeer {
    boot_id: BootId,
    /// The last record that it said to have applied.
    applied: SequenceId,
    /// When it said so.
    at: Monotonic,
}

/// How far a primary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its first record is being written.
    Beginning(SequenceId),
    /// The port is being opened.
    Opening,
    /// Clients are being told.
    Publishing {
        /// The call that tells them.
        call: Option<CallId>,
        /// Not before then.
        retry_at: Monotonic,
    },
    /// Clients are served.
    Serving,
    /// Clients are no longer served, because this primary hands over.
    Closed,
}

/// The role of one master.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    replica: Arc<Replica>,
    following: Following,
    view: View,
    member: Member,
    phase: Phase,
    stopping: bool,
    /// Not before then does this node stand.
    stand_after: Monotonic,
    /// Standbys that are connected to this primary's peer port.
    peers: HashMap<String, ConnectedPeer>,
    followed: Option<Peer>,
    report: Option<status::Promotion>,
    /// What this master knows to be durable. It outlives the state.
    history: Option<History>,
    /// Why etcd refuses to write the log.
    refused: Option<String>,
    /// The process that was found dead.
    dead: Option<BootId>,
    /// Processes that have ended, as witnesses say.
    witnessed: Witnessed,
    calls: HashMap<CallId, Purpose>,
    next_call: u64,
    next_watch: u64,
    chance: u64,
    commands: Vec<Command>,
}

impl Node {
    /// A node that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings, now: Monotonic) -> Self {
        let replica = Replica::new(settings.rules.clone(), settings.queue_bytes);
        let chance = settings.seed | 1;
        let history = settings.history;
        let mut node = Self {
            settings,
            replica,
            following: Following::default(),
            view: View::default(),
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
            calls: HashMap::new(),
            next_call: 0,
            next_watch: 0,
            chance,
            commands: Vec::new(),
        };
        node.tick(now);
        node
    }

    /// The state as it is now.
    #[must_use]
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// What other keys of the cluster say.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The log that it writes while it leads, else the one that it follows.
    #[must_use]
    pub fn log(&self) -> Option<LogId> {
        match &self.phase {
            Phase::Leading(reign) => Some(reign.writer.end().log),
            _ => self.following.position.log,
        }
    }

    /// A moment at which records that are held back for now should be looked at with [`Input::Queued`]; until the next
    /// tick nothing else is lost than time.
    #[must_use]
    pub fn wake_at(&self) -> Option<Monotonic> {
        match &self.phase {
            Phase::Leading(reign) if !self.replica.queue.is_empty() => reign.linger.until(),
            _ => None,
        }
    }

    /// What is to be done, in order.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Something happened.
    pub fn handle(&mut self, now: Monotonic, input: Input) {
        if matches!(self.phase, Phase::Stopped) {
            return;
        }
        match input {
            Input::Tick => {}
            Input::ClockJumped { drift } => self.clock_jumped(now, drift),
            Input::Answer { call, result } => self.answered(now, call, result),
            Input::Watch { watch, event } => self.watched(now, watch, event),
            Input::Queued => {}
            Input::Opened => self.opened(now),
            Input::OpenFailed(reason) => self.leave(now, format!("cannot serve: {reason}")),
            Input::Closed { quiet } => self.closed(now, quiet),
            Input::PeerDead { boot_id, lease } => self.peer_dead(now, boot_id, lease),
            Input::LeasesFlushed { written, complete } => self.leases_flushed(now, written, complete),
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
            Input::Stop => self.stop(now),
        }
        self.tick(now);
    }

    /// Does whatever is due.
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
        self.choose_peer();
    }

    fn answered(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let Some(purpose) = self.calls.remove(&call) else { return };
        match purpose {
            Purpose::LogEnd => self.log_end_read(now, call, result),
            Purpose::HeardEnd => self.heard_end_read(call, result),
            Purpose::LogPage => self.log_page_read(now, call, result),
            Purpose::View => self.view_read(now, call, result),
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
            Purpose::Nobody => {}
        }
    }

    fn watched(&mut self, now: Monotonic, watch: WatchId, event: WatchEvent) {
        if self.following.watch() == Some(watch) {
            self.log_changed(now, event);
        } else if self.view.watch() == Some(watch) {
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

    /// A number below `bound`.
    fn chance(&mut self, bound: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % bound.max(1)
    }

    /// The state is thrown away and built anew from the log. What this master knows of the log stays.
    fn start_over(&mut self) {
        let watch = self.following.watch();
        self.unwatch(watch);
        self.following.rebuilds += 1;
        let fresh = Replica::new(self.settings.rules.clone(), self.settings.queue_bytes);
        let old = std::mem::replace(&mut self.replica, fresh);
        // A search that outlives its term must find an engine that refuses to change.
        old.engine.seal();
        self.commands.push(Command::Discard(old));
        self.following.reset(Position::default());
        self.following.trust.begin();
        #[cfg(feature = "planted")]
        if planted::active(Bug::StartOverForgets) {
            self.history = None;
        }
    }

    /// A standby says how far it is. Only members that etcd names with that process count.
    fn peer_reported(&mut self, now: Monotonic, name: String, boot_id: BootId, applied: SequenceId) {
        if self.view.members().get(&name).is_some_and(|member| member.boot_id == boot_id) {
            self.peers.insert(name, ConnectedPeer { boot_id, applied, at: now });
        }
    }

    /// The process that leads is dead. Its lease need not run out: nobody answers with it any more, and even if this is
    /// wrong, R1 protects changes and R6 readers.
    fn peer_dead(&mut self, _now: Monotonic, boot_id: BootId, lease: LeaseId) {
        let leads =
            self.view.leader().is_some_and(|leader| leader.value.boot_id == boot_id && leader.lease == lease);
        if leads && lease != LeaseId(0) {
            tracing::warn!(lease = lease.0, "the primary's process is dead, revoking its lease");
            self.dead = Some(boot_id);
            self.call(Purpose::Nobody, Request::LeaseRevoke { lease });
        }
    }

    /// Keeps a connection to whoever leads, unless it is this process.
    fn choose_peer(&mut self) {
        // An earlier process of this member leads until its lease ends: what answers at its address now is this process.
        let leader = self.view.leader().filter(|leader| {
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

    /// An id for a new log.
    fn fresh_log(&mut self) -> LogId {
        LogId(self.settings.boot_id.0 ^ self.chance(u64::MAX))
    }
}
