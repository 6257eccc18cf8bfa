//! Client deadlines: until when each client has to be heard from. This is what one primary saw in its term, not state:
//! when a client's deadline has passed, the primary writes a record. Deadlines live as long as the term; while the port
//! is closed, as in a hand-over that is given up, they stand still.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::engine::client::KnownClient;
use crate::engine::types::{LogTime, Uuid};

/// Upper bound of clients with a deadline: a client that pings under ever new ids gets an error instead of filling
/// memory.
pub const MAX_CLIENTS: usize = 1 << 20;

/// The deadlines of all clients.
#[derive(Debug)]
pub struct Liveness {
    ttl_ms: u64,
    state: Mutex<Deadlines>,
}

#[derive(Debug, Default)]
struct Deadlines {
    of: HashMap<Uuid, LogTime>,
    /// Since when no client can reach this master because the port is closed.
    paused: Option<LogTime>,
}

impl Liveness {
    /// Returns an empty table. A client may be silent for `ttl_ms`.
    #[must_use]
    pub fn new(ttl_ms: u64) -> Self {
        Self { ttl_ms, state: Mutex::default() }
    }

    /// Renews the deadline of a client that was heard from. Returns false if there are too many to add another one.
    pub fn heard(&self, client: Uuid, now: LogTime) -> bool {
        let mut state = self.state.lock();
        if state.of.len() >= MAX_CLIENTS && !state.of.contains_key(&client) {
            return false;
        }
        state.of.insert(client, now.plus(self.ttl_ms));
        true
    }

    /// Makes sure that a client has a deadline, so that it expires when it falls silent. Returns false if there are too
    /// many to add another one: it would never expire.
    pub fn admit(&self, client: Uuid, now: LogTime) -> bool {
        let known = self.state.lock().of.contains_key(&client);
        known || self.heard(client, now)
    }

    /// Resumes the deadlines when the port opens. They move by the time in which it was closed, and every known client
    /// without one gets one: a client without a deadline would keep its segments for ever. Clients of the previous
    /// primary first have to find out that there is a new one, and can hang for minutes in a connect to the old one, so
    /// each has `inherited_ttl_ms` until it is first heard from.
    pub fn resume(&self, known: impl IntoIterator<Item = KnownClient>, now: LogTime, inherited_ttl_ms: u64) {
        let mut state = self.state.lock();
        if let Some(since) = state.paused.take() {
            let closed_ms = now.0.saturating_sub(since.0);
            state.of.values_mut().for_each(|deadline| *deadline = deadline.plus(closed_ms));
        }
        planted!(ForgetJoined => state.of.clear());
        for KnownClient { id, inherited } in known {
            planted!(ForgetJoined => if !inherited { continue; });
            let ttl_ms = if inherited { inherited_ttl_ms } else { self.ttl_ms };
            state.of.entry(id).or_insert_with(|| now.plus(ttl_ms));
        }
    }

    /// Stops the deadlines when the port closes: from here on no client can reach this master.
    pub fn pause(&self, now: LogTime) {
        self.state.lock().paused.get_or_insert(now);
    }

    /// Moves every deadline by so many milliseconds, because no client could be heard for that long.
    pub fn postpone(&self, ms: u64) {
        self.state.lock().of.values_mut().for_each(|deadline| *deadline = deadline.plus(ms));
    }

    /// Removes the clients whose deadline has passed, and returns them in order of their id; none while the port is
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
        // A deadline in the past: it is taken again at the next check.
        self.state.lock().of.entry(client).or_insert(LogTime(0));
    }

    /// Returns how many clients have a deadline: heard from lately, or inherited.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().of.len()
    }

    /// Returns whether no client has a deadline.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Measures how punctual a loop is. While it is late, because the process was stopped or the machine is busy, this
/// master does not hear clients either, and that time must not count against them.
#[derive(Debug)]
pub struct Pace {
    period_ms: u64,
    last: Option<LogTime>,
}

impl Pace {
    /// Delays below this are normal.
    const TOLERANCE_MS: u64 = 500;

    /// Returns the pace of a loop with this period.
    #[must_use]
    pub fn of(period_ms: u64) -> Self {
        Self { period_ms, last: None }
    }

    /// Records a round of the loop. Returns for how many milliseconds since the last round clients could not be heard:
    /// all of them if this master does not serve.
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
        // This master does not serve, so no client is heard for ten seconds.
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
