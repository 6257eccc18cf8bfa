//! The gate in front of every answer: how far the log is durable, and until when this master may speak as primary.
//!
//! The role machine moves it; whoever answers clients asks it. It is shared between threads and holds nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::admission::PATIENCE;
use super::parked_answers::{LogState, Refusing};
use super::time::Monotonic;
use crate::engine::types::SequenceId;

/// What every answer passes.
#[derive(Debug)]
pub struct Gate {
    durable: watch::Sender<u64>,
    prefix: AtomicU64,
    deadline: AtomicU64,
    writing_since: AtomicU64,
    log_full: AtomicBool,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            durable: watch::channel(0).0,
            prefix: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            writing_since: AtomicU64::new(0),
            log_full: AtomicBool::new(false),
        }
    }
}

impl Gate {
    /// The durable prefix: the highest sequence id that etcd is known to have committed. An answer that depends on a
    /// later record waits (INV-3).
    #[must_use]
    pub fn durable(&self) -> SequenceId {
        SequenceId(self.prefix.load(Ordering::Acquire))
    }

    /// The durable prefix has grown.
    pub fn advance(&self, to: SequenceId) {
        self.prefix.fetch_max(to.0, Ordering::AcqRel);
        self.durable.send_if_modified(|durable| {
            let grown = to.0 > *durable;
            *durable = to.0.max(*durable);
            grown
        });
    }

    /// A batch was sent to be written, or none is on its way.
    pub fn set_writing(&self, since: Option<Monotonic>) {
        self.writing_since.store(since.map_or(0, |since| since.0), Ordering::Release);
    }

    /// How long the batch on its way has been.
    #[must_use]
    pub fn writing_for(&self, now: Monotonic) -> Duration {
        match self.writing_since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => now.since(Monotonic(since)),
        }
    }

    /// etcd refuses writes because it is out of space, or takes them again. While it refuses, admission refuses changes
    /// before anything is applied, and answers that wait for the log are given up after
    /// [`PATIENCE`](super::admission::PATIENCE): what became of their records is unknown (R5).
    pub fn set_log_full(&self, full: bool) {
        if self.log_full.swap(full, Ordering::AcqRel) != full {
            // Those who wait for the log look again.
            self.durable.send_modify(|_| {});
        }
    }

    /// Whether etcd refuses writes because it is out of space.
    #[must_use]
    pub fn is_log_full(&self) -> bool {
        self.log_full.load(Ordering::Acquire)
    }

    /// Set while etcd refuses writes: how long answers wait for it then. Reads the clock only if it does.
    #[must_use]
    pub fn refusing(&self, now: impl FnOnce() -> Monotonic) -> Option<Refusing> {
        self.is_log_full().then(|| Refusing { now: now(), patience: PATIENCE })
    }

    /// What the log says to answers that wait for it.
    #[must_use]
    pub fn log_state(&self, now: Monotonic) -> LogState {
        LogState { durable: self.durable(), refusing: self.refusing(|| now) }
    }

    /// What an answer waits for that may be sent before its own record is durable: at most `records` of the last records
    /// may be missing, and none if the batch on its way has been for longer than `time`. The tail that a crash can lose is
    /// bounded.
    #[must_use]
    pub fn relaxed(
        &self,
        depends_on: SequenceId,
        records: u64,
        time: Duration,
        now: Monotonic,
    ) -> SequenceId {
        let late = depends_on > self.durable() && self.writing_for(now) > time;
        if late { depends_on } else { SequenceId(depends_on.0.saturating_sub(records)) }
    }

    /// Tells of every growth of the durable prefix, and of every change of [`Self::is_log_full`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    /// Whether this master may still write to a socket: its lease, counted from when the last answered keep-alive was
    /// sent, has not run out.
    #[must_use]
    pub fn may_answer(&self, now: Monotonic) -> bool {
        now.0 < self.deadline.load(Ordering::Acquire)
    }

    /// Until when this master may speak as primary.
    #[must_use]
    pub fn deadline(&self) -> Monotonic {
        Monotonic(self.deadline.load(Ordering::Acquire))
    }

    /// The lease was confirmed: this master may speak until then.
    pub fn open_until(&self, deadline: Monotonic) {
        self.deadline.store(deadline.0, Ordering::Release);
    }

    /// This master may no longer speak as primary.
    pub fn close(&self) {
        self.deadline.store(0, Ordering::Release);
        // What the log said to an earlier primary is no longer known.
        self.set_log_full(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_durable_prefix_never_goes_back() {
        let gate = Gate::default();
        gate.advance(SequenceId(7));
        gate.advance(SequenceId(3));
        assert_eq!(gate.durable(), SequenceId(7));
    }

    #[test]
    fn nobody_speaks_past_the_deadline() {
        let gate = Gate::default();
        assert!(!gate.may_answer(Monotonic(0)));
        gate.open_until(Monotonic(10));
        assert!(gate.may_answer(Monotonic(9)));
        assert!(!gate.may_answer(Monotonic(10)));
        gate.close();
        assert!(!gate.may_answer(Monotonic(9)));
    }
}
