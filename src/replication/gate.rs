//! The gate in front of every answer: how far the log is durable, and until when this master may answer as primary.
//!
//! The node moves it; the code that answers clients asks it. It is shared between threads and has no other state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::parked_answers::{LogState, PATIENCE, Refusing};
use super::time::Monotonic;
use crate::engine::types::SequenceId;

/// What every answer passes: the durable prefix, and the end of the leader lease.
#[derive(Debug)]
pub struct Gate {
    durable: watch::Sender<SequenceId>,
    prefix: AtomicU64,
    deadline: AtomicU64,
    writing_since: AtomicU64,
    log_full: AtomicBool,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            durable: watch::channel(SequenceId(0)).0,
            prefix: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            writing_since: AtomicU64::new(0),
            log_full: AtomicBool::new(false),
        }
    }
}

impl Gate {
    /// Returns the durable prefix: the highest sequence id that etcd is known to have committed. An answer that depends
    /// on a later record waits (INV-3).
    #[must_use]
    pub fn durable(&self) -> SequenceId {
        SequenceId(self.prefix.load(Ordering::Acquire))
    }

    /// Raises the durable prefix and wakes the answers that wait for it. A lower value has no effect (INV-2).
    pub fn advance(&self, to: SequenceId) {
        self.prefix.fetch_max(to.0, Ordering::AcqRel);
        self.durable.send_if_modified(|durable| {
            let grown = to > *durable;
            *durable = to.max(*durable);
            grown
        });
    }

    /// Sets since when a batch is in flight; `None` if there is none.
    pub fn set_writing(&self, since: Option<Monotonic>) {
        self.writing_since.store(since.map_or(0, |since| since.0), Ordering::Release);
    }

    /// Returns for how long the batch in flight has been so; zero if there is none.
    #[must_use]
    pub fn writing_for(&self, now: Monotonic) -> Duration {
        match self.writing_since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => now.since(Monotonic(since)),
        }
    }

    /// Sets whether etcd refuses writes, for lack of space for instance. While it does, admission refuses changes before
    /// anything is applied, and answers that wait for the log are given up after [`PATIENCE`]: what became of their
    /// records is unknown (R5).
    pub fn set_log_full(&self, full: bool) {
        if self.log_full.swap(full, Ordering::AcqRel) != full {
            // Wakes the answers that wait for the log, so that they check this flag.
            self.durable.send_modify(|_| {});
        }
    }

    /// Returns whether etcd refuses writes, for lack of space for instance.
    #[must_use]
    pub fn is_log_full(&self) -> bool {
        self.log_full.load(Ordering::Acquire)
    }

    /// Returns how long answers wait while etcd refuses writes; `None` if it accepts them. Reads the clock only if it
    /// refuses.
    #[must_use]
    pub fn refusing(&self, now: impl FnOnce() -> Monotonic) -> Option<Refusing> {
        self.is_log_full().then(|| Refusing { now: now(), patience: PATIENCE })
    }

    /// Returns the state of the log for answers that wait for it.
    #[must_use]
    pub fn log_state(&self, now: Monotonic) -> LogState {
        LogState { durable: self.durable(), refusing: self.refusing(|| now) }
    }

    /// Returns the record that an answer waits for which may be sent before its own record is durable
    /// (`--durability=relaxed`): at most the last `records` records may be missing, and none if the batch in flight has
    /// been so for longer than `time`. So the tail that a crash can lose is bounded.
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

    /// Subscribes to every growth of the durable prefix, and to every change of [`Self::is_log_full`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<SequenceId> {
        self.durable.subscribe()
    }

    /// Returns whether this master may still write to a socket: its lease, counted from when the last answered
    /// keep-alive was sent, has not run out.
    #[must_use]
    pub fn may_answer(&self, now: Monotonic) -> bool {
        now.0 < self.deadline.load(Ordering::Acquire)
    }

    /// Returns until when this master may answer as primary.
    #[must_use]
    pub fn deadline(&self) -> Monotonic {
        Monotonic(self.deadline.load(Ordering::Acquire))
    }

    /// Lets this master answer until `deadline`: its lease was confirmed.
    pub fn open_until(&self, deadline: Monotonic) {
        self.deadline.store(deadline.0, Ordering::Release);
    }

    /// Forbids this master to answer as primary.
    pub fn close(&self) {
        self.deadline.store(0, Ordering::Release);
        // Whether the log is full was learnt in a term that has ended.
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
