//! Long work in chunks. Each takes the sequencer anew, and the calls of other clients get their turn between two of them.

use super::state::{Engine, Now, Sequencer};
use super::types::SequenceId;

/// The caller of long work: it is asked before each chunk, while no lock is held, and told the records of the work.
pub trait Chunks {
    /// Waits until the next chunk may begin. Returns false if the work has to stop.
    fn next_chunk(&mut self) -> bool;

    /// Notes the last record that the work has made so far. Others may have made records in between.
    fn made(&mut self, _last: SequenceId) {}
}

impl<F: FnMut() -> bool> Chunks for F {
    fn next_chunk(&mut self) -> bool {
        self()
    }
}

impl Engine {
    /// Runs a part of long work with the sequencer, then lets the caller that has waited longest for it go first.
    /// Otherwise the work, which asks for the sequencer again at once, would mostly get it before that caller wakes up.
    pub fn run_chunk<R>(
        &self,
        now: impl Now,
        chunks: &mut dyn Chunks,
        work: impl FnOnce(&mut Sequencer<'_>) -> R,
    ) -> R {
        let mut sequencer = self.sequencer(now);
        let result = work(&mut sequencer);
        let made = sequencer.made;
        sequencer.let_waiting_caller_go_first();
        drop(sequencer);
        if made != SequenceId(0) {
            chunks.made(made);
        }
        result
    }
}
