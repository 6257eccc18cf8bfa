//! Why a pattern cannot be used.

/// The text is no regular expression of the language, or is too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad pattern at byte {at}: {reason}")]
pub struct BadPattern {
    /// How far the text was read.
    pub at: usize,
    pub reason: &'static str,
}

/// A key could not be decided within the steps allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pattern takes too many steps to match")]
pub struct TooCostly;
