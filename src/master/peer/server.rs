//! The side that listens.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::line::{Lines, send};
use super::{PING, PeerReport, PeerState};

/// Most connections: one for each other master, and plenty to spare.
const MAX_CONNECTIONS: usize = 64;

/// A peer sends a line each second; one that has sent none for so long has gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Pause after a failed accept, for instance when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Tells everyone who connects what `state` is and becomes, and hands on what they report, until `stop` turns true or
/// its sender is gone. The listener is closed no earlier than that: a closed peer port means a dead process.
pub async fn serve(
    listener: TcpListener,
    state: watch::Receiver<PeerState>,
    reports: mpsc::Sender<PeerReport>,
    mut stop: watch::Receiver<bool>,
) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let next = async {
            let place = Arc::clone(&free).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = stopped(&mut stop) => return,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { return };
        match accepted {
            Ok((stream, address)) => {
                let (state, reports, stop) = (state.clone(), reports.clone(), stop.clone());
                tokio::spawn(async move {
                    if let Err(why) = connection(stream, state, reports, stop, place).await {
                        tracing::debug!(%address, %why, "a connection to the peer port ended");
                    }
                });
            }
            Err(why) => {
                tracing::warn!(%why, "cannot accept a connection on the peer port");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits until the server shall stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it whoever wanted the server to run.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(
    mut stream: TcpStream,
    mut state: watch::Receiver<PeerState>,
    reports: mpsc::Sender<PeerReport>,
    mut stop: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) -> io::Result<()> {
    prepare(&stream)?;
    let (from, mut to) = stream.split();
    let mut lines = Lines::new(from);
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut changes = true;
    loop {
        tokio::select! {
            // The first tick is at once: that is the greeting.
            _ = ping.tick() => {
                let now = state.borrow_and_update().clone();
                send(&mut to, &now).await?;
            }
            changed = state.changed(), if changes => match changed {
                Ok(()) => ping.reset_immediately(),
                // Nobody will change it any more; what was said last stays true.
                Err(_) => changes = false,
            },
            line = lines.next::<PeerReport>() => match line? {
                Some(report) => {
                    heard = Instant::now();
                    // Waits for whoever takes them; there is one report on its way at most.
                    if reports.send(report).await.is_err() {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            },
            () = sleep_until(heard + SILENCE) => return Err(io::ErrorKind::TimedOut.into()),
            () = stopped(&mut stop) => return Ok(()),
        }
    }
}

/// Small lines leave at once, and the kernel finds out when the other machine is gone.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(1));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
