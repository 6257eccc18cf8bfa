//! The connecting side of the peer port: a standby, which watches the process of the primary.

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
use super::line::{Lines, prepare, send};
use super::secret::Secret;
use super::{PING, PeerEvent, PeerReport, PeerState, StateLine};
use crate::cluster::log_end::LogId;
use crate::coordination::types::LeaseId;
use crate::engine::types::{SequenceId, Term};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for the other side to prove itself. A process that is stopped answers when it continues.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);

/// The primary sends a line each second; a connection without any for this long is replaced. That is no proof of death.
const SILENCE: Duration = Duration::from_secs(10);

/// Time from the first refused probe to the second one.
const SECOND_PROBE: Duration = Duration::from_millis(25);

/// Both probes have to be refused within this time. A slower refusal did not come from the kernel of the primary's
/// host, or this process was stalled in between; neither proves anything.
const PROBES_WITHIN: Duration = Duration::from_millis(50);

/// How long the port is probed after a connection broke. The kernel closes the sockets of a dying process one after the
/// other, so the port may still accept for a moment after that.
const PROBING: Duration = Duration::from_millis(500);

/// Least time between two reports of the applied id, which bounds them to some hundred a second.
const REPORT_PAUSE: Duration = Duration::from_millis(5);

/// The process to watch, and the lease that it leads with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    address: String,
    boot_id: String,
    lease: LeaseId,
}

/// Keeps a connection to the primary's peer port, and reports when that process is known to be dead. Stops when it is
/// dropped.
#[derive(Debug)]
pub struct PrimaryProbe {
    target: watch::Sender<Option<Target>>,
}

impl PrimaryProbe {
    /// Starts as the standby `own`. What it learns goes to `events`; the applied id that it reports comes from
    /// `applied`.
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

    /// Watches the process with this boot id, which leads with this lease, at this `host:port`, instead of any other.
    pub fn watch(&self, address: &str, boot_id: &str, lease: LeaseId) {
        let target = Some(Target { address: address.to_owned(), boot_id: boot_id.to_owned(), lease });
        self.target.send_if_modified(|current| {
            let other = *current != target;
            if other {
                *current = target;
            }
            other
        });
    }

    /// Stops watching any process, until `watch` is called again.
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
                // The process is known to be dead. There is nothing to report until there is another target.
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

/// How a connection to the watched process ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// It broke after the other side had said that it is the watched process and leads with the watched lease.
    Broke,
    /// It broke before the other side had said so.
    Unheard,
    /// Another process answered, or one that could not prove that it belongs to this cluster, or one that violated the
    /// protocol.
    Another,
    /// No line came for [`SILENCE`].
    Silent,
}

/// Result of probing the port of a process that may be dead.
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
                // A closed channel means that the node has ended and needs no report.
                let _ = self.events.send(dead).await;
                return;
            }
            sleep(RETRY).await;
        }
    }

    /// Returns whether the port refuses two probes in a row after the connection has broken.
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
                    // The process was closing when it accepted, so probe again.
                    Ended::Unheard => {}
                    // The connection worked, perhaps for long, and has broken once more.
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

    /// Runs one connection: proves itself, listens and reports until it ends.
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

    /// Classifies a handshake that failed, and records it if it is a fault.
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
        self.listen(lines, to, target).await
    }

    /// Listens to the primary that has proved itself, and reports to it.
    async fn listen<R, W>(&mut self, mut lines: Lines<R>, mut to: W, target: &Target) -> Ended
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
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
                    // A broken connection is noticed by the next read.
                    let _ = send(&mut to, &report).await;
                    said = Some(Instant::now());
                }
                changed = async { sleep_until(quiet_until).await; self.applied.changed().await }, if changes =>
                    match changed {
                        Ok(()) => ping.reset_immediately(),
                        // The sender is gone: this process is about to end.
                        Err(_) => changes = false,
                    },
                () = sleep_until(heard + SILENCE) => return Ended::Silent,
            }
        }
    }
}

/// Returns the end of the log that a primary's line contains, if it contains one.
fn told(state: PeerState, sent_ms: u64) -> Option<PeerEvent> {
    let log = LogId(u64::from_str_radix(&state.log, 16).ok()?);
    let PeerState { boot_id, term, durable, .. } = state;
    (term != Term(0)).then_some(PeerEvent::Told { boot_id, term, log, durable, sent_ms })
}

/// Tries to connect to the port once.
async fn probe(address: SocketAddr) -> (Probe, Option<TcpStream>) {
    match timeout(PROBES_WITHIN, TcpStream::connect(address)).await {
        // On one machine, the kernel may give a port without a listener to the connecting socket itself, which then
        // connects to itself.
        Ok(Ok(stream)) if stream.local_addr().is_ok_and(|own| own == address) => (Probe::Refused, None),
        Ok(Ok(stream)) => (Probe::Accepted, Some(stream)),
        Ok(Err(why)) if why.kind() == io::ErrorKind::ConnectionRefused => (Probe::Refused, None),
        _ => (Probe::Nothing, None),
    }
}
