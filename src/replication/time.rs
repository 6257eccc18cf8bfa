//! Time as one process sees it.

use std::time::{Duration, Instant};

use crate::engine::types::LogTime;

/// A moment on a clock that never goes back and that no other process shares, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// This moment and a while.
    #[must_use]
    pub fn plus(self, while_: Duration) -> Self {
        Self(self.0.saturating_add(micros(while_)))
    }

    /// How long ago an earlier moment was; zero if it was later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

fn micros(while_: Duration) -> u64 {
    u64::try_from(while_.as_micros()).unwrap_or(u64::MAX)
}

/// The monotonic clock of this process.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    start: Instant,
}

impl MonotonicClock {
    /// Starts it.
    #[must_use]
    pub fn start() -> Self {
        // Zero stands for "never" in some places.
        Self { start: Instant::now().checked_sub(Duration::from_micros(1)).unwrap_or_else(Instant::now) }
    }

    /// What it says now.
    #[must_use]
    pub fn now(&self) -> Monotonic {
        Monotonic(micros(self.start.elapsed()))
    }

    /// The same moment for others.
    #[must_use]
    pub fn instant(&self, at: Monotonic) -> Instant {
        self.start + Duration::from_micros(at.0)
    }
}

/// Log time as a primary continues it: from the timestamp of the last record, by its own monotonic clock. What the
/// wall clock says, and when somebody sets it, changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogClock {
    from: LogTime,
    since: Monotonic,
}

impl LogClock {
    /// Goes on from `from`, which is now.
    #[must_use]
    pub fn new(from: LogTime, now: Monotonic) -> Self {
        Self { from, since: now }
    }

    /// What it goes on from, and since when.
    #[must_use]
    pub fn start(&self) -> (LogTime, Monotonic) {
        (self.from, self.since)
    }

    /// Log time at a moment.
    #[must_use]
    pub fn at(&self, now: Monotonic) -> LogTime {
        self.from.plus(now.0.saturating_sub(self.since.0) / 1000)
    }
}
