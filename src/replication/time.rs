//! Time as one process sees it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::clocks::{Clocks, MACHINE, Reading};
use crate::engine::types::LogTime;

/// A moment on a clock that never goes back and that no other process shares, in microseconds. Time in which the
/// machine was suspended counts: other machines did not stand still meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// Returns the moment that is this much later.
    #[must_use]
    pub fn plus(self, while_: Duration) -> Self {
        Self(self.0.saturating_add(micros(while_)))
    }

    /// Returns how long ago an earlier moment was; zero if it was later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

fn micros(while_: Duration) -> u64 {
    u64::try_from(while_.as_micros()).unwrap_or(u64::MAX)
}

/// The monotonic clock of this process: the machine's time since boot, suspension included.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    clocks: &'static dyn Clocks,
    start: Duration,
}

impl MonotonicClock {
    /// Starts a clock at the present time.
    #[must_use]
    pub fn start() -> Self {
        Self::on(&MACHINE)
    }

    /// Starts a clock on other clocks than those of this machine.
    #[must_use]
    pub fn on(clocks: &'static dyn Clocks) -> Self {
        Self { clocks, start: clocks.boottime() }
    }

    /// Returns the time since the start, and at least 1.
    #[must_use]
    pub fn now(&self) -> Monotonic {
        // Zero means "never" in some places.
        Monotonic(micros(self.clocks.boottime().saturating_sub(self.start)).saturating_add(1))
    }

    /// Reads all clocks of the machine, for a [`super::clocks::ClockWatch`].
    #[must_use]
    pub fn read(&self) -> Reading {
        self.clocks.read()
    }
}

/// Log time as a primary continues it: from the timestamp of the last record, by its own monotonic clock. The wall
/// clock, and any change of it, has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogClock {
    from: LogTime,
    since: Monotonic,
}

impl LogClock {
    /// Creates a clock that shows `from` at `now`.
    #[must_use]
    pub fn new(from: LogTime, now: Monotonic) -> Self {
        Self { from, since: now }
    }

    /// Returns the log time at a moment.
    #[must_use]
    pub fn at(&self, now: Monotonic) -> LogTime {
        self.from.plus(now.0.saturating_sub(self.since.0) / 1000)
    }
}

/// The log time of this process: a [`LogClock`] that reads the monotonic clock itself.
#[derive(Clone, Copy, Debug)]
pub struct RunningClock {
    monotonic: MonotonicClock,
    log: LogClock,
}

impl RunningClock {
    /// Starts from the wall clock. Setting the wall clock later has no effect.
    #[must_use]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let from = LogTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
        let monotonic = MonotonicClock::start();
        Self::new(LogClock::new(from, monotonic.now()), monotonic)
    }

    /// Continues this log time by this monotonic clock.
    #[must_use]
    pub fn new(log: LogClock, monotonic: MonotonicClock) -> Self {
        Self { monotonic, log }
    }

    /// Returns the current log time.
    #[must_use]
    pub fn now(&self) -> LogTime {
        self.log.at(self.monotonic.now())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::replication::gate::Gate;
    use crate::replication::lease::LeaderLease;

    const SECOND: Duration = Duration::from_secs(1);

    /// Clocks that a test moves.
    #[derive(Debug, Default)]
    struct Moved(Mutex<Reading>);

    impl Clocks for Moved {
        fn read(&self) -> Reading {
            *self.0.lock()
        }
    }

    impl Moved {
        /// Suspends the machine: the clock that does not count suspension stands still.
        fn suspend(&self, time: Duration) {
            let mut now = self.0.lock();
            now.boottime += time;
            now.realtime += time;
        }
    }

    #[test]
    fn a_suspended_machine_does_not_answer_from_the_past() {
        let clocks: &'static Moved = Box::leak(Box::default());
        let clock = MonotonicClock::on(clocks);
        let log = LogClock::new(LogTime(5_000), clock.now());
        let lease = LeaderLease::granted(crate::coordination::types::LeaseId(1), 5 * SECOND, clock.now());
        let gate = Gate::default();
        gate.open_until(lease.deadline());
        assert!(gate.may_answer(clock.now()));
        clocks.suspend(60 * SECOND);
        assert!(!gate.may_answer(clock.now()), "another master may have led for a minute");
        assert_eq!(log.at(clock.now()), LogTime(65_000), "leases of readers have ended meanwhile");
    }

    #[test]
    fn a_clock_never_says_zero() {
        assert!(MonotonicClock::on(Box::leak(Box::<Moved>::default())).now() > Monotonic(0));
        let machine = MonotonicClock::start();
        assert!(machine.now() > Monotonic(0) && machine.now() < Monotonic(60_000_000));
    }
}
