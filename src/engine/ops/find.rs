//! Looking an object up under the sequencer.

use crate::engine::core::Hint;
use crate::engine::object::{ClientNumber, Object};
use crate::engine::record::{ObjectRef, Record};
use crate::engine::shard::{Handle, Key};
use crate::engine::state::Sequencer;
use crate::engine::types::{ErrorCode, SequenceId};

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
        self.find_hashed(Key::new(key))
    }

    /// Like [`Self::find`], with a key whose hash is known.
    pub(super) fn find_hashed(&self, key: Key<'_>) -> Result<Found, (ErrorCode, SequenceId)> {
        let shard = key.hash.shard();
        let objects = self.objects(shard);
        let Some(slot) = objects.find(key.hash, key.bytes) else {
            return Err((ErrorCode::OBJECT_NOT_FOUND, objects.last_removal));
        };
        match objects.at(slot) {
            Some(object) if object.is_doomed() => Err((ErrorCode::OBJECT_NOT_FOUND, self.core.last)),
            Some(object) if object.is_valid() => {
                let handle = Handle::new(shard, slot);
                self.core.hint.set(Some(Hint { id: object.id, handle, key: key.hash }));
                let named = ObjectRef { id: object.id, after: object.last_record };
                Ok(Found { handle, object: named, client: object.client })
            }
            Some(object) => Err((ErrorCode::OBJECT_NOT_FOUND, object.rests_on())),
            None => Err((ErrorCode::OBJECT_NOT_FOUND, objects.last_removal)),
        }
    }

    /// Like [`Self::find`], for somebody who is about to write: replicas in segments that are gone are dropped first,
    /// and an object that has no other with them.
    pub(super) fn find_to_write(&mut self, key: Key<'_>) -> Option<Found> {
        let stale = {
            let objects = self.objects(key.hash.shard());
            let object = objects.get(key.hash, key.bytes)?;
            object.replicas().any(|replica| !replica.segment.is_alive()).then_some(object.id)
        };
        if let Some(id) = stale {
            self.commit(&Record::Sweep { objects: &[id] });
        }
        self.find_hashed(key).ok()
    }

    /// Looks at an object.
    pub(super) fn view<R>(&self, handle: Handle, look: impl FnOnce(&Object) -> R) -> Option<R> {
        self.objects(handle.shard()).at(handle.slot()).map(look)
    }
}
