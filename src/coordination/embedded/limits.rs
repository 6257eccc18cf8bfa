//! How much a store keeps beyond the present keys, in memory and in its file.

/// The bounds of a store; other ones than the default are for tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Revisions that are kept at least, unless their bytes are too many. A standby that reads pages of one revision or
    /// resumes a watch is never that far behind; a standby that is further behind starts anew.
    pub revisions: u64,
    /// So many more are kept before the oldest are given up, so that this does not happen at every write.
    pub more_revisions: u64,
    /// Upper bound of what overwritten and deleted versions take.
    pub superseded_bytes: usize,
    /// The file is rewritten when it has as many superfluous bytes as it needs, but at least and at most so many: a
    /// small file is not worth it, and a large one is not to take twice the disk.
    pub superfluous_bytes: (u64, u64),
    /// Bytes of a new file that are written with each change. It is at least twice what the change appends, so that the
    /// new file overtakes the old one.
    pub step_bytes: u64,
    /// Further bytes by which the file grows before a rewrite that failed is tried again.
    pub retry_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            revisions: 50_000,
            more_revisions: 1000,
            superseded_bytes: 64 << 20,
            superfluous_bytes: (4 << 20, 256 << 20),
            step_bytes: 256 << 10,
            retry_bytes: 4 << 20,
        }
    }
}

impl Limits {
    /// Returns whether a file is worth rewriting, given its size and an upper bound of what it needs.
    pub(super) fn is_superfluous(&self, file_bytes: u64, needed_bytes: u64) -> bool {
        let (least, most) = self.superfluous_bytes;
        file_bytes > needed_bytes.saturating_add(needed_bytes.clamp(least, most))
    }

    /// Returns what is left of overwritten and deleted versions when there are too many: some less than the bound.
    pub(super) fn superseded_bytes_left(&self) -> usize {
        self.superseded_bytes / 8 * 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_rewritten_when_half_of_it_is_superfluous() {
        let limits = Limits { superfluous_bytes: (100, 1000), ..Limits::default() };
        for (file, needed, expected) in [
            (0, 0, false),
            (100, 0, false),
            (101, 0, true),
            (150, 50, false),
            (151, 50, true),
            (1000, 500, false),
            (1001, 500, true),
            (6000, 5000, false),
            (6001, 5000, true),
            (u64::MAX, u64::MAX, false),
        ] {
            assert_eq!(limits.is_superfluous(file, needed), expected, "{file} {needed}");
        }
    }
}
