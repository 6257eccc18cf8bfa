//! The role of a master: what it does in etcd, and when it serves.
//!
//! A [`Node`] is a state machine: [`Input`]s in, [`Command`]s out, time as an argument. It follows the log, stands for
//! election when nobody leads and it is caught up, writes the log while it leads, and steps back when it no longer
//! does. Everything it does to the outside is a command that somebody else carries out.

mod campaign;
mod following;
mod handover;
mod leaving;
mod member;
mod serving;
pub mod status;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::batch::LogId;
use super::follower::Position;
use super::keys::Keys;
use super::lease::LeaderLease;
use super::linger::Linger;
use super::replica::Replica;
use super::time::{LogClock, Monotonic};
use super::writer::Writer;
use crate::coordination::types::{Failure, LeaseId, Request, Response, WatchEvent, WatchRequest};
use crate::engine::rules::Rules;
use crate::engine::types::{LogTime, SequenceId, Term};

pub use handover::{HandoverError, HandoverId};
pub use member::{Addresses, ElectionValue, MemberValue};
pub use view::View;

use campaign::Campaign;
use following::Following;
use handover::Handover;
use leaving::Leaving;
use member::Member;

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
        /// Nobody is left who could change the state or promise anything to a reader.
        quiet: bool,
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
    /// Somebody asks for another primary.
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
    /// Keep a connection to the process that leads.
    FollowPeer(Option<Peer>),
    /// A hand-over has ended.
    HandedOver {
        /// Which.
        id: HandoverId,
        /// How.
        result: Result<String, HandoverError>,
    },
    /// Everything is in order for the process to end.
    Stopped,
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
}

/// What is expected of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Where the log ends.
    LogEnd,
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
    peers: HashMap<String, (BootId, SequenceId)>,
    followed: Option<Peer>,
    report: Option<status::Promotion>,
    /// The process that was found dead.
    dead: Option<BootId>,
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
            dead: None,
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
            Input::Answer { call, result } => self.answered(now, call, result),
            Input::Watch { watch, event } => self.watched(now, watch, event),
            Input::Queued => {}
            Input::Opened => self.opened(now),
            Input::OpenFailed(reason) => self.leave(now, format!("cannot serve: {reason}")),
            Input::Closed { quiet } => self.closed(now, quiet),
            Input::PeerDead { boot_id, lease } => self.peer_dead(now, boot_id, lease),
            Input::PeerReport { name, boot_id, applied } => {
                self.peers.insert(name, (boot_id, applied));
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

    /// The state is thrown away and built anew from the log.
    fn start_over(&mut self) {
        let watch = self.following.watch();
        self.unwatch(watch);
        self.following.rebuilds += 1;
        self.replica = Replica::new(self.settings.rules.clone(), self.settings.queue_bytes);
        self.following.reset(Position::default());
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
        let leader = self.view.leader().filter(|leader| leader.value.boot_id != self.settings.boot_id);
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
