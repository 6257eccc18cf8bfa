//! Until when clients have to be heard from. This is what one master saw, not state: when a client's time is up, a
//! record says so.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::engine::types::{LogTime, Uuid};

/// Clients that are remembered at the same time; who pings with ever new names gets an error, not our memory.
pub const MAX_CLIENTS: usize = 1 << 20;

/// Until when clients have to be heard from.
#[derive(Debug)]
pub struct Liveness {
    ttl_ms: u64,
    deadlines: Mutex<HashMap<Uuid, LogTime>>,
}

impl Liveness {
    /// Nobody was heard from. A client may be silent for `ttl_ms`.
    #[must_use]
    pub fn new(ttl_ms: u64) -> Self {
        Self { ttl_ms, deadlines: Mutex::default() }
    }

    /// A client was heard from. False if there are too many to remember another one.
    pub fn heard(&self, client: Uuid, now: LogTime) -> bool {
        let mut deadlines = self.deadlines.lock();
        if deadlines.len() >= MAX_CLIENTS && !deadlines.contains_key(&client) {
            return false;
        }
        deadlines.insert(client, now.plus(self.ttl_ms));
        true
    }

    /// Makes sure that a client will be missed when it falls silent. False if there are too many to remember another
    /// one: it would never be.
    pub fn admit(&self, client: Uuid, now: LogTime) -> bool {
        let known = self.deadlines.lock().contains_key(&client);
        known || self.heard(client, now)
    }

    /// Takes the clients of the primary before over. They have to find out first that there is another one, and can
    /// hang for minutes in a connect to the old one, so each has `ttl_ms` from now on until it is first heard from.
    pub fn inherit(&self, clients: impl IntoIterator<Item = Uuid>, now: LogTime, ttl_ms: u64) {
        let mut deadlines = self.deadlines.lock();
        for client in clients {
            deadlines.insert(client, now.plus(ttl_ms));
        }
    }

    /// Gives everybody so many milliseconds more, because nobody could be heard for that long.
    pub fn postpone(&self, ms: u64) {
        self.deadlines.lock().values_mut().for_each(|deadline| *deadline = deadline.plus(ms));
    }

    /// Forgets the clients that were silent for too long, and returns them.
    pub fn take_silent(&self, now: LogTime) -> Vec<Uuid> {
        let mut silent = Vec::new();
        self.deadlines.lock().retain(|client, deadline| {
            let alive = *deadline >= now;
            if !alive {
                silent.push(*client);
            }
            alive
        });
        silent
    }

    /// How many clients were heard from lately, or may still be.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deadlines.lock().len()
    }

    /// Whether no client was heard from lately.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How well a loop keeps its time. While it does not, because the process was stopped or the machine is busy, clients
/// are not heard either, and that is not their fault.
#[derive(Debug)]
pub struct Pace {
    period_ms: u64,
    last: Option<LogTime>,
}

impl Pace {
    /// Being late by less than this is nothing unusual.
    const TOLERANCE_MS: u64 = 500;

    /// Of a loop with this period.
    #[must_use]
    pub fn of(period_ms: u64) -> Self {
        Self { period_ms, last: None }
    }

    /// The loop comes round. Returns for how many milliseconds since the last time clients could not be heard: all of
    /// them if this master does not serve.
    pub fn beat(&mut self, now: LogTime, serves: bool) -> u64 {
        let passed = self.last.replace(now).map_or(0, |last| now.0.saturating_sub(last.0));
        let late = passed.saturating_sub(self.period_ms);
        match (serves, late > Self::TOLERANCE_MS) {
            (false, _) => passed,
            (true, true) => late,
            (true, false) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid { first: 1, second: 1 };
    const B: Uuid = Uuid { first: 2, second: 2 };

    #[test]
    fn the_silent_are_taken_once() {
        let liveness = Liveness::new(10_000);
        liveness.heard(A, LogTime(1000));
        liveness.heard(B, LogTime(9000));
        assert_eq!(liveness.take_silent(LogTime(11_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(11_001)), vec![A]);
        assert_eq!(liveness.take_silent(LogTime(12_000)), vec![]);
        assert_eq!(liveness.len(), 1);
    }

    #[test]
    fn the_inherited_have_longer_until_they_are_first_heard_from() {
        let liveness = Liveness::new(10_000);
        liveness.inherit([A, B], LogTime(1_000), 180_000);
        liveness.heard(B, LogTime(5_000));
        assert_eq!(liveness.take_silent(LogTime(15_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(15_001)), vec![B]);
        assert_eq!(liveness.take_silent(LogTime(181_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(181_001)), vec![A]);
    }

    #[test]
    fn a_stopped_process_expires_nobody() {
        let (liveness, mut pace) = (Liveness::new(10_000), Pace::of(1_000));
        liveness.heard(A, LogTime(1_000));
        let mut look = |now: u64, serves: bool| {
            liveness.postpone(pace.beat(LogTime(now), serves));
            liveness.take_silent(LogTime(now))
        };
        assert_eq!(look(1_000, true), vec![]);
        // A little late is not late.
        assert_eq!(look(2_400, true), vec![]);
        // Stopped for a minute.
        assert_eq!(look(63_400, true), vec![]);
        // Nobody could be heard for ten seconds.
        for second in 1..=10 {
            assert_eq!(look(63_400 + 1_000 * second, false), vec![]);
        }
        // Of the 10 s, 1.4 s and one period have passed, and the rest passes now.
        for second in 1..=7 {
            assert_eq!(look(73_400 + 1_000 * second, true), vec![]);
        }
        assert_eq!(look(81_000, true), vec![]);
        assert_eq!(look(81_001, true), vec![A]);
    }
}
