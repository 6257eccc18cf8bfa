//! Puts that wait for memory. After a takeover the segments of clients that have not rejoined are closed to new
//! objects, so a put may find no memory although there is plenty: it is parked until segments open, for a short time
//! after the port opened. A parked put has not begun: it has made no record and holds no queue space, no permit and no
//! term guard. The decisions are pure: the master and the simulator both run them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::time::Monotonic;

/// Upper bound of parked puts; further ones are answered at once, as without parking.
pub const MAX_PARKED: usize = 1024;

/// Upper bound of the bytes of requests kept for all parked puts together.
pub const MAX_PARKED_BYTES: usize = 16 << 20;

/// How long puts are parked, counted from when the port opened: twice the interval in which clients ping. A client
/// learns from a ping that it has to rejoin, so it does so up to a whole interval and some work of its own later (0.4
/// to 1.2 s were measured). After that, a put that finds no memory means memory pressure, and its client has to be
/// told.
pub const PARKED_FOR: Duration = Duration::from_secs(2);

/// The position of a parked put in the line: lower ones are retried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PutTicket(u64);

/// Counts how many times segments have opened. A put that was last tried at a lower count is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Openings(u64);

/// The puts that were parked since the port opened, in the order of their arrival.
#[derive(Debug)]
pub struct ParkedPuts<T> {
    until: Monotonic,
    openings: Openings,
    /// Clients that are reporting their segments at present.
    rejoining: usize,
    /// No segment of the previous primary is closed any more; none closes again in this term.
    all_open: bool,
    /// No put is parked any more.
    over: bool,
    next: u64,
    slots: BTreeMap<PutTicket, Slot<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` while it is being retried.
    put: Option<T>,
    bytes: usize,
    /// The count of openings when it was last tried.
    tried: Openings,
}

impl<T> ParkedPuts<T> {
    /// Returns an empty line for a port that opened at this moment.
    #[must_use]
    pub fn new(port_opened: Monotonic) -> Self {
        Self {
            until: port_opened.plus(PARKED_FOR),
            openings: Openings(0),
            rejoining: 0,
            all_open: false,
            over: false,
            next: 0,
            slots: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Returns the time after which no put waits.
    #[must_use]
    pub fn until(&self) -> Monotonic {
        self.until
    }

    /// Returns how many puts are parked, those that are being retried included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether no put is parked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the count of openings. Read it before a put is tried for the first time, so that segments that open
    /// meanwhile are not missed.
    #[must_use]
    pub fn openings(&self) -> Openings {
        self.openings
    }

    /// Records that a client begins to report its segments.
    pub fn rejoining(&mut self) {
        self.rejoining += 1;
    }

    /// Records that a client has reported its segments: every parked put is due.
    pub fn rejoined(&mut self) {
        self.rejoining = self.rejoining.saturating_sub(1);
        self.openings.0 += 1;
    }

    /// Parks a put that found no memory when it was tried for the first time. With `None` it is not parked and has to
    /// be answered. `are_closed` returns whether segments of the previous primary are closed to new objects.
    pub fn park(
        &mut self,
        now: Monotonic,
        tried: Openings,
        bytes: usize,
        are_closed: impl FnOnce() -> bool,
        put: impl FnOnce() -> T,
    ) -> Option<PutTicket> {
        let fits = self.slots.len() < MAX_PARKED && bytes <= MAX_PARKED_BYTES - self.bytes;
        if !fits || !self.waits(now, tried, are_closed) {
            return None;
        }
        let ticket = PutTicket(self.next);
        self.next += 1;
        self.bytes += bytes;
        self.slots.insert(ticket, Slot { put: Some(put()), bytes, tried });
        Some(ticket)
    }

    /// Returns whether a put that found no memory waits for a retry.
    fn waits(&mut self, now: Monotonic, tried: Openings, are_closed: impl FnOnce() -> bool) -> bool {
        if self.over || self.is_late(now) {
            return false;
        }
        // A client that is rejoining may have opened its segments after the put was tried.
        if self.rejoining > 0 || tried < self.openings {
            return true;
        }
        self.all_open = self.all_open || !are_closed();
        !self.all_open
    }

    fn is_late(&self, now: Monotonic) -> bool {
        planted!(ParkForever => return false);
        now >= self.until
    }

    /// Takes the first put that is to be retried: segments have opened since it was tried, or its time is over. It
    /// keeps its position until [`Self::put_back`] or [`Self::leave`].
    pub fn next_due(&mut self, now: Monotonic) -> Option<(PutTicket, T)> {
        let (late, openings) = (self.is_late(now), self.openings);
        let (ticket, slot) =
            self.slots.iter_mut().find(|(_, slot)| slot.put.is_some() && (late || slot.tried < openings))?;
        slot.tried = openings;
        Some((*ticket, slot.put.take()?))
    }

    /// Returns a put that found no memory again to its position. If it may not wait longer, it leaves the line, and is
    /// given back to be answered.
    pub fn put_back(
        &mut self,
        ticket: PutTicket,
        put: T,
        now: Monotonic,
        are_closed: impl FnOnce() -> bool,
    ) -> Option<T> {
        let Some(tried) = self.slots.get(&ticket).map(|slot| slot.tried) else { return Some(put) };
        if !self.waits(now, tried, are_closed) {
            self.leave(ticket);
            return Some(put);
        }
        match self.slots.get_mut(&ticket) {
            Some(slot) => slot.put.replace(put),
            None => Some(put),
        }
    }

    /// Removes a put: it has its answer, or its connection is closed.
    pub fn leave(&mut self, ticket: PutTicket) -> Option<T> {
        let slot = self.slots.remove(&ticket)?;
        self.bytes -= slot.bytes;
        slot.put
    }

    /// Returns whether the time of parking is over and the last put has left. From then on none is parked.
    pub fn is_over(&mut self, now: Monotonic) -> bool {
        self.over = self.over || self.is_empty() && (self.all_open || self.is_late(now));
        self.over
    }

    /// Stops parking because this master stops serving. Returns all parked puts.
    pub fn close(&mut self) -> impl Iterator<Item = T> {
        self.over = true;
        self.bytes = 0;
        std::mem::take(&mut self.slots).into_values().filter_map(|slot| slot.put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: Monotonic = Monotonic(1_000);
    const SOON: Monotonic = Monotonic(500_000);
    const LATE: Monotonic = Monotonic(2_001_000);

    fn park(puts: &mut ParkedPuts<char>, put: char) -> Option<PutTicket> {
        let tried = puts.openings();
        puts.park(SOON, tried, 10, || true, || put)
    }

    fn parked(names: &str) -> ParkedPuts<char> {
        let mut puts = ParkedPuts::new(OPENED);
        names.chars().for_each(|put| assert!(park(&mut puts, put).is_some()));
        puts
    }

    /// Retries all puts that are due, none of which finds memory. Returns those that were retried, and those that were
    /// given back.
    fn round(puts: &mut ParkedPuts<char>, now: Monotonic, closed: bool) -> (String, String) {
        let (mut tried, mut answered) = (String::new(), String::new());
        while let Some((ticket, put)) = puts.next_due(now) {
            tried.push(put);
            answered.extend(puts.put_back(ticket, put, now, || closed));
        }
        (tried, answered)
    }

    #[test]
    fn puts_are_tried_in_order_at_every_opening_until_their_time_is_over() {
        let mut puts = parked("abc");
        assert_eq!(round(&mut puts, SOON, true), (String::new(), String::new()), "no segment has opened");
        puts.rejoining();
        assert_eq!(round(&mut puts, SOON, true).0, "");
        puts.rejoined();
        assert_eq!(round(&mut puts, SOON, true), ("abc".into(), String::new()));
        assert_eq!(round(&mut puts, SOON, true).0, "", "once for each opening");
        puts.rejoining();
        puts.rejoined();
        let (first, put) = puts.next_due(SOON).unwrap();
        assert_eq!((put, puts.len()), ('a', 3), "it keeps its position while it is tried");
        assert!(puts.leave(first).is_none());
        assert_eq!(round(&mut puts, SOON, true).0, "bc");
        assert!(!puts.is_over(LATE), "some wait");
        assert_eq!(round(&mut puts, LATE, true), ("bc".into(), "bc".into()));
        assert!(puts.is_empty() && puts.is_over(LATE));
        assert!(park(&mut puts, 'd').is_none(), "it is over, whatever the clock of a late caller says");
    }

    #[test]
    fn no_put_is_parked_when_no_segment_is_closed() {
        let mut puts = parked("a");
        let tried = puts.openings();
        puts.rejoining();
        puts.rejoined();
        assert!(puts.park(SOON, tried, 10, || false, || 'b').is_some(), "segments opened after it was tried");
        let tried = puts.openings();
        puts.rejoining();
        assert!(puts.park(SOON, tried, 10, || false, || 'c').is_some(), "segments may be opening");
        puts.rejoined();
        let tried = puts.openings();
        assert!(puts.park(SOON, tried, 10, || false, || 'd').is_none());
        assert!(puts.park(SOON, tried, 10, || panic!("it is known"), || 'd').is_none());
        assert_eq!(round(&mut puts, SOON, false), ("abc".into(), "abc".into()), "nothing to wait for");
        assert!(puts.is_over(SOON));
    }

    #[test]
    fn the_number_of_parked_puts_and_their_bytes_are_bounded() {
        let mut puts = ParkedPuts::new(OPENED);
        let first = park(&mut puts, 'x').unwrap();
        (1..MAX_PARKED).for_each(|_| assert!(park(&mut puts, 'x').is_some()));
        assert!(park(&mut puts, 'y').is_none());
        assert_eq!(puts.leave(first), Some('x'), "its connection was closed");
        assert!(park(&mut puts, 'y').is_some());
        let mut puts: ParkedPuts<char> = ParkedPuts::new(OPENED);
        let tried = puts.openings();
        let mut park = |bytes| puts.park(SOON, tried, bytes, || true, || 'z').is_some();
        assert!(park(MAX_PARKED_BYTES - 1) && !park(2) && park(1) && !park(1));
    }

    #[test]
    fn no_put_is_parked_after_the_time() {
        let mut puts = parked("");
        let tried = puts.openings();
        assert!(puts.park(LATE, tried, 10, || true, || 'a').is_none());
        assert!(puts.park(Monotonic(LATE.0 - 1), tried, 10, || true, || 'a').is_some());
    }

    #[test]
    fn a_master_that_leaves_parks_none() {
        let mut puts = parked("ab");
        puts.rejoined();
        let (ticket, put) = puts.next_due(SOON).unwrap();
        assert_eq!(puts.close().collect::<String>(), "b");
        assert_eq!(puts.put_back(ticket, put, SOON, || true), Some('a'));
        assert!(park(&mut puts, 'c').is_none() && puts.is_over(SOON));
    }
}
