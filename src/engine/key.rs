//! Keys, their hashes, and handles: where an object is stored.

use xxhash_rust::xxh3::xxh3_64;

/// Number of shards. The shard of a key is the same in all versions, because an answer about an absent key depends on
/// the last removal in its shard.
pub const SHARDS: usize = 256;

/// A key's hash: the same in all versions and on all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Returns the hash of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// Returns the shard, from bits that the table's tag does not use.
    #[must_use]
    pub fn shard(self) -> usize {
        (self.0 >> 40) as usize % SHARDS
    }

    /// Returns the lowest 32 bits, which the table stores with an entry.
    pub(super) fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// A key with its hash, which is computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    pub bytes: &'k [u8],
    pub hash: KeyHash,
}

impl<'k> Key<'k> {
    /// Returns the key with the hash of `bytes`.
    #[must_use]
    pub fn new(bytes: &'k [u8]) -> Self {
        Self { bytes, hash: KeyHash::of(bytes) }
    }
}

/// Location of an object: its shard, and its slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u32);

impl Handle {
    /// Packs shard and slot into 32 bits.
    #[must_use]
    pub fn new(shard: usize, slot: u32) -> Self {
        Self((shard as u32) << 24 | slot)
    }

    /// Returns the number of the object's shard.
    #[must_use]
    pub fn shard(self) -> usize {
        (self.0 >> 24) as usize
    }

    /// Returns the slot in the shard.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.0 & 0x00ff_ffff
    }
}
