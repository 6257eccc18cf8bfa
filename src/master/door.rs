//! The port after a master has stopped serving: it stays open for a moment, and whoever comes is turned away at once.
//!
//! A Mooncake client that finds the port closed tries again for more than four seconds before its call fails. One that
//! is turned away has its error at once, and its next call goes to the new primary, of which it has heard meanwhile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;

/// How long; clients hear of a new primary within a tenth of it.
pub const TURN_AWAY: Duration = Duration::from_secs(1);
/// Out of file descriptors: how long to wait before the next attempt to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The port of a master that does not serve.
#[derive(Debug, Default)]
pub struct Door {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// How often it was left open.
    times: u64,
    listener: Option<std::net::TcpListener>,
}

impl Door {
    /// Leaves the port open for [`TURN_AWAY`]. If that cannot be done it is closed at once, which is as well.
    pub fn leave_open(self: &Arc<Self>, listener: TcpListener) {
        let both = listener.into_std().and_then(|listener| Ok((listener.try_clone()?, listener)));
        let Ok((listener, kept)) = both else { return };
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        let times = {
            let mut open = self.open.lock();
            open.listener = Some(kept);
            open.times += 1;
            open.times
        };
        let door = Arc::clone(self);
        tokio::spawn(async move {
            let turn_away = async {
                while door.is_open(times) {
                    if listener.accept().await.is_err() {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            let _ = tokio::time::timeout(TURN_AWAY, turn_away).await;
            let mut open = door.open.lock();
            if open.times == times {
                open.listener = None;
            }
        });
    }

    /// The open port, to be served again.
    pub fn take(&self) -> Option<std::net::TcpListener> {
        self.open.lock().listener.take()
    }

    /// Waits until the port is closed.
    pub async fn closed(&self) {
        while self.open.lock().listener.is_some() {
            tokio::time::sleep(TURN_AWAY / 20).await;
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
    async fn whoever_comes_is_turned_away_until_the_port_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Arc::new(Door::default());
        door.leave_open(listener);
        assert!(is_turned_away(address).await);
        assert!(is_turned_away(address).await);
        door.closed().await;
        // The task gives its own hold on the port up with the lock, or right after.
        tokio::task::yield_now().await;
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn a_port_that_was_left_open_can_be_served_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Arc::new(Door::default());
        door.leave_open(listener);
        let listener = TcpListener::from_std(door.take().unwrap()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        // At most one who comes right then is still turned away.
        let mut served = false;
        for _ in 0..2 {
            let client = TcpStream::connect(address).await.unwrap();
            served |= tokio::time::timeout(TURN_AWAY / 2, listener.accept()).await.is_ok();
            drop(client);
        }
        assert!(served);
    }
}
