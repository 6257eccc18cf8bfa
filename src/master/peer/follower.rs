//! The side that connects: a standby, to the primary that it follows.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout, timeout_at};

use super::credentials::PeerCredentials;
use super::faults::PeerFaults;
use super::handshake::{self, HandshakeError, Identity};
use super::line::{Lines, send};
use super::secret::Secret;
use super::server::prepare;
use super::{PING, PeerEvent, PeerReport, PeerState, StateLine};
use crate::coordination::types::LeaseId;
use crate::engine::types::{SequenceId, Term};
use crate::replication::batch::LogId;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the other side may take to prove itself. A process that stands still answers when it goes on.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);

/// The primary sends a line each second; a connection without any for so long is made anew. That is no death.
const SILENCE: Duration = Duration::from_secs(10);

/// Time from the first refusal to the second probe.
const SECOND_PROBE: Duration = Duration::from_millis(25);

/// A refusal that took longer than this came from something else than the kernel that the process ran on, or this
/// process was held up in between; neither says anything.
const PROBES_WITHIN: Duration = Duration::from_millis(50);

/// How long after a break it is probed at all. When a process dies its sockets close one after the other, so the port
/// may still accept for a moment after the connection broke.
const PROBING: Duration = Duration::from_millis(500);

/// Least time between two reports of the applied id: at most some hundred a second, whatever the load.
const REPORT_PAUSE: Duration = Duration::from_millis(5);

/// Which process to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    address: String,
    boot_id: String,
    lease: LeaseId,
}

/// Keeps a connection to the primary's peer port, and says when that process is known to be dead. It ends when it is
/// dropped.
#[derive(Debug)]
pub struct PeerFollower {
    target: watch::Sender<Option<Target>>,
}

impl PeerFollower {
    /// A standby that is this process. What it learns goes to `events`; what it has applied comes from `applied`.
    #[must_use]
    pub fn start(
        own: Identity,
        credentials: PeerCredentials,
        applied: watch::Receiver<SequenceId>,
        events: mpsc::Sender<PeerEvent>,
        faults: PeerFaults,
    ) -> Self {
        let (target, targets) = watch::channel(None);
        tokio::spawn(run(Standby { own, credentials, applied, events, faults }, targets));
        Self { target }
    }

    /// Follows the process with this boot id, which leads with this lease, at this `host:port`, instead of any other.
    pub fn follow(&self, address: &str, boot_id: &str, lease: LeaseId) {
        let target = Some(Target { address: address.to_owned(), boot_id: boot_id.to_owned(), lease });
        self.target.send_if_modified(|current| {
            let other = *current != target;
            if other {
                *current = target;
            }
            other
        });
    }

    /// Follows nobody.
    pub fn leave(&self) {
        self.target.send_if_modified(|current| current.take().is_some());
    }
}

#[derive(Debug)]
struct Standby {
    own: Identity,
    credentials: PeerCredentials,
    applied: watch::Receiver<SequenceId>,
    events: mpsc::Sender<PeerEvent>,
    faults: PeerFaults,
}

async fn run(mut standby: Standby, mut targets: watch::Receiver<Option<Target>>) {
    loop {
        let target = targets.borrow_and_update().clone();
        let follow = async {
            match &target {
                Some(target) => standby.follow(target).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = follow => {
                // It is known to be dead. There is nothing to say until there is another.
                if targets.changed().await.is_err() {
                    return;
                }
            }
            changed = targets.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// It broke while it was one to the very process with the very lease.
    Broke,
    /// It broke before that was said on it.
    Unheard,
    /// Another process is there, or one that cannot prove that it belongs to this cluster, or it said something else
    /// than a peer says.
    Another,
    /// Nothing was said on it for too long.
    Silent,
}

/// What a probe found.
#[derive(Debug, PartialEq, Eq)]
enum Probe {
    Refused,
    Accepted,
    Nothing,
}

impl Standby {
    /// Returns when the process is known to be dead, and has been reported so.
    async fn follow(&mut self, target: &Target) {
        loop {
            if let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(&*target.address)).await
                && let Ok(address) = stream.peer_addr()
                && self.session(stream, target).await == Ended::Broke
                && self.is_dead(address, target).await
            {
                let dead = PeerEvent::Dead { boot_id: target.boot_id.clone(), lease: target.lease };
                // Whoever wanted to know has gone with the channel.
                let _ = self.events.send(dead).await;
                return;
            }
            sleep(RETRY).await;
        }
    }

    /// Whether the port refuses twice in a row now that the connection has broken.
    async fn is_dead(&mut self, address: SocketAddr, target: &Target) -> bool {
        let mut until = Instant::now() + PROBING;
        while Instant::now() < until {
            let begin = Instant::now();
            match probe(address).await {
                (Probe::Refused, _) => {
                    sleep_until(begin + SECOND_PROBE).await;
                    let (second, _) = probe(address).await;
                    if second == Probe::Refused && begin.elapsed() <= PROBES_WITHIN {
                        return true;
                    }
                }
                (Probe::Accepted, Some(stream)) => match self.session(stream, target).await {
                    // It was closing when it accepted: what the port says now counts.
                    Ended::Unheard => {}
                    // It was well, perhaps for long, and has broken once more.
                    Ended::Broke => until = Instant::now() + PROBING,
                    Ended::Another | Ended::Silent => return false,
                },
                // A process that dies resets what waits to be accepted, and a busy machine may be slow to refuse: neither
                // says anything, and the next probe may.
                _ => sleep(SECOND_PROBE).await,
            }
        }
        false
    }

    /// Listens and reports until the connection ends.
    async fn session(&mut self, mut stream: TcpStream, target: &Target) -> Ended {
        if prepare(&stream).is_err() {
            return Ended::Unheard;
        }
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        match self.credentials.clone() {
            PeerCredentials::Token(token) => {
                self.speak(stream.split(), &Secret::Token(&token), deadline, target).await
            }
            PeerCredentials::Certificates(certificates) => {
                match timeout_at(deadline, certificates.connect(stream)).await {
                    Ok(Ok((stream, key))) => {
                        let halves = tokio::io::split(stream);
                        self.speak(halves, &Secret::Channel(key), deadline, target).await
                    }
                    Ok(Err(why)) => self.failed(&why, target),
                    Err(_) => Ended::Silent,
                }
            }
        }
    }

    /// The end of a handshake that failed.
    fn failed(&self, why: &HandshakeError, target: &Target) -> Ended {
        if !why.is_fault() {
            return Ended::Unheard;
        }
        self.faults.note(&target.address, &why.to_string());
        Ended::Another
    }

    /// Proves itself, listens and reports until the connection ends.
    async fn speak<R, W>(
        &mut self,
        (from, mut to): (R, W),
        secret: &Secret<'_>,
        deadline: Instant,
        target: &Target,
    ) -> Ended
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut lines = Lines::new(from);
        let proving = handshake::present(&mut lines, &mut to, &self.own, secret);
        match timeout_at(deadline, proving).await {
            Ok(Ok(boot_id)) if boot_id == target.boot_id => {}
            Ok(Ok(_)) => return Ended::Another,
            Ok(Err(why)) => return self.failed(&why, target),
            Err(_) => return Ended::Silent,
        }
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut confirmed = false;
        let mut said = None;
        let mut changes = true;
        loop {
            let quiet_until = said.map_or_else(Instant::now, |said: Instant| said + REPORT_PAUSE);
            tokio::select! {
                line = lines.next::<StateLine>() => match line {
                    Ok(Some(StateLine { state, sent_ms }))
                        if state.boot_id == target.boot_id && state.lease == target.lease =>
                    {
                        heard = Instant::now();
                        if !confirmed {
                            confirmed = true;
                            let (boot_id, lease) = (state.boot_id.clone(), state.lease);
                            let _ = self.events.send(PeerEvent::Connected { boot_id, lease }).await;
                        }
                        if let Some(told) = told(state, sent_ms) {
                            let _ = self.events.send(told).await;
                        }
                    }
                    // The same process may be about to lead, or has just ceased to.
                    Ok(Some(StateLine { state, .. })) if state.boot_id == target.boot_id => {
                        heard = Instant::now();
                        confirmed = false;
                    }
                    Ok(Some(_)) => return Ended::Another,
                    Err(why) if why.kind() == io::ErrorKind::InvalidData => return Ended::Another,
                    Ok(None) | Err(_) if confirmed => return Ended::Broke,
                    Ok(None) | Err(_) => return Ended::Unheard,
                },
                _ = ping.tick() => {
                    let applied = *self.applied.borrow_and_update();
                    let report =
                        PeerReport { name: self.own.name.clone(), boot_id: self.own.boot_id.clone(), applied };
                    // A connection that broke is noticed by reading from it.
                    let _ = send(&mut to, &report).await;
                    said = Some(Instant::now());
                }
                changed = async { sleep_until(quiet_until).await; self.applied.changed().await }, if changes =>
                    match changed {
                        Ok(()) => ping.reset_immediately(),
                        // The process is about to end.
                        Err(_) => changes = false,
                    },
                () = sleep_until(heard + SILENCE) => return Ended::Silent,
            }
        }
    }
}

/// The end of the log that a primary's line tells, if it tells one.
fn told(state: PeerState, sent_ms: u64) -> Option<PeerEvent> {
    let log = LogId(u64::from_str_radix(&state.log, 16).ok()?);
    let PeerState { boot_id, term, durable, .. } = state;
    (term != Term(0)).then_some(PeerEvent::Told { boot_id, term, log, durable, sent_ms })
}

/// Knocks at the port once.
async fn probe(address: SocketAddr) -> (Probe, Option<TcpStream>) {
    match timeout(PROBES_WITHIN, TcpStream::connect(address)).await {
        // On one machine, a port where nobody listens may be given to the very socket that knocks, which then meets
        // itself.
        Ok(Ok(stream)) if stream.local_addr().is_ok_and(|own| own == address) => (Probe::Refused, None),
        Ok(Ok(stream)) => (Probe::Accepted, Some(stream)),
        Ok(Err(why)) if why.kind() == io::ErrorKind::ConnectionRefused => (Probe::Refused, None),
        _ => (Probe::Nothing, None),
    }
}
