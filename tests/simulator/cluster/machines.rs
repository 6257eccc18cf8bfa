//! Machines that are suspended, and virtual machines that are stopped: what their clocks show of it to a master.
//!
//! A master reads the clock that counts suspension, so a suspended one knows at once how late it is. Of a stop only the
//! wall clock tells when the machine goes on: the watch over the clocks has to notice, and its look comes first.

use std::time::Duration;

use moonkeeper::replication::clocks::{ClockWatch, Reading};
use moonkeeper::replication::node::Input;
use moonkeeper::replication::time::Monotonic;

use super::Sim;
use super::rng::Rng;

/// What a pause of a process is to its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Suspended,
    Stopped,
}

/// The machine of a master: its clocks.
#[derive(Debug, Default)]
pub struct Machine {
    /// Its clocks began anywhere.
    offset: u64,
    /// For how long it was suspended.
    suspended: u64,
    /// For how long it was stopped.
    stopped: u64,
    /// Since when it sleeps.
    asleep: Option<(u64, Sleep)>,
    /// The watch of the process over the clocks.
    watch: ClockWatch,
}

impl Machine {
    pub fn new(offset: u64) -> Self {
        Self { offset, ..Self::default() }
    }

    /// Time since boot, suspension included: the clock that masters read.
    pub fn boottime(&self, now: u64, rate: u64) -> Monotonic {
        let stands = match self.asleep {
            Some((since, Sleep::Stopped)) => now - since,
            _ => 0,
        };
        Monotonic(self.offset + (now - self.stopped - stands) * rate / 1000)
    }

    /// All clocks of a machine that is awake.
    fn read(&self, now: u64, rate: u64) -> Reading {
        let boottime = Duration::from_micros(self.boottime(now, rate).0);
        Reading {
            boottime,
            monotonic: boottime.saturating_sub(Duration::from_micros(self.suspended * rate / 1000)),
            realtime: boottime + Duration::from_micros(self.stopped * rate / 1000),
        }
    }

    /// It is awake from here on. Returns what it has slept.
    fn wake(&mut self, now: u64) -> Option<Sleep> {
        let (since, sleep) = self.asleep.take()?;
        match sleep {
            Sleep::Suspended => self.suspended += now - since,
            Sleep::Stopped => self.stopped += now - since,
        }
        Some(sleep)
    }

    /// Another process runs on it, which has not looked at the clocks yet.
    pub fn boot(&mut self, now: u64) {
        self.wake(now);
        self.watch = ClockWatch::default();
    }
}

/// A source of random numbers for sleeping machines: the rest of a seed is what it would be without them.
pub fn rng(seed: u64) -> Rng {
    Rng::new(seed ^ 0x736c_6565_7073_0000)
}

impl Sim {
    /// The pause of a process may be one of its whole machine. Returns how long it is.
    pub fn fall_asleep(&mut self, master: usize, long: u64) -> u64 {
        let sleep = match self.sleeps.below(3) {
            0 => return long,
            1 => Sleep::Suspended,
            _ => Sleep::Stopped,
        };
        note!(self, "m{master}: its machine is {sleep:?}");
        self.masters[master].machine.asleep = Some((self.now, sleep));
        if sleep == Sleep::Suspended {
            self.counts.suspended += 1;
            return long;
        }
        self.counts.stopped += 1;
        // Deadlines of clients are late by the stop, unless its lease ends: then another term counts them anew.
        long.max(self.plan.leader_ttl.as_micros() as u64 * 3 / 2)
    }

    /// The machine of a master goes on.
    pub fn wake_up(&mut self, master: usize) {
        if self.masters[master].machine.wake(self.now) == Some(Sleep::Stopped) {
            self.input(master, Input::Tick);
        }
    }

    /// What the watch of a process over the clocks has to say, as the driver asks it before every input.
    pub fn clock_jump(&mut self, master: usize) -> Option<Duration> {
        let rate = self.plan.rates[master];
        let machine = &mut self.masters[master].machine;
        let drift = machine.watch.look(machine.read(self.now, rate));
        if let Some(drift) = drift {
            note!(self, "m{master}: the clocks jumped by {drift:?}");
        }
        drift
    }
}
