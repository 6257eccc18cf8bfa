//! The clocks of the machine, and a watch over them. A machine that was suspended, or whose virtual machine was
//! stopped, must not answer from the past when it resumes: its lease may have ended meanwhile.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A reading of all clocks of a machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time since boot, suspension included. Stands still while a virtual machine is stopped.
    pub boottime: Duration,
    /// Time since boot without suspension.
    pub monotonic: Duration,
    /// Wall clock. Can be set, also by the hypervisor after a virtual machine was stopped.
    pub realtime: Duration,
}

/// A source of time; tests replace it with their own.
pub trait Clocks: Sync + std::fmt::Debug {
    /// Reads all clocks at one moment.
    fn read(&self) -> Reading;

    /// Returns time since boot, suspension included.
    fn boottime(&self) -> Duration {
        self.read().boottime
    }
}

/// The clocks of this machine.
pub static MACHINE: Machine = Machine;

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Clocks for Machine {
    fn read(&self) -> Reading {
        Reading {
            boottime: self.boottime(),
            monotonic: duration(clock_gettime(ClockId::Monotonic)),
            realtime: duration(clock_gettime(ClockId::Realtime)),
        }
    }

    fn boottime(&self) -> Duration {
        duration(clock_gettime(ClockId::Boottime))
    }
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// How far clocks may drift apart while a lease is counted by one of them: the lease's own margin covers that much.
pub const TOLERANCE: Duration = Duration::from_millis(500);

/// A reading is compared with one that is at least this old, so that many short stops add up. Longer than a lease.
const WINDOW: Duration = Duration::from_secs(10);

/// Detects that the clocks of this machine drifted apart: it was suspended or stopped, or its wall clock was set.
///
/// Which of these it was cannot be told from inside: after a stop of the virtual machine only the wall clock shows that
/// time has passed, exactly as if a person had set it. So a jump closes the gate and does nothing else: the first
/// answered keep-alive that was sent after the jump shows whether the lease still holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockWatch {
    /// The reading to compare with.
    old: Option<Reading>,
    /// Replaces `old` when it has become old enough.
    next: Reading,
}

impl ClockWatch {
    /// Compares a new reading with an older one. Returns how far the clocks drifted apart if that is more than the
    /// tolerance; each drift is reported once.
    pub fn look(&mut self, now: Reading) -> Option<Duration> {
        let Some(old) = self.old else {
            (self.old, self.next) = (Some(now), now);
            return None;
        };
        let drift = drift(&old, &now);
        if drift > TOLERANCE {
            (self.old, self.next) = (Some(now), now);
            return Some(drift);
        }
        if now.boottime.saturating_sub(self.next.boottime) >= WINDOW {
            (self.old, self.next) = (Some(self.next), now);
        }
        None
    }
}

/// Returns the difference between the clock that advanced most and the one that advanced least. A wall clock that was
/// set back counts by how far.
fn drift(old: &Reading, now: &Reading) -> Duration {
    let passed = |old: Duration, now: Duration| now.as_micros() as i128 - old.as_micros() as i128;
    let passed = [
        passed(old.boottime, now.boottime),
        passed(old.monotonic, now.monotonic),
        passed(old.realtime, now.realtime),
    ];
    let most = passed.iter().copied().fold(i128::MIN, i128::max);
    let least = passed.iter().copied().fold(i128::MAX, i128::min);
    Duration::from_micros(u64::try_from(most - least).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the clocks of a machine that has run for a while.
    fn start() -> Reading {
        Reading { boottime: 500 * SECOND, monotonic: 400 * SECOND, realtime: 1_700_000_000 * SECOND }
    }

    fn runs(now: Reading, by: Duration) -> Reading {
        Reading { boottime: now.boottime + by, monotonic: now.monotonic + by, realtime: now.realtime + by }
    }

    /// Feeds readings of a running machine, one each 20 ms, none of which is a jump. Returns the last reading.
    fn quiet(watch: &mut ClockWatch, mut now: Reading, ticks: u32) -> Reading {
        for tick in 0..ticks {
            now = runs(now, Duration::from_millis(20));
            assert_eq!(watch.look(now), None, "tick {tick}");
        }
        now
    }

    #[test]
    fn a_machine_that_runs_has_no_jump() {
        let mut watch = ClockWatch::default();
        let now = quiet(&mut watch, start(), 5_000);
        assert_eq!(watch.look(runs(now, 1_000 * SECOND)), None, "a stopped process is no stopped machine");
    }

    #[test]
    fn a_suspended_machine_is_noticed_once() {
        let mut watch = ClockWatch::default();
        let now = quiet(&mut watch, start(), 100);
        let resumed = Reading { monotonic: now.monotonic, ..runs(now, 60 * SECOND) };
        assert_eq!(watch.look(resumed), Some(60 * SECOND));
        quiet(&mut watch, resumed, 2_000);
    }

    /// Both clocks since boot stand still; the wall clock is set when the machine goes on.
    #[test]
    fn a_stopped_virtual_machine_is_noticed_by_its_wall_clock() {
        let mut watch = ClockWatch::default();
        let now = quiet(&mut watch, start(), 100);
        let resumed = Reading { realtime: now.realtime + 60 * SECOND, ..now };
        assert_eq!(watch.look(resumed), Some(60 * SECOND));
        quiet(&mut watch, resumed, 2_000);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_is_noticed() {
        let mut watch = ClockWatch::default();
        let now = quiet(&mut watch, start(), 100);
        let set = Reading { realtime: now.realtime - 3_600 * SECOND, ..now };
        assert_eq!(watch.look(set), Some(3_600 * SECOND));
        quiet(&mut watch, set, 2_000);
    }

    #[test]
    fn a_small_step_is_within_the_margin_of_the_lease() {
        let mut watch = ClockWatch::default();
        let now = quiet(&mut watch, start(), 100);
        assert_eq!(watch.look(Reading { realtime: now.realtime + TOLERANCE, ..now }), None);
    }

    /// Each stop is within the margin, together they are not: a lease is counted over all of them.
    #[test]
    fn many_short_stops_add_up() {
        let mut watch = ClockWatch::default();
        let mut now = quiet(&mut watch, start(), 1_000);
        let mut seen = 0;
        for _ in 0..4 {
            now = runs(now, SECOND);
            now.realtime += Duration::from_millis(300);
            seen += u32::from(watch.look(now).is_some());
        }
        assert_eq!(seen, 2, "the second stop, and the fourth");
    }

    #[test]
    fn the_clocks_of_this_machine_go_on() {
        let first = MACHINE.read();
        let second = MACHINE.read();
        assert!(second.boottime >= first.boottime && second.monotonic >= first.monotonic);
        assert!(first.boottime + SECOND > first.monotonic, "suspension counts");
        assert!(first.realtime > 1_700_000_000 * SECOND);
    }
}
