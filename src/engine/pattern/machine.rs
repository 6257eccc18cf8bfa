//! A backtracking machine for what no automaton can match: look-ahead and back-references.
//!
//! Without back-references whether a state leads to a match depends only on the position in the key, so no state is
//! tried twice at the same position, and the time is linear in key and pattern (but for look-aheads that succeed at
//! many positions, which are run again at each). With back-references the search is exponential at worst, and the steps
//! are counted.

use super::error::TooCostly;
use super::tree::{ByteSet, Node, Place, is_word};
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps that every key may take: many times what ordinary patterns need.
const FREE_STEPS: u64 = 20_000;
/// Budget of further steps that all keys share: about a second.
const POT: u64 = 100_000_000;
/// Most steps of one key, so that it neither uses up the shared budget nor takes much memory.
const MAX_STEPS: u64 = 2_000_000;
/// Most bits for remembering which states were tried; without them the step count is the only bound.
const MAX_TRIED: usize = 64 << 20;

/// One instruction of the machine. Targets are indices of instructions.
#[derive(Debug, Clone, Copy)]
enum Step {
    Byte(ByteSet),
    At(Place),
    /// Continues at the first; on failure at the second.
    Either(usize, usize),
    Jump(usize),
    /// Saves the position in a slot.
    Save(usize),
    /// The end of a loop's body: back to the start of the loop, unless the body matched nothing since `Save`.
    Loop {
        saved: usize,
        start: usize,
    },
    Again(u32),
    /// The instructions up to `after` match here (or do not).
    Ahead {
        after: usize,
        negate: bool,
    },
    Accept,
}

/// Entry of the undo stack: what to do when a branch has failed, the newest first.
#[derive(Debug, Clone, Copy)]
enum Undo {
    Branch { at: usize, place: usize },
    Restore { slot: usize, value: Option<usize> },
}

#[derive(Debug)]
pub(super) struct Machine {
    steps: Vec<Step>,
    slots: usize,
    /// Whether the outcome of a state depends only on the position in the key.
    memoryless: bool,
    pot: AtomicU64,
}

impl Machine {
    pub(super) fn new(tree: &Node) -> Self {
        let again = tree.any(&|node| matches!(node, Node::Again(_)));
        // In a look-ahead these depend on where it started, see `Search::is_at`.
        let anchored =
            |node: &Node| node.any(&|node| matches!(node, Node::At(place) if *place != Place::End));
        let looks = tree.any(&|node| matches!(node, Node::Ahead { node, .. } if anchored(node)));
        let mut groups = 0;
        count_groups(tree, &mut groups);
        let mut program = Program { steps: Vec::new(), slots: 2 * (groups + 1) };
        program.emit(tree);
        program.steps.push(Step::Accept);
        let Program { steps, slots } = program;
        Self { steps, slots, memoryless: !again && !looks, pot: AtomicU64::new(POT) }
    }

    pub(super) fn is_match(&self, key: &[u8]) -> Result<bool, TooCostly> {
        let bits = self.steps.len().saturating_mul(key.len() + 1);
        let tried =
            if self.memoryless && bits <= MAX_TRIED { vec![0; bits.div_ceil(64)] } else { Vec::new() };
        let left = self.pot.load(Ordering::Relaxed).saturating_add(FREE_STEPS).min(MAX_STEPS);
        let slots = vec![None; self.slots];
        let mut search = Search {
            machine: self,
            key,
            start: 0,
            tried,
            looking: 0,
            journal: Vec::new(),
            slots,
            undo: Vec::new(),
            left,
        };
        let mut found = Ok(false);
        for start in 0..=key.len() {
            search.start = start;
            found = search.run(0, start, start);
            if found != Ok(false) {
                break;
            }
        }
        let over = (left - search.left).saturating_sub(FREE_STEPS);
        let spend = |pot: u64| (over > 0).then(|| pot.saturating_sub(over));
        let _ = self.pot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        found
    }
}

fn count_groups(tree: &Node, most: &mut usize) {
    match tree {
        Node::Byte(_) | Node::At(_) | Node::Again(_) => {}
        Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().for_each(|node| count_groups(node, most)),
        Node::Repeat { node, .. } | Node::Ahead { node, .. } => count_groups(node, most),
        Node::Group(number, node) => {
            *most = (*most).max(*number as usize);
            count_groups(node, most);
        }
    }
}

/// A program that is being compiled.
struct Program {
    steps: Vec<Step>,
    slots: usize,
}

impl Program {
    /// Reserves an instruction whose target is not known yet.
    fn hole(&mut self) -> usize {
        self.steps.push(Step::Accept);
        self.steps.len() - 1
    }

    fn either(first: usize, second: usize, greedy: bool) -> Step {
        if greedy { Step::Either(first, second) } else { Step::Either(second, first) }
    }

    fn emit(&mut self, node: &Node) {
        match node {
            Node::Byte(set) => self.steps.push(Step::Byte(*set)),
            Node::At(place) => self.steps.push(Step::At(*place)),
            Node::Again(group) => self.steps.push(Step::Again(*group)),
            Node::Sequence(nodes) => nodes.iter().for_each(|node| self.emit(node)),
            Node::Choice(nodes) => {
                let mut ends = Vec::new();
                for (i, node) in nodes.iter().enumerate() {
                    if i + 1 == nodes.len() {
                        self.emit(node);
                        break;
                    }
                    let choice = self.hole();
                    self.emit(node);
                    ends.push(self.hole());
                    self.steps[choice] = Step::Either(choice + 1, self.steps.len());
                }
                let end = self.steps.len();
                ends.into_iter().for_each(|hole| self.steps[hole] = Step::Jump(end));
            }
            Node::Group(number, node) => {
                self.steps.push(Step::Save(2 * *number as usize));
                self.emit(node);
                self.steps.push(Step::Save(2 * *number as usize + 1));
            }
            Node::Ahead { node, negate } => {
                let look = self.hole();
                self.emit(node);
                self.steps.push(Step::Accept);
                self.steps[look] = Step::Ahead { after: self.steps.len(), negate: *negate };
            }
            Node::Repeat { node, least, most, greedy } => {
                (0..*least).for_each(|_| self.emit(node));
                match most {
                    Some(most) => {
                        let holes: Vec<_> = (*least..*most)
                            .map(|_| {
                                let hole = self.hole();
                                self.emit(node);
                                hole
                            })
                            .collect();
                        let end = self.steps.len();
                        for hole in holes {
                            self.steps[hole] = Self::either(hole + 1, end, *greedy);
                        }
                    }
                    None => {
                        let start = self.hole();
                        let saved = self.slots;
                        self.slots += 1;
                        self.steps.push(Step::Save(saved));
                        self.emit(node);
                        self.steps.push(Step::Loop { saved, start });
                        self.steps[start] = Self::either(start + 1, self.steps.len(), *greedy);
                    }
                }
            }
        }
    }
}

/// State of the search in one key.
struct Search<'a> {
    machine: &'a Machine,
    key: &'a [u8],
    /// Where in the key this attempt started.
    start: usize,
    /// A bit for every step at every position that is known to fail, or is being tried; empty when not memoryless.
    tried: Vec<u64>,
    /// How many look-aheads are being tried, one within the other. `journal` has the bits of `tried` that were set
    /// within them.
    looking: u32,
    journal: Vec<usize>,
    slots: Vec<Option<usize>>,
    undo: Vec<Undo>,
    left: u64,
}

impl Search<'_> {
    /// Returns whether a match starts with step `at` at position `place`; `begin` is where this run, of the whole
    /// pattern or of a look-ahead, began.
    fn run(&mut self, mut at: usize, mut place: usize, begin: usize) -> Result<bool, TooCostly> {
        let base = self.undo.len();
        loop {
            self.left = self.left.checked_sub(1).ok_or(TooCostly)?;
            let next = if self.is_new(at, place) { self.step(at, place, begin)? } else { None };
            match next {
                Some((next, to)) => {
                    if matches!(self.machine.steps[next], Step::Accept) {
                        return Ok(true);
                    }
                    (at, place) = (next, to);
                }
                None => match self.backtrack(base) {
                    Some(branch) => (at, place) = branch,
                    None => return Ok(false),
                },
            }
        }
    }

    /// Takes one step. Returns the next step and its position, or `None` if this branch fails.
    fn step(&mut self, at: usize, place: usize, begin: usize) -> Result<Option<(usize, usize)>, TooCostly> {
        Ok(match self.machine.steps[at] {
            Step::Accept => Some((at, place)),
            Step::Byte(set) => {
                self.key.get(place).filter(|byte| set.contains(**byte)).map(|_| (at + 1, place + 1))
            }
            Step::At(wanted) => self.is_at(wanted, place, begin).then_some((at + 1, place)),
            Step::Jump(to) => Some((to, place)),
            Step::Either(first, second) => {
                self.undo.push(Undo::Branch { at: second, place });
                Some((first, place))
            }
            Step::Save(slot) => {
                self.save(slot, Some(place));
                Some((at + 1, place))
            }
            Step::Loop { saved, .. } if self.slots[saved] == Some(place) => Some((at + 1, place)),
            Step::Loop { start, .. } => Some((start, place)),
            Step::Again(group) => {
                let text = |from: usize, to: usize| self.key.get(from..to);
                let slot = 2 * group as usize;
                let wanted = self.slots[slot].zip(self.slots[slot + 1]).and_then(|(from, to)| text(from, to));
                wanted
                    .filter(|wanted| text(place, place + wanted.len()) == Some(wanted))
                    .map(|wanted| (at + 1, place + wanted.len()))
            }
            Step::Ahead { after, negate } => {
                (self.looks_ahead(at + 1, place)? != negate).then_some((after, place))
            }
        })
    }

    /// Runs a look-ahead. When it succeeds, its branches are forgotten and its groups are kept.
    fn looks_ahead(&mut self, body: usize, place: usize) -> Result<bool, TooCostly> {
        let (undo, journal) = (self.undo.len(), self.journal.len());
        self.looking += 1;
        let found = self.run(body, place, place)?;
        self.looking -= 1;
        if found {
            // The states that were tried on the way to a success did not fail, so forget these bits.
            for bit in self.journal.drain(journal..) {
                self.tried[bit / 64] &= !(1 << (bit % 64));
            }
            let mut kept = undo;
            for i in undo..self.undo.len() {
                if matches!(self.undo[i], Undo::Restore { .. }) {
                    self.undo[kept] = self.undo[i];
                    kept += 1;
                }
            }
            self.undo.truncate(kept);
        }
        Ok(found)
    }

    fn save(&mut self, slot: usize, value: Option<usize>) {
        let old = std::mem::replace(&mut self.slots[slot], value);
        self.undo.push(Undo::Restore { slot, value: old });
    }

    /// Goes back to the newest branch of this run that was not tried yet.
    fn backtrack(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.undo.len() > base {
            match self.undo.pop()? {
                Undo::Branch { at, place } => return Some((at, place)),
                Undo::Restore { slot, value } => self.slots[slot] = value,
            }
        }
        None
    }

    /// Returns whether this step was not tried at this position before, and marks it as tried.
    fn is_new(&mut self, at: usize, place: usize) -> bool {
        if self.tried.is_empty() {
            return true;
        }
        let bit = at * (self.key.len() + 1) + place;
        let (word, mask) = (&mut self.tried[bit / 64], 1 << (bit % 64));
        let new = *word & mask == 0;
        *word |= mask;
        if new && self.looking > 0 {
            self.journal.push(bit);
        }
        new
    }

    /// Returns whether an assertion holds at `place`. As in libstdc++, a look-ahead takes the position where it begins
    /// for the start of the text, unless the attempt as a whole started later than the text.
    fn is_at(&self, wanted: Place, place: usize, begin: usize) -> bool {
        let first = place == begin && self.start == 0;
        let word = |place: Option<usize>| place.and_then(|p| self.key.get(p)).is_some_and(|b| is_word(*b));
        let boundary = (!first && word(place.checked_sub(1))) != word(Some(place));
        match wanted {
            Place::Start => first,
            Place::End => place == self.key.len(),
            Place::Boundary => boundary,
            Place::NoBoundary => !boundary,
        }
    }
}
