//! Answers that wait for the log: which of them may be sent, which are given up, and which wait on. The decision is
//! pure: the connections of a master and the simulator both run it. Right before an answer is sent, the gate is asked
//! once more ([`Gate::may_answer`](super::gate::Gate::may_answer)): a master whose lease has run out is silent.

use std::time::Duration;

use super::time::Monotonic;
use crate::engine::types::SequenceId;

/// How long a change waits for space in the queue before it is refused with nothing applied. It is longer than the log
/// may stand still while this master leads, and shorter than the 30 s after which clients give up a call: they shall
/// receive the answer that nothing was changed.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The state of the log for answers that wait for it.
#[derive(Clone, Copy, Debug)]
pub struct LogState {
    pub durable: SequenceId,
    /// Set while etcd refuses writes, for lack of space for instance.
    pub refusing: Option<Refusing>,
}

/// How long answers wait while the log refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusing {
    pub now: Monotonic,
    /// How long answers wait for a log that refuses writes before they are given up.
    pub patience: Duration,
}

/// The outcome for one parked answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate<'a, T> {
    /// The record that it depends on is durable: it may be sent (INV-3).
    Leaves(T),
    /// It is given up: its records may yet be written, so the outcome of the call is unknown (R5).
    Unknown(T),
    Waits(&'a T),
}

/// Answers that wait for the log, in the order in which they were made.
#[derive(Debug)]
pub struct ParkedAnswers<T> {
    entries: Vec<Entry<T>>,
    /// Whether the log refused writes at the last release: entries may have `refused_since` set.
    refused: bool,
}

#[derive(Debug)]
struct Entry<T> {
    depends_on: SequenceId,
    /// Since when it waits for a log that refuses writes.
    refused_since: Option<Monotonic>,
    answer: T,
}

impl<T> Default for ParkedAnswers<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), refused: false }
    }
}

impl<T> Entry<T> {
    fn is_durable(&self, log: LogState) -> bool {
        self.depends_on <= log.durable
    }

    fn is_given_up(&self, log: LogState) -> bool {
        let over = |refusing: Refusing| {
            self.refused_since.is_some_and(|since| refusing.now.since(since) >= refusing.patience)
        };
        log.refusing.is_some_and(over)
    }
}

impl<T> ParkedAnswers<T> {
    /// Keeps an answer until `depends_on` is durable.
    pub fn park(&mut self, depends_on: SequenceId, answer: T) {
        self.entries.push(Entry { depends_on, refused_since: None, answer });
    }

    /// Returns whether no answer waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the lowest record that an answer waits for.
    #[must_use]
    pub fn lowest(&self) -> Option<SequenceId> {
        self.entries.iter().map(|entry| entry.depends_on).min()
    }

    /// Removes the answers that may be sent or are given up; the others keep their order. Passes the fate of every one
    /// to `each`, in order. If all of them wait on, calls `each` for none and returns false.
    pub fn release(&mut self, log: LogState, mut each: impl FnMut(Fate<'_, T>)) -> bool {
        self.count_refusal(log.refusing);
        if !self.entries.iter().any(|entry| entry.is_durable(log) || entry.is_given_up(log)) {
            return false;
        }
        for entry in std::mem::take(&mut self.entries) {
            if entry.is_durable(log) {
                each(Fate::Leaves(entry.answer));
            } else if entry.is_given_up(log) {
                each(Fate::Unknown(entry.answer));
            } else {
                each(Fate::Waits(&entry.answer));
                self.entries.push(entry);
            }
        }
        true
    }

    /// Takes all answers, whatever they wait for.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.entries).into_iter().map(|entry| entry.answer)
    }

    /// Starts the patience of each answer when the log is first seen to refuse writes, and resets it when the log
    /// accepts them.
    fn count_refusal(&mut self, refusing: Option<Refusing>) {
        match refusing {
            Some(Refusing { now, .. }) => {
                self.refused = true;
                self.entries.iter_mut().for_each(|entry| _ = entry.refused_since.get_or_insert(now));
            }
            None if self.refused => {
                self.refused = false;
                self.entries.iter_mut().for_each(|entry| entry.refused_since = None);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_micros(10);

    fn parked(answers: &[(u64, char)]) -> ParkedAnswers<char> {
        let mut parked = ParkedAnswers::default();
        answers.iter().for_each(|(depends_on, answer)| parked.park(SequenceId(*depends_on), *answer));
        parked
    }

    fn release(parked: &mut ParkedAnswers<char>, durable: u64, refusing_at: Option<u64>) -> String {
        let refusing = refusing_at.map(|now| Refusing { now: Monotonic(now), patience: PATIENCE });
        let mut told = String::new();
        let log = LogState { durable: SequenceId(durable), refusing };
        let some = parked.release(log, |fate| match fate {
            Fate::Leaves(answer) => told.push(answer),
            Fate::Unknown(answer) => told.extend(['?', answer]),
            Fate::Waits(answer) => told.extend(['(', *answer, ')']),
        });
        assert_eq!(some, !told.is_empty());
        told
    }

    #[test]
    fn an_answer_leaves_when_what_it_rests_on_is_durable() {
        let mut parked = parked(&[(5, 'a'), (3, 'b'), (4, 'c')]);
        assert_eq!(parked.lowest(), Some(SequenceId(3)));
        assert_eq!(release(&mut parked, 2, None), "");
        assert_eq!(release(&mut parked, 4, None), "(a)bc");
        assert_eq!(parked.lowest(), Some(SequenceId(5)));
        assert_eq!(release(&mut parked, 9, None), "a");
        assert!(parked.is_empty());
    }

    #[test]
    fn answers_that_wait_for_a_full_log_are_given_up() {
        let mut parked = parked(&[(5, 'a')]);
        assert_eq!(release(&mut parked, 2, Some(100)), "");
        parked.park(SequenceId(6), 'b');
        assert_eq!(release(&mut parked, 2, Some(105)), "");
        assert_eq!(release(&mut parked, 2, Some(109)), "");
        assert_eq!(release(&mut parked, 2, Some(110)), "?a(b)");
        assert_eq!(release(&mut parked, 6, Some(300)), "b", "durable all the same");
    }

    #[test]
    fn patience_counts_anew_when_the_log_takes_writes_again() {
        let mut parked = parked(&[(5, 'a')]);
        assert_eq!(release(&mut parked, 2, Some(100)), "");
        assert_eq!(release(&mut parked, 2, None), "");
        assert_eq!(release(&mut parked, 2, Some(200)), "");
        assert_eq!(release(&mut parked, 2, Some(209)), "");
        assert_eq!(release(&mut parked, 2, Some(210)), "?a");
    }
}
