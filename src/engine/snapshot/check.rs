//! Computes the digest of a snapshot from its bytes, without making an engine of them.

use std::sync::Arc;

use super::SnapshotError;
use super::decode::{Decoder, Item};
use crate::engine::digest;
use crate::engine::group::Group;
use crate::engine::key::KeyHash;
use crate::engine::types::Digest;
use crate::engine::varint::Reader;

/// A snapshot that is being checked, chunk by chunk. It takes little memory, however many objects there are; unlike
/// [`super::Restore`] it does not see whether two of them share bytes.
#[derive(Debug, Default)]
pub struct Check {
    decoder: Decoder,
    digest: Digest,
    /// Digest that was written, once the first item was read.
    said: Option<Digest>,
    objects: u64,
    /// How many objects there should be, once the last item was read.
    end: Option<u64>,
}

impl Check {
    /// Reads the next chunk, which consists of whole items.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        let mut from = Reader::new(chunk);
        while let Some(item) = self.decoder.next(&mut from, &mut |name| Arc::new(Group::new(name)))? {
            self.add(item);
        }
        Ok(())
    }

    /// Returns the digest if everything was read and the digest is the one that was written.
    pub fn finish(self) -> Result<Digest, SnapshotError> {
        let (Some(said), Some(objects)) = (self.said, self.end) else {
            return Err(SnapshotError::Incomplete { found: self.objects, said: 0 });
        };
        if self.objects != objects {
            return Err(SnapshotError::Incomplete { found: self.objects, said: objects });
        }
        if self.digest != said {
            return Err(SnapshotError::Digest { found: self.digest, said });
        }
        Ok(said)
    }

    fn add(&mut self, item: Item<'_>) {
        match item {
            Item::Whole(whole) => {
                self.said = Some(whole.digest);
                self.digest.add(digest::term_state(&whole.term_state));
                self.digest.add(digest::next_segment(whole.next_segment));
            }
            Item::Mounted(segment, drain_until) => self.digest.add(digest::segment(&segment, drain_until)),
            Item::Client(id, client) => self.digest.add(digest::client(id, &client)),
            Item::Shard(_) => {}
            Item::Object(object, writer) => {
                self.digest.add(digest::object(&object, KeyHash::of(&object.key), writer));
                self.objects += 1;
            }
            Item::Processing(id, write) => self.digest.add(digest::processing(id, &write)),
            Item::Discarded(record, bytes) => self.digest.add(digest::discarded(record, &bytes)),
            Item::Task(task) => self.digest.add(digest::task(&task)),
            Item::Metadata { key, value, record: _ } => self.digest.add(digest::metadata(key, value)),
            Item::End(objects) => self.end = Some(objects),
        }
    }
}
