//! The master's side of its companion: starts a companion unless one runs, keeps it informed about the port, and starts
//! another when it is gone. A master without a companion works the same until it dies.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{PidfdFlags, getpid, pidfd_open};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::channel::Channel;
use super::held_port::{HeldPort, HeldPorts};
use super::message::{PortOfTheDead, ToCompanion, ToMaster};
use super::place;
use super::testimony::Testimony;
use super::watch::TURN_AWAY;
use crate::master::draining_port::DrainingPort;
use crate::master::metrics::{Counters, Metrics};
use crate::master::settings::companion::CompanionSettings;

/// Environment variable with the pid of the process that a child process must not outlive.
pub const DIES_WITH: &str = "MOONKEEPER_DIES_WITH";

/// Allocator settings for a small process: one arena, no background thread.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false,narenas:1");

/// Time for a companion that runs to answer. A starting master waits for it, because the companion may hold the port of
/// its predecessor.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a companion to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the master checks whether the companion has started.
const START_POLL: Duration = Duration::from_millis(20);
/// Back-off between two attempts: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A connection that lasted this long was healthy: the back-off starts over.
const GOOD: Duration = Duration::from_secs(60);
/// Most bytes that are read from stderr of a companion that could not start.
const LAST_WORDS: u64 = 1 << 10;

/// Everything that keeping a companion takes.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Where the companion is, or that it has to be started.
    pub settings: &'a CompanionSettings,
    /// Id of this process among all processes of this master.
    pub boot_id: String,
    /// The RPC address of this master.
    pub address: SocketAddr,
    /// What the companion tells the other masters when this one has ended.
    pub testimonies: watch::Receiver<Option<Testimony>>,
    pub metrics: Arc<Metrics>,
}

/// Handle of the task that keeps the companion of this master.
#[derive(Debug)]
pub struct Companion {
    dismiss: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Companion {
    /// Starts keeping a companion. Returns its handle, the [`DrainingPort`] that turns clients away while this master does not
    /// serve, and the [`HeldPort`]. If the companion has the port of a predecessor that died, clients are turned away
    /// from now on. Returns within [`ANSWER_TIMEOUT`]; a companion that has to be started is there later.
    pub async fn start(setup: Setup<'_>) -> (Option<Self>, Arc<DrainingPort>, HeldPort) {
        let (socket, starts_it) = match setup.settings {
            CompanionSettings::Off => {
                return (None, Arc::new(DrainingPort::default()), HeldPort::default());
            }
            CompanionSettings::At(path) => (path.clone(), false),
            CompanionSettings::Own => match place::own_socket(setup.address) {
                Ok(path) => (path, true),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "no folder for the socket of a companion; clients wait longer if this process dies"
                    );
                    Counters::add(&setup.metrics.counters.companion_failures, 1);
                    return (None, Arc::new(DrainingPort::default()), HeldPort::default());
                }
            },
        };
        let (held, ports) = HeldPort::channel();
        let draining_port = Arc::new(DrainingPort::new(held.clone()));
        let mut keeper = Keeper {
            socket,
            starts_it,
            boot_id: setup.boot_id,
            address: setup.address,
            metrics: setup.metrics,
            draining_port: Arc::clone(&draining_port),
            held: held.clone(),
            ports,
            testimonies: setup.testimonies,
            child: None,
        };
        // A failure is not logged yet: the keeper has not tried to start a companion.
        let first = keeper.connect().await.ok();
        let (dismiss, dismissed) = oneshot::channel();
        let task = tokio::spawn(keeper.keep(first, dismissed));
        (Some(Self { dismiss, task }), draining_port, held)
    }

    /// Reports to the companion that this master ends on purpose, and waits until it has read that.
    pub async fn dismiss(self) {
        if self.dismiss.send(()).is_ok() {
            let _ = timeout(ANSWER_TIMEOUT, self.task).await;
        }
    }
}

struct Keeper {
    socket: PathBuf,
    /// Whether the master starts a companion that does not run.
    starts_it: bool,
    boot_id: String,
    address: SocketAddr,
    metrics: Arc<Metrics>,
    draining_port: Arc<DrainingPort>,
    held: HeldPort,
    ports: HeldPorts,
    testimonies: watch::Receiver<Option<Testimony>>,
    child: Option<Child>,
}

impl Keeper {
    /// Keeps a companion until the master ends.
    async fn keep(mut self, first: Option<Channel>, mut dismissed: oneshot::Receiver<()>) {
        let mut channel = first;
        let mut backoff = BACKOFF.0;
        let mut warned = false;
        loop {
            let begun = Instant::now();
            let work = async {
                if channel.is_none() {
                    channel = Some(self.connect_or_start().await?);
                }
                let Some(channel) = &mut channel else { return Ok(()) };
                self.metrics.counters.companion_connected.store(1, Ordering::Relaxed);
                if warned {
                    tracing::info!("the companion is back");
                    warned = false;
                } else {
                    tracing::debug!(socket = %self.socket.display(), "connected to the companion");
                }
                self.inform(channel).await
            };
            let result: io::Result<()> = tokio::select! {
                biased;
                said = &mut dismissed => {
                    if said.is_ok() {
                        self.say_goodbye(channel).await;
                    }
                    return;
                }
                result = work => result,
            };
            channel = None;
            // The runtime reaps it if it has ended; a live one is left alone.
            self.child = None;
            self.metrics.counters.companion_connected.store(0, Ordering::Relaxed);
            Counters::add(&self.metrics.counters.companion_failures, 1);
            if begun.elapsed() >= GOOD {
                backoff = BACKOFF.0;
            }
            let error =
                result.err().map_or_else(|| "the companion has ended".to_owned(), |why| why.to_string());
            if !warned {
                warned = true;
                tracing::warn!(
                    error,
                    "no companion; clients wait for seconds longer if this process dies meanwhile"
                );
            } else {
                tracing::debug!(
                    error,
                    "still no companion: clients would wait for seconds if this process died"
                );
            }
            tokio::select! {
                () = sleep(backoff) => {}
                _ = &mut dismissed => return,
            }
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    /// Sends the port and the testimony to the companion, again at each change, until the connection ends.
    async fn inform(&mut self, channel: &mut Channel) -> io::Result<()> {
        self.ports.mark_changed();
        self.testimonies.mark_changed();
        loop {
            tokio::select! {
                changed = self.ports.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let port = self.ports.borrow_and_update().clone();
                    match port {
                        Some(port) => channel.send(&ToCompanion::Port, Some(port.as_fd())).await?,
                        None => channel.send(&ToCompanion::Forget, None).await?,
                    }
                }
                Ok(()) = self.testimonies.changed() => {
                    let testimony = self.testimonies.borrow_and_update().clone();
                    if let Some(testimony) = testimony {
                        channel.send(&ToCompanion::Testimony(testimony), None).await?;
                    }
                }
                message = channel.receive::<ToMaster>() => {
                    return match message? {
                        None => Ok(()),
                        Some(_) => {
                            Err(io::Error::new(io::ErrorKind::InvalidData, "the message was not expected"))
                        }
                    };
                }
            }
        }
    }

    async fn say_goodbye(&self, channel: Option<Channel>) {
        let Some(mut channel) = channel else { return };
        if channel.send(&ToCompanion::Goodbye, None).await.is_ok() {
            // The companion closes the connection when it has read the message.
            while let Ok(Some(_)) = channel.receive::<ToMaster>().await {}
        }
    }

    async fn connect_or_start(&mut self) -> io::Result<Channel> {
        let why = match self.connect().await {
            Ok(channel) => return Ok(channel),
            Err(why) => why,
        };
        // Only where no companion runs: one that does not answer still has the socket.
        let none = matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        if !self.starts_it || !none {
            return Err(why);
        }
        let mut child = start(&self.socket)?;
        let mut last_words = child.stderr.take();
        let child = self.child.insert(child);
        let give_up = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = child.try_wait()? {
                let mut words = String::new();
                if let Some(stderr) = last_words.take() {
                    let _ = stderr.take(LAST_WORDS).read_to_string(&mut words).await;
                }
                return Err(io::Error::other(format!("the companion ended with {status}: {}", words.trim())));
            }
            match greet(&self.socket, &self.boot_id).await {
                Ok(greeted) => return self.accept_port(greeted),
                Err(why) if Instant::now() >= give_up => return Err(why),
                Err(_) => sleep(START_POLL).await,
            }
        }
    }

    /// Connects to a companion that runs, and takes over the port that it holds for this master.
    async fn connect(&mut self) -> io::Result<Channel> {
        let greeted = timeout(ANSWER_TIMEOUT, greet(&self.socket, &self.boot_id)).await;
        self.accept_port(greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
    }

    /// Turns clients away from the port of a predecessor that died, as from this master's own port after a switchover.
    fn accept_port(&self, (channel, port): Greeted) -> io::Result<Channel> {
        let Some((socket, told)) = port else { return Ok(channel) };
        let ended_ago = Duration::from_millis(told.ended_ms_ago);
        let left = TURN_AWAY.saturating_sub(ended_ago);
        let is_ours = socket.local_addr().is_ok_and(|found| found.port() == self.address.port());
        if left.is_zero() || !is_ours || self.held.is_held() {
            return Ok(channel);
        }
        tracing::info!(
            died_ms_ago = told.ended_ms_ago,
            turned_away = told.turned_away,
            "took the port of the master that died here from its companion"
        );
        self.held.hold(socket.as_fd().try_clone_to_owned()?);
        self.draining_port.leave_open(tokio::net::TcpListener::from_std(socket)?, left);
        Ok(channel)
    }
}

/// A companion that watches this process, and the port of the process before if it held one.
type Greeted = (Channel, Option<(std::net::TcpListener, PortOfTheDead)>);

async fn greet(socket: &Path, boot_id: &str) -> io::Result<Greeted> {
    let mut channel = Channel::new(place::connect(socket).await?);
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let hello = ToCompanion::Hello { boot_id: boot_id.to_owned() };
    channel.send(&hello, Some(process.as_fd())).await?;
    match channel.receive::<ToMaster>().await? {
        Some(ToMaster::Welcome { port: None }) => Ok((channel, None)),
        Some(ToMaster::Welcome { port: Some(told) }) => {
            let socket = channel.descriptor()?.into();
            Ok((channel, Some((socket, told))))
        }
        Some(ToMaster::Busy) => Err(io::Error::other("the companion watches another master, which runs")),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Starts a companion: this program, which inherits nothing of this process but the write end of a pipe for its stderr.
fn start(socket: &Path) -> io::Result<Child> {
    // This path works even if the file was replaced, and whatever name this program was called by.
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .arg0("moonkeeper")
        .arg("companion")
        .arg("--socket")
        .arg(socket)
        .env_clear()
        .env(ALLOCATOR.0, ALLOCATOR.1)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(process) = std::env::var_os(DIES_WITH) {
        command.env(DIES_WITH, process);
    }
    Command::from(command).spawn()
}
