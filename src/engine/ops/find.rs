//! Looks objects up under the sequencer.

use crate::engine::core::Hint;
use crate::engine::key::{Handle, Key};
use crate::engine::object::{Object, Replica};
use crate::engine::record::{ObjectRef, Record};
use crate::engine::state::Sequencer;
use crate::engine::types::ClientNumber;
use crate::engine::types::{ErrorCode, LogTime, SequenceId};
use crate::engine::unmounted_writes::is_stray;

/// An object that was found, and its location.
pub(super) struct Found {
    pub handle: Handle,
    pub object: ObjectRef,
    pub client: ClientNumber,
}

impl Sequencer<'_> {
    /// Returns the object with this key. One whose replicas are all in unmounted segments counts as absent. An error
    /// names the record that the refusal depends on.
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
            // Marked a moment ago by the same call, which names the key twice: its removal is committed next.
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

    /// Like [`Self::find`], for a call that is about to write: first drops replicas in unmounted segments, and the
    /// object too if it has no other. Bytes there that a client may still be writing to stay reserved (R4).
    pub(super) fn find_to_write(&mut self, key: Key<'_>) -> Option<Found> {
        let (named, written_since, stale) = {
            let objects = self.objects(key.hash.shard());
            let object = objects.get(key.hash, key.bytes)?;
            let stray = !object.is_valid() && object.replicas().any(is_stray);
            let started = stray.then(|| self.written_since(object)).flatten();
            let stale = object.replicas().any(Replica::can_be_swept);
            (ObjectRef { id: object.id, after: object.last_record }, started, stale)
        };
        if let Some(started) = written_since {
            let release_at = started.plus(self.engine.settings.release_timeout_ms);
            self.commit(&Record::Discard { object: named, release_at });
        } else if stale {
            self.commit(&Record::Sweep { objects: &[named.id] });
        }
        self.find_hashed(key).ok()
    }

    /// Returns when the write, copy or move of an object that is under way began.
    pub(super) fn written_since(&self, object: &Object) -> Option<LogTime> {
        let write = self.core.processing.get(&object.id).map(|write| write.started);
        write.or_else(|| object.copy_move().map(|copy| copy.started))
    }

    /// Returns the object with this key if all its segments are unmounted but a client may still be writing to it.
    pub(super) fn find_stray(&self, key: Key<'_>) -> Option<Found> {
        let shard = key.hash.shard();
        let objects = self.objects(shard);
        let slot = objects.find(key.hash, key.bytes)?;
        let object =
            objects.at(slot).filter(|object| !object.is_valid() && object.replicas().any(is_stray))?;
        let named = ObjectRef { id: object.id, after: object.last_record };
        Some(Found { handle: Handle::new(shard, slot), object: named, client: object.client })
    }

    /// Calls `look` with the object at `handle`, under its shard's lock.
    pub(super) fn with_object<R>(&self, handle: Handle, look: impl FnOnce(&Object) -> R) -> Option<R> {
        self.objects(handle.shard()).at(handle.slot()).map(look)
    }
}
