//! Whole items in chunks.

use std::collections::VecDeque;

use super::CHUNK;

/// Space for the item that makes a chunk full, so that it seldom has to grow.
const SPARE: usize = 4 << 10;

/// Items, oldest first, in chunks of at least [`CHUNK`] bytes; the last one is still being filled.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    full: VecDeque<Vec<u8>>,
    open: Vec<u8>,
    /// Bytes of the full ones.
    bytes: usize,
}

impl Chunks {
    /// Returns the chunk to append an item to.
    pub fn open(&mut self) -> &mut Vec<u8> {
        if self.open.capacity() == 0 {
            self.open.reserve_exact(CHUNK + SPARE);
        }
        &mut self.open
    }

    /// Ends an item.
    pub fn end_item(&mut self) {
        if self.open.len() >= CHUNK {
            self.bytes += self.open.len();
            self.full.push_back(std::mem::take(&mut self.open));
        }
    }

    /// Returns how many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes + self.open.len()
    }

    /// Takes the oldest full chunk; with `rest` also the last one, if there is anything in it.
    pub fn take(&mut self, rest: bool) -> Option<Vec<u8>> {
        if let Some(chunk) = self.full.pop_front() {
            self.bytes -= chunk.len();
            return Some(chunk);
        }
        (rest && !self.open.is_empty()).then(|| std::mem::take(&mut self.open))
    }
}
