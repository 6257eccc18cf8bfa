//! Log time on this machine: the wall clock at the start, or the last record of the primary before, carried on by the
//! monotonic clock. Setting the wall clock later changes nothing.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::engine::types::LogTime;

/// Where log time comes from.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    start_ms: u64,
}

impl Clock {
    /// Starts from the wall clock.
    #[must_use]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), start_ms: since_epoch.as_millis() as u64 }
    }

    /// Goes on from log time `from` at the moment `since`.
    #[must_use]
    pub fn going_on(from: LogTime, since: Instant) -> Self {
        Self { started: since, start_ms: from.0 }
    }

    /// Log time now.
    #[must_use]
    pub fn now(&self) -> LogTime {
        LogTime(self.start_ms + self.started.elapsed().as_millis() as u64)
    }
}
