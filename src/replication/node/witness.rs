//! What witnesses say about processes that have ended, and what that does to the wait of a new primary (R6).
//!
//! A primary that dies may have promised readers what the log does not say, up to the last moment at which it can have
//! answered a read. Without a witness that is a leader lease after its election key was seen gone. A witness saw the
//! process end, so the moment at which its report arrived, by this master's own clock, is later than any answer.

use std::collections::VecDeque;

use super::{BootId, Node};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::replication::time::Monotonic;

/// Reports that are remembered, the newest ones: more masters than a cluster has.
const REMEMBERED: usize = 16;

/// Processes that have ended, and when this master was told so.
#[derive(Debug, Default)]
pub(super) struct Witnessed(VecDeque<(BootId, Monotonic)>);

impl Witnessed {
    /// Notes the first report about a process; a process ends once.
    fn note(&mut self, now: Monotonic, boot_id: BootId) {
        if self.0.iter().any(|(known, _)| *known == boot_id) {
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((boot_id, now));
    }

    /// When this master was told that this process has ended.
    pub(super) fn told_at(&self, boot_id: BootId) -> Option<Monotonic> {
        #[cfg(feature = "planted")]
        if planted::active(Bug::WitnessOfAnother) {
            return self.0.back().map(|(_, at)| *at);
        }
        self.0.iter().find(|(known, _)| *known == boot_id).map(|(_, at)| *at)
    }
}

impl Node {
    /// Notes that a process has ended. That revokes nothing: it counts if this master takes over from that process.
    pub(super) fn process_ended(&mut self, now: Monotonic, boot_id: BootId) {
        // Zero stands for no process in a state without a term; and this process has not ended.
        if boot_id == self.settings.boot_id || boot_id == BootId(0) {
            tracing::warn!(%boot_id, "ignored a report about the end of a process that cannot have ended");
            return;
        }
        tracing::info!(%boot_id, "a witness says that this process has ended");
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
