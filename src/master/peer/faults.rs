//! Connections between masters that could not be authenticated: counted, logged at a limited rate, shown in the status.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::master::metrics::{Counters, Metrics};

/// Least time between two log lines. A standby retries five times a second, and an attacker as often as it likes.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Record of failed authentications. Clones share it.
#[derive(Clone, Debug)]
pub struct PeerFaults {
    metrics: Arc<Metrics>,
    last: Arc<Mutex<Last>>,
}

#[derive(Debug, Default)]
struct Last {
    text: String,
    logged_at: Option<Instant>,
}

impl PeerFaults {
    /// Starts an empty record that counts in `metrics`.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, last: Arc::default() }
    }

    /// Records that a peer, named by its address and its name if that is known, could not be authenticated.
    pub(super) fn note(&self, peer: &str, cause: &str) {
        Counters::add(&self.metrics.counters.peer_auth_failures, 1);
        let mut last = self.last.lock();
        last.text = format!("{peer}: {cause}");
        if last.logged_at.is_none_or(|at| at.elapsed() >= LOG_PAUSE) {
            last.logged_at = Some(Instant::now());
            tracing::warn!(
                peer,
                cause,
                "a peer connection is not authenticated; between two masters of a cluster this means that there is no \
                 switchover from one to the other, and that a dead primary is noticed only when its lease runs out"
            );
        }
    }

    /// Returns how many there were, and the last one.
    #[must_use]
    pub fn count_and_last(&self) -> (u64, String) {
        let count = self.metrics.counters.peer_auth_failures.load(Ordering::Relaxed);
        (count, self.last.lock().text.clone())
    }
}
