//! Client deadlines: until when each client has to be heard from. This is what one primary saw in its term, not state:
//! when a client's time is up, a record says so. Deadlines live as long as the term; while the port is closed, as in a
//! hand-over that is given up, they stand still.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::engine::client::KnownClient;
use crate::engine::types::{LogTime, Uuid};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// Clients that are remembered at the same time: a client that pings under ever new names gets an error, not our memory.
pub const MAX_CLIENTS: usize = 1 << 20;

/// Until when clients have to be heard from.
#[derive(Debug)]
pub struct Liveness {
    ttl_ms: u64,
    state: Mutex<Deadlines>,
}

#[derive(Debug, Default)]
struct Deadlines {
    of: HashMap<Uuid, LogTime>,
    /// Since when no client can be heard, because the port is closed.
    paused: Option<LogTime>,
}

impl Liveness {
    /// No client was heard from yet. A client may be silent for `ttl_ms`.
    #[must_use]
    pub fn new(ttl_ms: u64) -> Self {
        Self { ttl_ms, state: Mutex::default() }
    }

    /// A client was heard from. False if there are too many to remember another one.
    pub fn heard(&self, client: Uuid, now: LogTime) -> bool {
        let mut state = self.state.lock();
        if state.of.len() >= MAX_CLIENTS && !state.of.contains_key(&client) {
            return false;
        }
        state.of.insert(client, now.plus(self.ttl_ms));
        true
    }

    /// Makes sure that a client will be missed when it falls silent. False if there are too many to remember another
    /// one: it would never be.
    pub fn admit(&self, client: Uuid, now: LogTime) -> bool {
        let known = self.state.lock().of.contains_key(&client);
        known || self.heard(client, now)
    }

    /// The port opens. Deadlines move by the time in which it was closed, and every known client without one gets one: a
    /// client that no list misses would keep its segments for ever. Clients of the primary before have to find out first
    /// that there is another one, and can hang for minutes in a connect to the old one, so each has `inherited_ttl_ms`
    /// until it is first heard from.
    pub fn resume(&self, known: impl IntoIterator<Item = KnownClient>, now: LogTime, inherited_ttl_ms: u64) {
        let mut state = self.state.lock();
        if let Some(since) = state.paused.take() {
            let closed_ms = now.0.saturating_sub(since.0);
            state.of.values_mut().for_each(|deadline| *deadline = deadline.plus(closed_ms));
        }
        #[cfg(feature = "planted")]
        if planted::active(Bug::ForgetJoined) {
            state.of.clear();
        }
        for KnownClient { id, inherited } in known {
            #[cfg(feature = "planted")]
            if planted::active(Bug::ForgetJoined) && !inherited {
                continue;
            }
            let ttl_ms = if inherited { inherited_ttl_ms } else { self.ttl_ms };
            state.of.entry(id).or_insert_with(|| now.plus(ttl_ms));
        }
    }

    /// The port closes: from here on no client can be heard, and deadlines stand still.
    pub fn pause(&self, now: LogTime) {
        self.state.lock().paused.get_or_insert(now);
    }

    /// Gives every client so many milliseconds more, because none could be heard for that long.
    pub fn postpone(&self, ms: u64) {
        self.state.lock().of.values_mut().for_each(|deadline| *deadline = deadline.plus(ms));
    }

    /// Forgets the clients that were silent for too long, and returns them in order of their id; none while the port is
    /// closed.
    pub fn take_silent(&self, now: LogTime) -> Vec<Uuid> {
        let mut state = self.state.lock();
        if state.paused.is_some() {
            return Vec::new();
        }
        let mut silent = Vec::new();
        state.of.retain(|client, deadline| {
            let alive = *deadline >= now;
            if !alive {
                silent.push(*client);
            }
            alive
        });
        silent.sort_unstable();
        silent
    }

    /// Puts a silent client back whose expiry could not be written, unless it was heard from meanwhile.
    pub fn still_silent(&self, client: Uuid) {
        self.state.lock().of.entry(client).or_insert(LogTime(0));
    }

    /// How many clients were heard from lately, or may still be.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().of.len()
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
        let inherited = [A, B].map(|id| KnownClient { id, inherited: true });
        liveness.resume(inherited, LogTime(1_000), 180_000);
        liveness.heard(B, LogTime(5_000));
        assert_eq!(liveness.take_silent(LogTime(15_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(15_001)), vec![B]);
        assert_eq!(liveness.take_silent(LogTime(181_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(181_001)), vec![A]);
    }

    #[test]
    fn a_closed_port_moves_deadlines_and_forgets_no_client() {
        let liveness = Liveness::new(10_000);
        liveness.resume([], LogTime(0), 180_000);
        liveness.heard(A, LogTime(1_000));
        liveness.pause(LogTime(8_000));
        liveness.pause(LogTime(9_000));
        assert_eq!(liveness.take_silent(LogTime(30_000)), vec![], "no client can be heard");
        let joined = [A, B].map(|id| KnownClient { id, inherited: false });
        liveness.resume(joined, LogTime(28_000), 180_000);
        // A has the 3 s left that it had before, B the time of a client that was just heard from.
        assert_eq!(liveness.take_silent(LogTime(31_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(31_001)), vec![A]);
        assert_eq!(liveness.take_silent(LogTime(38_000)), vec![]);
        assert_eq!(liveness.take_silent(LogTime(38_001)), vec![B]);
    }

    #[test]
    fn a_client_whose_expiry_was_not_written_is_silent_at_the_next_look() {
        let liveness = Liveness::new(10_000);
        liveness.heard(A, LogTime(0));
        liveness.heard(B, LogTime(0));
        assert_eq!(liveness.take_silent(LogTime(10_001)), vec![A, B]);
        liveness.heard(B, LogTime(10_001));
        liveness.still_silent(A);
        liveness.still_silent(B);
        assert_eq!(liveness.take_silent(LogTime(10_002)), vec![A]);
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
