//! Entries of the optional metadata server.

use std::sync::Arc;

use crate::engine::record::Record;
use crate::engine::state::Sequencer;
use crate::engine::types::SequenceId;

impl Sequencer<'_> {
    /// Stores an entry unless `check` fails, which gets the old value and how many entries and bytes there would be.
    pub fn put_metadata<E>(
        &mut self,
        key: &[u8],
        value: &[u8],
        check: impl FnOnce(Option<&[u8]>, usize, usize) -> Result<(), E>,
    ) -> Result<SequenceId, E> {
        let old = self.engine.metadata(key).map(|(old, _)| old);
        let replaced = old.as_ref().map_or(0, |old| key.len() + old.len());
        let entries = self.engine.metadata_len() + usize::from(old.is_none());
        let bytes = self.core.metadata_bytes - replaced + key.len() + value.len();
        check(old.as_deref(), entries, bytes)?;
        Ok(self.commit(&Record::MetadataPut { key, value }))
    }

    /// Removes an entry and returns its value.
    pub fn delete_metadata(&mut self, key: &[u8]) -> Option<(Arc<[u8]>, SequenceId)> {
        let (old, _) = self.engine.metadata(key)?;
        Some((old, self.commit(&Record::MetadataDelete { key })))
    }
}
