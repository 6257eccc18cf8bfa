//! The companion's decisions: which process it watches, when it accepts connections, when it ends. No I/O, no clock.

use std::time::{Duration, Instant};

use super::message::{PortOfTheDead, ToMaster};

/// How long clients of a master that has died are turned away. They learn of the new primary within a tenth of a
/// second, or within a leader lease where no standby noticed the death at once.
pub(super) const TURN_AWAY: Duration = Duration::from_secs(10);

/// How long a companion without a live master waits for one.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The state of a companion. `P` is the listening socket.
#[derive(Debug)]
pub(super) struct Watch<P> {
    /// Whether it runs in a container of its own, which Kubernetes starts and ends.
    sidecar: bool,
    phase: Phase,
    port: Option<P>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// No master has connected since then.
    Alone { since: Instant },
    /// The master with this boot id is alive.
    Watching { boot_id: String },
    /// A master that ended on purpose.
    Dismissed,
    /// A master that has died.
    Died { at: Instant, turned_away: u64 },
}

impl<P> Watch<P> {
    pub(super) fn new(sidecar: bool, now: Instant) -> Self {
        Self { sidecar, phase: Phase::Alone { since: now }, port: None }
    }

    /// Handles the Hello of a master. After a Welcome this master is watched; a port in the answer is [`Self::port`].
    pub(super) fn hello(&mut self, boot_id: &str, now: Instant) -> ToMaster {
        let port = match &self.phase {
            Phase::Watching { boot_id: watched } if watched != boot_id => return ToMaster::Busy,
            // The same master, after its connection broke.
            Phase::Watching { .. } => None,
            Phase::Alone { .. } | Phase::Dismissed => None,
            Phase::Died { at, turned_away } => self.port.as_ref().map(|_| PortOfTheDead {
                ended_ms_ago: u64::try_from(now.duration_since(*at).as_millis()).unwrap_or(u64::MAX),
                turned_away: *turned_away,
            }),
        };
        self.phase = Phase::Watching { boot_id: boot_id.to_owned() };
        ToMaster::Welcome { port }
    }

    /// Holds the socket of the port that the master has opened.
    pub(super) fn hold(&mut self, port: P) {
        if matches!(self.phase, Phase::Watching { .. }) {
            self.port = Some(port);
        }
    }

    /// Drops the socket: the master has closed its port.
    pub(super) fn forget(&mut self) {
        self.port = None;
    }

    /// Handles that the master ends on purpose.
    pub(super) fn goodbye(&mut self, now: Instant) {
        self.port = None;
        self.phase = if self.sidecar { Phase::Alone { since: now } } else { Phase::Dismissed };
    }

    /// Handles that the process of the master has ended.
    pub(super) fn died(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Watching { .. }) {
            self.phase = Phase::Died { at: now, turned_away: 0 };
        }
    }

    /// Counts a connection that was accepted and closed.
    pub(super) fn turned_away(&mut self) {
        if let Phase::Died { turned_away, .. } = &mut self.phase {
            *turned_away += 1;
        }
    }

    /// Returns the socket that is held, whether or not connections are accepted.
    pub(super) fn port(&self) -> Option<&P> {
        self.port.as_ref()
    }

    /// Returns whether connections to the port have to be accepted and closed: never while a master lives.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.phase, Phase::Died { .. }) && self.port.is_some()
    }

    /// Drops the socket once clients were turned away for [`TURN_AWAY`].
    pub(super) fn advance(&mut self, now: Instant) {
        if let Phase::Died { at, .. } = self.phase
            && now.duration_since(at) >= TURN_AWAY
        {
            self.port = None;
        }
    }

    /// Returns whether the companion has nothing to wait for any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.phase == Phase::Dismissed || self.ends_at().is_some_and(|end| end <= now)
    }

    /// Returns when [`Self::advance`] and [`Self::is_over`] have to be called again.
    pub(super) fn next_change(&self) -> Option<Instant> {
        let closes = match self.phase {
            Phase::Died { at, .. } if self.port.is_some() => Some(at + TURN_AWAY),
            _ => None,
        };
        closes.into_iter().chain(self.ends_at()).min()
    }

    fn ends_at(&self) -> Option<Instant> {
        match self.phase {
            _ if self.sidecar => None,
            Phase::Alone { since } | Phase::Died { at: since, .. } => Some(since + PATIENCE),
            Phase::Watching { .. } | Phase::Dismissed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_PORT: ToMaster = ToMaster::Welcome { port: None };

    fn watching(sidecar: bool) -> (Watch<u8>, Instant) {
        let now = Instant::now();
        let mut watch = Watch::new(sidecar, now);
        assert_eq!(watch.hello("a", now), NO_PORT);
        watch.hold(7);
        (watch, now)
    }

    #[test]
    fn nothing_is_accepted_while_the_master_lives() {
        let (mut watch, now) = watching(false);
        assert!(!watch.accepts());
        watch.advance(now + PATIENCE * 10);
        assert!(!watch.accepts() && watch.port().is_some() && !watch.is_over(now + PATIENCE * 10));
        assert_eq!(watch.next_change(), None);
        watch.died(now);
        assert!(watch.accepts());
    }

    #[test]
    fn a_dead_masters_clients_are_turned_away_for_ten_seconds_and_a_minute_later_it_is_over() {
        let (mut watch, now) = watching(false);
        watch.died(now);
        assert_eq!(watch.next_change(), Some(now + TURN_AWAY));
        watch.advance(now + TURN_AWAY - Duration::from_millis(1));
        assert!(watch.accepts());
        watch.advance(now + TURN_AWAY);
        assert!(!watch.accepts() && watch.port().is_none());
        assert_eq!(watch.next_change(), Some(now + PATIENCE));
        assert!(!watch.is_over(now + TURN_AWAY) && watch.is_over(now + PATIENCE));
    }

    #[test]
    fn the_restarted_master_gets_the_port_and_nothing_is_accepted_from_then_on() {
        let (mut watch, now) = watching(false);
        watch.died(now);
        watch.turned_away();
        watch.turned_away();
        let answer = watch.hello("b", now + Duration::from_secs(3));
        let port = PortOfTheDead { ended_ms_ago: 3000, turned_away: 2 };
        assert_eq!(answer, ToMaster::Welcome { port: Some(port) });
        assert!(!watch.accepts() && watch.port() == Some(&7));
        // If the successor dies as well, its clients are turned away in the same way.
        watch.died(now + Duration::from_secs(4));
        assert!(watch.accepts());
    }

    #[test]
    fn a_restart_after_the_port_was_closed_gets_none() {
        let (mut watch, now) = watching(true);
        watch.died(now);
        watch.advance(now + TURN_AWAY);
        assert_eq!(watch.hello("b", now + TURN_AWAY), NO_PORT);
        watch.died(now + TURN_AWAY);
        assert!(!watch.accepts());
    }

    #[test]
    fn another_master_is_refused_while_one_lives_and_the_same_one_may_come_again() {
        let (mut watch, now) = watching(false);
        assert_eq!(watch.hello("b", now), ToMaster::Busy);
        assert_eq!(watch.hello("a", now), NO_PORT);
        watch.died(now);
        assert!(watch.accepts());
    }

    #[test]
    fn a_goodbye_ends_it_at_once_unless_it_is_a_sidecar() {
        let (mut watch, now) = watching(false);
        watch.goodbye(now);
        assert!(watch.is_over(now) && watch.port().is_none());
        // The process ends right after its Goodbye; that does not count as a death.
        watch.died(now);
        assert!(!watch.accepts());

        let (mut watch, now) = watching(true);
        watch.goodbye(now);
        watch.died(now);
        assert!(!watch.is_over(now + PATIENCE * 10) && !watch.accepts());
        assert_eq!(watch.hello("b", now), NO_PORT);
    }

    #[test]
    fn a_master_that_closed_its_port_leaves_nothing_to_accept() {
        let (mut watch, now) = watching(false);
        watch.forget();
        watch.died(now);
        assert!(!watch.accepts());
    }

    #[test]
    fn without_any_master_it_ends_after_a_minute() {
        let now = Instant::now();
        let watch = Watch::<u8>::new(false, now);
        assert_eq!(watch.next_change(), Some(now + PATIENCE));
        assert!(!watch.is_over(now) && watch.is_over(now + PATIENCE));
        assert_eq!(Watch::<u8>::new(true, now).next_change(), None);
    }
}
