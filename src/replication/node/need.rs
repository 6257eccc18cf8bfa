//! What a node still has to read of the log, and whether etcd has it: batches that it needs are not deleted then
//! ([`compaction`](super::compaction)).

use super::Node;
use super::following::Following;
use crate::cluster::log_floor::LogNeed;
use crate::cluster::member::MemberValue;
use crate::engine::types::SequenceId;

/// Returns whether a member key with this value has the need of this node.
pub(super) fn is_told(need: Option<&LogNeed>, written: &MemberValue) -> bool {
    need.is_none_or(|need| written.needs.as_ref().is_some_and(|told| told.covers(need)))
}

impl Following {
    /// Returns what this node still has to read of the log; `None` if the log begins later than what it has, and it has
    /// no snapshot to continue from.
    pub(super) fn need(&self) -> Option<LogNeed> {
        let applied = self.position.applied;
        let after = match self.begins_at {
            Some(first) if applied.0 + 1 < first.0 => {
                // What follows the snapshot that it is reading, wherever that ends.
                self.is_restoring().then_some(SequenceId(first.0 - 1))?
            }
            _ => applied,
        };
        let log = self.position.log.map_or(String::new(), |log| log.to_string());
        Some(LogNeed { log, after: after.0 })
    }
}

impl Node {
    /// Returns whether etcd has what this node still needs of the log, as far as this node knows.
    pub(super) fn need_is_told(&self) -> bool {
        let need = self.following.need();
        self.member.written().is_some_and(|written| is_told(need.as_ref(), written))
    }
}
