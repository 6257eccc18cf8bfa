//! Formats of records: their bytes, and what applying them does. Both belong together: a record of one format means the
//! same in every binary that reads this format, or replicas of two versions would differ (INV-8).

/// A format that this binary reads: its own, and the one before. A variant that is added does not compile until
/// decoding and `apply` say what it means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Format {
    One = 1,
    /// The rules `Evict` and `RemoveAll` can be confined to what was reserved since a record (R6).
    #[default]
    Two = 2,
}

impl Format {
    /// All formats that this binary reads, the oldest first.
    pub const READABLE: &'static [Self] = &[Self::One, Self::Two];

    /// The newest of them: what a new log is written in.
    pub const NEWEST: Self = Self::Two;

    /// The oldest of them: what every member that could lead reads.
    pub const OLDEST: Self = Self::One;

    /// Returns the format with this number, if this binary reads it.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Self::READABLE.iter().copied().find(|format| format.number() == number)
    }

    /// Returns its number, as in the format key of a log.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the numbers of all formats that this binary reads, for the member key.
    #[must_use]
    pub fn readable_numbers() -> Vec<u32> {
        Self::READABLE.iter().map(|format| format.number()).collect()
    }
}
