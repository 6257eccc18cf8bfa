//! The RPC port as the companion shall hold it: the listening socket while the master has it open, else nothing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::watch;

/// Says what the companion shall hold. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct HeldPort(Option<watch::Sender<Option<Arc<OwnedFd>>>>);

/// Where it is said.
pub(super) type HeldPorts = watch::Receiver<Option<Arc<OwnedFd>>>;

impl HeldPort {
    /// For a master with a companion. Without one it is the default, which does nothing.
    #[must_use]
    pub(super) fn channel() -> (Self, HeldPorts) {
        let (sender, receiver) = watch::channel(None);
        (Self(Some(sender)), receiver)
    }

    /// The port is open: the companion shall hold this duplicate of its socket.
    pub fn hold(&self, socket: OwnedFd) {
        if let Some(sender) = &self.0 {
            sender.send_replace(Some(Arc::new(socket)));
        }
    }

    /// The port is closed.
    pub fn release(&self) {
        if let Some(sender) = &self.0 {
            sender.send_replace(None);
        }
    }

    /// Whether the companion shall hold one.
    pub(super) fn is_held(&self) -> bool {
        self.0.as_ref().is_some_and(|sender| sender.borrow().is_some())
    }
}
