//! The progress of a round as one line on a terminal.

use std::io::{IsTerminal, Write, stderr};

use crate::cluster::digests::DigestsProgress;

/// A line on standard error that is updated in place; nothing if that is not a terminal.
#[derive(Debug)]
pub(super) struct ProgressLine {
    terminal: bool,
    shown: bool,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { terminal: stderr().is_terminal(), shown: false }
    }

    /// Returns whether there is a terminal to show it on.
    pub(super) fn is_shown(&self) -> bool {
        self.terminal
    }

    /// Shows how far the members are that still compute.
    pub(super) fn show(&mut self, computing: &[(String, DigestsProgress)], members: usize) {
        if self.terminal {
            self.shown = true;
            put(&format!("\r{}\x1b[K", line(computing, members)));
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            put("\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes to the terminal. Errors are ignored: it may have been closed.
fn put(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Renders a line such as `2 of 3 masters are done; m-2: 10 of 20 objects`.
fn line(computing: &[(String, DigestsProgress)], members: usize) -> String {
    let states = computing.iter().map(|(name, DigestsProgress { begun, objects, of, .. })| {
        if *begun {
            format!("{name}: {objects} of {of} objects")
        } else {
            format!("{name}: waits for a digest of the primary")
        }
    });
    let states: Vec<String> = states.collect();
    let done = members.saturating_sub(states.len());
    if states.is_empty() {
        return format!("{done} of {members} masters are done");
    }
    format!("{done} of {members} masters are done; {}", states.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_each_master_is_doing() {
        let progress = |begun, objects| DigestsProgress { begun, objects, of: 9, from_ms: 1 };
        let computing = [("a".to_owned(), progress(true, 4)), ("b".to_owned(), progress(false, 0))];
        assert_eq!(
            line(&computing, 3),
            "1 of 3 masters are done; a: 4 of 9 objects, b: waits for a digest of the primary"
        );
        assert_eq!(line(&[], 3), "3 of 3 masters are done");
    }
}
