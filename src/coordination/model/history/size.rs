//! What versions of keys take, counted in bytes of the file that the embedded store writes them to.

use std::ops::{AddAssign, SubAssign};

use crate::coordination::types::KeyValue;

/// Bytes of a version beyond its key: the kind and the length of the key.
const VERSION_BYTES: usize = 5;

/// Further bytes of a version that is no deletion, beyond its value: the length of the value, three revisions and the
/// lease.
const PUT_BYTES: usize = 36;

/// The size of a number of versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub bytes: usize,
    pub versions: usize,
}

impl Size {
    /// Returns the size of one version; without an entry it is a deletion.
    pub(super) fn of(key: &[u8], entry: Option<&KeyValue>) -> Self {
        let put = entry.map_or(0, |entry| PUT_BYTES + entry.value.len());
        Self { bytes: VERSION_BYTES + key.len() + put, versions: 1 }
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.versions += other.versions;
    }
}

impl SubAssign for Size {
    fn sub_assign(&mut self, other: Self) {
        self.bytes -= other.bytes;
        self.versions -= other.versions;
    }
}
