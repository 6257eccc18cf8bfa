//! Syntax tree of a pattern, over sets of bytes. It does not depend on how the pattern was written.

/// A set of bytes, with a bit for each possible one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    /// Returns the set of bytes for which `member` holds.
    pub(super) fn of(member: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::default();
        (0..=u8::MAX).filter(|byte| member(*byte)).for_each(|byte| set.add(byte));
        set
    }

    pub(super) fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    pub(super) fn add_all(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    pub(super) fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    /// Returns the members as ranges, in order, no two of which touch.
    pub(super) fn ranges(&self) -> Vec<(u8, u8)> {
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        for byte in (0..=u8::MAX).filter(|byte| self.contains(*byte)) {
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == byte => *end = byte,
                _ => ranges.push((byte, byte)),
            }
        }
        ranges
    }
}

/// Returns whether `\w` matches this byte.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A position that an expression can ask for without consuming anything (an assertion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Start,
    End,
    Boundary,
    NoBoundary,
}

/// An expression: a node of the syntax tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// One byte of a set.
    Byte(ByteSet),
    At(Place),
    /// All of them, one after the other; the empty list matches the empty text.
    Sequence(Vec<Node>),
    /// One of them, the first that leads to a match.
    Choice(Vec<Node>),
    /// From `least` to `most` times.
    Repeat {
        node: Box<Node>,
        least: u32,
        most: Option<u32>,
        greedy: bool,
    },
    /// A group whose text is remembered under a number from 1 on.
    Group(u32, Box<Node>),
    /// A back-reference: the text of a group again.
    Again(u32),
    /// A look-ahead: what follows matches (or does not).
    Ahead {
        node: Box<Node>,
        negate: bool,
    },
}

impl Node {
    /// Returns the number of states of the automaton, counted with every repetition written out.
    pub(super) fn states(&self) -> u64 {
        let sum = |nodes: &[Node]| nodes.iter().fold(1u64, |sum, node| sum.saturating_add(node.states()));
        match self {
            Node::Byte(_) | Node::At(_) | Node::Again(_) => 1,
            Node::Sequence(nodes) | Node::Choice(nodes) => sum(nodes),
            Node::Group(_, node) | Node::Ahead { node, .. } => node.states().saturating_add(2),
            Node::Repeat { node, least, most, .. } => {
                let times = most.unwrap_or(least.saturating_add(1)).max(1);
                node.states()
                    .saturating_mul(u64::from(times))
                    .saturating_add(u64::from(times - least.min(&times)))
            }
        }
    }

    /// Returns whether a finite automaton can match it.
    pub(super) fn is_regular(&self) -> bool {
        !self.any(&|node| matches!(node, Node::Again(_) | Node::Ahead { .. }))
    }

    /// Returns whether `test` holds for this node or one below it.
    pub(super) fn any(&self, test: &impl Fn(&Node) -> bool) -> bool {
        test(self)
            || match self {
                Node::Byte(_) | Node::At(_) | Node::Again(_) => false,
                Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().any(|node| node.any(test)),
                Node::Group(_, node) | Node::Ahead { node, .. } | Node::Repeat { node, .. } => node.any(test),
            }
    }
}
