//! Looking an object up under the sequencer.

use crate::engine::object::{ClientNumber, Object};
use crate::engine::record::{ObjectRef, Record};
use crate::engine::shard::{Handle, KeyHash};
use crate::engine::state::Sequencer;
use crate::engine::types::{ErrorCode, ObjectId, SequenceId};

/// An object that is there, and where.
pub(super) struct Found {
    pub handle: Handle,
    pub object: ObjectRef,
    /// Who wrote it.
    pub client: ClientNumber,
}

impl Sequencer<'_> {
    /// The object with this key. One whose replicas are all in segments that are gone is not there.
    pub(super) fn find(&self, key: &[u8]) -> Result<Found, (ErrorCode, SequenceId)> {
        let hash = KeyHash::of(key);
        let objects = self.engine.shards[hash.shard()].objects.read();
        let Some(slot) = objects.find(hash, key) else {
            return Err((ErrorCode::OBJECT_NOT_FOUND, objects.last_removal));
        };
        match objects.at(slot) {
            Some(object) if object.is_doomed() => Err((ErrorCode::OBJECT_NOT_FOUND, self.core.last)),
            Some(object) if object.is_valid() => {
                let handle = Handle::new(hash.shard(), slot);
                self.core.hint.set(Some((object.id, handle)));
                let named = ObjectRef { id: object.id, after: object.last_record };
                Ok(Found { handle, object: named, client: object.client })
            }
            Some(object) => Err((ErrorCode::OBJECT_NOT_FOUND, object.rests_on())),
            None => Err((ErrorCode::OBJECT_NOT_FOUND, objects.last_removal)),
        }
    }

    /// Like [`Self::find`], for somebody who is about to write: replicas in segments that are gone are dropped first,
    /// and an object that has no other with them.
    pub(super) fn find_to_write(&mut self, key: &[u8]) -> Option<Found> {
        let hash = KeyHash::of(key);
        let stale = {
            let objects = self.engine.shards[hash.shard()].objects.read();
            let object = objects.get(hash, key)?;
            object.replicas().any(|replica| !replica.segment.is_alive()).then_some(object.id)
        };
        if let Some(id) = stale {
            self.commit(&Record::Sweep { objects: &[id] });
        }
        self.find(key).ok()
    }

    /// Looks at an object by its id: one that was looked at last is found without a search.
    pub(super) fn view_by_id<R>(&self, id: ObjectId, look: impl FnOnce(&Object) -> R) -> Option<R> {
        if let Some((hinted, handle)) = self.core.hint.get()
            && hinted == id
        {
            let objects = self.engine.shards[handle.shard()].objects.read();
            if let Some(object) = objects.at(handle.slot()).filter(|object| object.id == id) {
                return Some(look(object));
            }
        }
        self.view(self.engine.handle(&self.core, id)?, look)
    }

    /// Looks at an object.
    pub(super) fn view<R>(&self, handle: Handle, look: impl FnOnce(&Object) -> R) -> Option<R> {
        self.engine.shards[handle.shard()].objects.read().at(handle.slot()).map(look)
    }
}
