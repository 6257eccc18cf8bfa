//! Regular expressions over keys, as the callers of `RemoveByRegex` and `GetReplicaListByRegex` write them.
//!
//! The reference master searches with C++'s `std::regex`, that is ECMAScript over bytes as libstdc++ reads it; so
//! [`Pattern`] parses that language, down to its peculiarities, into a tree of its own. What is regular is handed to
//! the `regex` crate and takes time linear in the key. Look-ahead and back-references are matched by a small machine of
//! ours that counts its steps: linear as well where there is no back-reference, bounded where there is one. (The
//! reference backtracks without a bound and overflows its stack on long keys.)
//!
//! `cases.txt` has libstdc++'s results for some hundred patterns. Known differences:
//!
//! | pattern | libstdc++ | here |
//! |---|---|---|
//! | `[[.name.]]` | collating elements with names | refused; those of one character are taken |
//! | more than 100,000 states (`(a{1000}){1000}`) | refused | refused, with a slightly different count |
//! | longer than 256 KiB, nested deeper than 200 | accepted until its stack overflows | refused |
//! | a key that takes too many steps | runs on | [`TooCostly`] |
//! | a loop whose body matches nothing, with a back-reference into it | body entered twice | entered once |

mod error;
mod linear;
mod machine;
mod parse;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{BadPattern, TooCostly};
use machine::Machine;

/// Longest pattern in bytes: enough for a thousand keys in one alternation.
pub const MAX_LENGTH: usize = 256 << 10;

/// A compiled regular expression. It may be used by several threads at once; the steps that all of them spend on hard
/// keys are counted together, so a pattern is compiled for each request anew.
#[derive(Debug)]
pub struct Pattern {
    matcher: Matcher,
}

#[derive(Debug)]
enum Matcher {
    Linear(regex::bytes::Regex),
    Machine(Machine),
}

impl Pattern {
    /// Compiles an ECMAScript regular expression.
    pub fn parse(text: &[u8]) -> Result<Self, BadPattern> {
        if text.len() > MAX_LENGTH {
            return Err(BadPattern { at: MAX_LENGTH, reason: "longer than 256 KiB" });
        }
        let tree = parse::parse(text)?;
        let too_large = BadPattern { at: text.len(), reason: "too many states" };
        let matcher = if tree.is_regular() {
            Matcher::Linear(linear::compile(&tree).ok_or(too_large)?)
        } else {
            Matcher::Machine(Machine::new(&tree))
        };
        Ok(Self { matcher })
    }

    /// Returns whether the pattern matches somewhere in `key`.
    pub fn is_match(&self, key: &[u8]) -> Result<bool, TooCostly> {
        match &self.matcher {
            Matcher::Linear(regex) => Ok(regex.is_match(key)),
            Matcher::Machine(machine) => machine.is_match(key),
        }
    }
}
