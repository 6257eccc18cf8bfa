//! The RPC port as the companion has to hold it: the listening socket while the master has it open, else nothing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::watch;

/// Publishes which socket the companion has to hold. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct HeldPort(Option<watch::Sender<Option<Arc<OwnedFd>>>>);

/// Receiver of the socket that has to be held.
pub(super) type HeldPorts = watch::Receiver<Option<Arc<OwnedFd>>>;

impl HeldPort {
    /// Creates the publisher of a master with a companion. [`HeldPort::default`] is for a master without one, and does
    /// nothing.
    #[must_use]
    pub(super) fn channel() -> (Self, HeldPorts) {
        let (sender, receiver) = watch::channel(None);
        (Self(Some(sender)), receiver)
    }

    /// Publishes this duplicate of the open port's socket.
    pub fn hold(&self, socket: OwnedFd) {
        if let Some(sender) = &self.0 {
            sender.send_replace(Some(Arc::new(socket)));
        }
    }

    /// Publishes that the port is closed.
    pub fn release(&self) {
        if let Some(sender) = &self.0 {
            sender.send_replace(None);
        }
    }

    /// Returns whether a socket is published.
    pub(super) fn is_held(&self) -> bool {
        self.0.as_ref().is_some_and(|sender| sender.borrow().is_some())
    }
}
