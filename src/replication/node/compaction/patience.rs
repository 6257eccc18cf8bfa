//! How long a member may hold back the floor. A member that reads the log is done in minutes; one that hangs must not
//! make the log grow until etcd is full.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::member::BootId;
use crate::replication::time::Monotonic;

/// How long a need may hold back the floor before it is cancelled. Reading a snapshot is given up after three minutes,
/// and a log of some hundred megabytes is read in one.
pub(super) const NEED_LIMIT: Duration = Duration::from_secs(600);

/// The members that hold back the floor, and since when.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: BTreeMap<String, (BootId, Monotonic)>,
    /// When this was last noted.
    last: Option<Monotonic>,
}

impl Patience {
    /// Records which members hold back the floor now. Returns those whose need is cancelled by that.
    pub(super) fn note<'m>(
        &mut self,
        now: Monotonic,
        holding: impl Iterator<Item = (&'m str, BootId)>,
    ) -> Vec<String> {
        let mut newly = Vec::new();
        let before = std::mem::take(&mut self.since);
        for (name, boot_id) in holding {
            let known = before.get(name).filter(|(of, _)| *of == boot_id);
            let since = known.map_or(now, |(_, since)| *since);
            if is_over(now, since) && self.last.is_none_or(|last| !is_over(last, since)) {
                newly.push(name.to_owned());
            }
            self.since.insert(name.to_owned(), (boot_id, since));
        }
        self.last = Some(now);
        newly
    }

    /// Returns whether the need of this process counts no longer.
    pub(super) fn is_cancelled(&self, now: Monotonic, name: &str, boot_id: BootId) -> bool {
        self.since.get(name).is_some_and(|(of, since)| *of == boot_id && is_over(now, *since))
    }
}

fn is_over(now: Monotonic, since: Monotonic) -> bool {
    now.since(since) >= NEED_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Monotonic = Monotonic(1_000_000);
    const BOOT: BootId = BootId(7);

    #[test]
    fn a_need_is_cancelled_once_its_time_is_over_and_named_once() {
        let mut patience = Patience::default();
        let almost = START.plus(NEED_LIMIT - Duration::from_secs(1));
        let over = START.plus(NEED_LIMIT);
        let holding = || [("a", BOOT)].into_iter();
        assert!(patience.note(START, holding()).is_empty());
        assert!(patience.note(almost, holding()).is_empty());
        assert!(!patience.is_cancelled(almost, "a", BOOT));
        assert_eq!(patience.note(over, holding()), ["a"]);
        assert!(patience.is_cancelled(over, "a", BOOT));
        assert!(patience.note(over.plus(Duration::from_secs(1)), holding()).is_empty());
        // Another process of that member has its own time.
        assert!(!patience.is_cancelled(over, "a", BootId(8)) && !patience.is_cancelled(over, "b", BOOT));
    }

    #[test]
    fn a_member_that_has_read_on_or_started_again_has_all_the_time_again() {
        for between in [None, Some(BootId(8))] {
            let mut patience = Patience::default();
            patience.note(START, [("a", BOOT)].into_iter());
            patience.note(START.plus(NEED_LIMIT / 2), between.map(|boot_id| ("a", boot_id)).into_iter());
            patience.note(START.plus(NEED_LIMIT / 2), [("a", BOOT)].into_iter());
            assert!(!patience.is_cancelled(START.plus(NEED_LIMIT), "a", BOOT));
        }
    }
}
