//! Log time on this machine: the wall clock at the start, or the last record of the primary before, carried on by the
//! monotonic clock. Setting the wall clock later changes nothing; time in which the machine was suspended counts.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::types::LogTime;
use crate::replication::time::{LogClock, MonotonicClock};

/// Where log time comes from.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    monotonic: MonotonicClock,
    log: LogClock,
}

impl Clock {
    /// Starts from the wall clock.
    #[must_use]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let from = LogTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
        let monotonic = MonotonicClock::start();
        Self::going_on(LogClock::new(from, monotonic.now()), monotonic)
    }

    /// Goes on as `log` does, by this clock.
    #[must_use]
    pub fn going_on(log: LogClock, monotonic: MonotonicClock) -> Self {
        Self { monotonic, log }
    }

    /// Log time now.
    #[must_use]
    pub fn now(&self) -> LogTime {
        self.log.at(self.monotonic.now())
    }
}
