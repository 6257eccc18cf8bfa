//! A state that is not what the log says. A standby whose state changed without a record, or that a digest in the log
//! contradicts, must not lead until it has built its state anew; and a primary that logs a wrong digest keeps no other
//! master from leading for ever.

use std::sync::Arc;

use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::{LogTime, SequenceId, Term};
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::node::Input;
use moonkeeper::replication::node::status::Activity;

use super::Sim;

/// A state that its master has to give up.
pub struct Corruption {
    incarnation: Arc<Incarnation>,
    /// The record that shows it: the next one, or a digest.
    shown_by: SequenceId,
    /// The term that a wrong digest is written in; `None` if the state itself was changed.
    digest: Option<Term>,
    /// It was read from a wrong snapshot.
    of_snapshot: bool,
}

impl Corruption {
    /// The state of a wrong snapshot, which this digest in the log shows.
    pub fn of_snapshot(incarnation: &Arc<Incarnation>, shown_by: SequenceId) -> Self {
        Self { incarnation: Arc::clone(incarnation), shown_by, digest: None, of_snapshot: true }
    }
}

impl Sim {
    /// A bit turns in the memory of one master, once in a run.
    pub fn corrupt(&mut self, index: usize) {
        if self.truth.corruption {
            return;
        }
        let Some(node) = &self.masters[index].node else { return };
        let (activity, term) = node.brief();
        match activity {
            Activity::Serving => self.log_wrong_digest(index, term),
            Activity::Following => self.change_state(index),
            _ => {}
        }
    }

    /// The state of a standby changes without a record.
    fn change_state(&mut self, index: usize) {
        let Some(node) = &self.masters[index].node else { return };
        let incarnation = Arc::clone(node.incarnation());
        let mut sequencer = incarnation.engine.sequencer(LogTime(0));
        let (next, now) = (sequencer.next_id(), sequencer.now);
        sequencer.apply(Format::NEWEST, next, now, &Record::MetadataPut { key: b"bit", value: b"1" });
        drop(sequencer);
        note!(self, "a bit turns in m{index}, which is at {}", next.0 - 1);
        self.masters[index].corruption =
            Some(Corruption { incarnation, shown_by: next, digest: None, of_snapshot: false });
        self.truth.corruption = true;
    }

    /// A primary writes a digest that its state does not have. All standbys that hear it have to doubt their own.
    fn log_wrong_digest(&mut self, index: usize, term: Term) {
        let now = self.clock(index);
        let Some(server) = &self.masters[index].server else { return };
        if !server.open || !server.incarnation.gate.may_answer(now) {
            return;
        }
        let digest = Digest(self.rng.next());
        let shown_by = server.incarnation.engine.sequencer(LogTime(0)).commit(&Record::Digest { digest });
        note!(self, "m{index} logs a wrong digest as {}", shown_by.0);
        self.truth.corruption = true;
        for standby in (0..self.masters.len()).filter(|standby| *standby != index) {
            if self.is_corrupt(standby) {
                continue;
            }
            let master = &mut self.masters[standby];
            let following = master.node.as_ref().filter(|node| node.brief().0 == Activity::Following);
            master.corruption = following.map(|node| Corruption {
                incarnation: Arc::clone(node.incarnation()),
                shown_by,
                digest: Some(term),
                of_snapshot: false,
            });
        }
        self.input(index, Input::Queued);
    }

    /// Whether the state of a master has to be built anew.
    fn is_suspect(&mut self, index: usize) -> bool {
        let master = &mut self.masters[index];
        let same = |corruption: &Corruption| {
            master.node.as_ref().is_some_and(|node| Arc::ptr_eq(node.incarnation(), &corruption.incarnation))
        };
        if !master.corruption.as_ref().is_some_and(same) {
            master.corruption = None;
        }
        master.corruption.is_some()
    }

    /// Whether the state of a master was changed without a record.
    pub fn is_corrupt(&mut self, index: usize) -> bool {
        self.is_suspect(index)
            && self.masters[index].corruption.as_ref().is_some_and(|corruption| corruption.digest.is_none())
    }

    /// A master whose state came from a wrong snapshot does not count as caught up once the log has shown it.
    pub fn check_snapshot_state(&mut self, index: usize, applied: SequenceId) {
        let now = self.clock(index);
        let master = &self.masters[index];
        let (Some(node), Some(corruption)) = (&master.node, &master.corruption) else { return };
        let shown = corruption.of_snapshot && applied >= corruption.shown_by;
        if shown && node.status(now).caught_up {
            let what = format!("m{index} is caught up at {applied:?} with the state of a wrong snapshot");
            self.fail(("doubt", what));
        }
    }

    /// A master leads that has the log up to `end`: nothing in it has put its state in doubt.
    pub fn check_state(&mut self, index: usize, end: SequenceId) {
        if !self.is_suspect(index) {
            return;
        }
        let Some(Corruption { shown_by, digest, .. }) = self.masters[index].corruption else { return };
        let written = digest.is_none_or(|term| self.truth.term_of(shown_by) == Some(term));
        if written && shown_by <= end {
            let what = format!("m{index} leads although {shown_by:?} has shown that its state may be wrong");
            self.fail(("doubt", what));
        }
    }
}
