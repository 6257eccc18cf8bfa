//! Reports of witnesses about processes that have ended, and how they shorten the hold of a new primary (R6).
//!
//! A primary that dies may have granted readers leases that are not in the log, up to the last moment at which it can
//! have answered a read. Without a witness that is a leader lease after its election key was seen gone. A witness saw
//! the process end, so the moment at which its report arrived, by this master's own clock, is later than any answer.

use std::collections::VecDeque;

use super::Node;
use crate::cluster::member::BootId;
use crate::replication::time::Monotonic;

/// Capacity for reports, of which the newest are kept: more than a cluster has masters.
const REMEMBERED: usize = 16;

/// Processes that have ended, and when the report about each arrived.
#[derive(Debug, Default)]
pub(super) struct Witnessed(VecDeque<(BootId, Monotonic)>);

impl Witnessed {
    /// Records the first report about a process; a process ends once.
    fn note(&mut self, now: Monotonic, boot_id: BootId) {
        if self.0.iter().any(|(known, _)| *known == boot_id) {
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((boot_id, now));
    }

    /// Returns when the report arrived that this process has ended.
    pub(super) fn told_at(&self, boot_id: BootId) -> Option<Monotonic> {
        planted!(WitnessOfAnother => return self.0.back().map(|(_, at)| *at));
        self.0.iter().find(|(known, _)| *known == boot_id).map(|(_, at)| *at)
    }
}

impl Node {
    /// Records that a process has ended. No lease is revoked: the report counts only if this master takes over from
    /// that process.
    pub(super) fn process_ended(&mut self, now: Monotonic, boot_id: BootId) {
        // Zero means no process, in a state without a term; and this process has not ended.
        if boot_id == self.settings.boot_id || boot_id == BootId(0) {
            tracing::warn!(%boot_id, "ignored the report that a process has ended: it is this one, or none");
            return;
        }
        tracing::info!(%boot_id, "a witness reports that the process with this boot id has ended");
        self.witnessed.note(now, boot_id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_report_of_each_process_counts_and_few_are_remembered() {
        let mut witnessed = Witnessed::default();
        let at = |ms| Monotonic::default().plus(Duration::from_millis(ms));
        for (ms, id) in [(1, 1), (2, 2), (3, 1)] {
            witnessed.note(at(ms), BootId(id));
        }
        assert_eq!([1, 2, 3].map(|id| witnessed.told_at(BootId(id))), [Some(at(1)), Some(at(2)), None]);
        for id in 3..1000 {
            witnessed.note(at(id), BootId(id));
        }
        assert_eq!(witnessed.0.len(), REMEMBERED);
        assert_eq!(witnessed.told_at(BootId(1)), None);
        assert_eq!(witnessed.told_at(BootId(999)), Some(at(999)));
    }
}
