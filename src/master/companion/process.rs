//! The process of a companion: one thread that waits for events and carries out the decisions of [`Watch`].

use std::io;
use std::net::TcpListener as StdTcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::ipproto;
use rustix::net::sockopt::{socket_acceptconn, socket_protocol};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::channel::Channel;
use super::message::{ToCompanion, ToMaster};
use super::place::{Place, is_same_user};
use super::testimony::Testimony;
use super::watch::Watch;
use crate::net::accept::Acceptor;

/// Wait before the next attempt to accept when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Callback that takes the log lines of a companion.
pub type Log<'a> = &'a mut (dyn FnMut(&str) + Send);

/// Options of a companion.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the socket on which masters connect.
    pub socket: PathBuf,
    /// Whether it runs in a container of its own, which Kubernetes starts and ends.
    pub sidecar: bool,
    /// The process that the companion must not outlive.
    pub dies_with: Option<Pid>,
}

/// Runs a companion until it has nothing to wait for any more.
///
/// # Errors
///
/// If it cannot listen.
pub async fn run(options: &Options, log: Log<'_>) -> io::Result<()> {
    let guardian = match options.dies_with {
        Some(pid) => Some(ProcessEnd::new(pidfd_open(pid, PidfdFlags::empty())?)?),
        None => None,
    };
    let place = Place::take(&options.socket).await?;
    let mut companion = Running {
        watch: Watch::new(options.sidecar, Instant::now()),
        master: None,
        newcomer: None,
        process: None,
        testimony: None,
        accepting: None,
    };
    companion.serve(&place, guardian, log).await
}

/// Waits for the end of a process by its pidfd.
#[derive(Debug)]
struct ProcessEnd(AsyncFd<OwnedFd>);

impl ProcessEnd {
    fn new(pidfd: OwnedFd) -> io::Result<Self> {
        #[allow(
            unsafe_code,
            reason = "tokio asks for a descriptor that stays open and the same, which an OwnedFd is"
        )]
        // SAFETY: the descriptor is owned, moves into the AsyncFd, and is closed with it.
        let registered = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Waits until the process has ended; forever if there is none.
    async fn of(process: Option<&Self>) {
        match process {
            // An error of the runtime does not mean that the process has ended.
            Some(process) if process.0.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }
}

#[derive(Debug)]
struct Running {
    watch: Watch<StdTcpListener>,
    /// The connection to the watched master.
    master: Option<Channel>,
    /// A connection that has not sent its Hello. There is one at a time: a newer one replaces it.
    newcomer: Option<Channel>,
    /// The process of the watched master.
    process: Option<ProcessEnd>,
    /// What to report when that process has ended.
    testimony: Option<Testimony>,
    /// The port, while connections to it are accepted and closed.
    accepting: Option<TcpListener>,
}

enum Event {
    MasterDied,
    Accepted,
    FromMaster(io::Result<Option<ToCompanion>>),
    FromNewcomer(io::Result<Option<ToCompanion>>),
    Connected(Channel),
    Time,
    End(&'static str),
}

impl Running {
    async fn serve(&mut self, place: &Place, guardian: Option<ProcessEnd>, log: Log<'_>) -> io::Result<()> {
        // Without a handler, the first process of a container would ignore the signal.
        let mut terminate = signal(SignalKind::terminate())?;
        let (mut masters, mut clients) = (Acceptor::quiet(ACCEPT_PAUSE), Acceptor::quiet(ACCEPT_PAUSE));
        loop {
            let next = self.watch.next_change();
            let Self { master, newcomer, process, accepting, .. } = self;
            let event = tokio::select! {
                biased;
                _ = terminate.recv() => Event::End("stopping: SIGTERM"),
                () = ProcessEnd::of(guardian.as_ref()) => {
                    Event::End("the process of MOONKEEPER_DIES_WITH has ended")
                }
                // Messages that the master sent before it died count, and come before those of its successor.
                message = receive(master) => Event::FromMaster(message),
                () = ProcessEnd::of(process.as_ref()) => Event::MasterDied,
                message = receive(newcomer) => Event::FromNewcomer(message),
                connected = connection(&mut masters, place) => Event::Connected(connected),
                () = sleep_until(next) => Event::Time,
                () = accept(&mut clients, accepting.as_ref()) => Event::Accepted,
            };
            match event {
                Event::End(why) => {
                    log(why);
                    return Ok(());
                }
                Event::MasterDied => self.bury(log),
                Event::Accepted => self.watch.turned_away(),
                Event::FromMaster(message) => self.obey(message, log),
                Event::FromNewcomer(message) => self.meet(message, log).await,
                Event::Connected(channel) => self.newcomer = Some(channel),
                Event::Time => {}
            }
            let now = Instant::now();
            self.watch.advance(now);
            if !self.watch.accepts() && self.accepting.take().is_some() && self.watch.port().is_none() {
                log("clients are no longer turned away");
            }
            if self.watch.is_over(now) {
                log("no master is left to watch");
                return Ok(());
            }
        }
    }

    /// Handles the death of the master: reports it to the other masters, and turns clients away from now on.
    fn bury(&mut self, log: Log<'_>) {
        self.process = None;
        self.master = None;
        self.watch.died(Instant::now());
        if let Some(testimony) = self.testimony.take() {
            // In a task of its own: another master takes over within tens of milliseconds.
            tokio::spawn(testimony.give());
        }
        if !self.watch.accepts() {
            return log("the master has died with its port closed");
        }
        let port = self.watch.port().map(StdTcpListener::try_clone);
        match port.map(|port| port.and_then(TcpListener::from_std)) {
            Some(Ok(listener)) => {
                self.accepting = Some(listener);
                log("the master has died, its clients are turned away");
            }
            Some(Err(why)) => {
                // Clients in the backlog of a port that is held but not accepted wait longer than those that find it
                // closed.
                self.watch.forget();
                log(&format!("the master has died, and its clients cannot be turned away: {why}"));
            }
            None => {}
        }
    }

    /// Carries out a message of the watched master.
    fn obey(&mut self, message: io::Result<Option<ToCompanion>>, log: Log<'_>) {
        let done = match message {
            Ok(Some(ToCompanion::Port)) => self.descriptor_of_master().and_then(listening).map(|port| {
                self.watch.hold(port);
            }),
            Ok(Some(ToCompanion::Forget)) => {
                self.watch.forget();
                Ok(())
            }
            Ok(Some(ToCompanion::Testimony(testimony))) => {
                self.testimony = Some(testimony);
                Ok(())
            }
            Ok(Some(ToCompanion::Goodbye)) => {
                self.process = None;
                self.testimony = None;
                self.watch.goodbye(Instant::now());
                log("the master ends on purpose");
                // Closing the connection acknowledges the message.
                self.master = None;
                Ok(())
            }
            // The end of the connection is not the end of the process; only the pidfd tells that.
            Ok(None) => {
                self.master = None;
                Ok(())
            }
            Ok(Some(ToCompanion::Hello { .. })) => Err(io::ErrorKind::InvalidData.into()),
            Err(why) => Err(why),
        };
        if let Err(why) = done {
            log(&format!("the connection to the master is closed: {why}"));
            self.master = None;
        }
    }

    fn descriptor_of_master(&mut self) -> io::Result<OwnedFd> {
        self.master.as_mut().ok_or(io::ErrorKind::NotConnected)?.descriptor()
    }

    /// Handles the first message of a connection: a master sends Hello, or the connection is closed.
    async fn meet(&mut self, message: io::Result<Option<ToCompanion>>, log: Log<'_>) {
        let Some(mut channel) = self.newcomer.take() else { return };
        let Ok(Some(ToCompanion::Hello { boot_id })) = message else { return };
        let Ok(process) = channel.descriptor().and_then(ProcessEnd::new) else { return };
        let answer = self.watch.hello(&boot_id, Instant::now());
        if answer == ToMaster::Busy {
            log("refused another master: the one that this companion watches still runs");
            let _ = channel.send(&answer, None).await;
            return;
        }
        // A master lives from here on, so connections to the port must no longer be accepted.
        self.accepting = None;
        self.process = Some(process);
        self.testimony = None;
        let port = match answer {
            ToMaster::Welcome { port: Some(_) } => self.watch.port(),
            _ => None,
        };
        log("watching a master");
        let sent = channel.send(&answer, port.map(AsFd::as_fd)).await;
        match sent {
            Ok(()) => self.master = Some(channel),
            // The process is watched nevertheless; its master connects again.
            Err(why) => log(&format!("the connection to the master is closed: {why}")),
        }
    }
}

/// Checks that a descriptor is a listening TCP socket.
fn listening(descriptor: OwnedFd) -> io::Result<StdTcpListener> {
    let is_tcp = socket_protocol(&descriptor)? == Some(ipproto::TCP);
    if !is_tcp || !socket_acceptconn(&descriptor)? {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a listening TCP socket"));
    }
    // The master has set it already; a blocking socket would stop this process.
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    Ok(StdTcpListener::from(descriptor))
}

async fn receive(channel: &mut Option<Channel>) -> io::Result<Option<ToCompanion>> {
    match channel {
        Some(channel) => channel.receive().await,
        None => std::future::pending().await,
    }
}

/// Returns the next connection of a process of the same user; those of other users are closed.
async fn connection(acceptor: &mut Acceptor, place: &Place) -> Channel {
    loop {
        let stream = acceptor.next(&place.listener).await;
        if is_same_user(&stream).unwrap_or(false) {
            return Channel::new(stream);
        }
    }
}

/// Accepts one connection and closes it.
async fn accept(acceptor: &mut Acceptor, listener: Option<&TcpListener>) {
    match listener {
        Some(listener) => drop(acceptor.next(listener).await),
        None => std::future::pending().await,
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::process::Child;

    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpStream, UnixStream};

    use super::super::message::PortOfTheDead;
    use super::*;

    /// An accepted connection is closed at once; one that is not accepted stays silent for this long.
    const SILENCE: Duration = Duration::from_millis(200);

    /// A child process that plays a master, and its companion.
    struct Scene {
        master: Child,
        socket: PathBuf,
        companion: tokio::task::JoinHandle<io::Result<()>>,
        port: StdTcpListener,
        address: SocketAddr,
    }

    impl Scene {
        async fn new(name: &str, sidecar: bool) -> Self {
            let socket =
                std::env::temp_dir().join(format!("moonkeeper-process-{name}-{}", std::process::id()));
            let options = Options { socket: socket.clone(), sidecar, dies_with: None };
            let companion = tokio::spawn(async move {
                let place = Place::take(&options.socket).await?;
                let mut companion = Running {
                    watch: Watch::new(options.sidecar, Instant::now()),
                    master: None,
                    newcomer: None,
                    process: None,
                    testimony: None,
                    accepting: None,
                };
                companion.serve(&place, None, &mut |_| {}).await
            });
            while !socket.exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let port = crate::net::listen::listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
            let address = port.local_addr().unwrap();
            Self { master: stranger(), socket, companion, port, address }
        }

        /// Sends Hello for a process, and returns the connection with the answer.
        async fn hello(&self, boot_id: &str, process: &Child) -> (Channel, Option<ToMaster>) {
            let mut channel = Channel::new(UnixStream::connect(&self.socket).await.unwrap());
            let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            let hello = ToCompanion::Hello { boot_id: boot_id.to_owned() };
            channel.send(&hello, Some(pidfd.as_fd())).await.unwrap();
            let answer = channel.receive().await.unwrap();
            (channel, answer)
        }

        /// Returns the connection of a master that has handed its port over.
        async fn watched(&self) -> Channel {
            let (channel, answer) = self.hello("a", &self.master).await;
            assert_eq!(answer, Some(ToMaster::Welcome { port: None }));
            channel.send(&ToCompanion::Port, Some(self.port.as_fd())).await.unwrap();
            channel
        }

        async fn is_turned_away(&self) -> bool {
            let mut client = TcpStream::connect(self.address).await.unwrap();
            tokio::time::timeout(SILENCE, client.read(&mut [0; 1])).await.is_ok()
        }

        async fn wait_until_turned_away(&self) {
            while !self.is_turned_away().await {}
        }

        fn end(mut self) {
            self.companion.abort();
            let _ = self.master.kill();
            let _ = self.master.wait();
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    fn stranger() -> Child {
        std::process::Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[tokio::test]
    async fn clients_are_turned_away_from_the_end_of_the_process_on_and_not_from_that_of_the_connection() {
        let mut scene = Scene::new("death", false).await;
        let channel = scene.watched().await;
        assert!(!scene.is_turned_away().await);
        drop(channel);
        assert!(!scene.is_turned_away().await);
        scene.master.kill().unwrap();
        scene.wait_until_turned_away().await;
        scene.end();
    }

    #[tokio::test]
    async fn a_successor_gets_the_port_and_clients_wait_for_it_again() {
        let mut scene = Scene::new("successor", false).await;
        let channel = scene.watched().await;
        let mut second = stranger();
        let (_, answer) = scene.hello("b", &second).await;
        assert_eq!(answer, Some(ToMaster::Busy));
        scene.master.kill().unwrap();
        scene.wait_until_turned_away().await;
        drop(channel);
        let (mut channel, answer) = scene.hello("b", &second).await;
        assert!(
            matches!(answer, Some(ToMaster::Welcome { port: Some(PortOfTheDead { turned_away: 1.., .. }) })),
            "{answer:?}"
        );
        let port = StdTcpListener::from(channel.descriptor().unwrap());
        assert_eq!(port.local_addr().unwrap(), scene.address);
        assert!(!scene.is_turned_away().await);
        second.kill().unwrap();
        scene.wait_until_turned_away().await;
        second.wait().unwrap();
        scene.end();
    }

    #[tokio::test]
    async fn a_goodbye_ends_it_and_a_closed_port_is_forgotten() {
        let mut scene = Scene::new("goodbye", true).await;
        let mut channel = scene.watched().await;
        channel.send(&ToCompanion::Forget, None).await.unwrap();
        channel.send(&ToCompanion::Goodbye, None).await.unwrap();
        assert_eq!(channel.receive::<ToMaster>().await.unwrap(), None);
        scene.master.kill().unwrap();
        assert!(!scene.is_turned_away().await);
        assert!(!scene.companion.is_finished());
        scene.end();

        let scene = Scene::new("goodbye-child", false).await;
        let channel = scene.watched().await;
        channel.send(&ToCompanion::Goodbye, None).await.unwrap();
        while !scene.companion.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!scene.socket.exists());
        scene.end();
    }

    #[tokio::test]
    async fn what_is_no_listening_socket_is_refused_and_the_process_is_watched_nevertheless() {
        let mut scene = Scene::new("refused", false).await;
        let mut channel = scene.watched().await;
        let client = TcpStream::connect(scene.address).await.unwrap();
        channel.send(&ToCompanion::Port, Some(client.as_fd())).await.unwrap();
        assert_eq!(channel.receive::<ToMaster>().await.unwrap(), None);
        scene.master.kill().unwrap();
        scene.wait_until_turned_away().await;
        scene.end();
    }
}
