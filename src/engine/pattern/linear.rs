//! Translates regular trees to the syntax of the `regex` crate.

use super::tree::{ByteSet, Node, Place};
use regex::bytes::{Regex, RegexBuilder};
use std::fmt::Write;

/// Most states of a pattern with every repetition written out, as in libstdc++.
pub(super) const MAX_STATES: u64 = 100_000;
/// Most memory of the compiled form: enough for that many states, and a bound in case the crate needs more for each.
const MAX_BYTES: usize = 64 << 20;

/// Compiles a regular tree; `None` if the result would be too large.
pub(super) fn compile(tree: &Node) -> Option<Regex> {
    let mut text = String::new();
    write(tree, &mut text);
    // Groups are written around groups, so what nests 200 deep in the tree nests a little deeper here.
    RegexBuilder::new(&text).unicode(false).size_limit(MAX_BYTES).nest_limit(1_000).build().ok()
}

/// Appends `node` to `text`, as one item that a quantifier may follow. Writing to a string cannot fail.
fn write(node: &Node, text: &mut String) {
    match node {
        Node::Byte(set) => write_set(set, text),
        Node::At(place) => text.push_str(match place {
            Place::Start => r"(?:\A)",
            Place::End => r"(?:\z)",
            Place::Boundary => r"(?:\b)",
            Place::NoBoundary => r"(?:\B)",
        }),
        Node::Sequence(nodes) => {
            text.push_str("(?:");
            nodes.iter().for_each(|node| write(node, text));
            text.push(')');
        }
        Node::Choice(nodes) => {
            text.push_str("(?:");
            for (i, node) in nodes.iter().enumerate() {
                if i > 0 {
                    text.push('|');
                }
                write(node, text);
            }
            text.push(')');
        }
        // Only whether there is a match matters, not which one: all quantifiers are written as greedy.
        Node::Repeat { node, least, most, .. } => {
            text.push_str("(?:");
            write(node, text);
            let _ = match most {
                Some(most) => write!(text, "{{{least},{most}}})"),
                None => write!(text, "{{{least},}})"),
            };
        }
        Node::Group(_, node) => write(node, text),
        Node::Again(_) | Node::Ahead { .. } => debug_assert!(false, "the tree is regular"),
    }
}

fn write_set(set: &ByteSet, text: &mut String) {
    match set.ranges().as_slice() {
        [] => text.push_str(r"[^\x00-\xff]"),
        [(from, to)] if from == to => drop(write!(text, r"\x{from:02x}")),
        ranges => {
            text.push('[');
            for (from, to) in ranges {
                let _ = write!(text, r"\x{from:02x}-\x{to:02x}");
            }
            text.push(']');
        }
    }
}
