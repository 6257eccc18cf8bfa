//! Counts the connections of each process to the peer port, so that the end of the last one is reported.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::PeerMessage;

/// Name and boot id of a process.
pub(super) type Process = (String, String);

/// The members in etcd: the boot id of each by its name.
pub type Members = BTreeMap<String, String>;

/// Number of connections of each process.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence(Arc<Mutex<HashMap<Process, usize>>>);

impl Presence {
    /// Counts one connection of this process.
    pub(super) fn enter(&self, process: &Process) {
        *self.0.lock().entry(process.clone()).or_default() += 1;
    }

    /// Counts one connection less, and reports [`PeerMessage::Gone`] if it was the last.
    pub(super) async fn leave(&self, process: &Process, to: &mpsc::Sender<PeerMessage>) {
        // The permit is acquired first, so that counting and reporting are one step: else the reports of a new
        // connection of the same process could overtake the end of its old one.
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
