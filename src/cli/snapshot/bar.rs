//! The progress of a snapshot as one line on a terminal.

use std::io::{IsTerminal, Write, stderr};

use crate::cluster::etcd_health::size;
use crate::cluster::snapshot::{SnapshotProgress, SnapshotStage};

/// Characters of the bar.
const WIDTH: u64 = 30;

/// A line on standard error that is updated in place; nothing if that is not a terminal.
#[derive(Debug)]
pub(super) struct Bar {
    terminal: bool,
    shown: bool,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self { terminal: stderr().is_terminal(), shown: false }
    }

    /// Shows how far the snapshot of this member is.
    pub(super) fn show(&mut self, member: &str, progress: &SnapshotProgress) {
        if self.terminal {
            self.shown = true;
            put(&format!("\r{}\x1b[K", line(member, progress)));
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            put("\r\x1b[K");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Writes to the terminal. Errors are ignored: it may have been closed.
fn put(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Renders a line such as `m-1 [####..] 50 %  10 of 20 objects, 1.0 MiB, writing`.
fn line(member: &str, progress: &SnapshotProgress) -> String {
    let SnapshotProgress { objects, of, bytes, stage, .. } = *progress;
    let share = share(progress);
    let full = (share * WIDTH / 100) as usize;
    let empty = WIDTH as usize - full;
    format!(
        "{member} [{}{}] {share:3} %  {objects} of {of} objects, {}, {stage}",
        "#".repeat(full),
        ".".repeat(empty),
        size(bytes)
    )
}

/// Returns the percentage of the objects that were written.
pub(super) fn share(progress: &SnapshotProgress) -> u64 {
    match progress.stage {
        SnapshotStage::WaitingForDigest => 100,
        // Objects may come and go meanwhile.
        SnapshotStage::Writing => (progress.objects.saturating_mul(100) / progress.of.max(1)).min(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_how_far_it_is() {
        let mut progress =
            SnapshotProgress { objects: 50, of: 200, bytes: 3 << 20, ..SnapshotProgress::default() };
        let text = line("m-1", &progress);
        assert_eq!(
            text,
            format!("m-1 [{}{}]  25 %  50 of 200 objects, 3.0 MiB, writing", "#".repeat(7), ".".repeat(23))
        );
        // Before the number is known, and when more was written than there was.
        for (objects, of, expected) in [(0, 0, 0), (7, 0, 99), (300, 200, 99), (200, 200, 99)] {
            progress = SnapshotProgress { objects, of, ..progress };
            assert_eq!(share(&progress), expected, "{objects} of {of}");
        }
        progress.stage = SnapshotStage::WaitingForDigest;
        let text = line("m-1", &progress);
        assert!(text.contains("##] 100 %") && text.ends_with("waiting for a digest"), "{text}");
    }
}
