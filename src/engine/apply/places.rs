//! Takes the bytes that a record names, and handles a record whose bytes cannot be taken.

use std::sync::Arc;

use super::derived::Fate;
use crate::engine::core::Core;
use crate::engine::faults::Reason;
use crate::engine::key::Handle;
use crate::engine::object::{Replica, Replicas};
use crate::engine::record::Place;
use crate::engine::state::{Counts, Sequencer};
use crate::engine::types::ReplicaId;
use crate::engine::types::{LogTime, ObjectId, SequenceId};

/// How long bytes that two objects claim stay reserved, in milliseconds: either of two clients may be writing there
/// (R4). To change this number changes what a record means (INV-8).
const DISPUTED_MS: u64 = 600_000;

impl Sequencer<'_> {
    /// Takes memory at these places. If any is not free, or its segment is not mounted, nothing is taken.
    pub(super) fn take_places(
        &mut self,
        record: SequenceId,
        places: &[Place],
        size: u64,
    ) -> Result<Replicas, Reason> {
        let engine = self.engine;
        let core = &mut *self.core;
        let mut replicas = Replicas::new();
        for (nth, place) in places.iter().enumerate() {
            match core.take(&engine.counts, *place, size, ReplicaId::new(record, nth)) {
                Ok(replica) => replicas.push(replica),
                Err(reason) => {
                    replicas.iter().for_each(|replica| core.free(&engine.counts, replica, size));
                    return Err(reason);
                }
            }
        }
        Ok(replicas)
    }

    /// Handles a record that places bytes where it cannot: drops the object that the record is about, if it exists, and
    /// every object that shares some of the bytes, because a client may overwrite them. The log is the same for every
    /// replica, and so is what they drop. This visits every object; it never happens to a log that a primary wrote in
    /// order.
    pub(super) fn drop_unplaced(
        &mut self,
        at: LogTime,
        object: Option<Handle>,
        places: &[Place],
        size: u64,
        reason: Reason,
    ) {
        let record = self.core.last;
        let own = object.and_then(|handle| self.objects(handle.shard()).at(handle.slot()).map(|own| own.id));
        let mut dropped: Vec<ObjectId> = own.into_iter().collect();
        if reason == Reason::Overlap {
            dropped.extend(self.overlapping(places, size));
        }
        dropped.sort_unstable();
        dropped.dedup();
        for id in &dropped {
            // The bytes of each are released under an id of their own: that of this record or, if that is in use, that
            // of the object.
            let free = |name: &SequenceId| !self.core.discarded.contains_key(name);
            let name = [record, SequenceId(id.0)].into_iter().find(free);
            let fate = name.map_or(Fate::Free, |_| Fate::Discard(at.plus(DISPUTED_MS)));
            if let Some(handle) = self.engine.handle(&self.core, *id) {
                self.remove_object(handle, name.unwrap_or(record), fate);
            }
        }
        if own.is_none() {
            dropped.push(ObjectId(record.0));
        }
        self.core.fault(dropped, reason);
    }

    /// Returns the objects that have any of these bytes.
    fn overlapping(&self, places: &[Place], size: u64) -> Vec<ObjectId> {
        let mut all = Vec::new();
        for shard in 0..self.engine.shards.len() {
            for object in self.objects(shard).iter() {
                let shares = |replica: &Replica| {
                    places.iter().any(|place| {
                        replica.segment.number == place.segment
                            && replica.offset < place.offset.saturating_add(size)
                            && place.offset < replica.offset.saturating_add(object.size)
                    })
                };
                if object.replicas().any(shares) {
                    all.push(object.id);
                }
            }
        }
        all
    }
}

impl Core {
    fn take(&mut self, counts: &Counts, place: Place, size: u64, id: ReplicaId) -> Result<Replica, Reason> {
        let mounted = self.segments.get_mut(&place.segment).ok_or(Reason::UnknownSegment)?;
        let before = mounted.extents.used_bytes();
        mounted.extents.take(place.offset, size).map_err(|_| Reason::Overlap)?;
        let after = mounted.extents.used_bytes();
        mounted.segment.set_used(after);
        Counts::add(&counts.allocated, after - before);
        let replica = Replica::reserved(Arc::clone(&mounted.segment), place.offset, id);
        if let Some(open) = mounted.open {
            self.open.set(open, mounted.extents.largest_free());
        }
        Ok(replica)
    }
}
