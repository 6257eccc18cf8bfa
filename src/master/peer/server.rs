//! The listening side of the peer port.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

use super::credentials::PeerCredentials;
use super::faults::PeerFaults;
use super::handshake::{self, HandshakeError, Identity, Refusal};
use super::line::{Allowance, Lines, prepare, send};
use super::presence::{Members, Presence, Process};
use super::secret::Secret;
use super::slots::{Slot, Slots};
use super::witness::{EndedLine, WitnessedLine};
use super::{GROWTH_PAUSE, MAX_LINE, PING, PeerLine, PeerMessage, PeerReport, PeerState, StateLine};
use crate::net::accept::Acceptor;
use crate::net::stop::stopped;

/// Zero of the clock in the lines: the same for all connections of the process.
static STARTED: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

/// Time for a connection to prove itself.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// A peer sends a line each second; one that has sent none for this long counts as gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Pause after a failed accept, for instance when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the peer port needs of the master, and where it sends what it learns.
#[derive(Clone, Debug)]
pub struct PeerPort {
    pub own: Identity,
    /// Credentials that connections are verified with.
    pub credentials: PeerCredentials,
    /// State that is sent to authenticated peers.
    pub state: watch::Receiver<PeerState>,
    /// The members whose reports are accepted.
    pub members: watch::Receiver<Members>,
    /// Receives reports, and that a peer has gone.
    pub messages: mpsc::Sender<PeerMessage>,
    /// Record of connections that could not be authenticated.
    pub faults: PeerFaults,
}

impl PeerPort {
    /// Sends the state to every authenticated peer, again when it changes, and passes on what members report and that
    /// they have gone, until `stop` turns true or its sender is gone. The listener is closed no earlier than that: a
    /// closed peer port means a dead process. For the same reason every connection is accepted at once, however many
    /// there are.
    pub async fn serve(self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let presence = Presence::default();
        let slots = Slots::default();
        let mut acceptor = Acceptor::new("peer", ACCEPT_PAUSE);
        loop {
            let (stream, address) = tokio::select! {
                connection = acceptor.next(&listener) => connection,
                () = stopped(&mut stop) => return,
            };
            let (slot, evicted) = slots.take(address.ip());
            let peer = Connection {
                port: self.clone(),
                presence: presence.clone(),
                address,
                evicted,
                stop: stop.clone(),
            };
            tokio::spawn(peer.run(stream, slot));
        }
    }
}

/// One connection to the peer port.
struct Connection {
    port: PeerPort,
    presence: Presence,
    address: SocketAddr,
    /// Resolves when this connection has to make way for another one.
    evicted: oneshot::Receiver<()>,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn run(mut self, stream: TcpStream, slot: Slot) {
        let ended = self.serve(stream, &slot).await;
        if let Err(why) = ended {
            tracing::debug!(address = %self.address, %why, "a connection to the peer port ended");
        }
    }

    async fn serve(&mut self, mut stream: TcpStream, slot: &Slot) -> io::Result<()> {
        prepare(&stream)?;
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        match self.port.credentials.clone() {
            PeerCredentials::Token(token) => {
                let (from, to) = stream.split();
                self.speak((from, to), &Secret::Token(&token), deadline, slot).await
            }
            PeerCredentials::Certificates(certificates) => {
                let opening = async { Ok(certificates.accept(stream).await?) };
                let Some((stream, key)) = self.within(deadline, opening).await? else { return Ok(()) };
                self.speak(tokio::io::split(stream), &Secret::Channel(key), deadline, slot).await
            }
        }
    }

    /// Runs the handshake, and then serves the peer.
    async fn speak<R, W>(
        &mut self,
        (from, mut to): (R, W),
        secret: &Secret<'_>,
        deadline: Instant,
        slot: &Slot,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut lines = Lines::for_strangers(from);
        let own = self.port.own.clone();
        let proving = handshake::admit(&mut lines, &mut to, &own, secret);
        let Some(process) = self.within(deadline, proving).await? else { return Ok(()) };
        if !slot.prove(&process.0, &self.port.members.borrow()) {
            return Err(evicted());
        }
        lines.set_limit(MAX_LINE);
        let mut present = false;
        let ended = self.converse(lines, to, &process, &mut present).await;
        if present {
            self.presence.leave(&process, &self.port.messages).await;
        }
        ended
    }

    /// Runs a step of the handshake, until its deadline or until the connection is evicted; returns `None` when the
    /// server stops.
    async fn within<T>(
        &mut self,
        deadline: Instant,
        step: impl Future<Output = Result<T, Refusal>>,
    ) -> io::Result<Option<T>> {
        let done = tokio::select! {
            done = timeout_at(deadline, step) => done.unwrap_or_else(|_| Err(HandshakeError::TooSlow.into())),
            _ = &mut self.evicted => return Err(evicted()),
            () = stopped(&mut self.stop) => return Ok(None),
        };
        done.map(Some).map_err(|refusal| self.refused(refusal))
    }

    /// Records a failed handshake, if it deserves attention.
    fn refused(&self, Refusal { why, claimed }: Refusal) -> io::Error {
        // Only names that etcd knows are repeated: anything else is a stranger's text.
        let known = claimed.filter(|name| self.port.members.borrow().contains_key(name));
        let peer = match &known {
            Some(name) => format!("{name} ({})", self.address),
            None => self.address.to_string(),
        };
        if why.is_fault() {
            self.port.faults.note(&peer, &why.to_string());
        }
        io::Error::other(why.to_string())
    }

    /// Passes on that a process has ended, and acknowledges the report. A witness authenticates in the name of that
    /// process, so that a connection can report the end of one process only.
    async fn witnessed(
        &self,
        ended: String,
        process: &Process,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        if ended != process.1 {
            return Err(io::Error::other("a report about the end of another process"));
        }
        let message = PeerMessage::Ended { boot_id: ended.clone() };
        if self.port.messages.send(message).await.is_err() {
            return Err(io::Error::other("this master is about to stop"));
        }
        send(to, &WitnessedLine { witnessed: Some(ended) }).await
    }

    /// Sends the present state. Returns when, and which.
    async fn tell(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<(Instant, PeerState)> {
        let state = self.port.state.borrow_and_update().clone();
        let sent_ms = u64::try_from(STARTED.elapsed().as_millis()).unwrap_or(u64::MAX);
        let line = StateLine { state, sent_ms };
        send(to, &line).await?;
        Ok((Instant::now(), line.state))
    }

    /// Returns the report of a line about this peer itself. A line about the end of a process is passed on at once.
    async fn report_of(
        &self,
        line: PeerLine,
        process: &Process,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<Option<PeerReport>> {
        match line {
            PeerLine::Ended(EndedLine { ended }) => {
                self.witnessed(ended, process, to).await?;
                Ok(None)
            }
            PeerLine::Report(report) if (&report.name, &report.boot_id) == (&process.0, &process.1) => {
                Ok(Some(report))
            }
            PeerLine::Report(_) => Err(io::Error::other("a report in the name of another process")),
        }
    }

    /// Serves an authenticated peer until the connection ends.
    async fn converse<R, W>(
        &mut self,
        mut lines: Lines<R>,
        mut to: W,
        process: &Process,
        present: &mut bool,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut allowance = Allowance::new(Instant::now());
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut told: Option<(Instant, PeerState)> = None;
        let mut reported = None;
        let (mut changes, mut joins) = (true, true);
        loop {
            let report = tokio::select! {
                // The first tick comes at once and sends the greeting.
                _ = ping.tick() => {
                    told = Some(self.tell(&mut to).await?);
                    continue;
                }
                changed = self.port.state.changed(), if changes => {
                    match (changed, &told) {
                        (Ok(()), Some((at, told))) if told.differs_in_durable_only(&self.port.state.borrow()) => {
                            ping.reset_at(*at + GROWTH_PAUSE);
                        }
                        (Ok(()), _) => ping.reset_immediately(),
                        // The sender is gone; the state that was sent last stays valid.
                        (Err(_), _) => changes = false,
                    }
                    continue;
                }
                line = lines.next::<PeerLine>() => match line? {
                    Some(line) => {
                        heard = Instant::now();
                        if !allowance.take(heard) {
                            return Err(io::Error::other("too many lines"));
                        }
                        match self.report_of(line, process, &mut to).await? {
                            Some(report) => report,
                            None => continue,
                        }
                    }
                    None => return Ok(()),
                },
                // A report that came before its sender was in etcd counts from then on.
                changed = self.port.members.changed(), if joins => {
                    joins = changed.is_ok();
                    match reported.take() {
                        Some(report) => report,
                        None => continue,
                    }
                }
                () = sleep_until(heard + SILENCE) => return Err(io::ErrorKind::TimedOut.into()),
                _ = &mut self.evicted => return Err(evicted()),
                () = stopped(&mut self.stop) => return Ok(()),
            };
            if self.port.members.borrow_and_update().get(&process.0) != Some(&process.1) {
                reported = Some(report);
                continue;
            }
            reported = None;
            if !*present {
                *present = true;
                self.presence.enter(process);
            }
            // Waits until the node takes it, so at most one report per connection is under way.
            if self.port.messages.send(PeerMessage::Report(report)).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn evicted() -> io::Error {
    io::Error::other("another connection took its place")
}
