//! The RPC port while a master does not serve. It stays open for a moment, and every connection is accepted and closed
//! at once: after a master has stopped serving, and after a restart with the port of a predecessor that died.
//!
//! A Mooncake client that finds the port closed retries for more than four seconds before its call fails. One whose
//! connection is closed gets its error at once, and its next call goes to the new primary, of which it has learnt
//! meanwhile.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::master::companion::HeldPort;
use crate::net::accept::Acceptor;

/// How long clients are turned away after a master has stopped serving. They learn of a new primary within some
/// tenths of it.
pub const TURN_AWAY: Duration = Duration::from_secs(1);
/// Wait before the next attempt to accept when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The port of a master that does not serve.
#[derive(Debug, Default)]
pub struct DrainingPort {
    open: Mutex<Open>,
    /// The port as the companion holds it; released together with this one.
    held: HeldPort,
}

#[derive(Debug, Default)]
struct Open {
    /// How often the port was left open, so that the end of one time does not close the next.
    times: u64,
    listener: Option<std::net::TcpListener>,
    /// Task that accepts and closes connections.
    task: Option<AbortHandle>,
}

impl DrainingPort {
    /// Creates with a companion that holds the port as well.
    #[must_use]
    pub fn new(held: HeldPort) -> Self {
        Self { held, ..Self::default() }
    }

    /// Leaves the port open for this period. If that fails, the port is closed at once, which is safe.
    pub fn leave_open(self: &Arc<Self>, listener: TcpListener, period: Duration) {
        let both = listener.into_std().and_then(|kept| Ok((TcpListener::from_std(kept.try_clone()?)?, kept)));
        let Ok((listener, kept)) = both else { return self.held.release() };
        let mut open = self.open.lock();
        open.listener = Some(kept);
        open.times += 1;
        let times = open.times;
        let draining_port = Arc::clone(self);
        let task = tokio::spawn(async move {
            let turn_away = async {
                let mut acceptor = Acceptor::quiet(ACCEPT_PAUSE);
                while draining_port.is_open(times) {
                    drop(acceptor.next(&listener).await);
                }
            };
            let _ = tokio::time::timeout(period, turn_away).await;
            draining_port.close(times);
        });
        open.task = Some(task.abort_handle());
    }

    /// Takes the open port, to be served again.
    pub fn take(&self) -> Option<std::net::TcpListener> {
        let mut open = self.open.lock();
        if let Some(task) = open.task.take() {
            // Otherwise the task would accept the next connection before the server does.
            task.abort();
        }
        open.listener.take()
    }

    /// Waits until the port is closed.
    pub async fn closed(&self) {
        while self.open.lock().listener.is_some() {
            tokio::time::sleep(TURN_AWAY / 20).await;
        }
    }

    fn close(&self, times: u64) {
        let mut open = self.open.lock();
        if open.times == times
            && let Some(listener) = open.listener.take()
        {
            // Affects all descriptors of the socket at once: the companion has one, and may be slow to close it.
            let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
            self.held.release();
        }
    }

    fn is_open(&self, times: u64) -> bool {
        let open = self.open.lock();
        open.times == times && open.listener.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    async fn is_turned_away(address: std::net::SocketAddr) -> bool {
        let mut stream = TcpStream::connect(address).await.unwrap();
        matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn every_client_is_turned_away_until_the_port_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let draining_port = Arc::new(DrainingPort::default());
        draining_port.leave_open(listener, TURN_AWAY);
        assert!(is_turned_away(address).await);
        assert!(is_turned_away(address).await);
        draining_port.closed().await;
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn the_port_is_closed_although_another_process_has_a_descriptor_of_it_and_can_be_opened_again() {
        let listener = crate::net::listen::listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let address = listener.local_addr().unwrap();
        let duplicate = listener.try_clone().unwrap();
        let draining_port = Arc::new(DrainingPort::default());
        draining_port.leave_open(TcpListener::from_std(listener).unwrap(), Duration::ZERO);
        draining_port.closed().await;
        assert!(TcpStream::connect(address).await.is_err());
        let again = crate::net::listen::listen(address, 8).unwrap();
        assert!(TcpStream::connect(address).await.is_ok());
        drop((duplicate, again));
    }

    #[tokio::test]
    async fn a_port_that_was_left_open_can_be_served_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let draining_port = Arc::new(DrainingPort::default());
        draining_port.leave_open(listener, TURN_AWAY);
        // The task waits for clients by now.
        tokio::task::yield_now().await;
        let listener = TcpListener::from_std(draining_port.take().unwrap()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        // The first client that connects is served.
        let _client = TcpStream::connect(address).await.unwrap();
        tokio::task::yield_now().await;
        assert!(tokio::time::timeout(TURN_AWAY / 2, listener.accept()).await.is_ok());
    }
}
