//! Which processes are connected to the peer port, counted, so that the end of the last connection of each is told.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::PeerMessage;

/// Name and boot id of a process.
pub(super) type Process = (String, String);

/// Number of connections of each process.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence(Arc<Mutex<HashMap<Process, usize>>>);

impl Presence {
    /// Counts one connection of this process.
    pub(super) fn enter(&self, process: &Process) {
        *self.0.lock().entry(process.clone()).or_default() += 1;
    }

    /// Counts one connection less, and tells if it was the last.
    pub(super) async fn leave(&self, process: &Process, to: &mpsc::Sender<PeerMessage>) {
        // The permit is taken first, so that counting and telling are one step: else the reports of a new connection
        // of the same process could overtake the end of its old one.
        let permit = to.reserve().await;
        let mut counts = self.0.lock();
        let Some(count) = counts.get_mut(process) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        counts.remove(process);
        if let Ok(permit) = permit {
            let (name, boot_id) = process.clone();
            permit.send(PeerMessage::Gone { name, boot_id });
        }
    }
}
